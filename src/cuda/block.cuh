// Teams on a CUDA device: a thread block whose groups are its warps, and a single warp.
#pragma once

#include "core/team.hpp"

SW_BEGIN

struct WarpLanes {
    static __device__ double sum(double value) {
        // Butterfly: a + b = b + a, so all lanes end with the same bits.
        for (int mask = 16; mask > 0; mask >>= 1) value += __shfl_xor_sync(0xffffffffu, value, mask);
        return value;
    }

    // The larger value, the lower index of equals.
    static __device__ void largest(double& value, int& index) {
        for (int mask = 16; mask > 0; mask >>= 1) {
            const double other = __shfl_xor_sync(0xffffffffu, value, mask);
            const int there = __shfl_xor_sync(0xffffffffu, index, mask);
            if (other > value || (other == value && there < index)) {
                value = other;
                index = there;
            }
        }
    }
};

// What the warps of a block tell one another in a reduction; in shared memory.
struct BlockRoom {
    double value[2][32];
    int index[2][32];
};

class Block {
public:
    __device__ explicit Block(BlockRoom& room) : room_(&room) {}

    __device__ int rank() const { return threadIdx.x; }
    __device__ int size() const { return blockDim.x; }
    __device__ void sync() const { __syncthreads(); }

    // Two sides in turn: nobody writes a side before all have left the reduction that last read it.
    __device__ double sum(double value) const {
        side_ ^= 1;
        value = WarpLanes::sum(value);
        if (lane() == 0) room_->value[side_][group()] = value;
        __syncthreads();
        double total = 0;
        for (int warp = 0; warp < groups(); ++warp) total += room_->value[side_][warp];
        return total;
    }

    __device__ int64_t argmax(double& value, int64_t index) const {
        side_ ^= 1;
        int where = static_cast<int>(index);
        WarpLanes::largest(value, where);
        if (lane() == 0) {
            room_->value[side_][group()] = value;
            room_->index[side_][group()] = where;
        }
        __syncthreads();
        value = room_->value[side_][0];
        where = room_->index[side_][0];
        for (int warp = 1; warp < groups(); ++warp) {
            const double other = room_->value[side_][warp];
            const int there = room_->index[side_][warp];
            if (other > value || (other == value && there < where)) {
                value = other;
                where = there;
            }
        }
        return where;
    }

    __device__ int group() const { return threadIdx.x >> 5; }
    __device__ int groups() const { return blockDim.x >> 5; }
    __device__ int lane() const { return threadIdx.x & 31; }
    __device__ int lanes() const { return 32; }
    __device__ double lane_sum(double value) const { return WarpLanes::sum(value); }
    __device__ void lane_sync() const { __syncwarp(); }

    template <class Body>
    __device__ void each(int count, Body body) const {
        for (int i = threadIdx.x; i < count; i += blockDim.x) body(i);
    }
    template <class Body>
    __device__ void few(int count, Body body) const {
        each(count, body);
    }
    template <class Body>
    __device__ void lane_each(int count, Body body) const {
        for (int i = lane(); i < count; i += 32) body(i);
    }

private:
    BlockRoom* room_;
    mutable int side_ = 0;
};

// One warp: many of them share a block, each with a system of its own.
class Warp {
public:
    __device__ int rank() const { return threadIdx.x & 31; }
    __device__ int size() const { return 32; }
    __device__ void sync() const { __syncwarp(); }
    __device__ double sum(double value) const {
        value = WarpLanes::sum(value);
        __syncwarp();
        return value;
    }
    __device__ int64_t argmax(double& value, int64_t index) const {
        int where = static_cast<int>(index);
        WarpLanes::largest(value, where);
        __syncwarp();
        return where;
    }
    __device__ int group() const { return 0; }
    __device__ int groups() const { return 1; }
    __device__ int lane() const { return rank(); }
    __device__ int lanes() const { return 32; }
    __device__ double lane_sum(double value) const { return WarpLanes::sum(value); }
    __device__ void lane_sync() const { __syncwarp(); }
    template <class Body>
    __device__ void each(int count, Body body) const {
        for (int i = rank(); i < count; i += 32) body(i);
    }
    template <class Body>
    __device__ void few(int count, Body body) const {
        each(count, body);
    }
    template <class Body>
    __device__ void lane_each(int count, Body body) const {
        each(count, body);
    }
};

SW_END
