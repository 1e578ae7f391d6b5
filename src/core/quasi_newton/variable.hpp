// What happens to one variable: the sweeps of every target call these.
#pragma once

#include "core/common/config.hpp"

SW_BEGIN

// Pressed against a bound by the gradient, or fixed: this variable may not move.
SW_HD bool is_held(double x, double g, double lower, double upper) {
    // Bitwise, not short-circuit: the loops that call this must vectorise.
    return (lower == upper) | ((x <= lower) & (g >= 0)) | ((x >= upper) & (g <= 0));
}

// Where the path x - t * descent meets a bound (Byrd et al. 1995, eq. 4.1); infinity if it never does.
SW_HD double breakpoint(double x, double descent, double lower, double upper) {
    const double room = x - (descent < 0 ? upper : lower);  // one division: it is what this costs
    return (descent < 0) | (descent > 0) ? room / descent : double_infinity;
}

// Component of the projected gradient: the gradient cut where the unit step down meets a bound.
SW_HD double projected_gradient(double x, double g, double lower, double upper) {
    return g < 0 ? max_of(x - upper, g) : min_of(x - lower, g);
}

// The bound that the path x - t * descent runs towards.
SW_HD double bound_ahead(double descent, double lower, double upper) {
    return descent < 0 ? upper : lower;
}

// The largest multiple of a step that stays inside the bounds.
SW_HD double feasible_multiple(double x, double step, double lower, double upper) {
    const double room = (step < 0 ? lower : upper) - x;
    return (step < 0) | (step > 0) ? room / step : double_infinity;
}

// A variable that aims at `goal` = x + step, put inside its bounds. The step of one that stays strictly
// inside is left as it is, since the difference of two points would lose digits; elsewhere it is that
// difference, since x + step may round to a bound beyond which the step itself points.
struct Aimed {
    double place, step;
};

SW_HD Aimed aim_within(double x, double goal, double step, bool held, double lower, double upper) {
    const double inside = clamp_to(goal, lower, upper);
    const double place = held ? x : inside;
    const bool untouched = !held & (goal > lower) & (goal < upper);
    return {place, untouched ? step : place - x};
}

// x + step, exactly on the bound where it arrives there but for rounding, and never outside.
template <class T>
SW_HD T move_within(T x, double step, T lower, T upper) {
    const double slack = 4 * (sizeof(T) == 4 ? 1.1920929e-07 : double_epsilon);
    const T bound = step < 0 ? lower : upper;
    const double room = (double(bound) - double(x)) * (1 - slack);
    const bool arrives = (step < 0) ? step <= room : (step > 0) & (step >= room);
    const T moved = clamp_to(T(double(x) + step), lower, upper);
    return arrives ? bound : moved;
}

SW_END
