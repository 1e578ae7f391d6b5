// What the threads of a block have found in a sweep, besides products of rows, in the order in which
// decisions are told.
#pragma once

#include "cuda/quasi_newton/shared_memory.cuh"

SW_BEGIN

// The scalars of the absorb sweep, behind its sums: five sums, then the largest, then the smallest.
constexpr unsigned int absorb_extrema = 1u << 10 | 2u << 12;
struct AbsorbKinds {
    int first;
    __device__ Fold operator()(int j) const {
        return j < first ? Fold::sum : kind_among(absorb_extrema, j - first);
    }
};
__device__ inline Numbers numbers_of(const AbsorbShare& found) {
    const AbsorbTotals& mine = found.scalars;
    return {{mine.movable_descent, mine.gradient_squared, mine.projected_squared, mine.x_squared,
             double(found.held), double(found.largest), mine.first_break},
            AbsorbTotals::count,
            absorb_extrema,
            found.slope};
}

// Those of the aim sweep, before the slope: one sum, two smallest.
constexpr unsigned int aim_extrema = 2u << 2 | 2u << 4;
__device__ inline Numbers numbers_of(const AimTotals& mine, const CarefulSum& slope) {
    return {{mine.direction_squared, mine.step_limit, mine.truncation}, 3, aim_extrema, slope};
}

// Between two syncs.
__device__ inline void make_plan(AimPlan& plan, const State& state, int64_t stride,
                                 const double* coefficients) {
    const int r = state.pairs;
    SW_ROLLED
    for (int a = threadIdx.x; a < capacity; a += threads) {
        plan.offsets[a] = int64_t(slot_of(a < r ? a : 0, state.head, r, slots)) * stride;
        plan.y[a] = a < r ? coefficients[a] : 0.0;
        plan.s[a] = a < r ? coefficients[r + a] : 0.0;
    }
}

SW_END
