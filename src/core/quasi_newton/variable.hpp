// What happens to one variable: the sweeps of every target call these. No branches but on what is the same
// for all variables: the loops that call these must vectorise.
#pragma once

#include "core/quasi_newton/state.hpp"

SW_BEGIN

// Pressed against a bound by the gradient, or fixed (then it lies on both bounds): this variable may not
// move. Here and below, V is a number or a vector register of them.
template <class V>
SW_HD auto is_held(V x, V g, V lower, V upper) {
    // Bitwise, not short-circuit.
    return ((x <= lower) & (g >= 0.0)) | ((x >= upper) & (g <= 0.0));
}

// Where the path x - t * descent meets a bound (Byrd et al. 1995, eq. 4.1); infinity if it never does.
template <class V>
SW_HD V breakpoint(V x, V descent, V lower, V upper) {
    const V distance = x - (descent < 0.0 ? upper : lower);  // one division: it is what this costs
    return (descent < 0.0) | (descent > 0.0) ? distance / descent : V{} + double_infinity;
}

// Whether a bound may be met before `time`: true wherever breakpoint() is smaller, and seldom elsewhere; of
// variables that are not held. It costs no division: where the path is by then. A breakpoint n/d rounds to
// less than t only if n < t d, and a little later than t no rounding of n or of the place can hide that.
// (Breakpoints after 1e300 count as none.)
template <class V>
SW_HD auto may_break_before(V time, V x, V descent, V lower, V upper) {
    const V later = min_of(time, V{} + 1e300) * (1 + 4 * double_epsilon);  // infinity times 0 is no number
    const V place = x - later * descent;
    return (place <= lower) | (place >= upper);
}

// A time after this one: before it is what is not after `time`.
SW_HD double later_than(double time) {
    return max_of(time * (1 + 2 * double_epsilon), 1e-290);
}

// Component of the projected gradient: the gradient cut where the unit step down meets a bound.
template <class V>
SW_HD V projected_gradient(V x, V g, V lower, V upper) {
    return min_of(max_of(g, x - upper), x - lower);
}

// The bound that the path x - t * descent runs towards.
SW_HD double bound_ahead(double descent, double lower, double upper) {
    return descent < 0 ? upper : lower;
}

// The largest multiple of a step that stays inside the bounds.
template <class V>
SW_HD V feasible_multiple(V x, V step, V lower, V upper) {
    const V distance = (step < 0.0 ? lower : upper) - x;
    return (step < 0.0) | (step > 0.0) ? distance / step : V{} + double_infinity;
}

// The same of a feasible multiple, by n < t d itself: where the step is 0 there is none.
template <class V>
SW_HD auto may_limit_below(V multiple, V x, V step, V lower, V upper) {
    const V distance = (step < 0.0 ? lower : upper) - x;
    return ((multiple * step - distance) * step >= 0.0) & (step != 0.0);
}

// A variable that aims at `goal` = x + step, put inside its bounds. The step of one that stays strictly
// inside is left as it is, since the difference of two points would lose digits; elsewhere it is that
// difference, since x + step may round to a bound beyond which the step itself points.
template <class V>
struct AimedAt {
    V goal, step;
};
typedef AimedAt<double> Aimed;

template <class V, class Held>
SW_HD AimedAt<V> aim_within(V x, V goal, V step, Held held, V lower, V upper) {
    const V inside = clamp_to(goal, lower, upper), place = held ? x : inside;
    const V moved = (goal > lower) & (goal < upper) ? step : place - x;
    return {place, held ? place - x : moved};
}

// A variable at an accepted point, as the first read of the history sees it.
struct VariableStatus {
    double time;       // its breakpoint; infinity if it is held or never meets a bound
    double mask;       // 1 if it moves freely, else 0
    double projected;  // component of the projected gradient
    double carried;    // its way to the bound, if the Cauchy path carries it there: breakpoint <= carry_time
};

// `again`: the sums are taken again with carried variables; else nobody is carried yet.
template <bool again>
SW_HD VariableStatus classify_variable(double x, double g, double descent, double lower, double upper,
                                       double carry_time) {
    const bool movable = !is_held(x, g, lower, upper);
    const double t = breakpoint(x, descent, lower, upper);
    const double time = movable ? t : double_infinity;
    if (!again) return {time, movable ? 1.0 : 0.0, projected_gradient(x, g, lower, upper), 0.0};
    const bool goes = time <= carry_time;
    const double way = bound_ahead(descent, lower, upper) - x;
    return {time, movable & !goes ? 1.0 : 0.0, 0.0, goes ? way : 0.0};
}

// How the aim sweep treats all variables (see Confine).
struct AimRule {
    Confine confine;
    bool carries;  // whether there are carried variables: their breakpoints cost a division
    double carry_time, cauchy_time, truncation;
};

SW_HD AimRule aim_rule(const State& s) {
    return {s.confine, s.carry_time >= 0, s.carry_time, s.cauchy_time, s.truncation};
}

SW_HD bool is_carried(const AimRule& rule, bool held, double x, double descent, double lower, double upper) {
    return rule.carries ? !held & (breakpoint(x, descent, lower, upper) <= rule.carry_time) : false;
}

// The subspace minimiser at one variable, `goal` = x + step, confined to the bounds: carried variables go to
// theirs, held ones stay, the rest are put inside.
SW_HD Aimed aim_variable(const AimRule& rule, double x, double g, double descent, double goal, double step,
                         double lower, double upper) {
    const bool held = is_held(x, g, lower, upper);
    const bool goes = is_carried(rule, held, x, descent, lower, upper);
    if (rule.confine == Confine::truncate) {
        const double cauchy = clamp_to(x - rule.cauchy_time * descent, lower, upper);
        goal = cauchy + rule.truncation * (goal - cauchy);
        step = goal - x;
    }
    const Aimed aimed = aim_within(x, goal, step, held, lower, upper);
    const double bound = bound_ahead(descent, lower, upper);
    return {goes ? bound : aimed.goal, goes ? bound - x : aimed.step};
}

// Confine::measure: the largest feasible fraction of the way from the Cauchy point to the goal.
SW_HD double feasible_fraction(const AimRule& rule, double x, double g, double descent, double goal,
                               double lower, double upper) {
    const bool held = is_held(x, g, lower, upper);
    const bool goes = is_carried(rule, held, x, descent, lower, upper);
    const double cauchy = clamp_to(x - rule.cauchy_time * descent, lower, upper);
    const double reach = feasible_multiple(cauchy, goal - cauchy, lower, upper);
    return held | goes ? double_infinity : reach;
}

// x + step, exactly on the bound where it arrives there but for rounding, and never outside.
template <class T>
SW_HD T move_within(T x, double step, T lower, T upper) {
    const double rounding = 4 * (sizeof(T) == 4 ? 1.1920929e-07 : double_epsilon);
    const T bound = step < 0 ? lower : upper;
    const double distance = (double(bound) - double(x)) * (1 - rounding);
    const bool arrives = (step < 0) ? step <= distance : (step > 0) & (step >= distance);
    const T moved = clamp_to(T(double(x) + step), lower, upper);
    return arrives ? bound : moved;
}

SW_END
