// The Square team: a block as 16 rows of 16 lanes, one thread for each element of the small matrices of the
// decisions. Triangular solves are chains, so one warp takes them, with the vector in its registers.
#pragma once

#include "cuda/block.cuh"

SW_BEGIN

struct Square {
    __device__ int rank() const { return threadIdx.x; }
    __device__ int size() const { return blockDim.x; }
    __device__ int lane() const { return threadIdx.x & 15; }
    __device__ int lanes() const { return 16; }
    __device__ int row() const { return threadIdx.x >> 4; }
    __device__ int rows() const { return blockDim.x >> 4; }
    __device__ void sync() const { __syncthreads(); }
};

// x <- L⁻¹ x for size <= 32, see core/quasi_newton/small_matrix.hpp.
__device__ __noinline__ double solve_lower_warp(const double* a, int size, double mine) {
    const int lane = threadIdx.x & 31;
#pragma unroll 4
    for (int k = 0; k < size; ++k) {
        const double l = lane > k && lane < size ? a[k * size + lane] : 0.0;
        mine -= l * __shfl_sync(0xffffffffu, mine, k);
    }
    return mine;
}

__device__ inline void solve_lower(Square& team, const double* a, int size, double* x) {
    if (threadIdx.x < 32) {
        const int lane = threadIdx.x;
        const double mine = solve_lower_warp(a, size, lane < size ? x[lane] : 0.0);
        if (lane < size) x[lane] = mine;
    }
    team.sync();
}

__device__ inline void solve_ldlt(Square& team, const double* a, int size, double* x) {
    if (threadIdx.x < 32) {
        const int lane = threadIdx.x;
        double mine = solve_lower_warp(a, size, lane < size ? x[lane] : 0.0);
        if (lane < size) mine *= a[lane * size + lane];
#pragma unroll 4
        for (int k = size - 1; k > 0; --k) {
            const double l = lane < k ? a[lane * size + k] : 0.0;
            mine -= l * __shfl_sync(0xffffffffu, mine, k);
        }
        if (lane < size) x[lane] = mine;
    }
    team.sync();
}

SW_END
