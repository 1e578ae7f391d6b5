// How a thread of the CPU solves a small system of a kind.
#pragma once

#include "core/lsq/small/solver.hpp"
#include "host/lsq/either_numbers.hpp"
#include "host/lsq/one_core.hpp"
#include "host/lsq/small_systems.hpp"
#include "host/lsq/sweeps.hpp"

SW_BEGIN
namespace lsq {

// Entries of A'b, zeros up to a whole number of eights; b'b comes after them.
inline int linear_length(const Job& job) {
    return static_cast<int>(padded(job.columns + job.constraints.slack));
}

// The solutions on all columns of the systems whose products are there.
template <class Kind>
void guess(SmallSystems& given, int64_t system, int here, small::OneCore& core) {
    const Job& job = given.job;
    if (!given.guesses_known) {
        small::Store<Kind, 1> store;
        small::State<Kind, small::OneCore> state(job, system, given.products, core, store);
        given.guesses_known = true;
        given.has_guesses =
            !job.constraints.mask && !job.warm_values && !job.warm_marks && keep_inverse_of_all(state);
        if (given.has_guesses)
            given.guess_table.take(given.products, given.kept->of(small::bit_of(job.columns) - 1),
                                   job.columns, Kind::summed, state.counts);
    }
    if (!given.has_guesses) return;
    const auto find = job.columns <= 4 ? small::UnconstrainedBatch<Kind, 4>::find
                                       : small::UnconstrainedBatch<Kind, 8>::find;
    given.answered = find(job, given.guess_table, system, here, given.linear.get(), given.guesses);
}

// A'b and b'b of this system, and at once of those that come next. False where they were there.
inline bool multiply(SmallSystems& given, int64_t system, int64_t end, const Shared& shared) {
    typedef small::OneCore Core;
    if (system >= given.first && system < given.last && shared.columns == given.multiplied) return false;
    const Job& job = given.job;
    const int64_t here = job.constraints.which ? 1 : min_of<int64_t>(Core::group, end - system);
    const EitherNumbers numbers(job);
    numbers.with(numbers.after(job.b, system * job.b_stride), [&](const auto* b) {
        Core::multiply_group(b, job.b_stride, static_cast<int>(here), job.rows, shared, job.columns,
                             given.linear.get(), given.linear.get() + Core::group * linear_length(job));
    });
    given.first = system;
    given.last = system + here;
    given.multiplied = shared.columns;
    given.answered = 0;
    return true;
}

// Of these products, those of this system.
inline void take_products(SmallSystems& given, int64_t system) {
    constexpr int group = small::OneCore::group;
    const int64_t place = system - given.first;
    given.products.linear = given.linear.get() + place;
    given.products.linear_step = group;
    given.products.squared_b = given.linear.get()[group * linear_length(given.job) + place];
}

// What all systems of a matrix work with.
inline void take_matrix(SmallSystems& given, const Shared& shared) {
    small::Products& products = given.products;
    if (products.shared.scale == shared.scale) return;
    double* units = given.units.get();
    products = small::Products();
    given.guesses_known = given.has_guesses = false;
    products.shared = shared;
    products.gram = shared.gram;
    products.stride = shared.gram_stride;
    products.inverse_norm = shared.inverse_norm;
    products.norm = shared.norm;
    for (int j = 0; j < given.job.columns + given.job.constraints.slack; ++j) {
        units[j] = shared.scale[j] > 0 ? 1 / shared.scale[j] : 0.0;
        if (!(units[j] > 0 && shared.norm && shared.norm[j] > 0)) products.nothing |= small::bit_of(j);
    }
    products.unit = units;
    given.sum = small::KeptSum();
    products.sum = &given.sum;
}

template <class Kind>
bool solve_as(SmallSystems& given, int64_t system, int64_t end, const Shared& shared) {
    const Job& job = given.job;
    small::OneCore core;
    core.rows = given.rows.get();
    core.panel = given.panel.get();
    core.kept = given.kept.get();
    small::Products& products = given.products;
    if constexpr (Kind::shares) {
        take_matrix(given, shared);
        [[maybe_unused]] const bool is_new = multiply(given, system, end, shared);
        if constexpr (small::State<Kind, small::OneCore>::sweeps_signs) {
            if (is_new) guess<Kind>(given, system, static_cast<int>(given.last - system), core);
            if (given.is_answered(system)) return true;
            if (given.has_guesses)
                given.guesses.hand_over(static_cast<int>(system - given.first), job.columns, given.guess);
            products.guess = given.has_guesses ? &given.guess : nullptr;
        }
        take_products(given, system);
    }
    if constexpr (Kind::source == small::own_matrix) {
        const EitherNumbers numbers(job);
        numbers.with(numbers.after(job.a, system * job.a_stride), [&](const auto* a) {
            core.form_table(a, job.row_stride, numbers.after(job.b, system * job.b_stride), job.rows,
                            job.columns, given.table.get());
        });
        products.table = given.table.get();
    }
    small::Store<Kind, 1> store;
    small::State<Kind, small::OneCore> state(job, system, products, core, store);
    bool goes_on = begin(state);
    while (goes_on) goes_on = iterate(state);
    return certify(state);
}

// Whether all systems have the bounds (0, inf).
inline bool asks_no_more_than_signs(const Job& job) {
    const Constraints& constraints = job.constraints;
    if (constraints.nonnegative) return true;
    if (constraints.lower_stride != 0 || constraints.upper_stride != 0) return false;
    for (int j = 0; j < job.columns; ++j)
        if (constraints.lower[j] != 0 || constraints.upper[j] != double_infinity) return false;
    return true;
}

// (Which of some matrices is known before: it is the one of this system then.)
template <int source, int capacity, bool penalized>
SolveFunction solve_function_of(const Job& job) {
    const Constraints& constraints = job.constraints;
    constexpr int positions = min_of(capacity, small::most_positions);
    constexpr bool summable = source != small::own_matrix;
    // (Of a range the slack has bounds anyhow, and a kind for signs alone gains nothing.)
    if constexpr (special_cases && source == small::one_matrix && !penalized)
        if (constraints.summed && !constraints.slack && asks_no_more_than_signs(job))
            return solve_as<
                small::Kind<void, source, false, small::given_sum, penalized, capacity, positions>>;
    if constexpr (summable)
        if (constraints.summed)
            return solve_as<small::Kind<void, source, true, small::any_sum, penalized, capacity, positions>>;
    if (constraints.general && !asks_no_more_than_signs(job))
        return solve_as<small::Kind<void, source, true, small::no_sum, penalized, capacity, positions>>;
    return solve_as<small::Kind<void, source, false, small::no_sum, penalized, capacity, positions>>;
}

// Of one matrix.
inline bool keeps_inverses(const Job& job) {
    return !job.constraints.penalized && job.columns + job.constraints.slack <= small::kept_columns;
}

}  // namespace lsq
SW_END
