// Vector registers of a CPU, written with the compiler's vector extension, so that one source serves SSE2,
// AVX2, AVX-512 and NEON. Two widths:
//   Pack         eight doubles whatever the instruction set: sums of packs have the same order on all of them
//   Register<T>  one register of the set that is compiled for: for sums that have to stay in registers
// A device has none of this.
#pragma once

#include "core/common/config.hpp"

#if !defined(__CUDACC__)

#include <cstring>
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

// Vectors are never passed between translation units: how they would be is of no interest.
#pragma GCC diagnostic ignored "-Wpsabi"

SW_BEGIN

// `count` values of type T, at any address that a T may have, or at one that is a multiple of their size.
template <class T, int count>
struct VectorOf {
    typedef T anywhere __attribute__((vector_size(count * sizeof(T)), aligned(sizeof(T)), may_alias));
    typedef T aligned __attribute__((vector_size(count * sizeof(T)), may_alias));
};

constexpr int lanes = 8;
constexpr int tile = 256;  // 2 KiB a row: 16 history rows of a tile fit the first-level cache
typedef VectorOf<double, lanes>::anywhere Pack;
typedef VectorOf<float, lanes>::anywhere HalfPack;

#if defined(__AVX512F__)
constexpr int register_bytes = 64;
#elif defined(__AVX__)
constexpr int register_bytes = 32;
#else
constexpr int register_bytes = 16;
#endif

// Whether common cases are compiled apart from all others, to be faster. Not for processors from before 2013,
// whose code has to be right, and quick to compile.
#if defined(__x86_64__) && !defined(__AVX2__)
constexpr bool special_cases = false;
#else
constexpr bool special_cases = true;
#endif

template <class T>
constexpr int register_lanes = register_bytes / int(sizeof(T));
template <class T>
using Register = typename VectorOf<T, register_lanes<T>>::anywhere;
template <class T>
using AlignedRegister = typename VectorOf<T, register_lanes<T>>::aligned;

inline Pack load(const double* p) {
    return *reinterpret_cast<const Pack*>(p);
}

// `count` narrower numbers as doubles. For NEON two at a time by name: GCC 12 widens them one by one.
template <int count>
inline typename VectorOf<double, count>::anywhere load_wide(const float* p) {
    typedef typename VectorOf<double, count>::anywhere Wide;
#if defined(__aarch64__)
    Wide wide;
    for (int i = 0; i < count; i += 2) {
        reinterpret_cast<Register<double>*>(&wide)[i / 2] = vcvt_f64_f32(vld1_f32(p + i));
    }
    return wide;
#else
    typedef typename VectorOf<float, count>::anywhere Narrow;
    return __builtin_convertvector(*reinterpret_cast<const Narrow*>(p), Wide);
#endif
}

inline Pack load(const float* p) {
    return load_wide<lanes>(p);
}

inline void store(double* p, Pack value) {
    *reinterpret_cast<Pack*>(p) = value;
}

inline void store(float* p, Pack value) {
    *reinterpret_cast<HalfPack*>(p) = __builtin_convertvector(value, HalfPack);
}

// The register at p, to read or to write.
template <class T>
inline const Register<T>& register_at(const T* p) {
    return *reinterpret_cast<const Register<T>*>(p);
}

template <class T>
inline Register<T>& register_at(T* p) {
    return *reinterpret_cast<Register<T>*>(p);
}

// Zeros that the compiler does not know of: it would clear sums by a string instruction, in memory, that are
// better begun in registers.
inline Register<double> unknown_zeros() {
    Register<double> zeros = {};
#if defined(__aarch64__)
    asm("" : "+w"(zeros));
#elif defined(__x86_64__)
    asm("" : "+v"(zeros));
#endif
    return zeros;
}

// Asks for the line that holds p; any address will do. For what the hardware cannot foresee: asked for a
// vector that is read from end to end, it only gets in the way of loads.
template <class T>
inline void prefetch(const T* p) {
    __builtin_prefetch(p, 0, 3);
}

template <class T>
inline void prefetch_to_write(const T* p) {
    __builtin_prefetch(p, 1, 3);
}

inline Pack splat(double value) {
    return Pack{value, value, value, value, value, value, value, value};
}

inline Pack halves_swapped(Pack v) {
    return __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
}

inline Pack quarters_swapped(Pack v) {
    return __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
}

// Lanes added in a fixed tree: ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)).
inline double add_lanes(Pack v) {
    if constexpr (register_lanes<double> == 2) {  // shuffles of a pack would go through memory, lane by lane
        typedef AlignedRegister<double> Pair;
        const Register<double>* part = reinterpret_cast<const Register<double>*>(&v);
        const Pair sum = (Pair(part[0]) + Pair(part[2])) + (Pair(part[1]) + Pair(part[3]));
        return sum[0] + sum[1];
    }
    v += halves_swapped(v);
    v += quarters_swapped(v);
    return v[0] + v[1];
}

inline Pack smaller(Pack a, Pack b) {
    return a < b ? a : b;
}

inline Pack larger(Pack a, Pack b) {
    return a > b ? a : b;
}

#if defined(__aarch64__)
// One instruction each. GCC compares and selects, since it must not change what comes of NaNs; where these
// are used there are none.
template <>
inline Register<double> max_of(Register<double> a, Register<double> b) {
    return vmaxnmq_f64(a, b);
}
template <>
inline Register<double> min_of(Register<double> a, Register<double> b) {
    return vminnmq_f64(a, b);
}
#endif

// Folds the upper half of a vector's lanes onto the lower one until two are left, and these to one. (One lane
// after the other would wait seven times where there are eight.)
template <int count, class Number = double, class Fold>
inline Number fold_lanes(typename VectorOf<Number, count>::anywhere v, Fold fold) {
    typedef typename VectorOf<Number, (count + 1) / 2>::anywhere Half;
    if constexpr (count == 8) {
        return fold_lanes<4, Number>(fold(Half(__builtin_shufflevector(v, v, 0, 1, 2, 3)),
                                          Half(__builtin_shufflevector(v, v, 4, 5, 6, 7))),
                                     fold);
    } else if constexpr (count == 4) {
        return fold_lanes<2, Number>(
            fold(Half(__builtin_shufflevector(v, v, 0, 1)), Half(__builtin_shufflevector(v, v, 2, 3))), fold);
    } else {
        return fold(Number(v[0]), Number(v[1]));
    }
}

// The lanes of a vector added up, in the order of add_lanes() where there are eight.
template <class Vector>
inline double sum_of_lanes(Vector v) {
    return fold_lanes<sizeof(Vector) / sizeof(double)>(v, [](auto a, auto b) { return a + b; });
}

// The largest lane.
inline double max_lane(Pack v) {
    v = larger(v, halves_swapped(v));
    v = larger(v, quarters_swapped(v));
    return v[0] > v[1] ? v[0] : v[1];
}

SW_END

#endif
