// The double-precision tensor instruction.
#pragma once

#include "core/common/config.hpp"

SW_BEGIN

// c += a bᵀ for two 8 x 4 tiles: a and b are row lane/4, column lane%4 of theirs, c[i] is row lane/4, column
// 2 (lane%4) + i of an 8 x 8 tile.
__device__ inline void multiply_add(double (&c)[2], double a, double b) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(c[0]), "+d"(c[1])
                 : "d"(a), "d"(b));
#else
    const int lane = threadIdx.x & 31, row = lane >> 2, column = 2 * (lane & 3);
    for (int k = 0; k < 4; ++k) {
        const double left = __shfl_sync(0xffffffffu, a, 4 * row + k);
        c[0] += left * __shfl_sync(0xffffffffu, b, 4 * column + k);
        c[1] += left * __shfl_sync(0xffffffffu, b, 4 * (column + 1) + k);
    }
#endif
}

// The same for two tiles a with one b: from Hopper on one instruction, which takes no longer than that for
// one.
__device__ inline void multiply_add(double (&c)[2], double (&c2)[2], double a, double a2, double b) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c2[0]), "+d"(c2[1])
        : "d"(a), "d"(a2), "d"(b));
#else
    multiply_add(c, a, b);
    multiply_add(c2, a2, b);
#endif
}

SW_END
