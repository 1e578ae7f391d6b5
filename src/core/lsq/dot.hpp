// Dot products of one CPU thread, and the marks that keep a device's code small. Vectors the solver owns are
// padded with zeros to a multiple of `padding`, so that the CPU's sweeps have no tails there.
#pragma once

#include "core/common/simd.hpp"
#include "core/common/team.hpp"

// A function that a device calls instead of inlining: sweeps that are used in many places, and what is rarely
// done. What calls them, the decisions of every step, is inlined, so that a thread has its state in
// registers. (All that is compiled is waited for at the first use.)
#if defined(__CUDACC__)
#define SW_CALL __host__ __device__ __noinline__
#else
#define SW_CALL inline
#endif

// Loops over registers: unrolled, or they are no registers.
#if defined(__CUDACC__)
#define SW_TEXT(text) #text
#define SW_UNROLL _Pragma("unroll")
#define SW_UNROLL_BY(times) _Pragma(SW_TEXT(unroll times))
#else
#define SW_UNROLL
#define SW_UNROLL_BY(times)
#endif

SW_BEGIN
namespace lsq {

constexpr int padding = 8;

SW_HD int64_t padded(int64_t count) {
    return (count + padding - 1) / padding * padding;
}

#if !defined(__CUDACC__)

// a . b, any length.
inline double dot(const double* a, const double* b, int64_t count) {
    if (count < 8) {
        double s = 0;
        for (int64_t i = 0; i < count; ++i) {
            SW_SHORT_LOOP(i);
            s += a[i] * b[i];
        }
        return s;
    }
    Pack s0{}, s1{}, s2{}, s3{};
    int64_t i = 0;
    for (; i + 32 <= count; i += 32) {
        s0 += load(a + i) * load(b + i);
        s1 += load(a + i + 8) * load(b + i + 8);
        s2 += load(a + i + 16) * load(b + i + 16);
        s3 += load(a + i + 24) * load(b + i + 24);
    }
    for (; i + 8 <= count; i += 8) s0 += load(a + i) * load(b + i);
    double tail = 0;
    for (; i < count; ++i) {
        SW_SHORT_LOOP(i);
        tail += a[i] * b[i];
    }
    return add_lanes((s0 + s1) + (s2 + s3)) + tail;
}

// y += f x, any length. (By registers: GCC takes packs that are stored at once through memory.)
inline void add_scaled(double f, const double* x, double* y, int64_t count) {
    constexpr int lot = register_lanes<double>;
    int64_t i = 0;
    for (; i + lot <= count; i += lot) register_at(y + i) += f * register_at(x + i);
    for (; i < count; ++i) {
        SW_SHORT_LOOP(i);
        y[i] += f * x[i];
    }
}

// Four dots with one vector, whose loads they share; count a multiple of `padding`.
inline void dot_four(const double* const* a, const double* b, int64_t count, double* out) {
    Pack s0{}, s1{}, s2{}, s3{}, t0{}, t1{}, t2{}, t3{};
    const double *a0 = a[0], *a1 = a[1], *a2 = a[2], *a3 = a[3];
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const Pack u = load(b + i), v = load(b + i + 8);
        s0 += load(a0 + i) * u;
        s1 += load(a1 + i) * u;
        s2 += load(a2 + i) * u;
        s3 += load(a3 + i) * u;
        t0 += load(a0 + i + 8) * v;
        t1 += load(a1 + i + 8) * v;
        t2 += load(a2 + i + 8) * v;
        t3 += load(a3 + i + 8) * v;
    }
    for (; i < count; i += 8) {
        const Pack u = load(b + i);
        s0 += load(a0 + i) * u;
        s1 += load(a1 + i) * u;
        s2 += load(a2 + i) * u;
        s3 += load(a3 + i) * u;
    }
    out[0] = add_lanes(s0 + t0);
    out[1] = add_lanes(s1 + t1);
    out[2] = add_lanes(s2 + t2);
    out[3] = add_lanes(s3 + t3);
}

#endif

}  // namespace lsq
SW_END
