// The LDLᵀ of core/quasi_newton/small_matrix.hpp for one warp and matrices up to 32 x 32, in registers: lane
// i holds row i, and values cross lanes by shuffles. Operation for operation the same as the generic team
// code, at a tenth of its latency: on a GPU the decisions wait for this chain of pivots.
#pragma once

#include "cuda/block.cuh"

SW_BEGIN

template <int most>
__device__ __noinline__ bool factor_ldlt_warp(double* a, int size, int negative) {
    const int lane = threadIdx.x & 31;
    double row[most];
#pragma unroll
    for (int j = 0; j < most; ++j) row[j] = lane < size && j <= lane && j < size ? a[lane * size + j] : 0.0;
    bool sound = true;
#pragma unroll
    for (int k = 0; k < most; ++k) {
        if (k < size && sound) {
            const double pivot = __shfl_sync(0xffffffffu, row[k], k);
            sound = (k < negative ? pivot < 0 : pivot > 0) && is_finite(pivot);
            const double inverse = 1 / pivot;
            const double l = row[k] * inverse;
#pragma unroll
            for (int j = k + 1; j < most; ++j) {
                const double other = __shfl_sync(0xffffffffu, row[k], j);
                if (j < size) row[j] = lane >= j ? row[j] - l * other : row[j];
            }
            row[k] = lane > k ? l : lane == k ? inverse : row[k];
        }
    }
#pragma unroll
    for (int j = 0; j < most; ++j) {
        if (lane < size && j <= lane && j < size) a[lane * size + j] = row[j];
    }
    __syncwarp();
    return sound;
}

// x <- L⁻¹ x.
__device__ __noinline__ void solve_lower_warp(const double* l, int size, double* x) {
    const int lane = threadIdx.x & 31;
    double mine = lane < size ? x[lane] : 0.0;
    for (int k = 0; k < size; ++k) {
        const double known = __shfl_sync(0xffffffffu, mine, k);
        if (lane > k && lane < size) mine -= l[lane * size + k] * known;
    }
    if (lane < size) x[lane] = mine;
    __syncwarp();
}

// x <- (L D Lᵀ)⁻¹ x.
__device__ __noinline__ void solve_ldlt_warp(const double* l, int size, double* x) {
    solve_lower_warp(l, size, x);
    const int lane = threadIdx.x & 31;
    double mine = lane < size ? x[lane] * l[lane * size + lane] : 0.0;
    for (int k = size - 1; k > 0; --k) {
        const double known = __shfl_sync(0xffffffffu, mine, k);
        if (lane < k) mine -= l[k * size + lane] * known;
    }
    if (lane < size) x[lane] = mine;
    __syncwarp();
}

__device__ inline bool factor_ldlt(Warp&, double* a, int size, int negative) {
    return factor_ldlt_warp<2 * SW_CAPACITY <= 32 ? 2 * SW_CAPACITY : 32>(a, size, negative);
}
__device__ inline void solve_lower(Warp&, const double* l, int size, double* x) {
    solve_lower_warp(l, size, x);
}
__device__ inline void solve_ldlt(Warp&, const double* l, int size, double* x) {
    solve_ldlt_warp(l, size, x);
}

SW_END
