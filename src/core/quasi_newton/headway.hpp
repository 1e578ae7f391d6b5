// Whether a run makes headway: what f can still be expected to fall by, and whether the pairs and the scale
// of H0 that say so can be trusted. Scalar.
#pragma once

#include "core/quasi_newton/options.hpp"
#include "core/quasi_newton/state.hpp"

SW_BEGIN

// What differences of f are made of, where they are no larger.
SW_HD double rounding_of_f(const State& s, const Options& o) {
    return o.f_rounding * absolute(s.f);
}

// The decrease of f in one iteration that is no more than ftol.
SW_HD double smallest_decrease(const State& s, const Options& o) {
    return o.ftol * max_of(max_of(absolute(s.f_before), absolute(s.f)), 1.0);
}

// Whether the model promises no more: half its slope is the way to its minimum.
SW_HD bool promises_little(const State& s, const Options& o) {
    return o.ftol > 0 && -0.5 * s.slope <= smallest_decrease(s, o);
}

// The same of H0, without the pairs. (Old ones may have a curvature that is long past, and hold x by it.)
SW_HD bool gradient_promises_little(const State& s, const Options& o) {
    return o.weighted || 0.5 * s.gamma * s.projected_norm * s.projected_norm <= smallest_decrease(s, o);
}

// Whether the last step was as long as a search makes any: the direction was too short, and the model that it
// came from promises too little.
SW_HD bool went_to_the_limit(const State& s, const Options& o) {
    return s.step > 1 && s.step >= o.search.step_max;
}

// Takes the scale of H0 anew: no variable moves by more than 1, as in the first step of all, or by so much
// that x can be seen to change. (The last pair may come from a place where f was steeper by forty orders of
// magnitude. A step of the length that it suggests changes neither x nor f, and squares of such a gradient
// overflow.) False if that is about the scale in use, or if it lies on the other side; a diagonal given says
// what the scale is.
constexpr double long_way = 1e3;  // for a search; what is less it finds by itself
enum class NewScale { longer, shorter, either };
SW_HD_CALLED bool renew_scale(State& s, const Options& o, NewScale wanted) {
    const double seen = square_root(o.f_rounding) * s.x_norm;
    const double length = is_finite(seen) ? max_of(1.0, seen) : 1.0;
    const double scale = length / s.projected_gradient;
    const bool longer = long_way * s.gamma <= scale, shorter = s.gamma >= long_way * scale;
    const bool fits = wanted == NewScale::longer    ? longer
                      : wanted == NewScale::shorter ? shorter
                                                    : longer || shorter;
    if (o.weighted || !is_finite(scale) || !fits) return false;
    s.gamma = scale;
    return true;
}

// Whether the last iteration lowered f by no more than that.
SW_HD bool stalls(const State& s, const Options& o) {
    return !(s.f_before - s.f > smallest_decrease(s, o));
}

// Counts iterations running in which f fell by no more than ftol. One that lowers f by half as much again as
// the one before does not count: a run that leaves a plateau or a saddle begins with such steps, one that
// converges has ever smaller ones.
constexpr double growth = 1.5;
constexpr int32_t most_stalls = 0x7fffffff;
SW_HD void count_stall(State& s, const Options& o) {
    const double decrease = s.f_before - s.f;
    const bool grows = s.iterations > 1 && decrease > growth * s.decrease_before + rounding_of_f(s, o);
    if (!stalls(s, o)) {
        s.stalls = 0;
    } else if ((!grows || o.patience == 1) && s.stalls < most_stalls) {
        ++s.stalls;
    }
    s.decrease_before = decrease;
}

// Whether the projected gradient is small beside f.
constexpr double settled_gradient = 1e-4;  // ten times the default of gtol
SW_HD bool has_small_gradient(const State& s) {
    return s.projected_gradient <= settled_gradient * max_of(1.0, absolute(s.f));
}

// Whether f has come to its minimum by all that is known: the last iteration lowered it by no more than ftol,
// the model promises no more for the next one and was not refuted by the last search, and the projected
// gradient is small beside f, or what is promised is less than the rounding of f and the gradient alone
// promises little. Where one of these speaks against it, ftol has to hold for longer (is_out_of_patience): a
// single short step, across a kink or along a poor direction, says little.
SW_HD bool has_settled(const State& s, const Options& o) {
    return s.stalls > 0 && promises_little(s, o) && !went_to_the_limit(s, o) &&
           (has_small_gradient(s) ||
            (-s.slope <= 0.1 * rounding_of_f(s, o) && gradient_promises_little(s, o)));
}

SW_HD bool is_out_of_patience(const State& s, const Options& o) {
    return s.stalls >= (o.ftol > 0 ? o.patience : 1);
}

// Whether the scale of H0 is too short to say anything: the gradient is not small, but along all of it x
// would not move by a thousandth of its rounding. What little the iterations change is then what a few pairs
// know of.
SW_HD_CALLED bool has_collapsed(const State& s, const Options& o) {
    return !o.weighted && !has_small_gradient(s) &&
           1e3 * s.gamma * s.projected_gradient <= o.f_rounding * s.x_norm;
}

// Whether the gradient alone promises more than ftol, and the model hardly any of it, or had to be given up:
// the pairs hold x by a curvature that is long past.
constexpr double kept_promise = 1e-6;
SW_HD_CALLED bool has_stale_pairs(const State& s, const Options& o) {
    const double promised = s.gamma * s.projected_norm * s.projected_norm;
    return !has_small_gradient(s) && !gradient_promises_little(s, o) &&
           (s.pairs == 0 || -s.slope <= kept_promise * promised);
}

// Whether it is to be seen, once the next step is known, that a run which is out of patience has only lost
// its way.
SW_HD bool may_go_on(const State& s, const Options& o) {
    return has_collapsed(s, o) || (s.pairs > 0 && !has_small_gradient(s) && !gradient_promises_little(s, o));
}

SW_END
