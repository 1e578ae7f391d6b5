// Dot products of one CPU thread, and the marks that keep a device's code small. Vectors the solver owns are
// padded with zeros to a multiple of `padding`, so that the CPU's sweeps have no tails there.
#pragma once

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

// Of one CPU thread alone (host/lsq/vectors.hpp):
// a . b, any length.
inline double dot(const double* a, const double* b, int64_t count);
// y += f x, any length.
inline void add_scaled(double f, const double* x, double* y, int64_t count);
// Four dots with one vector, whose loads they share; count a multiple of `padding`.
inline void dot_four(const double* const* a, const double* b, int64_t count, double* out);

}  // namespace lsq
SW_END
