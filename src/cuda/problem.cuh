// Memory of the CUDA target, as the kernels see it. targets/cuda.py fills an Engine, field by field in this
// order.
#pragma once

#include "core/quasi_newton/decide.hpp"
#include "core/quasi_newton/variable.hpp"
#include "cuda/gang.cuh"
#include "cuda/square.cuh"

// Compile-time constants, set by the loader: SW_REAL (float or double), SW_CAPACITY (m), SW_BOUNDED,
// SW_WEIGHTED and SW_WEIGHTS_VARY (0 or 1).
typedef SW_REAL Real;

SW_BEGIN

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr int capacity = SW_CAPACITY;
// Elements handled between two block barriers of the absorb sweep. Up to 16 pairs, the history rows of a tile
// are staged through shared memory, two tiles deep.
constexpr bool staged = capacity <= 16;
constexpr int tile = capacity <= 8 ? 256 : staged ? 128 : 512;
constexpr bool bounded = SW_BOUNDED, weighted = SW_WEIGHTED;
constexpr int halves = (capacity + 7) / 8;  // blocks of eight rows for Y, as many for S
constexpr int longest_walk = 512;           // breakpoints walked at a time, at most

struct Engine {
    int64_t batch, n, stride;  // stride: length of a history row, n rounded up so that rows stay aligned
    const Options* options;
    State* states;
    double* small;  // (batch, 3 m²)
    Real *x, *g, *d, *trial, *s, *y;
    const Real *lower, *upper, *weights;
    int64_t bound_stride, weight_stride;
    double* partials;      // per gang: sums by chunk
    double* coefficients;  // per gang: 2m
    double* scratch;       // per gang: decisions, where they do not fit shared memory
    double* walk;          // per gang: the Cauchy walk
    Barrier* barrier;
    State* report;          // pinned host memory: state of the first problem after each turn
    unsigned int* running;  // pinned host memory: problems still running after the last turn
    unsigned int* counter;  // device memory: the count in the making
    int64_t partial_stride, walk_stride;
    int32_t chunks, gangs_are_blocks, walk_length, unused;
};

// The variables that one member of a gang handles: every so many spans of 512. Neighbouring spans are worked
// on at the same time by neighbouring blocks, which keeps the many streams of a sweep within few pages of
// memory.
constexpr int span = 512;

struct Chunk {
    int64_t begin, stride, n;

    // The tile after the one at `at`.
    __device__ int64_t next_tile(int64_t at) const {
        const int64_t next = at + tile;
        return next % span == 0 ? next - span + stride : next;
    }
    template <class Work>
    __device__ void each_element(const Work& work) const {
        for (int64_t at = begin; at < n; at += stride) {
#pragma unroll
            for (int k = 0; k < span / threads; ++k) {
                const int64_t i = at + threadIdx.x + k * threads;
                if (i < n) work(i);
            }
        }
    }
};

// Two neighbouring elements in one load.
struct Two {
    double a, b;
};

__device__ inline Two load_two(const double* p) {
    const double2 v = *reinterpret_cast<const double2*>(p);
    return {v.x, v.y};
}

__device__ inline Two load_two(const float* p) {
    const float2 v = *reinterpret_cast<const float2*>(p);
    return {double(v.x), double(v.y)};
}

// The same from global memory, past the first-level cache: data that a sweep reads once.
__device__ inline Two stream_two(const double* p) {
    const double2 v = __ldcg(reinterpret_cast<const double2*>(p));
    return {v.x, v.y};
}

__device__ inline Two stream_two(const float* p) {
    const float2 v = __ldcg(reinterpret_cast<const float2*>(p));
    return {double(v.x), double(v.y)};
}

struct Vectors {
    int64_t n, stride;
    Real *x, *g, *d, *trial, *s, *y;
    const Real *lower, *upper, *weights;
};

__device__ inline Vectors vectors_of(const Engine& e, int64_t p) {
    const int64_t at = p * e.n, history = p * capacity * e.stride;
    return {e.n,
            e.stride,
            e.x + at,
            e.g + at,
            e.d + at,
            e.trial + at,
            e.s + history,
            e.y + history,
            e.lower ? e.lower + p * e.bound_stride : nullptr,
            e.upper ? e.upper + p * e.bound_stride : nullptr,
            e.weights ? e.weights + p * e.weight_stride : nullptr};
}

SW_END
