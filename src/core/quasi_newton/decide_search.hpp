// Decisions about points along a direction: the line search (after the slope sweep) and its beginning (after
// the aim sweep). Scalar.
#pragma once

#include "core/quasi_newton/headway.hpp"
#include "core/quasi_newton/line_search.hpp"
#include "core/quasi_newton/totals.hpp"

SW_BEGIN

SW_HD void finish(State& s, Status status) {
    s.status = status;
    s.action = Action::done;
}

// Whether this problem has a finite bound, and whether it has two for every variable.
SW_HD bool has_bounds(const State& s, const Options& o) {
    return o.bounded && s.own_bounds != OwnBounds::none;
}
SW_HD bool is_boxed(const State& s, const Options& o) {
    return o.boxed || s.own_bounds == OwnBounds::boxed;
}

SW_HD void drop_history(State& s) {
    s.pairs = s.head = 0;
    ++s.resets;
}

// Aim along the steepest descent direction: what is left when the history cannot be trusted. Its last scale
// is kept: without one, the first trial is too long by the ratio of the units of x and g.
SW_HD void aim_without_history(State& s) {
    drop_history(s);
    s.carry_time = -1;
    s.cauchy_time = 1;
    s.confine = Confine::project;
    s.action = Action::aim;
}

SW_HD void start_state(State& s) {
    s = State{};
    s.gamma = 1;
    s.carry_time = -1;
    s.info = SearchInfo::searching;
    s.status = s.pending = Status::running;
    s.action = Action::evaluate;
}

// Goes back to the best step of the search, if it lowers f, to end there: its gradient has to be evaluated
// again.
SW_HD bool return_to_best(State& s, Status why) {
    if (!(s.search.best > 0 && s.search.f_best < s.f)) return false;
    s.pending = why;
    s.search.step = s.search.best;
    s.action = Action::step;
    return true;
}

// Sums that f consists of have more than one rounding error: of a search that promised no more than so many
// of them, nothing can be told.
constexpr double hidden_in_rounding = 64;
// Evaluations after which such a search ends.
constexpr int32_t few_evaluations = 8;

// Whether a whole step lowers f by no more than that, as far as the slope knows.
SW_HD bool is_hidden_in_rounding(const State& s) {
    return -s.search.slope0 * min_of(1.0, s.search.step_max) <= hidden_in_rounding * s.search.resolution;
}

// Whether a search along the direction has gone as far as it may, ever farther, without a rise of f: the
// direction is too short.
SW_HD bool only_went_on(const State& s, SearchInfo info) {
    return !s.search.bracketed && !s.search.nonfinite &&
           (info == SearchInfo::step_max || info == SearchInfo::evaluations);
}

// The same of one that ran out of evaluations, most of which it needed to get anywhere.
SW_HD bool was_too_short(const State& s, SearchInfo info) {
    return only_went_on(s, info) || (info == SearchInfo::evaluations && s.search.best >= long_way);
}

SW_HD void search_failed(State& s, const Options& o, SearchInfo info, double f) {
    s.info = info;
    // A scale that leads no farther than the search has been leads nowhere. One that led far, without a pair
    // to say so, may have been too long.
    const double length = s.gamma * s.projected_gradient;
    const bool too_short =
        was_too_short(s, info) && (s.pairs == 0 || length <= s.search.best * s.direction_norm);
    const bool too_long = s.search.bracketed && s.pairs == 0 && info != SearchInfo::step_min;
    // (Not of the first search, which begins with such a step.)
    const bool renewed = s.iterations > 0 && ((too_short && renew_scale(s, o, NewScale::longer)) ||
                                              (too_long && renew_scale(s, o, NewScale::shorter)));
    const bool hidden = is_hidden_in_rounding(s);
    const Status why = s.search.nonfinite ? Status::nonfinite
                       : hidden || info == SearchInfo::rounding || info == SearchInfo::interval
                           ? Status::rounding
                           : Status::line_search;
    if (s.pairs > 0 || renewed) {
        aim_without_history(s);
    } else if (f < s.f && f <= s.search.f_best) {
        s.pending = why;  // keep the better point, then stop
        s.action = Action::absorb;
    } else if (!return_to_best(s, why)) {
        finish(s, why);
    }
}

// After the slope sweep: `slope` is g·d at the trial point, not finite if g is not. Scalar.
SW_HD void decide_slope(State& s, const Options& o, double f, double slope) {
    ++s.evaluations;
    s.accepted = 0;
    const bool finite = is_finite(f) && is_finite(slope);
    if (!s.started) {
        if (!finite) {
            s.f = f;
            finish(s, Status::nonfinite_start);
            return;
        }
        s.started = 1;
        s.f = s.f_before = f;
        s.action = Action::absorb;
        return;
    }
    const double tried = s.search.step;  // the search moves on to its next, even from a point that is taken
    const bool ending = s.pending != Status::running;  // back at the best step of a search that was given up
    const bool spent = s.evaluations >= o.max_evaluations;
    SearchInfo info = ending   ? s.info
                      : finite ? advance_search(s.search, o.search, f, slope)
                               : retreat_search(s.search, o.search);
    // (One that is not bracketed may have a long way to go.)
    if (info == SearchInfo::searching && s.search.evaluations >= few_evaluations && s.search.bracketed &&
        has_small_gradient(s) && is_hidden_in_rounding(s))
        info = SearchInfo::rounding;
    const bool warning = info == SearchInfo::interval || info == SearchInfo::rounding ||
                         info == SearchInfo::step_min || info == SearchInfo::step_max;
    // A step cut short by a bound is as good as it can be, whatever the preset makes of a warning.
    const bool at_bound = info == SearchInfo::step_max && s.search.step_max < o.search.step_max;
    // One that changed neither x nor f is none: the search ended where it began, or only went on and on.
    const bool stayed = absolute(slope - s.search.slope0) <= 4 * double_epsilon * absolute(slope);
    const bool met_bound = at_bound && tried >= s.step_limit;
    const bool unseen = !met_bound && f == s.search.f0 && (stayed || only_went_on(s, info));
    const bool accept = !ending && finite &&
                        (info == SearchInfo::converged || f <= o.target ||
                         (warning && (o.search.warning_is_step || at_bound) && f <= s.search.f0 && !unseen));
    if (accept) {
        s.action = Action::absorb;
    } else if (ending || spent) {
        if (!ending) s.pending = Status::max_evaluations;
        if (finite && f < s.f) {
            s.action = Action::absorb;
        } else {
            finish(s, s.pending);
        }
    } else if (info == SearchInfo::searching) {
        s.action = Action::step;
        // The last evaluation goes to the best step so far, so that the run ends there.
        if (s.evaluations + 1 == o.max_evaluations && return_to_best(s, Status::max_evaluations))
            s.info = info;
    } else if (unseen && s.search.bracketed && s.stalls > 0 && promises_little(s, o) &&
               gradient_promises_little(s, o)) {
        finish(s, Status::decrease);  // farther on f was seen to rise
    } else {
        search_failed(s, o, info, finite ? f : double_infinity);
    }
    s.steady = accept && s.search.evaluations == 1;
    if (s.action == Action::absorb) {
        s.info = info;
        s.step = s.search.step = tried;
        s.f_before = s.f;
        s.f = f;
        s.accepted = 1;
        ++s.iterations;
    }
}

// Whether the trial point to be judged next is likely to be accepted: the first of its search, after a search
// that took its first. A target may then absorb it in the sweep that measures the slope.
SW_HD bool expects_acceptance(const State& s) {
    return s.steady && s.pending == Status::running && s.search.evaluations == 0;
}

// A run that makes no headway ends; but one that may have lost its way only after it was tried without the
// pairs, and with a scale that says something; and if there is none, not as one that has converged.
constexpr int32_t tried_in_vain = 1 << 30;  // number of stalls
SW_HD_CALLED void end_or_go_on(State& s, const Options& o) {
    const bool collapsed = has_collapsed(s, o);
    if (s.stalls < tried_in_vain &&
        (collapsed ? renew_scale(s, o, NewScale::longer) : has_stale_pairs(s, o))) {
        s.stalls = tried_in_vain;
        aim_without_history(s);
    } else {
        finish(s, collapsed || o.ftol == 0 ? Status::rounding : Status::decrease);
    }
}

// The share of the Cauchy step's descent below which a projected direction is refused, and the share of such
// a direction below which a search has not got anywhere along it.
constexpr double min_descent = 0.1;
constexpr double min_step = 1e-3;

// After the aim sweep. Scalar.
SW_HD void decide_aim(State& s, const Options& o, const AimTotals& found) {
    if (s.confine == Confine::measure) {
        s.truncation = min_of(1.0, found.truncation);
        s.confine = Confine::truncate;
        return;
    }
    s.slope = found.slope;
    s.direction_norm = square_root(found.direction_squared);
    s.step_limit = found.step_limit;
    // Projecting may leave a direction that hardly descends, along which runs crawl to a halt far from any
    // minimum. The step to the Cauchy point promises about A t; a direction with less than a small part of
    // that is no better than one that ascends, and gets the same fallback. So does the next direction after
    // one of which next to nothing could be taken: near kinks projected steps lead across the same one again
    // and again, each time by less. A first step, whose length is a guess, says nothing of the kind.
    const bool projected = s.pairs > 0 && has_bounds(s, o) && s.confine == Confine::project;
    const double promised = projected ? min_descent * s.movable_descent * s.cauchy_time : 0.0;
    const bool crawls = projected && s.pairs > 1 && s.step < min_step * min_of(1.0, o.search.step_max);
    if (!(found.slope < -promised) || crawls || !is_finite(found.slope) ||
        !is_finite(found.direction_squared)) {
        s.info = SearchInfo::improper;
        if (projected) {
            s.confine = Confine::measure;
            ++s.truncations;
        } else if (s.pairs > 0 || renew_scale(s, o, NewScale::either)) {
            aim_without_history(s);
        } else {
            finish(s, found.direction_squared == 0 ? Status::rounding : Status::line_search);
        }
        return;
    }
    const bool just_tried = s.stalls == tried_in_vain && s.pairs == 0;
    if (!just_tried && (has_settled(s, o) || is_out_of_patience(s, o))) return end_or_go_on(s, o);
    const bool first = s.iterations == 0;
    double step = 1, step_max = o.search.step_max;
    if (!first || s.gamma != 1) {
        // the whole of it; so does a scale that was taken anew
    } else if (o.search.first_step_gradient) {
        step = 1 / s.projected_norm;
        // The shortest step allowed is far too long.
        if (long_way * step < o.search.step_min && renew_scale(s, o, NewScale::shorter)) return;
    } else if (!is_boxed(s, o) && !o.weighted) {
        step = 1 / s.direction_norm;  // nothing is known of the scale; a diagonal given says it
    }
    if (has_bounds(s, o)) step_max = first ? 1.0 : min_of(step_max, s.step_limit);
    if (!(step <= step_max)) step = step_max;
    start_search(s.search, o.search, s.f, s.slope, step, step_max, rounding_of_f(s, o));
    s.action = s.search.step == 1.0 ? Action::evaluate : Action::step;
}

SW_END
