// The Block team: one CUDA thread block, with reductions in a fixed order.
#pragma once

#include "core/common/config.hpp"

SW_BEGIN

struct Block {
    double* shared;  // 33 doubles of shared memory for reductions

    __device__ int rank() const { return threadIdx.x; }
    __device__ int size() const { return blockDim.x; }
    __device__ int lane() const { return threadIdx.x & 31; }
    __device__ int lanes() const { return 32; }
    __device__ int row() const { return threadIdx.x >> 5; }
    __device__ int rows() const { return blockDim.x >> 5; }
    __device__ void sync() const { __syncthreads(); }

    template <class Combine>
    __device__ double fold(double value, double neutral, Combine combine) const {
        for (int offset = 16; offset > 0; offset >>= 1) {
            value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
        }
        __syncthreads();
        if (lane() == 0) shared[row()] = value;
        __syncthreads();
        value = lane() < rows() ? shared[lane()] : neutral;
        for (int offset = 16; offset > 0; offset >>= 1) {
            value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
        }
        return value;
    }

    __device__ __noinline__ double sum(double value) const {
        return fold(value, 0.0, [](double a, double b) { return a + b; });
    }
    __device__ __noinline__ double min(double value) const {
        return fold(value, double_infinity, [](double a, double b) { return b < a ? b : a; });
    }
};

SW_END
