// Teams that solve one small system each: a thread block whose rows are its warps, or a single warp.
#pragma once

#include "core/common/team.hpp"
#include "cuda/lsq/warp.cuh"

SW_BEGIN

// What the warps of a block tell one another.
struct __align__(16) BlockScratch {
    double value[32];
    int index[32];
};
static __shared__ BlockScratch block_scratch;

// Reductions of a block, called rather than inlined: a solve is so much code that fetching it shows. The
// first barrier lets all leave the reduction before.
namespace block {

__device__ inline void tell(double value, int index) {
    __syncthreads();
    if ((threadIdx.x & 31) == 0) {
        block_scratch.value[threadIdx.x >> 5] = value;
        block_scratch.index[threadIdx.x >> 5] = index;
    }
    __syncthreads();
}

template <int warps>
__device__ __noinline__ double sum(double value) {
    tell(warp::sum(value), 0);
    double part[4] = {0, 0, 0, 0};
    for (int w = 0; w < warps; ++w) part[w % 4] += block_scratch.value[w];
    return (part[0] + part[1]) + (part[2] + part[3]);
}

template <int warps>
__device__ __noinline__ double max(double value) {
    value = warp::max(value);
    tell(value, 0);
    for (int w = 0; w < warps; ++w) value = block_scratch.value[w] > value ? block_scratch.value[w] : value;
    return value;
}

struct Largest {
    double value;
    int index;
};

template <int warps>
__device__ __noinline__ Largest largest(double value, int index) {
    warp::largest(value, index);
    tell(value, index);
    Largest highest{block_scratch.value[0], block_scratch.index[0]};
    for (int w = 1; w < warps; ++w) {
        const Largest other{block_scratch.value[w], block_scratch.index[w]};
        if (other.value > highest.value || (other.value == highest.value && other.index < highest.index))
            highest = other;
    }
    return highest;
}

}  // namespace block

// The lanes of a row: those of a warp, in each of these teams.
class LanesOfWarp {
public:
    __device__ int lane() const { return threadIdx.x & 31; }
    __device__ int lanes() const { return 32; }
    __device__ double lane_sum(double value) const { return warp::sum(value); }
    __device__ double lane_max(double value) const { return warp::max(value); }
    template <class T>
    __device__ T lane_pick(T value, int lane) const {
        return __shfl_sync(0xffffffffu, value, lane);
    }
    __device__ void lane_sync() const { __syncwarp(); }
    __device__ unsigned int lane_votes(bool yes) const { return __ballot_sync(0xffffffffu, yes); }
    __device__ int lane_min_int(int value) const { return __reduce_min_sync(0xffffffffu, value); }
    __device__ int lane_max_int(int value) const { return __reduce_max_sync(0xffffffffu, value); }
};

// Has no state: what a member knows stays in its registers. The number of threads is that of the launch.
template <int threads>
class SystemBlock : public LanesOfWarp {
public:
    __device__ int rank() const { return threadIdx.x; }
    __device__ int size() const { return threads; }
    __device__ int row() const { return threadIdx.x >> 5; }
    __device__ int rows() const { return threads / 32; }
    __device__ void sync() const { __syncthreads(); }
    __device__ double sum(double value) const { return block::sum<threads / 32>(value); }
    __device__ double max(double value) const { return block::max<threads / 32>(value); }

    // The largest value and where it is; the lowest index wins a tie, whatever the team.
    __device__ int64_t argmax(double& value, int64_t index) const {
        const block::Largest highest = block::largest<threads / 32>(value, static_cast<int>(index));
        value = highest.value;
        return highest.index;
    }

    // How many members before this one say yes; `all`: how many do.
    __device__ int place(bool yes, int& all) const {
        const unsigned votes = __ballot_sync(0xffffffffu, yes);
        __syncthreads();
        if (lane() == 0) block_scratch.index[row()] = __popc(votes);
        __syncthreads();
        int before = __popc(votes & ((1u << lane()) - 1));
        all = 0;
        for (int w = 0; w < rows(); ++w) {
            if (w < row()) before += block_scratch.index[w];
            all += block_scratch.index[w];
        }
        return before;
    }

    template <class Body>
    __device__ void each(int count, Body body) const {
#pragma unroll 1
        for (int i = threadIdx.x; i < count; i += threads) body(i);
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

// One warp: several share a block, each with a system of its own.
class SystemWarp : public LanesOfWarp {
public:
    __device__ int rank() const { return threadIdx.x & 31; }
    __device__ int size() const { return 32; }
    __device__ int row() const { return 0; }
    __device__ int rows() const { return 1; }
    __device__ void sync() const { __syncwarp(); }
    __device__ double sum(double value) const {
        value = warp::sum(value);
        __syncwarp();
        return value;
    }
    __device__ double max(double value) const {
        value = warp::max(value);
        __syncwarp();
        return value;
    }
    __device__ int64_t argmax(double& value, int64_t index) const {
        int where = static_cast<int>(index);
        warp::largest(value, where);
        __syncwarp();
        return where;
    }
    __device__ int place(bool yes, int& all) const {
        const unsigned votes = __ballot_sync(0xffffffffu, yes);
        all = __popc(votes);
        return __popc(votes & ((1u << rank()) - 1));
    }
    // (Rolled: a warp has systems of few columns. Unrolled by the compiler, they were half of its code.)
    template <class Body>
    __device__ void each(int count, Body body) const {
#pragma unroll 1
        for (int i = rank(); i < count; i += 32) body(i);
    }
    template <class Body>
    __device__ void each_short(int count, Body body) const {
        each(count, body);
    }
    template <class Body>
    __device__ void lane_each(int count, Body body) const {
        each(count, body);
    }
};

SW_END
