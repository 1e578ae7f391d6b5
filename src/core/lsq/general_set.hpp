// How a problem with bounds, a bound sum, weights of rows and a penalty starts: cold, or from a set.
#pragma once

#include "core/lsq/block_exchange.hpp"

SW_BEGIN
namespace lsq {

// The start of a problem with bounds. Of a warm start the set counts, and which columns are at which
// bound; where it does not lead to a point within the bounds, the start is cold.
template <class State>
SW_CALL Pending start_general(State& s, const Job& job, int64_t system, const void* b, WarmStart warm,
                              double penalty) {
    if (s.task.extent.in_blocks() && s.task.options.guarded) {
        const Exchange outcome = start_in_blocks(s, warm);
        if (outcome == Exchange::settled) return Pending::nothing;
        if (outcome == Exchange::unsettled && come_inside(s)) {
            finish_step(s);
            return Pending::nothing;
        }
        begin_anew(s, job, system, b, penalty);
    }
    if (warm.values || warm.marks || warm.states) {
        if (start_from_set(s, warm)) {
            finish_step(s);
            return Pending::nothing;
        }
        begin_anew(s, job, system, b, penalty);
    }
    enter_free(s, s.ws.sum_of ? fill_up(s) : insert_free(s));
    return s.factor.count > 0 ? Pending::solution : Pending::nothing;
}

// Goes back to the point at which no column had entered yet.
template <class State>
SW_HD void begin_anew(State& s, const Job& job, int64_t system, const void* b, double penalty) {
    empty_factor(s, s.factor.update);
    begin_general(s, job, system, b, penalty);
}

// Exchanges from the set of a warm start, the free columns with it, or from these alone.
template <class State>
SW_CALL Exchange start_in_blocks(State& s, WarmStart warm) {
    const bool cold = !(warm.values || warm.marks || warm.states);
    if (!cold) cross_as_said(s, warm);
    const int number = list_columns(s, s.ws.order, [&](int j) {
        const int state = s.ws.state[j];
        const bool wanted = state & is_free || (!cold && !(state & excluded) && said_of(s, warm, j) == 0);
        return wanted && s.task.norm_of(j) > 0;
    });
    if (number > 0 && !enter_named(s, number)) return Exchange::impossible;
    return exchange_blocks(s);
}

// What a warm start says of column j: -1 at its lower bound, 1 at its upper, 0 between.
template <class State>
SW_HD int said_of(const State& s, WarmStart warm, int j) {
    if (j >= s.task.matrix.top.columns) return 0;
    if (warm.states) return warm.states[j] == 2 ? -1 : warm.states[j];
    if (warm.marks) return warm.marks[j] ? 0 : -1;
    const double value = s.numbers.read(warm.values, j);
    return value <= s.given.lower[j] ? -1 : value >= s.given.upper[j] ? 1 : 0;
}

// Takes the set of a warm start: what the solution then has outside its bounds leaves there. Whether a
// point within all bounds came of it, which is in ws.z.
template <class State>
SW_CALL bool start_from_set(State& s, WarmStart warm) {
    cross_as_said(s, warm);
    enter_free(s, insert_free(s));
    for (int j = 0; j < s.columns(); ++j) {
        const bool wanted = !(s.ws.state[j] & (excluded | is_free)) && said_of(s, warm, j) == 0;
        if (wanted && s.task.norm_of(j) > 0) insert_called(s, j);
    }
    return come_inside(s);
}

// Takes columns to the bounds that a warm start has them at.
template <class State>
SW_HD void cross_as_said(State& s, WarmStart warm) {
    const auto crosses = [&](int j) {
        const int state = s.ws.state[j];
        if (state & (excluded | is_free)) return false;
        const int said = said_of(s, warm, j);
        return said > 0 ? state == zero && is_finite(s.ws.upper[j])
                        : said < 0 && state == reflected && is_finite(s.ws.lower[j]);
    };
    double any = 0;
    s.team.each(s.columns(), [&](int j) { any = crosses(j) ? 1.0 : any; });
    any = s.team.max(any);
    for (int j = 0; any > 0 && j < s.columns(); ++j) {
        const bool own = crosses(j);
        s.team.sync();
        if (own) cross(s, j);
    }
    s.team.sync();
}

// What the solution has outside its bounds leaves there, until nothing has to; the solution is in ws.z.
template <class State>
SW_CALL bool come_inside(State& s) {
    s.fresh = false;
    for (;;) {
        if (s.factor.count == 0) return !s.ws.sum_of;
        s.factor.solve();
        bool inside = true;
        for (int p = s.factor.count - 1; p >= 0; --p) {
            const int j = s.ws.order[p];
            const double z = s.ws.z[p], least = s.task.least_of(j), most = s.task.most_of(j);
            if (z > least && z < most) continue;
            inside = false;
            s.team.sync();
            if (s.team.rank() == 0) s.ws.x[p] = z > least ? most : least;
            s.team.sync();
            leave_at_bound(s, p);
            // ws.z keeps the old order below p: only higher places moved.
        }
        if (inside) return true;
    }
}

}  // namespace lsq
SW_END
