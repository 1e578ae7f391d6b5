// The factor of the columns of a small system that are between their bounds, and solutions with it.
//
// L D L' = A_P'A_P, row after row in the order in which columns came; a row is the forward substitution of
// its column. Where all systems have one matrix of few columns inverses are kept in its place.
#pragma once

#include "core/lsq/small/state.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// Rows of L that are missing. False where a column depends on the others as far as products tell.
template <class State>
SW_HD bool complete_factor(State& s) {
    const double least = smallest_pivot<State>(s.n);
    const bool is_rounded = s.numbers.rounds && !s.out_of_factor();  // with nothing at a bound
    return complete_factor(s, is_rounded ? max_of(least, doubtful_in_single * doubtful_in_single) : least);
}

// The same; false also where a column's part outside the others is less than `least` of its square.
template <class State>
SW_HD bool complete_factor(State& s, double least) {
    if constexpr (State::keeps_inverses) {
        double& outside = s.lanes.kept->outside[s.in_factor];
        if (outside == 0) outside = find_inverse(s);
        return outside > least;
    } else {
        return complete_rows(s, least);
    }
}

template <class State>
SW_HD bool complete_rows(State& s, double least) {
    if constexpr (State::has_sweeps && !State::summed) {
        while (s.count - s.factored > 1)
            if (!complete_some(s, least)) return false;
    }
    SW_ROLLED
    for (; s.factored < s.count; ++s.factored) {
        const int place = s.factored, j = s.order[place];
        fill_step(s, 0, place, [&](int p) { return s.product_apart(j, s.order[p]); });
        substitute(s, s.step, place);
        double *const row = row_of(s.factor, place), inside = 0, in_sum = 0;
        if constexpr (State::has_sweeps) {
            inside = s.lanes.scale_row(s.step, s.inverse_pivot, row, place);
            if constexpr (State::summed) in_sum = s.lanes.inner(row, s.sum, place);
        } else {
            s.each_position(place, [&](int p, int t) {
                const double entry = s.step[t] * s.inverse_pivot[t];
                row[p] = entry;
                inside += entry * s.step[t];
                if constexpr (State::summed) in_sum += entry * s.sum[t];
            });
        }
        const double square = s.product(j, j), outside = square - s.lanes.sum(inside);
        if (!(outside > least * square)) return false;
        const double inverse = 1 / outside;
        if constexpr (State::summed) in_sum = s.coefficient(j) - s.lanes.sum(in_sum);
        const auto set = [&](int t) {
            s.inverse_pivot[t] = inverse;
            if constexpr (State::summed) s.sum[t] = in_sum;
        };
        if constexpr (State::width == 1)
            set(place);
        else
            s.each_position(place + 1, [&](int p, int t) {
                if (p == place) set(t);
            });
        s.lanes.sync();
    }
    return true;
}

// Up to four rows at once: what they have in common with those before is found for all of them, so that
// none waits for the one before.
template <class State>
SW_HD bool complete_some(State& s, double least) {
    const int before = s.factored, here = min_of(4, s.count - before);
    static_assert(State::positions % 4 == 0 &&
                  sizeof(typename State::Lanes::Fours) >= 4 * 8 * State::positions);
    alignas(32) typename State::Lanes::Fours values;
    alignas(32) double products[4][4];
    double spare[State::positions], apart[4][4];  // `apart`: L D among themselves
    double* row[4];
    int column[4];
    for (int k = 0; k < 4; ++k) {
        row[k] = k < here ? row_of(s.factor, before + k) : spare;
        column[k] = s.order[before + min_of(k, here - 1)];
    }
    for (int p = 0; p < before; ++p)
        for (int k = 0; k < 4; ++k) values[p][k] = s.product_apart(column[k], s.order[p]);
    s.lanes.substitute_four(s.factor, values, before);
    s.lanes.scale_four(values, s.inverse_pivot, before, row, products);
    for (int k = 0; k < here; ++k, ++s.factored) {
        const double square = s.product(column[k], column[k]);
        double outside = square - products[k][k];
        for (int i = 0; i < k; ++i) {
            double entry = s.product_apart(column[k], column[i]) - products[k][i];
            for (int q = 0; q < i; ++q) entry -= row[i][before + q] * apart[k][q];
            const double scaled = entry * s.inverse_pivot[before + i];
            apart[k][i] = entry;
            row[k][before + i] = scaled;
            outside -= entry * scaled;
        }
        if (!(outside > least * square)) return false;
        s.inverse_pivot[before + k] = 1 / outside;
    }
    return true;
}

// Of the columns in the factor, in ascending order: the rows of (A_P'A_P)^-1, in the directions that keep
// a bound sum, what changes that sum by one, and what its multiplier is of duals. Returns the smallest
// part of a column's square outside those before it.
template <class State>
SW_HD double find_inverse(State& s) {
    auto& kept = s.lanes.kept->of(s.in_factor);
    kept = {};
    if constexpr (State::summed) find_multiplier(s, kept.multiplier);
    int place = 0;
    for (uint64_t rest = s.in_factor; rest; rest &= rest - 1) s.order[place++] = lowest_of(rest);
    s.factored = 0;
    double outside = nothing_outside;
    if (complete_rows(s, 0)) {
        const auto solve_for = [&](int position, double* row) {  // `count`: for what changes the sum
            for (int p = 0; p < s.count; ++p) s.step[p] = p == position;
            substitute(s, s.step, s.count);
            direct(s, position == s.count);
            substitute_back(s);
            for (int p = 0; p < s.count; ++p) row[s.order[p]] = s.step[p];
        };
        outside = 1;
        for (int p = 0; p < s.count; ++p) {
            const int j = s.order[p];
            solve_for(p, kept.inverse[j]);
            outside = min_of(outside, 1 / (s.inverse_pivot[p] * s.product(j, j)));
        }
        if (State::summed) solve_for(s.count, kept.along);
    }
    return outside;
}

template <class State>
SW_HD void find_multiplier(const State& s, double* row) {
    double square = 0;
    s.each_in_factor([&](int j, int) { square += s.coefficient(j) * s.coefficient(j); });
    s.each_in_factor([&](int j, int) { row[j] = -s.coefficient(j) / square; });
}

// The rows of L without those of some places, the first of them at `first`. (A device's threads find them
// anew: each would take out others.)
template <class State>
SW_HD void take_out(State& s, uint64_t places, int rows, int first) {
    s.lanes.take_out(s.factor, s.inverse_pivot, rows, places);
    s.factored = s.count;
    if constexpr (State::summed)
        for (int p = first; p < s.count; ++p)
            s.sum[p] = s.coefficient(s.order[p]) - s.lanes.inner(row_of(s.factor, p), s.sum, p);
}

// step = `left` of (L D L')^-1 w_P, or of columns that entered alone; where a sum is bound, of w_P + mu s
// with s'step = what the sum misses.
template <class State>
SW_HD void solve(State& s, double left, uint64_t entered) {
    if constexpr (State::keeps_inverses) {
        const auto& kept = s.lanes.kept->of(s.in_factor);
        s.lanes.template solve_by<State::summed>(kept, s.w, entered, s.n, s.deficit, left, s.step);
        return;
    }
    int first = 0;
    if (entered)
        for (first = s.count; first > 0 && (entered & bit_of(s.order[first - 1]));) --first;
    s.each_position(first, [&](int, int t) { s.step[t] = 0; });
    fill_step(s, first, s.count, [&](int p) { return left * s.w[s.order[p]]; });
    substitute(s, s.step, s.count, first);
    direct(s, left * s.deficit);
    substitute_back(s);
}

// g' (L D L')^-1 g, outside the direction of a bound sum; g in `step`, which is overwritten.
template <class State>
SW_HD double square_in_factor(State& s) {
    substitute(s, s.step, s.count);
    direct(s, 0);
    double square = 0;
    s.each_position(s.count, [&](int, int t) { square += s.step[t] * s.step[t] * s.inverse_pivot[t]; });
    return s.lanes.sum(square);
}

// The root of what a step of all columns in the factor would lower the objective by: see advance.hpp.
template <class State>
SW_HD double decrement(State& s) {
    if constexpr (State::keeps_inverses) {
        const auto& inverse = s.lanes.kept->of(s.in_factor).inverse;
        double square = 0;
        s.each_in_factor([&](int i, int) {
            s.each_in_factor([&](int j, int) { square += s.w[i] * inverse[i][j] * s.w[j]; });
        });
        return square_root(max_of(0.0, square));
    }
    if (!complete_factor(s)) return double_infinity;
    s.each_position(s.count, [&](int p, int t) { s.step[t] = s.w[s.order[p]]; });
    return square_root(max_of(0.0, square_in_factor(s)));
}

// The variance of x at a position, where entries of b have variance one and the set is what it is. With M
// = L^-T (E - E v v'E / v'E v) L^-1, E = D^-1, v = L^-1 s, it is e_p'M A_P'A_P M e_p: M_pp without a
// penalty. With one it is y'Gy of y = M e_p, a sum that rounding changes by some epsilon (sum |y_i| |a_i|)^2
// however much of its terms cancel: NaN where these are digits of it.
template <class State>
SW_HD double variance_at(State& s, int position) {
    if constexpr (State::keeps_inverses)
        return max_of(0.0, s.lanes.kept->of(s.in_factor).inverse[position][position]);
    s.each_position(s.count, [&](int p, int t) { s.step[t] = p == position; });
    double square = square_in_factor(s);
    if constexpr (State::penalized) {
        substitute_back(s);
        double reach = 0;
        square = 0;
        SW_ROLLED
        for (int q = 0; q < s.count; ++q) {
            const int i = s.order[q];
            double entry = 0;
            s.each_position(s.count, [&](int p, int t) { entry += s.gram(i, s.order[p]) * s.step[t]; });
            const double y = value_at(s, s.step, q);
            square += s.lanes.sum(entry) * y;
            reach += absolute(y) * square_root(s.gram(i, i));
        }
        if (!(double_epsilon * reach * reach <= rounding_of_variances * square)) return double_nan();
    }
    return max_of(0.0, square);
}

template <class State>
SW_HD bool has_weak_pivot(const State& s, int refinements = 0) {
    const double least = weak_pivot<State>(!s.out_of_factor(), s.job.options.damping > 0, refinements);
    if (least == 0) return false;
    return smallest_part(s) < least;
}

// The smallest part of a column's square that is outside those before it in the factor.
template <class State>
SW_HD double smallest_part(const State& s) {
    if (s.count == 0) return 1.0;
    if constexpr (State::keeps_inverses) return s.lanes.kept->outside[s.in_factor];
    double over = 1;
    s.each_in_factor([&](int j, int t) { over = max_of(over, s.inverse_pivot[t] * s.product(j, j)); });
    return 1 / s.lanes.most(over);
}

// values = L^-1 values, the first `rows`, of which those before `first` are zero. A thread takes a row
// after the other, lanes a column.
template <class State>
SW_HD void substitute(const State& s, double (&values)[State::own_positions], int rows, int first = 0) {
    if constexpr (State::has_sweeps) {
        s.lanes.substitute(s.factor, values, rows, first);
    } else if constexpr (State::width == 1) {
        for (int p = first + 1; p < rows; ++p) {
            const double* row = row_of(s.factor, p);
            double part[2] = {values[p], 0};
            SW_UNROLL_BY(4)
            for (int q = first; q < p; ++q) part[q % 2] -= row[q] * values[q];
            values[p] = part[0] + part[1];
        }
    } else {
        SW_UNROLL_BY(2)
        for (int q = first; q < rows - 1; ++q) {
            const double value = value_at(s, values, q);
            s.each_position(rows, [&](int p, int t) {
                if (p > q) values[t] -= row_of(s.factor, p)[q] * value;
            });
        }
    }
}

// step = L^-T D^-1 step. Threads begin at the same row, so that they read the same places.
template <class State>
SW_HD void substitute_back(State& s) {
    s.each_position(s.count, [&](int, int t) { s.step[t] *= s.inverse_pivot[t]; });
    if constexpr (State::has_sweeps) {
        s.lanes.substitute_back(s.factor, s.step, s.count);
    } else if constexpr (State::width == 1) {
        for (int p = State::positions - 1; p > 0; --p) {
            if (p >= s.count) continue;
            const double* row = row_of(s.factor, p);
            const double value = s.step[p];
            SW_UNROLL_BY(4)
            for (int q = 0; q < p; ++q) s.step[q] -= row[q] * value;
        }
    } else {
        SW_UNROLL_BY(2)
        for (int p = s.count - 1; p > 0; --p) {
            const double* row = row_of(s.factor, p);
            const double value = value_at(s, s.step, p);
            s.each_position(p, [&](int q, int t) { s.step[t] -= row[q] * value; });
        }
    }
}

// Where a sum is bound: step += mu v, v = L^-1 s, so that v'E step is what is given.
template <class State>
SW_HD void direct(State& s, double along) {
    if constexpr (State::summed) {
        double inside = 0, size = 0;
        s.each_position(s.count, [&](int, int t) {
            inside += s.sum[t] * s.inverse_pivot[t] * s.step[t];
            size += s.sum[t] * s.inverse_pivot[t] * s.sum[t];
        });
        inside = s.lanes.sum(inside);
        size = s.lanes.sum(size);
        const double mu = size > 0 ? (along - inside) / size : 0.0;
        s.each_position(s.count, [&](int, int t) { s.step[t] += mu * s.sum[t]; });
    }
}

// step at the places from `first` up to `end`.
template <class Value, class State>
SW_HD void fill_step(State& s, int first, int end, Value value) {
    if constexpr (State::has_sweeps)
        s.lanes.fill(s.step, first, end, value);
    else
        s.each_position(end, [&](int p, int t) {
            if (p >= first) s.step[t] = value(p);
        });
}

// A position's value, from the lane that has it.
template <class State>
SW_HD double value_at(const State& s, const double (&values)[State::own_positions], int p) {
    if constexpr (State::width == 1) return values[p];
    double mine = values[0];
    SW_UNROLL
    for (int t = 1; t < State::own_positions; ++t) mine = p >= State::width * t ? values[t] : mine;
    return s.lanes.pick(mine, p % State::width);
}

}  // namespace small
}  // namespace lsq
SW_END
