// How a small system begins: what is given is read, and every column is put at a bound or in the factor.
#pragma once

#include "core/lsq/small/rows.hpp"
#include "core/lsq/small/set.hpp"
#include "core/lsq/sum.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// For columns of zeros there is nothing but the row of a sum.
template <class State>
SW_HD double judged_square(const State& s, int j) {
    const double square = s.square(j);
    if constexpr (State::summed) return square > 0 ? square : s.rho * s.coefficient(j) * s.coefficient(j);
    return square > 0 ? square : 0.0;
}

template <class State>
SW_HD void find_inverse_norms(const State& s, double* inverse) {
    s.each_column([&](int j, int t) { inverse[t] = judged_square(s, j); });
    if constexpr (State::has_sweeps)
        s.lanes.invert_roots(inverse, s.n);
    else
        s.each_column([&](int, int t) { inverse[t] = inverse[t] > 0 ? 1 / square_root(inverse[t]) : 0.0; });
}

// Norms for the scores, with the lambda of this system.
template <class State>
SW_HD void find_norms(State& s) {
    if constexpr (!State::own_norms) return;
    find_inverse_norms(s, s.own_inverse);
}

template <class State>
SW_HD double weight_of_sum(const State& s) {
    double highest = 0, largest = 0;
    SW_ROLLED
    for (int j = 0; j < s.job.columns; ++j) {
        const double own = s.scale(j), coefficient = s.coefficient(j) / own;
        if (own > 0) highest = max_of(highest, s.gram(j, j) / (own * own));
        largest = max_of(largest, coefficient);
    }
    return weight_of_row(highest, s.job.rows, largest);
}

template <class State>
SW_HD void keep_sum(State& s, KeptSum& kept) {
    for (int j = 0; j < padded(s.n); ++j) kept.coefficients[j] = j < s.n ? s.find_coefficient(j) : 0.0;
    kept.weight = s.rho = weight_of_sum(s);
    for (int j = s.n; j < padded(s.n); ++j) kept.inverse_norm[j] = kept.norm[j] = 0;
    find_inverse_norms(s, kept.inverse_norm);
    for (int j = 0; j < s.n; ++j) {
        kept.norm[j] = s.square(j) * kept.inverse_norm[j];
        kept.inverse[j] = 1 / kept.coefficients[j];
        if (!(s.scale(j) > 0) || !(kept.inverse_norm[j] > 0)) kept.nothing |= bit_of(j);
        const int best = kept.pivot;
        if (kept.coefficients[j] * kept.norm[best] > kept.coefficients[best] * kept.norm[j]) kept.pivot = j;
    }
}

// Reads what is given, and puts every column at a bound or, without bounds, in the factor. False where
// another solver has to see to it: it is told apart there what is wrong, if something is.
template <class State>
SW_HD bool read(State& s) {
    s.excluded = s.n < 64 ? ~uint64_t(0) << s.n : 0;
    if constexpr (State::has_sweeps)
        s.lanes.clear_two(State::sweeps_signs && s.products.guess ? s.w : s.x, s.w, s.swept());
    s.template each<State::own_columns>(s.swept(), [&](int j, int t) {
        if constexpr (!State::has_sweeps) s.x[j] = s.w[j] = 0;
        if constexpr (!(State::shares && State::has_sweeps)) s.c[t] = 0;
        if constexpr (State::own_norms) s.own_inverse[t] = 0;
    });
    read_mask(s);
    s.lanes.sync();
    if constexpr (State::shares && State::has_sweeps) {
        s.lanes.gather(s.products.linear, s.products.linear_step, s.c, s.swept());
        s.squared_b = s.products.squared_b;
    } else if constexpr (State::shares) {
        s.squared_b = residual_of_rows<true>(s, false);
        s.each_column([&](int j, int t) { s.c[t] = s.w[j]; });
    } else if (!read_table(s)) {
        return false;
    }
    if (!(s.squared_b == 0 ? is_zero(s) : is_in_range(s.squared_b))) return false;
    s.b_norm = square_root(s.squared_b);
    if constexpr (State::keeps_sum) {
        if (!(s.products.sum->weight > 0)) keep_sum(s, *s.products.sum);
        s.rho = s.products.sum->weight;
    } else if constexpr (State::summed && State::shares && State::has_sweeps) {
        if (!(s.products.sum->weight > 0)) s.products.sum->weight = weight_of_sum(s);
        s.rho = s.products.sum->weight;
    } else if constexpr (State::summed) {
        s.rho = weight_of_sum(s);
    }
    find_norms(s);
    return put_at_bounds(s);
}

template <class State>
SW_HD void read_mask(State& s) {
    const Constraints& constraints = s.job.constraints;
    if (!constraints.mask) return;
    const uint8_t* mask = constraints.mask + s.system * constraints.mask_stride;
    s.each_column([&](int j, int) {
        if (j < s.job.columns && !mask[j]) s.masked |= bit_of(j);
    });
    s.masked = s.lanes.join(s.masked);
}

template <class State>
SW_HD bool read_table(State& s) {
    double odd = 0, highest = 0;
    const double* linear = nullptr;
    if constexpr (State::source == own_matrix) {
        linear = s.products.table + s.n * s.n;
        if (!read_products(s, s.products.table, s.n)) odd = 1;
        s.squared_b = s.products.table[s.n * (s.n + 1)];
    } else if constexpr (State::source == normal_equations) {
        const Constraints& constraints = s.job.constraints;
        linear = constraints.linear + s.system * constraints.linear_stride;
        if (!read_products(s, constraints.gram + s.system * constraints.gram_stride, s.job.columns)) odd = 1;
    }
    s.each_column([&](int j, int t) {
        double& square = s.table[j * State::capacity + j];
        if (j < s.job.columns) s.c[t] = linear[j];
        // (Of general problems the damping is zero.)
        if constexpr (State::source == own_matrix) square += s.job.options.damping * s.job.options.damping;
        odd += s.c[t] - s.c[t];
        // (A square of zero may be one of entries too small for it.)
        if ((State::source == own_matrix || square != 0) && !(square > 1e-200 && square < 1e200)) odd = 1;
        if (State::source == normal_equations && square > 0)
            highest = max_of(highest, absolute(s.c[t]) * power_below(square_root(square)));
    });
    s.lanes.sync();
    if constexpr (State::source == normal_equations) {
        const Constraints& constraints = s.job.constraints;
        const double given =
            constraints.squared_b ? constraints.squared_b[s.system * constraints.squared_b_stride] : 0.0;
        highest = s.lanes.most(highest);
        s.squared_b = given > 0 ? given : highest * highest;
    }
    return !s.lanes.any(!(odd == 0));
}

// The products that are given, of `given` columns, and zeros for a slack. False where one is not finite.
template <class State>
SW_HD bool read_products(State& s, const double* from, int given) {
    if constexpr (State::has_sweeps) {
        return s.lanes.copy_rows(from, given, s.n, s.table, State::capacity);
    } else {
        double odd = 0;
        s.each_column([&](int j, int) {
            for (int i = 0; i < s.n; ++i) {
                const double value = i < given && j < given ? from[i * given + j] : 0.0;
                s.table[i * State::capacity + j] = value;
                odd += value - value;
            }
        });
        return odd == 0;
    }
}

// Whether b is, and not only its square.
template <class State>
SW_HD bool is_zero(const State& s) {
    bool none = true;
    if constexpr (State::source != normal_equations) {
        SW_ROLLED
        for (int i = s.lanes.lane(); i < s.job.rows; i += State::width)
            none = none && s.numbers.read(s.b(), i) == 0;
    }
    return !s.lanes.any(!none);
}

// Which bounds of a column are far, as a BoundSide. Called for few columns.
SW_CALL int far_sides(double low, double high, double low_in_units, double high_in_units, double reach) {
    if (!(low < high)) return 0;
    return (is_finite(low) && absolute(low_in_units) > reach ? int(lower_side) : 0) |
           (is_finite(high) && absolute(high_in_units) > reach ? int(upper_side) : 0);
}

template <class State>
SW_HD bool put_at_bounds(State& s) {
    uint64_t out = 0, up = 0, not_zero = 0, unbounded = 0;
    bool crossed = false;  // bounds; or a square is beyond the largest number
    if constexpr (State::has_sweeps && State::shares && !State::own_norms && !State::bounded) {
        s.excluded |= (State::keeps_sum ? s.products.sum->nothing : s.products.nothing) | s.masked;
        return true;
    }
    uint64_t below = 0, above = 0;
    s.each_column([&](int j, int t) {
        const uint64_t bit = bit_of(j);
        const bool nothing = !(s.scale(j) > 0) || !(s.inverse_norm(j, t) > 0), masked = s.is_masked(j);
        if (nothing || masked) out |= bit;
        // For another solver: squares beyond the largest number, and columns that are there in L alone.
        if (State::penalized && !masked && (nothing || !(s.square(j) < double_infinity))) crossed = true;
        if constexpr (State::bounded) {
            double low = s.given_bound(j, false), high = s.given_bound(j, true);
            if constexpr (State::boxed) {
                // (Of a column that changes nothing any bound but zero is far.)
                const double reach = nothing ? 0.0 : far_bounds * reach_of(s, j, s.inverse_norm(j, t)),
                             lowest = nothing ? low : s.in_units_of(j, low),
                             highest = nothing ? high : s.in_units_of(j, high);
                if (max_of(absolute(lowest), absolute(highest)) > reach && !s.is_slack(j) && !masked) {
                    const int far = far_sides(low, high, lowest, highest, reach);
                    if (far & lower_side) low = -double_infinity, below |= bit;
                    if (far & upper_side) high = double_infinity, above |= bit;
                }
            }
            const bool fixed = low == high;
            crossed = crossed || !(low <= high);
            if (fixed) out |= bit;
            if (masked) return;
            if (!is_finite(low) && !is_finite(high)) {
                if (!nothing && !fixed) unbounded |= bit;
                return;
            }
            const bool at_upper = !is_finite(low) || (high == 0 && s.is_slack(j));
            if (at_upper) up |= bit;
            if (s.scale(j) > 0) s.x[j] = s.in_units_of(j, at_upper ? high : low);
            if (s.x[j] != 0) not_zero |= bit;
        }
    });
    s.lanes.sync();
    s.excluded |= s.lanes.join(out);
    if constexpr (State::boxed) {
        s.far_below = s.lanes.join(below);
        s.far_above = s.lanes.join(above);
    }
    if (s.lanes.any(crossed)) return false;
    if constexpr (State::bounded) {
        s.at_upper = s.lanes.join(up);
        s.nonzero = s.lanes.join(not_zero);
        SW_ROLLED
        for (uint64_t rest = s.lanes.join(unbounded); rest; rest &= rest - 1) {
            if (s.count == State::positions) return false;
            enter(s, lowest_of(rest));
        }
    }
    return true;
}

// What b, or the sum, would make of x_j if nothing else took part in it.
template <class State>
SW_HD double reach_of(const State& s, int j, double inverse) {
    double reach = s.b_norm * inverse;
    if constexpr (State::summed) {
        const double coefficient = s.coefficient(j);
        if (coefficient > 0) reach += absolute(s.sum_range().sum) / coefficient;
    }
    return reach;
}

}  // namespace small
}  // namespace lsq
SW_END
