// A team of some lanes of a warp, or of one thread, with a system of its own; the other lanes have theirs.
#pragma once

#include "core/common/team.hpp"
#include "core/nnls/types.hpp"

SW_BEGIN

// Has no state. `width` is a power of two; a team of a whole warp is one as well.
template <int width>
class LaneTeam {
public:
    __device__ int rank() const { return threadIdx.x & (width - 1); }
    __device__ int size() const { return width; }
    __device__ int row() const { return 0; }
    __device__ int rows() const { return 1; }
    __device__ int lane() const { return rank(); }
    __device__ int lanes() const { return width; }
    __device__ void sync() const {
        if constexpr (width > 1) __syncwarp(members());
    }
    __device__ void lane_sync() const { sync(); }

    // Butterfly: a + b = b + a, so all lanes end with the same bits.
    __device__ double lane_sum(double value) const {
        const unsigned mask = members();
#pragma unroll
        for (int step = width / 2; step > 0; step >>= 1) value += __shfl_xor_sync(mask, value, step);
        return value;
    }
    __device__ double lane_max(double value) const {
        const unsigned mask = members();
#pragma unroll
        for (int step = width / 2; step > 0; step >>= 1) {
            const double other = __shfl_xor_sync(mask, value, step);
            value = other > value ? other : value;
        }
        return value;
    }
    __device__ double sum(double value) const { return lane_sum(value); }
    __device__ double max(double value) const { return lane_max(value); }

    // The largest value and where it is; the lowest index wins a tie, whatever the team.
    __device__ int64_t argmax(double& value, int64_t index) const {
        const unsigned mask = members();
        int where = static_cast<int>(index);
#pragma unroll
        for (int step = width / 2; step > 0; step >>= 1) {
            const double other = __shfl_xor_sync(mask, value, step);
            const int there = __shfl_xor_sync(mask, where, step);
            if (other > value || (other == value && there < where)) {
                value = other;
                where = there;
            }
        }
        return where;
    }
    template <class T>
    __device__ T lane_pick(T value, int lane) const {
        if constexpr (width == 1) return value;
        return __shfl_sync(members(), value, lane, width);
    }
    __device__ unsigned int lane_votes(bool yes) const {
        return (__ballot_sync(members(), yes) >> first()) & (0xffffffffu >> (32 - width));
    }
    __device__ int lane_min_int(int value) const {
        if constexpr (width == 1) return value;
        return __reduce_min_sync(members(), value);
    }
    __device__ int lane_max_int(int value) const {
        if constexpr (width == 1) return value;
        return __reduce_max_sync(members(), value);
    }

    // A turn at the queue: the first member draws, all learn.
    __device__ int64_t draw(uint64_t* queue) const {
        unsigned long long ticket = 0;
        if (rank() == 0) ticket = atomicAdd(reinterpret_cast<unsigned long long*>(queue), 1ull);
        return static_cast<int64_t>(lane_pick(ticket, 0));
    }

    template <class Body>
    __device__ void each(int count, Body body) const {
#pragma unroll 1
        for (int i = rank(); i < count; i += width) body(i);
    }
    template <class Body>
    __device__ void each_short(int count, Body body) const {
        each(count, body);
    }
    template <class Body>
    __device__ void lane_each(int count, Body body) const {
        each(count, body);
    }

private:
    __device__ int first() const { return threadIdx.x & 31 & ~(width - 1); }
    __device__ unsigned members() const { return (0xffffffffu >> (32 - width)) << first(); }
};

namespace nnls {
template <int width>
constexpr bool is_quick<LaneTeam<width>> = true;
}

SW_END
