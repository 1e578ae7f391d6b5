// A chunk is handled tile by tile: a tile's vectors are widened to double in cache-resident buffers, padded
// with zeros to whole packs. Whole packs of doubles need no buffer and are read in place.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>

#include "core/quasi_newton/variable.hpp"
#include "host/quasi_newton/history_rows.hpp"
#include "host/quasi_newton/workspace.hpp"

SW_BEGIN

template <class T>
inline void widen(double* out, const T* in, int count, int padded) {
    int i = 0;
    for (; i + lanes <= count; i += lanes) {
        store(out + i, load(in + i));
    }
    for (; i < count; ++i) out[i] = widened(in[i]);
    for (; i < padded; ++i) out[i] = 0;
}

// A tile in double, padded to whole packs: in place where it is so already, else a copy in the buffer.
// `known`: which has it already.
inline const double* view(double* buffer, const double* in, int count, int padded, bool known = false) {
    if (count == padded) return in;
    if (!known) widen(buffer, in, count, padded);
    return buffer;
}

inline const double* view(double* buffer, const float* in, int count, int padded, bool known = false) {
    if (!known) widen(buffer, in, count, padded);
    return buffer;
}

inline void widen(double* out, HostVector in, int count, int padded) {
    in.with([&](const auto* numbers) { widen(out, numbers, count, padded); });
}

inline const double* view(double* buffer, HostVector in, int count, int padded, bool known = false) {
    return in.with([&](const auto* numbers) { return view(buffer, numbers, count, padded, known); });
}

// The same of bounds, which may be one number for all variables.
inline const double* view_bounds(double* buffer, HostVector bounds, int step, int64_t at, int count,
                                 int padded) {
    if (step) return view(buffer, bounds + at, count, padded);
    std::fill_n(buffer, count, bounds[0]);
    std::fill_n(buffer + count, padded - count, 0.0);
    return buffer;
}

inline void set_bounds(Workspace& w, const HostVectors& v, int64_t at, int count, int padded) {
    w.lower = view_bounds(w.lower_tile, v.lower, v.lower_step, at, count, padded);
    w.upper = view_bounds(w.upper_tile, v.upper, v.upper_step, at, count, padded);
}

inline void narrow(HostVector out, const double* in, int count) {
    if (!out.single) {
        std::memcpy(out.first, in, sizeof(double) * size_t(count));
    } else {
        float* numbers = out.as<float>();
        for (int i = 0; i < count; ++i) numbers[i] = float(in[i]);
    }
}

// Where a tile in double can be written: the vector itself where it is of doubles and whole packs, else the
// buffer, from which put_back() brings it to the vector.
inline double* room(double* buffer, HostVector out, int count, int padded) {
    return out.single || count < padded ? buffer : out.as<double>();
}

inline void put_back(HostVector out, const double* room, const double* buffer, int count) {
    if (room == buffer) narrow(out, buffer, count);
}

// A register stored to a row of the history; what is stored is returned.
template <class H>
inline Lanes store_rounded(H* out, Lanes values) {
    if constexpr (sizeof(H) == sizeof(double)) {
        register_at(out) = values;
        return values;
    } else if constexpr (sizeof(H) == sizeof(float)) {
        return store_narrow(out, values);
    } else {
        for (int i = 0; i < slice_lanes; ++i) {
            out[i] = narrowed_to<H>(values[i]);
            values[i] = widened(out[i]);
        }
        return values;
    }
}

// The trial point and its gradient become the point.
inline void accept_point(const HostVectors& v, HostVector gradient, int64_t begin, int64_t end) {
    copy_numbers(v.trial + begin, end - begin, v.x + begin);
    copy_numbers(gradient + begin, end - begin, v.g + begin);
}

// Numbers as a vector will hold them, of floats or not.
inline Lanes as_stored(Lanes values, bool single) {
    if (single)
        for (int i = 0; i < slice_lanes; ++i) values[i] = double(float(values[i]));
    return values;
}

// What a comparison of registers finds: all bits of a lane, or none.
typedef VectorOf<int64_t, slice_lanes>::aligned Flags;

inline int64_t bits_of_any(const Flags& flags) {
    int64_t all = 0;
    for (int i = 0; i < slice_lanes; ++i) all |= flags[i];
    return all;
}

inline bool any_lane(const Flags& flags) {
    return bits_of_any(flags) != 0;
}

// A bit each lane of a pack.
constexpr int64_t lane_bits[lanes] = {1, 2, 4, 8, 16, 32, 64, 128};
inline Flags lane_bits_of(int slice) {
    return reinterpret_cast<const VectorOf<int64_t, slice_lanes>::anywhere*>(lane_bits)[slice];
}

// The current tile of x, its gradient and bounds: places that no store can change, for the compiler to see.
struct TilePlaces {
    const double *const x, *const g, *const path, *const lower, *const upper;
    explicit TilePlaces(const Workspace& w) : x(w.x), g(w.g), path(w.path), lower(w.lower), upper(w.upper) {}
    void ask(int i) const { prefetch(x + i), prefetch(g + i), prefetch(lower + i), prefetch(upper + i); }
};

// Of it a register, from element i on.
struct TileSlice {
    Lanes x, g, lower, upper;
    TileSlice(const TilePlaces& at, int i)
        : x(load_slice(at.x + i)),
          g(load_slice(at.g + i)),
          lower(load_slice(at.lower + i)),
          upper(load_slice(at.upper + i)) {}

    Flags held() const { return is_held(x, g, lower, upper); }
    // Where the breakpoint of a variable, if it is not held, may lie before `time`.
    Flags may_break_before(Lanes time, Lanes path) const {
        return stepwell::may_break_before(time, x, path, lower, upper);
    }
    // Where a variable is not held, either, and its breakpoint may.
    Flags breaks_before(Lanes time, Lanes path, Flags held) const {
        return may_break_before(time, path) & ~held;
    }
};

// The values where something is not so, else 0.
inline Lanes unless(Flags found, Lanes values) {
    return reinterpret_cast<Lanes>(reinterpret_cast<Flags>(values) & ~found);
}

// Of a pack's variables those with a bit, in a register of them.
inline Flags chosen(unsigned char bits, int slice) {
    return ((Flags{} + int64_t(bits)) & lane_bits_of(slice)) != 0;
}

// Whether any variable in a register of a pack has a bit.
inline bool any_chosen(unsigned char bits, int slice) {
    return bits >> slice * slice_lanes & ((1 << slice_lanes) - 1);
}

inline double least_lane(Lanes v) {
    return fold_lanes<slice_lanes>(v, [](auto a, auto b) { return min_of(a, b); });
}

// work(first) for every pack for one of whose registers, from element i on, test(i) finds something.
template <class Test, class Work>
inline void each_pack_where(int packs, const Test& test, const Work& work) {
    for (int k = 0; k < packs; ++k) {
        Flags found = {};
        SW_UNROLLED
        for (int slice = 0; slice < slices; ++slice) found |= test(k * lanes + slice * slice_lanes);
        if (any_lane(found)) work(k * lanes);
    }
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

// Each of N vectors times itself, in one pass.
template <int N>
inline std::array<double, N> sums_of_squares(const double* const (&vectors)[N], int packs) {
    const double* a[N];
    for (int j = 0; j < N; ++j) a[j] = vectors[j];
    Slices sums[N];
    for (int i = 0; i < packs * lanes; i += lanes)
        for (int j = 0; j < N; ++j) sums[j].add_product(a[j] + i, a[j] + i);
    std::array<double, N> out;
    for (int j = 0; j < N; ++j) out[j] = sums[j].total();
    return out;
}

inline Lanes magnitude(Lanes v) {
    return reinterpret_cast<Lanes>(reinterpret_cast<Flags>(v) & 0x7fffffffffffffff);
}

inline double largest_magnitude(const double* a, int packs) {
    Slices top;
    for (int k = 0; k < packs; ++k)
        for (int i = 0; i < slices; ++i) {
            const Lanes size = magnitude(load_slice(a + k * lanes + i * slice_lanes));
            top.part[i] = top.part[i] > size ? top.part[i] : size;
        }
    double result = 0;
    for (int i = 0; i < lanes; ++i) result = max_of(result, top.part[i / slice_lanes][i % slice_lanes]);
    return result;
}

// The smallest number that any chunk of a sweep has found so far. Chunks begin with it, and need not look at
// what cannot be smaller: the smallest of all chunks is the same whoever comes first.
class RunningMinimum {
public:
    double so_far() const { return lowest.load(std::memory_order_relaxed); }
    // Of two that are found at once one may be lost: it is a hint.
    void found(double value) const {
        if (value < so_far()) lowest.store(value, std::memory_order_relaxed);
    }

private:
    mutable std::atomic<double> lowest{double_infinity};
};

SW_END
