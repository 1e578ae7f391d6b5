// The Moré–Thuente line search (ACM TOMS 20, 1994) as a state machine: one evaluation, one call.
//
// phi(step) = f(x + step d). The interval of uncertainty has its ends at `best` (least phi so far) and
// `other`. While no step with sufficient decrease and non-negative slope is known (stage 1), the modified
// function psi(step) = phi(step) - phi(0) - decrease * slope(0) * step takes phi's place in the
// interpolation.
#pragma once

#include "core/quasi_newton/options.hpp"
#include "core/quasi_newton/state.hpp"

SW_BEGIN

// One end of the interval, or the trial: position, value, slope.
struct Sample {
    double at, f, slope;
};

// Divisions of the search, all in one place: each is much code on a device, where one thread searches.
SW_HD_CALLED double quotient(double a, double b) {
    return a / b;
}

// The root of the cubic through two samples that lies towards a minimiser, as the fraction of the way from
// `to`'s partner; Moré & Thuente section 4. `sign` picks the root; `clip` keeps the discriminant non-negative
// (case 3).
SW_HD_CALLED double cubic_gamma(double theta, double a, double b, bool clip) {
    const double scale = max_of(absolute(theta), max_of(absolute(a), absolute(b)));
    if (scale == 0) return 0;
    const double t = quotient(theta, scale);
    double inside = t * t - quotient(a, scale) * quotient(b, scale);
    if (clip || inside < 0) inside = max_of(0.0, inside);
    return scale * square_root(inside);
}

// Chooses the next trial from the two ends and the current trial, and updates the ends (Moré & Thuente,
// section 4).
SW_HD double next_trial(Sample& best, Sample& other, const Sample& trial, bool& bracketed, double low,
                        double high, bool guard_first_case) {
    const bool opposite = trial.slope * (best.slope < 0 ? -1.0 : 1.0) < 0;
    const double span = trial.at - best.at;
    double theta = quotient(3 * (best.f - trial.f), span) + best.slope + trial.slope;
    double next;
    bool guard = false;
    if (trial.f > best.f) {
        // Case 1: phi rose. The minimum is bracketed; cubic step if it is closer to best, else halfway to
        // quadratic.
        double gamma = cubic_gamma(theta, best.slope, trial.slope, false);
        if (span < 0) gamma = -gamma;
        const double p = (gamma - best.slope) + theta;
        const double q = ((gamma - best.slope) + gamma) + trial.slope;
        const double cubic = best.at + quotient(p, q) * span;
        const double quadratic =
            best.at + quotient(best.slope, quotient(best.f - trial.f, span) + best.slope) / 2 * span;
        next = absolute(cubic - best.at) < absolute(quadratic - best.at) ? cubic
                                                                         : cubic + (quadratic - cubic) / 2;
        bracketed = true;
        guard = guard_first_case;
    } else if (opposite) {
        // Case 2: lower value, slope of the other sign. Bracketed; the step farther from the trial.
        double gamma = cubic_gamma(theta, best.slope, trial.slope, false);
        if (span > 0) gamma = -gamma;
        const double p = (gamma - trial.slope) + theta;
        const double q = ((gamma - trial.slope) + gamma) + best.slope;
        const double cubic = trial.at - quotient(p, q) * span;
        const double secant = trial.at - quotient(trial.slope, trial.slope - best.slope) * span;
        next = absolute(cubic - trial.at) > absolute(secant - trial.at) ? cubic : secant;
        bracketed = true;
    } else if (absolute(trial.slope) < absolute(best.slope)) {
        // Case 3: lower value, same sign, flatter. The cubic may have no minimiser in that direction.
        double gamma = cubic_gamma(theta, best.slope, trial.slope, true);
        if (span > 0) gamma = -gamma;
        const double p = (gamma - trial.slope) + theta;
        const double q = (gamma + (best.slope - trial.slope)) + gamma;
        const double r = quotient(p, q);
        const double cubic = r < 0 && gamma != 0 ? trial.at - r * span : span > 0 ? high : low;
        const double secant = trial.at - quotient(trial.slope, trial.slope - best.slope) * span;
        const bool cubic_closer = absolute(trial.at - cubic) < absolute(trial.at - secant);
        next = cubic_closer == bracketed ? cubic : secant;
        guard = bracketed;
    } else if (bracketed) {
        // Case 4: lower value, same sign, not flatter: cubic through the trial and the other end.
        const double reach = other.at - trial.at;
        theta = quotient(3 * (trial.f - other.f), reach) + other.slope + trial.slope;
        double gamma = cubic_gamma(theta, other.slope, trial.slope, false);
        if (reach < 0) gamma = -gamma;
        const double p = (gamma - trial.slope) + theta;
        const double q = ((gamma - trial.slope) + gamma) + other.slope;
        next = trial.at + quotient(p, q) * reach;
    } else {
        next = span > 0 ? high : low;
    }
    if (trial.f > best.f) {
        other = trial;
    } else {
        if (opposite) other = best;
        best = trial;
    }
    if (!bracketed) next = clamp_to(next, low, high);
    if (bracketed && guard) {
        const double limit = best.at + 0.66 * (other.at - best.at);
        next = other.at > best.at ? min_of(limit, next) : max_of(limit, next);
    }
    return next;
}

SW_HD void limit_next_trial(LineSearch& s, const LineSearchOptions& o) {
    if (s.bracketed) {
        s.low = min_of(s.best, s.other);
        s.high = max_of(s.best, s.other);
    } else {
        s.low = o.extrapolate_low > 0 ? s.step + o.extrapolate_low * (s.step - s.best) : s.best;
        s.high = s.step + o.extrapolate_high * (s.step - s.best);
    }
}

SW_HD void start_search(LineSearch& s, const LineSearchOptions& o, double f0, double slope0, double step,
                        double step_max, double resolution) {
    s.f0 = s.f_best = s.f_other = f0;
    s.slope0 = s.slope_best = s.slope_other = slope0;
    s.best = s.other = 0;
    s.step_max = step_max;
    s.resolution = resolution;
    s.step = clamp_to(step, o.step_min, step_max);
    s.width = step_max - o.step_min;
    s.width_before = 2 * s.width;
    s.bracketed = 0;
    s.stage = 1;
    s.evaluations = 0;
    s.nonfinite = 0;
    s.low = 0;
    s.high = s.step + o.extrapolate_high * s.step;
}

// Takes phi and its slope at s.step. Returns `searching` with a new s.step, `converged`, or why it gave up.
SW_HD SearchInfo advance_search(LineSearch& s, const LineSearchOptions& o, double f, double slope) {
    ++s.evaluations;
    const double decrease_slope = o.decrease * s.slope0;
    // A decrease that f has no digits for is not asked of it: where f is of single precision, f_test is of
    // double.
    const double asked = -s.step * decrease_slope;
    const double f_test = s.f0 - (asked < 0.25 * s.resolution ? 0.0 : asked);
    const double rise = o.stage_two_needs_rise ? 0.0 : min_of(o.decrease, o.curvature) * s.slope0;
    if (s.stage == 1 && f <= f_test && slope >= rise) s.stage = 2;

    // Later tests outrank earlier ones, as in MCSRCH.
    SearchInfo info = SearchInfo::searching;
    if (s.bracketed && (s.step <= s.low || s.step >= s.high)) info = SearchInfo::rounding;
    if (s.step == s.step_max && f <= f_test && slope <= decrease_slope) info = SearchInfo::step_max;
    if (s.step == o.step_min && (f > f_test || slope >= decrease_slope)) info = SearchInfo::step_min;
    if (s.evaluations >= o.max_evaluations) info = SearchInfo::evaluations;
    if (s.bracketed && s.high - s.low <= o.interval * s.high) info = SearchInfo::interval;
    if (f <= f_test && absolute(slope) <= o.curvature * -s.slope0) info = SearchInfo::converged;
    if (info != SearchInfo::searching) return info;

    const bool modified = s.stage == 1 && f <= s.f_best && f > f_test;
    const double tilt = modified ? decrease_slope : 0.0;
    Sample best{s.best, s.f_best - s.best * tilt, s.slope_best - tilt};
    Sample other{s.other, s.f_other - s.other * tilt, s.slope_other - tilt};
    const Sample trial{s.step, f - s.step * tilt, slope - tilt};
    bool bracketed = s.bracketed != 0;
    double next = next_trial(best, other, trial, bracketed, s.low, s.high, o.guard_first_case != 0);
    s.best = best.at, s.f_best = best.f + best.at * tilt, s.slope_best = best.slope + tilt;
    s.other = other.at, s.f_other = other.f + other.at * tilt, s.slope_other = other.slope + tilt;
    s.bracketed = bracketed;
    if (!is_finite(next)) next = s.bracketed ? s.best + 0.5 * (s.other - s.best) : s.high;  // f of 1e308, say

    if (s.bracketed) {
        // Bisect where the interval does not shrink by a third in two steps.
        if (absolute(s.other - s.best) >= 0.66 * s.width_before) next = s.best + 0.5 * (s.other - s.best);
        s.width_before = s.width;
        s.width = absolute(s.other - s.best);
    }
    s.step = clamp_to(next, o.step_min, s.step_max);
    limit_next_trial(s, o);
    const bool exhausted =
        s.bracketed && (s.step <= s.low || s.step >= s.high || s.high - s.low <= o.interval * s.high);
    if (exhausted || (o.last_at_best && s.evaluations >= o.max_evaluations - 1)) s.step = s.best;
    return SearchInfo::searching;
}

// f or its gradient was not finite at s.step: back off towards the best step, never to return that far.
SW_HD SearchInfo retreat_search(LineSearch& s, const LineSearchOptions& o) {
    ++s.evaluations;
    s.nonfinite = 1;
    if (s.evaluations >= o.max_evaluations) return SearchInfo::evaluations;
    s.step_max = s.step;
    s.step = s.best + 0.1 * (s.step - s.best);
    limit_next_trial(s, o);
    s.high = min_of(s.high, s.step_max);
    return s.step <= o.step_min ? SearchInfo::step_min : SearchInfo::searching;
}

SW_END
