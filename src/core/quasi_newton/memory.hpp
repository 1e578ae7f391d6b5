// Where the vectors of a batch of problems lie, on the host or on a device: filled once, where they are
// allocated.
#pragma once

#include "core/quasi_newton/state.hpp"

namespace stepwell {

// Arrays are (batch, n) unless said; bounds and weights may be shared by the batch. Kept: the type of the
// history; the host, where it is known at run time, counts bytes.
template <class Real, class Kept = Real>
struct BatchMemory {
    int64_t batch, n, stride;  // stride: from one history row to the next, in words of Kept
    State* states;
    double* small;  // (batch, 3 slots²): products of pairs
    Real *x, *g, *d, *trial;
    Kept *s, *y;                // (batch, slots, stride): ring buffers
    const Real *lower, *upper;  // both or neither
    const Real* weights;        // diagonal of H0, or null
    // From one variable to the next: 1, or 0 where one number bounds them all.
    uint8_t lower_step, upper_step;
    bool own_bounds, own_weights;  // each problem has its own
};

// Those of one problem.
template <class Real, class Kept = Real>
struct ProblemVectors {
    int64_t n, stride;
    Real *x, *g, *d, *trial;
    Kept *s, *y;
    const Real *lower, *upper, *weights;
    uint8_t lower_step, upper_step;
};

}  // namespace stepwell

SW_BEGIN

template <class Real, class Kept>
SW_HD ProblemVectors<Real, Kept> vectors_of(const BatchMemory<Real, Kept>& b, int64_t problem, int slots) {
    const int64_t at = problem * b.n, history = problem * slots * b.stride;
    return {b.n,
            b.stride,
            b.x + at,
            b.g + at,
            b.d + at,
            b.trial + at,
            b.s + history,
            b.y + history,
            b.lower ? b.lower + (b.own_bounds ? at * b.lower_step : 0) : nullptr,
            b.upper ? b.upper + (b.own_bounds ? at * b.upper_step : 0) : nullptr,
            b.weights ? b.weights + (b.own_weights ? at : 0) : nullptr,
            b.lower_step,
            b.upper_step};
}

SW_END
