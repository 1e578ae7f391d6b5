// The Square team: a block as 16 rows of 16 lanes (or one warp as two of them), for the small matrices of the
// decisions. The rest of the GPU waits for these, so what counts is the length of the chain: each LDLᵀ
// belongs to one warp, with the matrix in its registers, and two go on at once; so do the triangular solves.
// Arithmetic as in core/quasi_newton/small_matrix.hpp.
#pragma once

#include "core/quasi_newton/small_matrix.hpp"
#include "cuda/common/block.cuh"
#include "cuda/quasi_newton/constants.cuh"

SW_BEGIN

// The warp of the triangular solves: not that of rank 0, which has something else to do.
constexpr int solving_warp = threads / 32 - 1;

// Rows of the small matrices of a history whose decisions a Square takes; where they are at most 16, two
// lanes share a column.
constexpr int small_side = 2 * capacity <= 16 ? 16 : 2 * capacity <= 32 ? 2 * capacity : 32;

// 1 / value to about one unit in the last place, sooner than to the last one.
__device__ inline double quick_inverse(double value) {
#if defined(__CUDA_ARCH__)
    double inverse;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(value));
    inverse = fma(inverse, fma(-value, inverse, 1.0), inverse);
    return fma(inverse, fma(-value, inverse, 1.0), inverse);
#else
    return 1 / value;
#endif
}

// Factors a matrix of up to `side` rows and takes its vector through L⁻¹, by one warp. Its lanes form
// `sharers` groups; lane i of each keeps column i in its registers, every so many of its rows, from the
// pivots' rows down. The lanes that have a pivot's row hand it to the others.
template <int side, int sharers>
__device__ inline bool factor_by_warp(const Factoring& one, int size, int negative, double& form) {
    constexpr int columns = 32 / sharers, each = (side + sharers - 1) / sharers;
    const int i = threadIdx.x % columns, own = threadIdx.x % 32 / columns;
    double mine[each], part = i < size ? one.x[i] : 0.0;
#pragma unroll
    for (int e = 0; e < each; ++e) {
        const int j = own + sharers * e;
        mine[e] = j <= i && i < size ? one.a[j * size + i] : 0.0;
    }
    __syncwarp();
    bool sound = true;
    form = 0;
#pragma unroll 1
    for (int top = 0; top < size; top += sharers) {
#pragma unroll
        for (int turn = 0; turn < sharers; ++turn) {
            const int k = top + turn;
            if (k >= size) break;
            const double here = mine[0];  // in one group: row k of D Lᵀ
            auto row = [&](int column) { return __shfl_sync(0xffffffffu, here, turn * columns + column); };
            const double pivot = row(k), across = row(i), known = __shfl_sync(0xffffffffu, part, k);
            double down[each];
#pragma unroll
            for (int e = 0; e < each; ++e) down[e] = row((top + own + sharers * e) % columns);
            const double inverse = quick_inverse(pivot), l = across * inverse;
            if (own > turn) mine[0] -= l * down[0];
#pragma unroll
            for (int e = 1; e < each; ++e) mine[e] -= l * down[e];
            if (own == turn && i >= k && i < size) one.a[k * size + i] = i == k ? inverse : l;
            if (i > k) part -= l * known;
            form += known * inverse * known;
            // Not a reason to stop: what follows a bad pivot is garbage, but harmless.
            sound &= (k < negative ? pivot < 0 : pivot > 0) & is_finite(pivot) & is_finite(inverse);
        }
#pragma unroll
        for (int e = 1; e < each; ++e) mine[e - 1] = mine[e];
    }
    if (threadIdx.x % 32 < size) one.x[i] = part;
    return sound;
}

// Both at once by one warp, a half of it for each: lane i of a half keeps column i of its matrix. The same
// arithmetic; a pivot's row goes to the other lanes through the matrix, in fewer instructions than by
// shuffles.
__device__ inline BothFactored factor_by_halves(const Factoring& first, const Factoring& second, int size,
                                                int negative) {
    constexpr int side = 16;
    const int i = threadIdx.x % side, half = threadIdx.x & side;
    double *const a = half ? second.a : first.a, *const x = half ? second.x : first.x;
    const bool there = i < size;
    double mine[side], part = there ? x[i] : 0.0, form = 0;
#pragma unroll
    for (int j = 0; j < side; ++j) mine[j] = j <= i && there ? a[j * size + i] : 0.0;
    bool sound = true;
#pragma unroll 1
    for (int k = 0; k < size; ++k) {
        double* const row = a + k * size;
        const double here = mine[0];  // row k of D Lᵀ
        const bool right = there && i >= k;
        if (right) row[i] = here;
        __syncwarp();
        const double pivot = row[k], known = __shfl_sync(0xffffffffu, part, half + k);
        double down[side - 1];  // beyond the last column: not used
#pragma unroll
        for (int e = 1; e < side; ++e) down[e - 1] = row[k + e];
        const double inverse = quick_inverse(pivot), l = here * inverse;
        __syncwarp();
        if (right) row[i] = i == k ? inverse : l;
#pragma unroll
        for (int e = 1; e < side; ++e) mine[e - 1] = mine[e] - l * down[e - 1];
        if (i > k) part -= l * known;
        form += known * inverse * known;
        sound &= (k < negative ? pivot < 0 : pivot > 0) & is_finite(pivot) & is_finite(inverse);
    }
    if (there) x[i] = part;
    const unsigned int good = __ballot_sync(0xffffffffu, sound);
    const double form_of_first = __shfl_sync(0xffffffffu, form, 0);
    __syncwarp();
    return {bool(good & 1u), bool(good >> side & 1u), form_of_first};
}

// A warp for each, if there are two; `first` may be nothing.
__device__ __noinline__ BothFactored factor_by_warps(const Factoring& first, const Factoring& second,
                                                     int size, int negative) {
    if constexpr (lone_warp && small_side <= 16) {
        if (first.a) return factor_by_halves(first, second, size, negative);
    }
    __shared__ BothFactored found;
    const int warp = threadIdx.x / 32;
    SW_ROLLED
    for (int turn = 0; turn < 2; ++turn) {
        const Factoring& one = turn == 0 ? first : second;
        if (warp != (turn == 0 ? 0 : solving_warp)) continue;
        double form = 0;
        const bool good =
            !one.a || factor_by_warp<small_side, small_side <= 16 ? 2 : 1>(one, size, negative, form);
        if (threadIdx.x % 32 == 0) {
            (turn == 0 ? found.first : found.second) = good;
            if (turn == 0) found.form = form;
        }
    }
    __syncthreads();
    return found;
}

struct WarpMatrices : PlainMatrices {
    // x <- L⁻¹ x for size <= 32.
    template <class Team>
    static __device__ __noinline__ void solve_lower(Team& team, const double* a, int size, double* x) {
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

    // x <- L⁻ᵀ D⁻¹ x for size <= small_side.
    template <class Team>
    static __device__ __noinline__ void solve_upper(Team& team, const double* a, int size, double* x) {
        const int lane = threadIdx.x % 32;
        if (threadIdx.x / 32 == solving_warp) {
            // A lane's row first, all of it: rows lie in the same banks, and the chain below need not wait.
            double row[small_side];
#pragma unroll
            for (int k = 1; k < small_side; ++k) row[k] = lane < k && k < size ? a[lane * size + k] : 0.0;
            double mine = lane < size ? x[lane] * a[lane * size + lane] : 0.0;
#pragma unroll
            for (int k = small_side - 1; k > 0; --k) mine -= row[k] * __shfl_sync(0xffffffffu, mine, k);
            if (lane < size) x[lane] = mine;
        }
        team.sync();
    }

    template <class Team>
    static __device__ bool factor_with(Team&, const Factoring& one, int size, int negative) {
        return factor_by_warps(Factoring{nullptr, nullptr}, one, size, negative).second;
    }

    template <class Team, class Beside>
    static __device__ BothFactored factor_both(Team&, const Factoring& first, const Factoring& second,
                                               int size, int negative, const Beside& beside) {
        constexpr int idle_warp = warps > 2 ? 1 : 0;
        if (threadIdx.x == 32 * idle_warp) beside();
        return factor_by_warps(first, second, size, negative);
    }
};

struct Square {
    using Matrices = WarpMatrices;
    static constexpr int side = 16;

    __device__ int rank() const { return threadIdx.x; }
    __device__ int size() const { return threads; }
    __device__ int lane() const { return threadIdx.x % side; }
    __device__ int lanes() const { return side; }
    __device__ int row() const { return threadIdx.x / side; }
    __device__ int rows() const { return threads / side; }
    __device__ void sync() const { __syncthreads(); }
};

SW_END
