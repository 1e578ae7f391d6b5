// Who works on one problem: the whole grid (large n) or one block (small n, or many problems). Both cut the
// variables into the same chunks and add partial sums in the same order, so both give the same bits. In a
// grid, member 0 decides and the others have a chunk each.
#pragma once

#include "core/quasi_newton/device_layout.hpp"
#include "cuda/common/block.cuh"

SW_BEGIN

// What a block wrote before it signals is seen by the block that has noticed the signal (and by those to whom
// that one signals in turn).
namespace signal {

#if defined(__CUDA_ARCH__)
__device__ inline unsigned int look(const unsigned int* flag) {
    unsigned int value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}
// Once a look has shown what was waited for. (Not with every look: it empties the first-level cache, which
// the other block on the processor is still working with.)
__device__ inline void noticed() {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
__device__ inline void set(unsigned int* flag, unsigned int value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ inline void count(unsigned int* flag) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(flag) : "memory");
}
// How many had counted before.
__device__ inline unsigned int count_up(unsigned int* flag) {
    unsigned int before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(flag) : "memory");
    return before;
}
#else  // blocks that are processes on a CPU
inline unsigned int look(const unsigned int* flag) {
    sched_yield();
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}
inline void noticed() {}
inline void set(unsigned int* flag, unsigned int value) {
    __atomic_store_n(flag, value, __ATOMIC_RELEASE);
}
inline void count(unsigned int* flag) {
    __atomic_fetch_add(flag, 1u, __ATOMIC_ACQ_REL);
}
inline unsigned int count_up(unsigned int* flag) {
    return __atomic_fetch_add(flag, 1u, __ATOMIC_ACQ_REL);
}
#endif

}  // namespace signal

// The release that this block waits for, as Barrier::released counts them; after member 0's wait, the one
// that it will give. The first thread's, once the last has read it.
__shared__ unsigned int awaited;
// With the last release: the turn is over, for all but member 0.
__shared__ bool turn_is_over;

struct ThreadGroup {
    Block block;
    Barrier* barrier;  // null: one block is the whole thread group
    int member, members;

    __device__ bool decides() const { return member == 0; }
    // Nothing but: this member waits while the others sweep.
    __device__ bool only_decides() const { return barrier && member == 0; }
    __device__ int workers() const { return barrier ? members - 1 : 1; }
    // The first chunk of this member; further ones are so many workers away.
    __device__ int first_chunk() const { return barrier ? member - 1 : 0; }

    // Once a launch, before a __syncthreads().
    __device__ void start() const {
        if (barrier && threadIdx.x == threads - 1) awaited = signal::look(&barrier->released) >> 1;
    }

    // This worker has done its part.
    __device__ void arrive() const {
        __syncthreads();
        if (barrier && !decides() && threadIdx.x == 0) signal::count(&barrier->arrived);
    }

    // The same by groups: the last worker of a group to arrive does some work for the group, and counts for
    // it.
    template <class Work>
    __device__ void arrive_in_group(const Work& work) const {
        __syncthreads();
        if (!barrier || decides()) return;
        __shared__ bool last;
        const int group = first_chunk() / group_size;
        if (threadIdx.x == 0) {
            const unsigned int all = unsigned(min_of(group_size, workers() - group * group_size));
            last = signal::count_up(&barrier->in_group[group]) == all - 1;
        }
        __syncthreads();
        if (!last) return;
        work(group);
        __syncthreads();
        if (threadIdx.x == 0) {
            barrier->in_group[group] = 0;
            signal::count(&barrier->arrived);
        }
    }

    // Member 0 until `all` workers, or groups of them, have arrived; the others until its release().
    __device__ __noinline__ void await(int all) const {
        if (!barrier) return;
        if (threadIdx.x == 0) wait(unsigned(all));
        __syncthreads();
    }

    // Until every worker has arrived; member 0 alone goes on, the others wait for its release().
    __device__ void gather() const {
        arrive();
        await(workers());
    }

    // Member 0 lets the others go on, or end the turn.
    __device__ void release(bool over = false) const {
        __syncthreads();
        if (barrier && member == 0 && threadIdx.x == 0) {
            barrier->arrived = 0;
            signal::set(&barrier->released, awaited << 1 | unsigned(over));
        }
    }

private:
    // Member 0 until `all` have arrived, the others until it lets them go.
    __device__ void wait(unsigned int all) const {
        const unsigned int before = awaited;
        awaited = (before + 1) & 0x7fffffffu;
        if (member == 0) {
            while (signal::look(&barrier->arrived) != all) {
            }
        } else {
            unsigned int released;
            do {
                released = signal::look(&barrier->released);
            } while (released >> 1 == before);
            turn_is_over = released & 1;
        }
        signal::noticed();
    }
};

SW_END
