// Who works on one problem: the whole grid (large n) or one block (small n, or many problems). Both cut the
// variables into the same chunks and add partial sums in the same order, so both give the same bits. In a
// grid, member 0 decides and the others have a chunk each.
#pragma once

#include "cuda/block.cuh"

SW_BEGIN

// Chunks whose sums are added up by the last of them to finish, see sums.cuh.
constexpr int group_size = 20;

// Grid-wide barrier in device memory; the grid is launched cooperatively, so all blocks are resident.
struct Barrier {
    unsigned int arrived, generation;
    unsigned int in_group[1];  // one for each group of chunks
};

struct Gang {
    Block block;
    Barrier* barrier;  // null: one block is the whole gang
    int member, members;

    __device__ bool decides() const { return member == 0; }
    // Nothing but: this member waits while the others sweep.
    __device__ bool only_decides() const { return barrier && member == 0; }
    __device__ int workers() const { return barrier ? members - 1 : 1; }
    // The first chunk of this member; further ones are so many workers away.
    __device__ int first_chunk() const { return barrier ? member - 1 : 0; }

    // Until every worker has arrived; member 0 alone goes on, the others wait for release().
    __device__ void gather() const {
        __syncthreads();
        if (!barrier) return;
        if (threadIdx.x == 0) {
            __threadfence();
            const unsigned int generation = *(volatile unsigned int*)&barrier->generation;
            if (!decides()) atomicAdd(&barrier->arrived, 1u);
            wait(generation, unsigned(workers()));
        }
        __syncthreads();
    }

    // The same, with work in between: the last of each group of workers to arrive does it for the group.
    template <class Work>
    __device__ void gather_groups(const Work& work) const {
        __syncthreads();
        if (!barrier) return;
        __shared__ bool last;
        const int group = first_chunk() / group_size, groups = (workers() + group_size - 1) / group_size;
        unsigned int generation = 0;
        if (threadIdx.x == 0) {
            __threadfence();
            generation = *(volatile unsigned int*)&barrier->generation;
            const unsigned int all = unsigned(min_of(group_size, workers() - group * group_size));
            last = !decides() && atomicAdd(&barrier->in_group[group], 1u) == all - 1;
            __threadfence();
        }
        __syncthreads();
        if (last) {
            work(group);
            __syncthreads();
            if (threadIdx.x == 0) {
                barrier->in_group[group] = 0;
                __threadfence();
                atomicAdd(&barrier->arrived, 1u);
            }
        }
        if (threadIdx.x == 0) wait(generation, unsigned(groups));
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

private:
    // Member 0 until `all` have arrived, the others until it lets them go.
    __device__ void wait(unsigned int generation, unsigned int all) const {
        if (member == 0) {
            while (*(volatile unsigned int*)&barrier->arrived != all) {
            }
        } else {
            while (*(volatile unsigned int*)&barrier->generation == generation) {
            }
        }
        __threadfence();
    }
};

SW_END
