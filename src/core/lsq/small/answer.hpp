// What is written of a small system that is solved.
#pragma once

#include "core/lsq/frank_wolfe.hpp"
#include "core/lsq/judge.hpp"
#include "core/lsq/small/dual.hpp"
#include "core/lsq/small/factor.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// A core for benchmarks/judge.py takes what the iteration ends with (CMake: STEPWELL_JUDGE).
#if defined(SW_WITHOUT_JUDGE)
constexpr bool judges = false;
#else
constexpr bool judges = true;
#endif

// False where x is beyond the largest number of its kind or a far bound, or where it is not certified.
template <class State>
SW_HD bool answer(State& s) {
    if (is_beyond_far_bounds(s) || !write_vectors(s)) return false;
    const double residual = square_root(s.squared_fit);
    const double seminorm = State::penalized ? norm_of_penalty(s) : 0.0;
    Measured measured{max_of(0.0, max_of(s.top, s.slope)), s.b_norm, s.size, s.b_norm, s.b_norm};
    const double violation = violation_of(s.job, measured);
    if constexpr (judges)
        if (!measure(s, residual, seminorm, measured) ||
            !is_certified(s.job, measured, violation, s.numbers.rounds))
            return false;
    if (s.job.constraints.deviation && !write_deviations(s)) return false;
    if (s.lanes.lane() == 0) {
        s.job.residual[s.system] = residual;
        s.job.violation[s.system] = violation;
        write_counts<1>(s.job, s.system, s.counts);
    }
    if (s.job.constraints.general) write_more(s, seminorm, measured);
    return true;
}

// What the judge wants to know more of. False where it is not to be had.
template <class State>
SW_HD bool measure(State& s, double residual, double seminorm, Measured& measured) {
    if (s.size > 0 && s.size < smallest_square_root) return false;  // the squares of residuals are no numbers
    // (Without a penalty both are the same, and one root does.)
    const double fit = s.squared_fit > 0 ? residual : 0.0;
    // (Of the x that is returned: in products what a large lambda makes of its rounding cancels.)
    const double penalty = State::penalized && s.nu > 0 ? square_root(s.nu) * seminorm : 0.0;
    const double left = penalty > 0 ? square_root(fit * fit + penalty * penalty) : fit;
    measured.task = s.b_norm + fit;
    const bool is_weak = State::source != normal_equations && has_weak_pivot(s);
    // (Of normal equations the residual is not known. What bounds fix allows for more, which is seldom
    // asked.)
    if constexpr (State::source == normal_equations)
        measured.given = s.size;
    else if (State::bounded && (is_weak || !(measured.breach <= credible_violation * measured.task)))
        measured.given = max_of(s.b_norm, size_of_references(s));
    if constexpr (State::summed && State::source != normal_equations) {
        measured.hides_duals = hides_duals(s.b_norm + left, s.size);
        measured.given += left;
        measured.task = s.b_norm + left;
    } else {
        measured.task = max_of(measured.task, measured.given);
    }
    if constexpr (State::summed) {
        if (zeros_object(s)) return false;
        measure_sum(s, measured);
    }
    if constexpr ((State::boxed || State::penalized) && !State::summed) {
        measured.objective = left;
        measured.named = measured.objective > s.b_norm ? s.b_norm + size_of_nearest(s) : s.b_norm;
    }
    if constexpr (State::penalized) {
        // (A norm beyond the largest number, by a lambda as large, says nothing.)
        bool any = false;
        s.each_column([&](int j, int) { any = any || !(s.square(j) < double_infinity); });
        if (s.lanes.any(any)) return false;
    }
    if (is_weak) measured.decrement = doubtful_decrement(s);
    return true;
}

// The residual and the dual that are reported belong to the x that is returned.
template <class State>
SW_HD void round_answer(State& s) {
    s.each_in_factor([&](int j, int) {
        const double scale = s.scale(j);
        s.x[j] = s.numbers.rounded(s.x[j] * scale) / scale;
    });
    s.lanes.sync();
    if (s.from_table) {
        dual_from_table(s);
        if constexpr (State::certifies) {
            fit_from_table(s);
            finish_fit(s);
        }
    } else {
        dual_from_rows(s);
    }
}

// The fit from A where products do not have its digits.
template <class State>
SW_HD void finish_fit(State& s) {
    if (has_large_fit(s)) return;
    if constexpr (State::shares && State::has_sweeps) {
        const double below = s.squared_residual - s.squared_fit;
        ++s.counts.passes;
        s.squared_fit = residual_of_rows<false>(s, true);
        s.squared_residual = s.squared_fit + below;
    }
}

// Whether x is beyond a bound that did not count, as it was far.
template <class State>
SW_HD bool is_beyond_far_bounds(const State& s) {
    if (!State::boxed || !(s.far_below | s.far_above)) return false;
    bool beyond = false;
    s.each_column([&](int j, int) {
        const double at = returned_x(s, j);
        const bool within = at >= s.given_bound(j, false) && at <= s.given_bound(j, true);
        beyond = beyond || (j < s.job.columns && !s.is_masked(j) && !within);
    });
    return s.lanes.any(beyond);
}

// How far the objective may be from the lowest on the columns in the factor, as a root, where products
// have lost digits of a pivot: what the factor says of it, and what the rounding of a dual from A may
// hide. (The penalty's part of a dual comes from products.)
template <class State>
SW_HD_RARE double doubtful_decrement(State& s) {
    const double part = State::penalized ? s.size : square_root(max_of(0.0, s.squared_fit));
    return max_of(doubtful_pivots * decrement(s), double_epsilon * part / square_root(smallest_part(s)));
}

// x_j in the caller's units; of a column out of the factor the bound itself.
template <class State>
SW_HD double returned_x(const State& s, int j) {
    const double value = s.x[j] * s.scale(j);
    if constexpr (!State::bounded) return value;
    const double low = s.bound(j, false), high = s.bound(j, true);
    if (s.in_factor & bit_of(j)) return clamp_to(value, low, high);
    if (s.is_masked(j) || (!is_finite(low) && !is_finite(high))) return 0.0;
    return s.at_upper & bit_of(j) ? high : low;
}

// (Of columns of zeros, whose unit is none.)
template <class State>
SW_HD double dual_in_units(const State& s, int j) {
    if constexpr (State::has_sweeps) return s.in_units_of(j, s.w[j]);
    return s.scale(j) > 0 ? s.in_units_of(j, s.w[j]) : 0.0;
}

// False where not all of x is finite.
template <class State>
SW_HD bool write_vectors(State& s) {
    const Constraints& constraints = s.job.constraints;
    const int given = s.job.columns;
    const int64_t row = s.system * given;
    void *out = s.numbers.after(s.job.x, row), *dual = s.numbers.after(s.job.dual, row);
    // (A byte that is written might be any of what is known here: so it is read before.)
    uint8_t* const marks = s.job.in_factor ? s.job.in_factor + row : nullptr;
    int8_t* const states = constraints.general ? constraints.state + row : nullptr;
    const uint64_t in_factor = s.in_factor, masked = s.masked;
    if constexpr (State::has_sweeps && State::shares && !State::bounded) {
        if (marks) s.lanes.write_bytes(marks, given, in_factor, 1, 0, 0);
        if (states) s.lanes.write_bytes(states, given, ~in_factor, 0xff, masked, 2);
        s.numbers.with(dual, [&](auto* to) { s.lanes.scale_into(to, s.w, s.products.unit, given); });
        return s.numbers.with(
            out, [&](auto* to) { return s.lanes.scale_into(to, s.x, s.products.shared.scale, given); });
    }
    double odd = 0;
    s.each_column([&](int j, int) {
        if (j >= given) return;
        const bool is_in_factor = in_factor & bit_of(j), is_masked = masked & bit_of(j);
        const double value = returned_x(s, j);
        int state = is_in_factor ? 0 : -1;
        if constexpr (State::bounded) {
            const double low = s.bound(j, false), high = s.bound(j, true);
            const bool up = s.at_upper & bit_of(j), is_free = !is_finite(low) && !is_finite(high);
            if (!is_in_factor) state = is_masked || low == high ? 2 : is_free ? 0 : up ? 1 : -1;
        } else if (is_masked) {
            state = 2;
        }
        const double rounded = s.numbers.rounded(value);
        s.numbers.write(out, j, rounded);
        s.numbers.write(dual, j, dual_in_units(s, j));
        if (marks) marks[j] = is_in_factor;
        if (states) states[j] = static_cast<int8_t>(state);
        odd += rounded - rounded;
    });
    s.lanes.sync();
    return !s.lanes.any(odd != 0);
}

// sum |k_j| |y_j| of the y within the bounds that is nearest to zero.
template <class State>
SW_HD double size_of_nearest(const State& s) {
    double size = 0;
    s.each_column([&](int j, int) {
        const double nearest = nearest_to_zero(s.given_bound(j, false), s.given_bound(j, true));
        if (nearest != 0 && !s.is_masked(j) && s.scale(j) > 0)
            size += absolute(s.in_units_of(j, nearest)) * square_root(s.square(j));
    });
    return s.lanes.sum(size);
}

// Whether a column of zeros, or the slack, asks for another multiplier, of which it says the sign or that
// it is zero, and the duals of the others would not be those any more: least_breach() finds the one that
// suits all.
template <class State>
SW_HD bool zeros_object(const State& s) {
    const double mu = s.multiplier;
    bool objects = false;
    s.each_column([&](int j, int) {
        if (s.square(j) > 0 || s.is_masked(j)) return;
        const bool falls = (s.in_factor | s.at_upper) & bit_of(j), rises = !(s.at_upper & bit_of(j));
        objects = objects || (mu > 0 && rises) || (mu < 0 && falls);
    });
    if (!s.lanes.any(objects)) return false;
    // Whether the duals of the others would change by more than rounding.
    const double room = max_of(s.job.options.tolerance, s.job.options.rounding) * s.size;
    bool matters = false;
    s.each_column([&](int j, int) {
        const double square = s.square(j);
        if (!(square > 0) || s.is_masked(j)) return;
        matters = matters || absolute(mu) * s.coefficient(j) > room * square_root(square);
    });
    return s.lanes.any(matters);
}

// What the sum of the x that is returned misses.
template <class State>
SW_HD void measure_sum(const State& s, Measured& measured) {
    const Constraints& constraints = s.job.constraints;
    const void* out = s.numbers.after(s.job.x, s.system * s.job.columns);
    const double low = constraints.sum_low[s.system * constraints.sum_stride],
                 high = constraints.sum_high[s.system * constraints.sum_stride];
    double sum = 0, sum_size = absolute(is_finite(high) ? high : low);
    SW_ROLLED
    for (int j = 0; j < s.job.columns; ++j) {
        const double part =
            (constraints.coefficients ? constraints.coefficients[j] : 1.0) * s.numbers.read(out, j);
        sum += part;
        sum_size += absolute(part);
    }
    measured.sum_error = max_of(0.0, max_of(low - sum, sum - high));
    measured.sum_size = sum_size;
}

// |L x| of the x that is returned.
template <class State>
SW_HD double norm_of_penalty(const State& s) {
    const Constraints& constraints = s.job.constraints;
    const int given = s.job.columns;
    const void* out = s.numbers.after(s.job.x, s.system * given);
    double square = 0;
    SW_ROLLED
    for (int i = s.lanes.lane(); i < constraints.penalty_rows; i += State::width) {
        double entry = 0;
        if (constraints.penalty)
            for (int j = 0; j < given; ++j)
                entry += constraints.penalty[static_cast<int64_t>(i) * given + j] * s.numbers.read(out, j);
        else
            entry = s.numbers.read(out, i);
        square += entry * entry;
    }
    return square_root(s.lanes.sum(square));
}

template <class State>
SW_HD void write_more(State& s, double seminorm, const Measured& measured) {
    const Constraints& constraints = s.job.constraints;
    const int given = s.job.columns;
    const void* out = s.numbers.after(s.job.x, s.system * given);
    if (s.lanes.lane() == 0) {
        constraints.multiplier[s.system] = s.multiplier;
        constraints.equality_error[s.system] = measured.sum_error;
        if constexpr (State::summed)
            if (constraints.gap)
                constraints.gap[s.system] =
                    frank_wolfe_gap(constraints, s.system,
                                    ascent_of(s.numbers, constraints, s.system, given, out,
                                              s.numbers.after(s.job.dual, s.system * given), s.multiplier));
        if (constraints.used_lam) {
            constraints.used_lam[s.system] = square_root(s.nu);
            constraints.fit[s.system] = s.squared_fit;
            constraints.seminorm[s.system] = seminorm;
            constraints.unpenalized[s.system] = s.search.unpenalized;
            constraints.at_end[s.system] = s.search.at_end;
            constraints.evaluations[s.system] = s.search.evaluations;
            constraints.passive[s.system] = s.count - State::summed;
        }
    }
}

// The standard deviations of x; false where products have no digits of one, and A itself has to tell.
template <class State>
SW_HD bool write_deviations(State& s) {
    const int given = s.job.columns;
    double* deviation = s.job.constraints.deviation + s.system * given;
    s.each_column([&](int j, int) {
        if (j < given && !(s.in_factor & bit_of(j))) deviation[j] = 0;
    });
    SW_ROLLED
    for (int p = 0; p < (State::keeps_inverses ? given : s.count); ++p) {
        const int j = State::keeps_inverses ? p : s.order[p];
        if (!(s.in_factor & bit_of(j))) continue;
        const double scale = s.scale(j), square = variance_at(s, p);
        if (!(square >= 0)) return false;
        if (j < given && s.lanes.lane() == 0) deviation[j] = square_root(square) * scale;
    }
    return true;
}

}  // namespace small
}  // namespace lsq
SW_END
