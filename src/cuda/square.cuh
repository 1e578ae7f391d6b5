// The Square team: a block as 16 rows of 16 lanes (or one warp as two of them), for the small matrices of the
// decisions. The rest of the GPU waits for these, so what counts is the length of the chain: each LDLᵀ
// belongs to one warp, with the matrix in its registers, and two go on at once; so do the triangular solves.
// Arithmetic as in core/quasi_newton/small_matrix.hpp.
#pragma once

#include "core/quasi_newton/small_matrix.hpp"
#include "cuda/block.cuh"
#include "cuda/constants.cuh"

SW_BEGIN

struct Square {
    static constexpr int side = 16;

    __device__ int rank() const { return threadIdx.x; }
    __device__ int size() const { return threads; }
    __device__ int lane() const { return threadIdx.x % side; }
    __device__ int lanes() const { return side; }
    __device__ int row() const { return threadIdx.x / side; }
    __device__ int rows() const { return threads / side; }
    __device__ void sync() const { __syncthreads(); }
};

// The warp of the triangular solves: not that of rank 0, which has something else to do.
constexpr int solving_warp = threads / 32 - 1;

// x <- L⁻¹ x for size <= 32.
__device__ __noinline__ void solve_lower(Square& team, const double* a, int size, double* x) {
    const int lane = threadIdx.x % 32;
    if (threadIdx.x / 32 == solving_warp) {
        double mine = lane < size ? x[lane] : 0.0;
#pragma unroll 4
        for (int k = 0; k < size; ++k) {
            const double l = lane > k && lane < size ? a[k * size + lane] : 0.0;
            mine -= l * __shfl_sync(0xffffffffu, mine, k);
        }
        if (lane < size) x[lane] = mine;
    }
    team.sync();
}

// x <- L⁻ᵀ D⁻¹ x for size <= 32.
__device__ __noinline__ void solve_upper(Square& team, const double* a, int size, double* x) {
    const int lane = threadIdx.x % 32;
    if (threadIdx.x / 32 == solving_warp) {
        double mine = lane < size ? x[lane] * a[lane * size + lane] : 0.0;
#pragma unroll 4
        for (int k = size - 1; k > 0; --k) {
            const double l = lane < k ? a[lane * size + k] : 0.0;
            mine -= l * __shfl_sync(0xffffffffu, mine, k);
        }
        if (lane < size) x[lane] = mine;
    }
    team.sync();
}

// Factors a matrix of up to 16 rows and takes its vector through L⁻¹, by one warp: each lane keeps half a
// column in its registers, and one row a pivot goes through `lines`, two of them, so that one barrier a pivot
// will do.
struct PivotLines {
    alignas(16) double row[2][Square::side + 2];  // D Lᵀ, and the element of the vector
};

// Loads from shared memory that the compiler leaves where they stand.
__device__ inline double loaded(const double* from) {
    double value;
    asm volatile("ld.shared.f64 %0, [%1];" : "=d"(value) : "r"(unsigned(__cvta_generic_to_shared(from))));
    return value;
}
__device__ inline void load_both(const double* from, double& a, double& b) {
    asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];"
                 : "=d"(a), "=d"(b)
                 : "r"(unsigned(__cvta_generic_to_shared(from))));
}

__device__ inline bool factor_by_warp(const Factoring& one, PivotLines& lines, int size, int negative) {
    constexpr int side = Square::side, each = side / 2;
    const int i = threadIdx.x % side, first = threadIdx.x % 32 / side * each;
    double mine[each], part = i < size ? one.x[i] : 0.0;
#pragma unroll
    for (int e = 0; e < each; ++e) {
        const int j = first + e;
        mine[e] = j <= i && i < size ? one.a[j * size + i] : 0.0;
    }
    bool sound = true;
#pragma unroll 1
    for (int k = 0; k < size; ++k) {
        double* line = lines.row[k & 1];
#pragma unroll
        for (int e = 0; e < each; ++e) {
            if (first + e == k) line[i] = mine[e];
        }
        if (threadIdx.x % 32 == k) line[side] = part;
        __syncwarp();
        // All on their way before the division.
        const double pivot = loaded(line + k), across = loaded(line + i), known = loaded(line + side);
        double down[each];
#pragma unroll
        for (int e = 0; e < each; e += 2) load_both(line + first + e, down[e], down[e + 1]);
        const double inverse = 1 / pivot, l = across * inverse;
#pragma unroll
        for (int e = 0; e < each; ++e) {
            const int j = first + e;
            if (j > k) mine[e] -= l * down[e];
            if (j == k) mine[e] = i == k ? inverse : l;
        }
        if (i > k) part -= l * known;
        // Not a reason to stop: what follows a bad pivot is garbage, but harmless.
        sound &= (k < negative ? pivot < 0 : pivot > 0) & is_finite(pivot);
    }
#pragma unroll
    for (int e = 0; e < each; ++e) {
        const int j = first + e;
        if (j <= i && i < size) one.a[j * size + i] = mine[e];
    }
    if (threadIdx.x % 32 < size) one.x[i] = part;
    return sound;
}

// A warp for each; `first` may be nothing. Matrices of up to 16 rows.
__device__ __noinline__ BothSound factor_by_warps(const Factoring& first, const Factoring& second, int size,
                                                  int negative) {
    static __shared__ PivotLines lines[2];
    static __shared__ BothSound sound;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp == 0 && first.a) {
        const bool good = factor_by_warp(first, lines[0], size, negative);
        if (lane == 0) sound.first = good;
    }
    if (warp == solving_warp) {
        const bool good = factor_by_warp(second, lines[1], size, negative);
        if (lane == 0) sound.second = good;
    }
    __syncthreads();
    return sound;
}

__device__ inline bool factor_with(Square& team, const Factoring& one, int size, int negative) {
    return size > Square::side ? factor_with<Square>(team, one, size, negative)
                               : factor_by_warps(Factoring{nullptr, nullptr}, one, size, negative).second;
}

__device__ inline BothSound factor_both(Square& team, const Factoring& first, const Factoring& second,
                                        int size, int negative) {
    if (size <= Square::side) return factor_by_warps(first, second, size, negative);
    const bool sound = factor_with<Square>(team, first, size, negative);
    return {sound, factor_with<Square>(team, second, size, negative)};
}

SW_END
