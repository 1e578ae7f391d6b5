// Who works on one problem: the whole grid (large n) or one block (small n, or many problems). Both cut the
// variables into the same chunks and add partial sums in the same order, so both give the same bits.
#pragma once

#include "cuda/block.cuh"

SW_BEGIN

// Grid-wide barrier in device memory; the grid is launched cooperatively, so all blocks are resident.
struct Barrier {
    unsigned int arrived, generation;
};

struct Gang {
    Block block;
    Barrier* barrier;  // null: one block is the whole gang
    int member, members;

    __device__ bool decides() const { return member == 0; }

    // Until every member has arrived; member 0 alone goes on, the others wait for release().
    __device__ void gather() const {
        __syncthreads();
        if (!barrier) return;
        if (threadIdx.x == 0) {
            __threadfence();
            if (member == 0) {
                while (*(volatile unsigned int*)&barrier->arrived != unsigned(members - 1)) {
                }
                __threadfence();
            } else {
                const unsigned int generation = *(volatile unsigned int*)&barrier->generation;
                atomicAdd(&barrier->arrived, 1u);
                while (*(volatile unsigned int*)&barrier->generation == generation) {
                }
                __threadfence();
            }
        }
        __syncthreads();
    }

    // Member 0 lets the others go on.
    __device__ void release() const {
        __syncthreads();
        if (barrier && member == 0 && threadIdx.x == 0) {
            barrier->arrived = 0;
            __threadfence();
            atomicAdd(&barrier->generation, 1u);
        }
    }

    __device__ void sync() const {
        gather();
        release();
    }
};

SW_END
