// The shared memory of a block during a turn.
#pragma once

#include "cuda/absorb.cuh"
#include "cuda/aim.cuh"

SW_BEGIN

// Up to this capacity decisions are taken on matrices in shared memory; beyond it, in global memory.
constexpr bool small_history = capacity <= 10;
constexpr int64_t shared_scratch = scratch_length(capacity);
constexpr int64_t shared_products = small_matrices_length(slots);

struct SharedMemory {
    union {
        AbsorbTile absorb;
        double
            exchange[64 * (warps > blocks_at_once ? warps : blocks_at_once)];  // when the tile is done with
        double sums[sizeof(AbsorbTile) / sizeof(double)];
        struct {
            uint64_t times[longest_walk];
            int64_t variables[longest_walk];
        } walk;
    };
    double reduce[33];
    AimPlan plan;
    double scratch[small_history ? shared_scratch : 1];
    double products[small_history ? shared_products : 1];
    double scalars[8];
    uint32_t kept_state[sizeof(State) / 4];
    State state;
    Vectors vectors;
    Engine engine;
    alignas(8) unsigned char option_bytes[sizeof(Options)];  // shared memory takes no default values

    __device__ Options& options() { return *reinterpret_cast<Options*>(option_bytes); }
};

// At file scope, so that the compiler knows it for shared memory wherever it is used.
__shared__ SharedMemory m;

SW_END
