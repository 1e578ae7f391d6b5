// A small system whose sum is bound: the way to a point that has it, and the sum of what is returned.
#pragma once

#include "core/lsq/small/dual.hpp"
#include "core/lsq/small/set.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// Whether some x within the bounds has the sum that is asked for, and how far x is from it.
template <class State>
SW_HD bool has_sum(State& s) {
    s.wanted = s.missing = s.sum_range().sum;
    if constexpr (!State::bounded) return s.missing == 0 || (s.missing > 0 && ~s.excluded);
    double lowest = 0, highest = 0, around = absolute(s.wanted), terms = 0;
    SW_ROLLED
    for (int j = 0; j < s.n; ++j) {
        if (s.is_masked(j)) continue;
        const double coefficient = s.coefficient(j), at = s.x[j];
        s.missing -= coefficient * at;
        s.least_sum += coefficient * at;
        around += coefficient * absolute(at);
        terms += coefficient * absolute(at);
        if (!s.is_at_bound(j)) continue;
        lowest += coefficient * (s.at_upper & bit_of(j) ? s.lower(j) - at : 0.0);
        highest += coefficient * (s.at_upper & bit_of(j) ? 0.0 : s.upper(j) - at);
    }
    if (s.count > 0) return true;
    const double room = 8 * double_epsilon * around;
    // (The rounding of terms that are far larger than what is missing may be more than all of it.)
    s.drops_upper = lowest == 0;
    s.least_sum -= 8 * double_epsilon * terms;
    return lowest <= s.missing + room && highest >= s.missing - room;
}

template <class State>
SW_HD double other_bound(const State& s, int j) {
    return s.at_upper & bit_of(j) ? s.lower(j) : s.upper(j);
}

// (w has no multiplier.)
template <class State>
SW_HD double value_of_filling(const State& s, int j, double rest) {
    const double room = other_bound(s, j) - s.x[j];
    return lsq::value_of_filling(s.coefficient(j), room, rest, s.w[j], s.square(j), !(room < 0));
}

// With a bound sum: goes to a point that has it. The columns that lower the residual most are filled, one
// after the other; the last is in the factor then.
template <class State>
SW_HD bool fill_up(State& s) {
    if (s.count > 0) return true;  // columns without bounds take what is missing
    double rest = s.missing;
    dual_from_table(s);
    SW_ROLLED
    for (uint64_t tried = 0;;) {
        int best = -1;
        double most = -double_infinity;
        SW_ROLLED
        for (int j = 0; j < s.n; ++j) {
            if (!s.is_at_bound(j) || (tried & bit_of(j))) continue;
            const double value = value_of_filling(s, j, rest);
            if (value > most) {
                most = value;
                best = j;
            }
        }
        if (best < 0) return false;
        const double coefficient = s.coefficient(best), far = other_bound(s, best),
                     whole = s.x[best] + rest / coefficient;
        if (takes_all(rest, whole, far)) {
            set_x(s, best, whole);
            enter(s, best);
            count_insertions(s);
            return true;
        }
        tried |= bit_of(best);
        rest -= coefficient * (far - s.x[best]);
        set_x(s, best, far);
        s.at_upper ^= bit_of(best);
    }
}

// The sum of x is what it has to be, but for one rounding: the x with the most room takes what more is
// missing. False where that is more than rounding, so that the dual is another.
template <class State>
SW_HD bool mend_sum(State& s) {
    const double rest = s.deficit;  // at the point that was judged
    if (absolute(rest) <= double_epsilon * absolute(s.wanted)) return true;
    double highest = -1;
    int where = -1;
    if constexpr (State::sweeps_signs) {
        where = s.lanes.place_of_largest(s.x, s.products.sum->coefficients, highest);
    } else {
        SW_ROLLED
        for (uint64_t columns = s.in_factor; columns; columns &= columns - 1) {
            const int j = lowest_of(columns);
            const double room = min_of(s.upper(j) - s.x[j], s.x[j] - s.lower(j)) * s.coefficient(j);
            if (room > highest) {
                highest = room;
                where = j;
            }
        }
    }
    if (where < 0 || !(highest > absolute(rest))) return true;
    const double move = rest / s.coefficient(where);
    set_x(s, where, s.x[where] + move);
    return absolute(move) * square_root(s.square(where)) <= s.job.options.rounding * s.size;
}

}  // namespace small
}  // namespace lsq
SW_END
