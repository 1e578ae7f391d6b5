// A team that solves one large system: the blocks of a cluster, each on a multiprocessor of its own (from
// compute capability 9.0 on). A row of lanes is a warp; rows that follow one another lie on different
// multiprocessors, so that a loop too short for all members still keeps all of these busy.
#pragma once

#include "cuda/lsq/system_teams.cuh"

SW_BEGIN

namespace cluster {

__device__ inline int block() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return static_cast<int>(rank);
}

// All threads of the cluster; what was written before is seen by all after it.
__device__ inline void sync() {
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}

// What the warps of a cluster tell one another: a copy in each block's shared memory. Two of each, used in
// turns: a warp that is ahead by one reduction does not write what another still reads.
template <int rows>
struct Told {
    double value[2][rows];
    int index[2][rows];
};

template <int rows>
__device__ inline Told<rows>& told() {
    __shared__ Told<rows> own;
    return own;
}

// Which of the two it is; each warp counts for itself.
template <int warps>
__device__ inline int* turns() {
    __shared__ int own[warps];
    return own;
}

__device__ inline unsigned address_in(const void* own, int block) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(there)
        : "r"(static_cast<unsigned>(__cvta_generic_to_shared(own))), "r"(block));
    return there;
}

// A warp's value and index become known to all blocks. Returns which of the two has them.
template <int warps, int blocks>
__device__ inline int tell(double value, int index) {
    constexpr int rows = warps * blocks;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, row = warp * blocks + block();
    int& own = turns<warps>()[warp];
    const int turn = own;
    __syncwarp();
    if (lane == 0) own = 1 - turn;
    Told<rows>& all = told<rows>();
    if (lane < blocks) {
        asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(address_in(&all.value[turn][row], lane)),
                     "d"(value)
                     : "memory");
        asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address_in(&all.index[turn][row], lane)),
                     "r"(index)
                     : "memory");
    }
    sync();
    return turn;
}

template <int warps, int blocks>
__device__ __noinline__ double sum(double value) {
    constexpr int rows = warps * blocks;
    const int turn = tell<warps, blocks>(warp::sum(value), 0);
    double part = 0;
    for (int row = threadIdx.x & 31; row < rows; row += 32) part += told<rows>().value[turn][row];
    return warp::sum(part);
}

template <int warps, int blocks>
__device__ __noinline__ block::Largest largest(double value, int index) {
    constexpr int rows = warps * blocks;
    warp::largest(value, index);
    const int turn = tell<warps, blocks>(value, index), lane = threadIdx.x & 31;
    const Told<rows>& all = told<rows>();
    block::Largest highest{all.value[turn][lane % rows], all.index[turn][lane % rows]};
    for (int row = lane + 32; row < rows; row += 32) {
        const block::Largest other{all.value[turn][row], all.index[turn][row]};
        if (other.value > highest.value || (other.value == highest.value && other.index < highest.index))
            highest = other;
    }
    warp::largest(highest.value, highest.index);
    return highest;
}

// How many members before this one say yes; `all`: how many do.
template <int warps, int blocks>
__device__ __noinline__ int place(bool yes, int& all) {
    constexpr int rows = warps * blocks;
    const unsigned votes = __ballot_sync(0xffffffffu, yes);
    const int turn = tell<warps, blocks>(0.0, __popc(votes));
    const int lane = threadIdx.x & 31, own = (threadIdx.x >> 5) * blocks + block();
    int before = 0, number = 0;
    for (int row = lane; row < rows; row += 32) {
        const int there = told<rows>().index[turn][row];
        before += row < own ? there : 0;
        number += there;
    }
    all = __reduce_add_sync(0xffffffffu, number);
    return __reduce_add_sync(0xffffffffu, before) + __popc(votes & ((1u << lane) - 1));
}

}  // namespace cluster

template <int threads, int blocks>
class SystemCluster : public LanesOfWarp {
    static constexpr int warps = threads / 32;

public:
    // Before the first reduction, by all threads: a block's shared memory may be written by others from then
    // on.
    __device__ SystemCluster() {
        if (lane() == 0) cluster::turns<warps>()[threadIdx.x >> 5] = 0;
        __syncwarp();
        cluster::sync();
    }

    __device__ int rank() const { return row() * 32 + lane(); }
    __device__ int size() const { return threads * blocks; }
    __device__ int row() const { return (threadIdx.x >> 5) * blocks + cluster::block(); }
    __device__ int rows() const { return warps * blocks; }
    __device__ void sync() const { cluster::sync(); }
    __device__ double sum(double value) const { return cluster::sum<warps, blocks>(value); }
    __device__ double max(double value) const { return cluster::largest<warps, blocks>(value, 0).value; }
    __device__ int64_t argmax(double& value, int64_t index) const {
        const block::Largest highest = cluster::largest<warps, blocks>(value, static_cast<int>(index));
        value = highest.value;
        return highest.index;
    }
    __device__ int place(bool yes, int& all) const { return cluster::place<warps, blocks>(yes, all); }

    template <class Body>
    __device__ void each(int count, Body body) const {
#pragma unroll 1
        for (int i = rank(); i < count; i += size()) body(i);
    }
    template <class Body>
    __device__ void each_short(int count, Body body) const {
        each(count, body);
    }
    template <class Body>
    __device__ void lane_each(int count, Body body) const {
#pragma unroll 1
        for (int i = lane(); i < count; i += 32) body(i);
    }
};

SW_END
