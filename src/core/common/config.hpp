// What every header in src/core stands on: host/device marking, the namespace, and the few scalar functions
// that the C++ standard library and NVRTC spell differently. The core has no containers, exceptions or
// allocation, so the same headers are compiled by the C++ compiler for the host and by NVRTC for a GPU.
#pragma once

// SW_HD marks a function for host and device; SW_HD_CALLED one that is called there, not inlined: decisions
// run rarely and by one block, and must not cost the sweeps of the same kernel their registers. SW_HD_RARE
// marks one that few problems need: the host's compiler takes less time for it.
#if defined(__CUDACC__)
#define SW_HD __host__ __device__ inline
#define SW_HD_CALLED __host__ __device__ __noinline__
#define SW_HD_RARE __host__ __device__ inline
#else
#define SW_HD inline
#define SW_HD_CALLED inline
#define SW_HD_RARE [[gnu::cold]] inline
#endif

// Before a loop of the decisions: on a GPU its body must stay small, since cold code is fetched slowly. A
// loop of loads from shared memory, which take long one after the other, goes four at a time.
#if defined(__CUDACC__)
#define SW_ROLLED _Pragma("unroll 1")
#define SW_FOUR_AT_A_TIME _Pragma("unroll 4")
#else
#define SW_ROLLED
#define SW_FOUR_AT_A_TIME
#endif

// Multi-versioned host sources compile the core once per instruction set, each into its own namespace (see
// CMakeLists.txt): an inline function compiled with AVX-512 must never be linked into the baseline build.
#if !defined(SW_ISA)
#define SW_ISA baseline
#endif

// Plain data (options, states) lives in namespace stepwell itself: it holds no code, so all builds share it.
#define SW_BEGIN         \
    namespace stepwell { \
    inline namespace SW_ISA {
#define SW_END \
    }          \
    }

#if defined(__CUDACC_RTC__)
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef short int16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef unsigned short uint16_t;
typedef unsigned char uint8_t;
typedef signed char int8_t;
#else
#include <cmath>
#include <cstdint>
#endif

SW_BEGIN

template <class T>
SW_HD constexpr T min_of(T a, T b) {
    return b < a ? b : a;
}

template <class T>
SW_HD constexpr T max_of(T a, T b) {
    return a < b ? b : a;
}

template <class T>
SW_HD T clamp_to(T value, T low, T high) {
    return min_of(max_of(value, low), high);
}

SW_HD double absolute(double value) {
    return value < 0 ? -value : value;
}

SW_HD double square_root(double value) {
#if defined(__CUDACC__)
    return sqrt(value);
#else
    return std::sqrt(value);
#endif
}

SW_HD double inverse_root(double value) {
#if defined(__CUDACC__)
    return rsqrt(value);
#else
    return 1.0 / std::sqrt(value);
#endif
}

// The place of the lowest bit that is set; 0 if none is.
SW_HD int lowest_bit(unsigned int bits) {
#if defined(__CUDA_ARCH__)
    return bits ? __ffs(bits) - 1 : 0;
#else
    return bits ? __builtin_ctz(bits) : 0;
#endif
}

// True for neither NaN nor infinity: x - x is 0 for finite x alone.
SW_HD bool is_finite(double value) {
    return value - value == 0.0;
}

constexpr double double_epsilon = 2.220446049250313e-16;
constexpr double double_infinity = __builtin_bit_cast(double, 0x7ff0000000000000ull);

SW_END
