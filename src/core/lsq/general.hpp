// A problem with bounds, a bound sum, weights of rows or a penalty from its start to its solution, with the
// lambda that is given or a chosen one.
#pragma once

#include "core/lsq/search.hpp"

SW_BEGIN
namespace lsq {

// Solves with the lambda that is given or, where `near` is, found from there.
template <class State>
SW_HD void run_general(State& s, const Job& job, int64_t system, const void* b, WarmStart warm, double near) {
    const Constraints& constraints = job.constraints;
    const bool given = constraints.rule == rule_given && constraints.penalized;
    const double lam = given ? constraints.lam[system * constraints.lam_stride] : 0.0;
    s.team.each(s.columns(), [&](int j) { s.ws.kept_bounds[j] = 0; });
    s.team.sync();
    for (s.search.beyond = true; s.search.beyond;) {
        s.search.beyond = false;
        s.tally.status = begin_general(s, job, system, b, lam * lam);
        if (s.tally.status != converged) return;
        solve_once(s, job, system, b, warm, near);
        if (s.search.beyond) empty_factor(s, s.task.options.update);
    }
    mend_sum(s);
    leave_at_bounds(s);
    finish(s);
}

// With the bounds that count. Ends early where others would have to.
template <class State>
SW_HD void solve_once(State& s, const Job& job, int64_t system, const void* b, WarmStart warm, double near) {
    const Constraints& constraints = job.constraints;
    s.search.at_end = 0;
    s.search.level = 0;
    s.search.is_cut = s.search.has_false_level = s.search.lacks_level = false;
    // At lambda = 0 the problem is at its worst: it is solved as it would be by itself. Rules by a grid
    // begin at its upper end.
    const double unit = constraints.rule != rule_given ? trace_ratio(s) : 1.0;
    const bool by_grid = (constraints.rule == rule_gcv || constraints.rule == rule_lcurve) && unit > 0;
    if (by_grid) begin_general(s, job, system, b, unit * exponential(grid_high));
    s.tally.status = iterate_called(s, start_general(s, job, system, b, warm, s.factor.penalty));
    if (s.tally.status == limit) return;
    s.search.has_false_level = s.tally.status != converged;
    s.search.beyond = keep_met_bounds(s);
    if (constraints.rule == rule_given || s.search.beyond) return;
    if (unit == 0) {
        s.search.at_end = -1;  // no lambda but 0 has a square
        return;
    }
    s.trusting = true;
    search_lambda(s, job, system, unit, near * near);
    s.trusting = false;
    if (s.search.beyond) return;
    s.tally.status = iterate_called(s, Pending::nothing);
    if (s.tally.status != limit && misses_level(s)) {
        reach_level(s, unit, logarithm(s.factor.penalty));
        if (s.search.beyond) return;
        s.tally.status = iterate_called(s, Pending::nothing);
        s.search.lacks_level = misses_level(s);
    }
    if (constraints.rule == rule_chi2 && (s.search.has_false_level || sum_hides_columns(s)))
        s.search.lacks_level = true;
    if (s.search.is_cut) s.tally.status = limit;
    if (s.tally.status != limit) s.search.beyond = keep_met_bounds(s);
}

// Whether the row of a sum is so heavy beside a column that the fit without lambda, which sets the level,
// has lost its digits. (Twice the precision has them.)
template <class State>
SW_HD bool sum_hides_columns(const State& s) {
    if (!s.ws.sum_of) return false;
    double any = 0;
    s.team.each(s.columns(), [&](int j) {
        const double sum = s.factor.row_weight * s.ws.sum_of[j] * s.ws.sum_of[j];
        if (s.ws.square[j] > 0 && sum > 1e16 * s.ws.square[j]) any = 1;
    });
    return s.team.max(any) > 0;
}

// What a solution happens to have exactly at a bound is out of the factor at the end.
template <class State>
SW_HD void leave_at_bounds(State& s) {
    if (s.ws.sum_of) return;
    for (int p = s.factor.count - 1; p >= 0; --p) {
        const int j = s.ws.order[p];
        const bool leaves = !(s.ws.x[p] > s.task.least_of(j) && s.ws.x[p] < s.task.most_of(j));
        s.team.sync();
        if (!leaves) continue;
        leave_at_bound(s, p);
        s.fresh = false;
    }
}

}  // namespace lsq
SW_END
