// A chunk is handled tile by tile: a tile's vectors are widened to double in cache-resident buffers, padded
// with zeros to whole packs. Whole packs of doubles need no buffer and are read in place.
#pragma once

#include <algorithm>

#include "core/quasi_newton/variable.hpp"
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

// The lanes of one pack in registers.
struct Slices {
    Lanes part[slices] = {};

    template <class T>
    static Slices of(const T* p) {
        Slices out;
        for (int i = 0; i < slices; ++i) out.part[i] = load_slice(p + i * slice_lanes);
        return out;
    }
    template <class A, class B>
    void add_product(const A* a, const B* b) {
        for (int i = 0; i < slices; ++i)
            part[i] += load_slice(a + i * slice_lanes) * load_slice(b + i * slice_lanes);
    }
    void operator+=(const Slices& other) {
        for (int i = 0; i < slices; ++i) part[i] += other.part[i];
    }
    Pack pack() const {
        Pack out;
        for (int i = 0; i < slices; ++i) slice_of(out, i) = part[i];
        return out;
    }
    double total() const { return add_lanes(pack()); }
};

// work(first) for every pack of which a flag is set: 1, else 0.
template <class Work>
inline void each_flagged(const double* flags, int packs, const Work& work) {
    for (int k = 0; k < packs; ++k)
        if (Slices::of(flags + k * lanes).total() > 0) work(k * lanes);
}

// The current tile of x, its gradient and bounds, a register at a time from element i on.
struct TileSlice {
    Lanes x, g, lower, upper;
    TileSlice(const Workspace& w, int i)
        : x(load_slice(w.x + i)),
          g(load_slice(w.g + i)),
          lower(load_slice(w.lower + i)),
          upper(load_slice(w.upper + i)) {}

    // 1 where a variable is not held, else 0.
    Lanes free() const { return is_held(x, g, lower, upper) ? lanes_of(0) : lanes_of(1); }
    // 1 where it is not held and its breakpoint on the path may lie before `time`, else 0.
    Lanes breaks_before(Lanes time, Lanes path, Lanes free) const {
        return may_break_before(time, x, path, lower, upper) ? free : lanes_of(0);
    }
};

// The flags of a pack, a bit each.
inline unsigned char bits_of(const double* flags) {
    static constexpr double bits[lanes] = {1, 2, 4, 8, 16, 32, 64, 128};
    Slices sum;
    sum.add_product(flags, bits);
    return (unsigned char)(sum.total());
}

// a · b over whole packs, in four sums of packs: more than one, to keep the multipliers busy.
template <class A, class B>
inline double sum_products(const A* a, const B* b, int packs) {
    Slices sums[4];
    int k = 0;
    for (; k + 4 <= packs; k += 4)
        for (int u = 0; u < 4; ++u) sums[u].add_product(a + (k + u) * lanes, b + (k + u) * lanes);
    for (int u = 0; u < 3; ++u)
        if (k + u < packs) sums[u].add_product(a + (k + u) * lanes, b + (k + u) * lanes);
    sums[0] += sums[2];
    sums[1] += sums[3];
    sums[0] += sums[1];
    return sums[0].total();
}

// a · a lane by lane, as gather_rows() has it.
inline Pack own_products(const double* a, int packs) {
    Slices sum;
    for (int k = 0; k < packs; ++k) sum.add_product(a + k * lanes, a + k * lanes);
    return sum.pack();
}

inline double largest_magnitude(const double* a, int packs) {
    Slices top;
    for (int k = 0; k < packs; ++k)
        for (int i = 0; i < slices; ++i) {
            const Lanes v = load_slice(a + k * lanes + i * slice_lanes), size = v > -v ? v : -v;
            top.part[i] = top.part[i] > size ? top.part[i] : size;
        }
    double result = 0;
    for (int i = 0; i < lanes; ++i) result = max_of(result, top.part[i / slice_lanes][i % slice_lanes]);
    return result;
}

inline double smallest(const double* a, int count) {
    double result = double_infinity;
    for (int i = 0; i < count; ++i) result = min_of(result, a[i]);
    return result;
}

SW_END
