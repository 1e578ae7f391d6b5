// Steps of a small system: the way to the solution on the columns between their bounds. A step solves for the
// difference from x, from the dual at x: so every step is one of refinement too.
#pragma once

#include "core/lsq/small/factor.hpp"
#include "core/lsq/small/set.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// One solution: goes there, or as far as bounds allow, where what would go beyond is left. False where
// another solver has to see to it.
template <class State>
SW_HD bool advance(State& s, int max_solves) {
    if (s.counts.solves >= max_solves || !complete_factor(s)) return false;
    const bool projects = State::has_sweeps && s.may_project;
    s.may_project = false;
    ++s.counts.solves;
    solve(s, s.in_progress.left, s.in_progress.entered);
    if (s.in_progress.inward != 0) {
        bool outward = false;
        s.each_in_factor([&](int j, int t) {
            if (s.in_progress.entered & bit_of(j)) outward = !(s.in_progress.inward * s.step[t] > 0);
        });
        if (s.lanes.any(outward)) return false;
        s.in_progress.inward = 0;
    }
    double alpha = room_in_bounds(s);
    if (!s.lanes.any(alpha < double_infinity)) {
        take_all(s);
        s.in_progress.open = false;
        return true;
    }
    if (projects) {
        s.in_progress.open = false;
        s.was_projected = true;
        return walk(s, 1);
    }
    alpha = min_of(s.lanes.least(alpha), 1.0);
    if (!walk(s, alpha)) return false;
    s.in_progress.left *= 1 - alpha;
    s.in_progress.open = s.count > 0;
    return true;
}

// Takes all of the step to the solution on the columns in the factor. False where a bound would be crossed: x
// is then what it was.
template <class State>
SW_HD bool go_freely(State& s) {
    ++s.counts.solves;
    solve(s, 1, no_columns);
    if (s.lanes.any(room_in_bounds(s) < double_infinity)) return false;
    take_all(s);
    return true;
}

// Takes all of the step to the solution on the columns in the factor, and puts what would be beyond a bound
// at that bound: these columns leave the factor.
template <class State>
SW_HD void projected_step(State& s) {
    ++s.counts.solves;
    if constexpr (State::sweeps_signs) {
        if (s.products.guess)  // which x is already
            for (int j = 0; j < kept_columns; ++j) s.step[j] = 0;
        else
            solve(s, 1, no_columns);
        const uint64_t gone = s.lanes.projected_step(s.x, s.step, s.in_factor);
        s.nonzero |= s.in_factor;
        if (gone) leave(s, gone, 0, gone);
        return;
    }
    solve(s, 1, no_columns);
    walk(s, 1);
}

template <class State>
SW_HD void take_all(State& s) {
    if constexpr (State::keeps_inverses)
        add_scaled(1.0, s.step, s.x, kept_columns);
    else
        s.each_in_factor([&](int j, int t) { s.x[j] += s.step[t]; });
    s.lanes.sync();
    s.nonzero |= s.in_factor;
}

// How much of a step bounds allow; infinite where it is more than all of it.
template <class State>
SW_HD double room_in_bounds(const State& s) {
    double alpha = double_infinity;
    if constexpr (State::sweeps_signs) {
        for (uint64_t rest = s.lanes.not_above_zero(s.x, s.step) & s.in_factor; rest; rest &= rest - 1)
            alpha = min_of(alpha, room(s, lowest_of(rest), s.step[lowest_of(rest)]));
    } else {
        s.each_in_factor([&](int j, int t) { alpha = min_of(alpha, room(s, j, s.step[t])); });
    }
    return alpha;
}

// How much of a step column j can go; infinite where it can go all of it.
template <class State>
SW_HD double room(const State& s, int j, double by) {
    const double from = s.x[j], to = from + by;
    if constexpr (!State::bounded) {
        if (to > 0) return double_infinity;
        return from > 0 ? from / -by : 0.0;
    } else {
        const double low = s.lower(j), high = s.upper(j);
        if (!(to > low)) return from > low ? (low - from) / by : 0.0;
        if (!(to < high)) return from < high ? (high - from) / by : 0.0;
        return double_infinity;
    }
}

// Takes alpha of the step; what reaches a bound leaves. False where a bound sum has no column left.
template <class State>
SW_HD bool walk(State& s, double alpha) {
    if constexpr (State::keeps_inverses) return walk_by_columns(s, alpha);
    if constexpr (State::has_sweeps && !State::bounded) return walk_to_zero(s, alpha);
    int place = 0, first = s.count;
    uint64_t gone = 0, up = 0, zero = 0, places = 0;
    const auto take = [&](int begin, double by) {
        const int p = begin + s.lanes.lane(), j = p < s.count ? s.order[p] : 0;
        bool stays = false;
        if (p < s.count) {
            const int met = step_to_bound(s, j, alpha, by);
            stays = met == 0;
            if (s.x[j] == 0) zero |= bit_of(j);
            if (!stays) gone |= bit_of(j), places |= bit_of(p);
            if (met > 0) up |= bit_of(j);
        }
        const unsigned staying = s.lanes.votes(stays), leaving = s.lanes.votes(p < s.count && !stays);
        if (leaving) first = min_of(first, begin + lowest_of(leaving));
        if (stays) s.order[place + bits_in(staying & ((1u << s.lanes.lane()) - 1))] = j;
        place += bits_in(staying);
        s.counts.removals += bits_in(leaving);
        s.lanes.sync();
    };
    if constexpr (State::width == 1) {
        SW_ROLLED
        for (int p = 0; p < s.count; ++p) take(p, s.step[p]);
    } else {
        SW_UNROLL
        for (int t = 0; t < State::own_positions; ++t)
            if (State::width * t < s.count) take(State::width * t, s.step[t]);
    }
    const int rows = s.factored;
    depart(s, s.lanes.join(gone), s.lanes.join(up), s.lanes.join(zero), first, place);
    if constexpr (State::has_sweeps) take_out(s, places, rows, first);
    return !State::summed || s.count > 0;
}

// The same where there are no bounds but zero.
template <class State>
SW_HD bool walk_to_zero(State& s, double alpha) {
    const int before = s.count, rows = s.factored;
    uint64_t places = 0, gone = 0;
    for (int p = 0; p < before; ++p)
        places |= uint64_t(step_to_bound(s, s.order[p], alpha, s.step[p]) != 0) << p;
    const int first = places ? lowest_of(places) : before;
    int stay = first;
    for (int p = first; p < before; ++p) {
        const int j = s.order[p];
        s.order[stay] = j;
        if (!(places >> p & 1)) {
            ++stay;
            continue;
        }
        gone |= bit_of(j);
    }
    s.counts.removals += before - stay;
    depart(s, gone, 0, gone, first, stay);
    take_out(s, places, rows, first);
    return !State::summed || s.count > 0;
}

// The same where a column's position is its number.
template <class State>
SW_HD bool walk_by_columns(State& s, double alpha) {
    uint64_t gone = 0, up = 0, zero = 0;
    s.each_in_factor([&](int j, int t) {
        const int met = step_to_bound(s, j, alpha, s.step[t]);
        if (s.x[j] == 0) zero |= bit_of(j);
        if (met != 0) gone |= bit_of(j);
        if (met > 0) up |= bit_of(j);
    });
    leave(s, gone, up, zero);
    return !State::summed || s.count > 0;
}

// Moves x_j by alpha of its step, to a bound where it meets one: 1 the upper, -1 the lower, 0 none.
template <class State>
SW_HD int step_to_bound(State& s, int j, double alpha, double by) {
    const double moved = s.x[j] + alpha * by, low = s.lower(j), high = s.upper(j);
    if constexpr (State::has_sweeps && !State::bounded) {
        // (What would be above zero after all of the step has more room than that.)
        const bool above = s.x[j] + by > 0 || (moved > 0 && room(s, j, by) > alpha);
        s.x[j] = above ? moved : 0.0;
        return above ? 0 : -1;
    }
    const bool stays = room(s, j, by) > alpha && (by > 0 ? moved < high : moved > low);
    // (It may be at its upper bound, and its step be zero.)
    const bool up = by > 0 || moved >= high;
    s.x[j] = stays ? clamp_to(moved, low, high) : up ? high : low;
    return stays ? 0 : up ? 1 : -1;
}

}  // namespace small
}  // namespace lsq
SW_END
