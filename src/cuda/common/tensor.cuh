// Tensor instructions: for double precision, and for bfloat16 with sums in single precision.
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

// The same for tiles of 16 columns in bfloat16: words of two columns each, four columns to a lane of a row.
// Products are exact, sums are those of single precision.
__device__ inline void multiply_add(float (&c)[2], float (&c2)[2], const uint32_t (&a)[2],
                                    const uint32_t (&a2)[2], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c2[0]), "+f"(c2[1])
        : "r"(a[0]), "r"(a2[0]), "r"(a[1]), "r"(a2[1]), "r"(b[0]), "r"(b[1]));
#else
    const int lane = threadIdx.x & 31, row = lane >> 2, column = 2 * (lane & 3);
    const auto half = [](uint32_t word, int k) {
        return __builtin_bit_cast(float, k ? word & 0xffff0000u : word << 16);
    };
    for (int k = 0; k < 8; ++k) {
        const int word = k >> 2, from = k & 3;
        const uint32_t left = __shfl_sync(0xffffffffu, a[word], 4 * row + from);
        const uint32_t left2 = __shfl_sync(0xffffffffu, a2[word], 4 * row + from);
        for (int i = 0; i < 2; ++i) {
            const uint32_t right = __shfl_sync(0xffffffffu, b[word], 4 * (column + i) + from);
            for (int part = 0; part < 2; ++part) {
                c[i] += half(left, part) * half(right, part);
                c2[i] += half(left2, part) * half(right, part);
            }
        }
    }
#endif
}

SW_END
