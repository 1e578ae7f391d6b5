// The shared memory of a block during a turn.
#pragma once

#include "cuda/quasi_newton/absorb.cuh"
#include "cuda/quasi_newton/aim.cuh"
#include "cuda/quasi_newton/sums.cuh"

SW_BEGIN

// Up to this capacity decisions are taken on matrices in shared memory; beyond it, in global memory.
constexpr bool small_history = capacity <= 10;
constexpr int64_t shared_scratch = scratch_length(capacity);
constexpr int64_t shared_products = small_matrices_length(slots);

// What free_memory() is for: the numbers of a fold, and blocks of sums.
constexpr int free_length = staged ? staged_bytes / int(sizeof(double)) : fold_length;
static_assert(free_length >= fold_length && free_length >= 64 * warps * blocks_at_once);

struct SharedMemory {
    union {
        AbsorbTile absorb[tile_buffers];
        double exchange[staged ? 64 * warps : fold_length];
        double sums[tile_buffers * sizeof(AbsorbTile) / sizeof(double)];
        Break breaks[longest_list_of(threads)];  // sorted
    };
    double reduce[33];
    AimPlan plan;
    double scratch[small_history ? shared_scratch : 1];
    double products[small_history ? shared_products : 1];
    double totals[4];  // few enough to have a place of their own: of the slope and aim sweeps
    double more_coefficients[small_history ? 1 : 2 * capacity];
    uint32_t more_words[staged ? 1 : sizeof(State) / 4];
    State state;
    Vectors vectors;
    Engine engine;
    alignas(8) unsigned char option_bytes[sizeof(Options)];  // shared memory takes no default values

    // For an exchange of numbers when the tile is done with, and with it the stages of the history.
    __device__ double* free_memory() { return staged ? reinterpret_cast<double*>(dynamic_shared) : exchange; }

    // Two blocks to a multiprocessor have no memory to spare: what only member 0 or only the others need has
    // a place that they do not use otherwise.
    __device__ uint32_t* kept_state() {  // member 0's, while it rehearses
        return staged ? reinterpret_cast<uint32_t*>(dynamic_shared) : more_words;
    }
    __device__ double* received_coefficients() {  // the others', from member 0
        return small_history ? scratch_views(scratch, capacity).coefficients : more_coefficients;
    }

    __device__ Options& options() { return *reinterpret_cast<Options*>(option_bytes); }
};

// At file scope, so that the compiler knows it for shared memory wherever it is used.
__shared__ SharedMemory m;

template <class T>
__device__ inline void copy_words(T* to, const T* from) {
    SW_ROLLED
    for (int i = threadIdx.x; i < int(sizeof(T) / 4); i += threads) {
        reinterpret_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
    }
}

SW_END
