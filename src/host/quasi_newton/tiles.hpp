// A chunk is handled tile by tile: a tile's vectors are widened to double in cache-resident buffers, padded
// with zeros to whole packs. Whole packs of doubles need no buffer and are read in place.
#pragma once

#include <algorithm>

#include "host/quasi_newton/history_rows.hpp"
#include "host/quasi_newton/workspace.hpp"

SW_BEGIN

// Before a loop over the elements of tile buffers, none of which overlap: more of them than the compiler
// would check.
#if defined(__clang__)
#define SW_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define SW_APART _Pragma("GCC ivdep")
#endif

template <class T>
inline void widen(double* out, const T* in, int count, int padded) {
    int i = 0;
    for (; i + lanes <= count; i += lanes) {
        store(out + i, load(in + i));
        prefetch(in + i + tile);
    }
    for (; i < count; ++i) out[i] = widened(in[i]);
    for (; i < padded; ++i) out[i] = 0;
}

// A tile in double, padded to whole packs: in place where it is so already, else a copy in the buffer.
inline const double* view(double* buffer, const double* in, int count, int padded) {
    if (count < padded) {
        widen(buffer, in, count, padded);
        return buffer;
    }
    for (int i = 0; i < count; i += lanes) prefetch(in + i + tile);
    return in;
}

inline const double* view(double* buffer, const float* in, int count, int padded) {
    widen(buffer, in, count, padded);
    return buffer;
}

// The same of bounds, which may be one number for all variables.
template <class T>
inline const double* view_bounds(double* buffer, const T* bounds, int step, int64_t at, int count,
                                 int padded) {
    if (step) return view(buffer, bounds + at, count, padded);
    std::fill_n(buffer, count, double(*bounds));
    std::fill_n(buffer + count, padded - count, 0.0);
    return buffer;
}

template <class T>
inline void set_bounds(Workspace& w, const HostVectors<T>& v, int64_t at, int count, int padded) {
    w.lower = view_bounds(w.lower_tile, v.lower, v.lower_step, at, count, padded);
    w.upper = view_bounds(w.upper_tile, v.upper, v.upper_step, at, count, padded);
}

template <class T>
inline void narrow(T* out, const double* in, int count) {
    for (int i = 0; i < count; ++i) out[i] = T(in[i]);
}

// a · b over whole packs, in four sums of packs: more than one, to keep the multipliers busy.
template <class A, class B>
inline double sum_products(const A* a, const B* b, int packs) {
    Pack sums[4] = {splat(0), splat(0), splat(0), splat(0)};
    const auto product = [&](int k) { return load(a + k * lanes) * load(b + k * lanes); };
    int k = 0;
    for (; k + 4 <= packs; k += 4)
        for (int u = 0; u < 4; ++u) sums[u] += product(k + u);
    for (int u = 0; u < 3; ++u)
        if (k + u < packs) sums[u] += product(k + u);
    return add_lanes((sums[0] + sums[2]) + (sums[1] + sums[3]));
}

inline double largest_magnitude(const double* a, int packs) {
    Pack top = splat(0);
    for (int k = 0; k < packs; ++k) {
        const Pack v = load(a + k * lanes);
        top = larger(top, larger(v, -v));
    }
    double result = 0;
    for (int i = 0; i < lanes; ++i) result = max_of(result, top[i]);
    return result;
}

inline double smallest(const double* a, int packs) {
    Pack low = splat(double_infinity);
    for (int k = 0; k < packs; ++k) low = smaller(low, load(a + k * lanes));
    double result = double_infinity;
    for (int i = 0; i < lanes; ++i) result = min_of(result, low[i]);
    return result;
}

SW_END
