// The state of one problem: scalars only. Vectors belong to the target, small matrices to compact.hpp.
#pragma once

#include "core/common/config.hpp"

namespace stepwell {

// Why a run ended. The Python enum stepwell.Status carries the messages; a test holds the two together.
enum class Status : int32_t {
    running = 0,
    gradient = 1,       // projected gradient below gtol
    decrease = 2,       // relative decrease of f below ftol
    gradient_norm = 3,  // |g| <= eps * max(1, |x|)
    target = 4,         // f reached the target
    max_iterations = 5,
    max_evaluations = 6,
    time_limit = 7,
    line_search = 8,       // no acceptable step even along the (scaled) gradient; info says why
    rounding = 9,          // no representable decrease left
    nonfinite_start = 10,  // f or g not finite at x0
    nonfinite = 11,        // f or g not finite at every step tried
    callback = 12,         // stopped by the caller
};

// Outcome of a line search: the codes of MCSRCH.
enum class SearchInfo : int32_t {
    improper = 0,  // the direction does not descend
    converged = 1,
    interval = 2,     // interval of uncertainty narrower than xtol
    evaluations = 3,  // maxls evaluations
    step_min = 4,
    step_max = 5,
    rounding = 6,
    searching = -1,
};

// How the aim sweep confines the subspace minimiser to the bounds: project it (Morales & Nocedal 2011); where
// that does not descend, measure how far the way from the Cauchy point stays feasible, then cut the step
// there.
enum class Confine : int32_t { project = 0, measure = 1, truncate = 2 };

// What the options say of the bounds of a whole batch need not be so for each of its problems, which take the
// steps that they would take alone.
enum class OwnBounds : int8_t { as_options = 0, none = 1, boxed = 2 };

// A turn may be cut after the line search has decided, so that the caller can supply the diagonal of an
// accepted point: up to there, and the rest.
enum class TurnPart { whole, begin, finish };

// What the target must do next: a sweep, whose sums the decision of that name is taken from (decide.hpp).
// `evaluate` waits for the caller's f and g, and ends with the slope along the direction.
enum class Action : int32_t {
    evaluate,
    absorb,
    list_breaks,  // these three: the exact Cauchy point (cauchy_walk.hpp)
    count_breaks,
    sum_ties,
    regather,
    aim,
    step,
    done,
};

struct LineSearch {
    double f0, slope0;                   // at step 0
    double best, f_best, slope_best;     // end of the interval with the least function value
    double other, f_other, slope_other;  // the other end
    double low, high;                    // limits of the next trial
    double step;                         // current trial
    double step_max;                     // largest step allowed in this search
    double resolution;                   // rounding error of f0: smaller differences of f are not seen
    double width, width_before;          // of the interval of uncertainty
    int32_t bracketed, stage, evaluations;
    int32_t nonfinite;  // some trial of this search was not finite
};

// Where a walk along the projected path has come to, between its actions; q and r of cauchy.hpp are kept in
// the scratch memory of the decisions. Times are numbered as cauchy_walk.hpp says.
struct CauchyWalk {
    uint64_t above;  // breakpoints up to here are crossed
    uint64_t high;   // the selection: breakpoints in (above, high]; bins cover the same
    double range;    // how far selections reach for now
    double moving;   // Σ h g² over the variables that still move
    int16_t ranges;  // how often the range has grown
    int16_t shift;   // a bin is 2^shift times wide
    int32_t lists;   // selections crossed
};

struct State {
    LineSearch search;
    CauchyWalk walk;
    double f;                   // at the accepted point
    double f_before;            // one iteration earlier
    double decrease_before;     // of f, in the iteration before the last
    double slope;               // g·d along the current direction
    double gamma;               // H0 = gamma I, 1/theta of Byrd et al.; 1 with a user diagonal
    double projected_gradient;  // maximum norm
    double projected_norm;      // Euclidean norm of the projected gradient
    double gradient_norm, x_norm;
    double direction_norm;
    double step;             // step length of the last accepted iteration
    double step_limit;       // largest feasible multiple of the direction
    double cauchy_time;      // t of the generalized Cauchy point
    double carry_time;       // variables with breakpoint <= carry_time go to their bound; negative: none
    double truncation;       // Morales–Nocedal fallback: fraction of the subspace step
    double first_break;      // smallest breakpoint
    double movable_descent;  // sum over movable variables of h g²
    int64_t iterations, evaluations;
    int64_t held;                                        // variables pressed against a bound
    int32_t cauchy_walks, truncations, resets, skipped;  // how often the rarer branches were taken
    int32_t head, pairs;                                 // ring: next slot to write, pairs held
    // (Two blocks of a device share a multiprocessor's memory to the last bytes: these are short.)
    int8_t started, accepted;
    int8_t steady;  // the last search took its first trial point
    OwnBounds own_bounds;
    int32_t stalls;  // iterations running in which f fell by no more than ftol, and not ever faster
    Confine confine;
    SearchInfo info;
    Status status, pending;  // pending: end with this once the current point is absorbed
    Action action;
};

}  // namespace stepwell
