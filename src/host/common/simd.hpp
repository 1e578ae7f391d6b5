// SIMD on the host: eight double lanes written with the compiler's vector extension, so that one source
// serves SSE2, AVX2, AVX-512 and NEON, and the order of every sum is the same on all of them.
#pragma once

#include <cstring>

#include "core/common/config.hpp"

SW_BEGIN

constexpr int lanes = 8;
constexpr int tile = 256;  // 2 KiB a row: 16 history rows of a tile fit the first-level cache
typedef double Pack __attribute__((vector_size(lanes * sizeof(double)), aligned(8), may_alias));
typedef float HalfPack __attribute__((vector_size(lanes * sizeof(float)), aligned(4), may_alias));

inline Pack load(const double* p) {
    return *reinterpret_cast<const Pack*>(p);
}

inline Pack load(const float* p) {
    return __builtin_convertvector(*reinterpret_cast<const HalfPack*>(p), Pack);
}

inline void store(double* p, Pack value) {
    *reinterpret_cast<Pack*>(p) = value;
}

inline void store(float* p, Pack value) {
    *reinterpret_cast<HalfPack*>(p) = __builtin_convertvector(value, HalfPack);
}

// Asks for the line that holds p, down to the second-level cache; any address will do.
template <class T>
inline void prefetch(const T* p) {
    __builtin_prefetch(p, 0, 2);
}

inline Pack splat(double value) {
    return Pack{value, value, value, value, value, value, value, value};
}

// Lanes added in a fixed tree.
inline double add_lanes(Pack v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

inline Pack smaller(Pack a, Pack b) {
    return a < b ? a : b;
}

inline Pack larger(Pack a, Pack b) {
    return a > b ? a : b;
}

SW_END
