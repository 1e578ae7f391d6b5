// Rows of the history on the host, whose type is known at run time (core/quasi_newton/history.hpp). Only what
// reads and writes them is compiled for each type; the sweeps around it are not.
#pragma once

#include "core/quasi_newton/compact.hpp"
#include "core/quasi_newton/history.hpp"
#include "host/common/slices.hpp"
#include "host/quasi_newton/host_vectors.hpp"

namespace stepwell {

template <class T>
using HostMemory = BatchMemory<T, Byte>;  // the stride of its history is in bytes

constexpr int bytes_of(HistoryType type) {
    return type == HistoryType::float64 ? 8 : type == HistoryType::float32 ? 4 : 2;
}

}  // namespace stepwell

SW_BEGIN

// Before a loop over the elements of tile buffers, none of which overlap: more of them than the compiler
// would check.
#if defined(__clang__)
#define SW_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define SW_APART _Pragma("GCC ivdep")
#endif

// use(value of that type)
template <class Use>
inline void with_type(HistoryType type, const Use& use) {
    switch (type) {
        case HistoryType::float64:
            return use(double{});
        case HistoryType::float32:
            return use(float{});
        default:
            return use(Bfloat16{});
    }
}

template <int count>
inline typename VectorOf<double, count>::anywhere load_wide(const Bfloat16* p) {
    typedef typename VectorOf<uint16_t, count>::anywhere Bits;
    typedef typename VectorOf<uint32_t, count>::aligned Shifted;
    const Shifted shifted = __builtin_convertvector(*reinterpret_cast<const Bits*>(p), Shifted) << 16;
    return load_wide<count>(reinterpret_cast<const float*>(&shifted));
}

inline Pack load(const Bfloat16* p) {
    return load_wide<lanes>(p);
}

// Registers of a row that are loaded together. Two for NEON: one load has four floats.
#if defined(__aarch64__)
constexpr int slices_at_once = 2;
#else
constexpr int slices_at_once = 1;
#endif
constexpr int lanes_at_once = slices_at_once * slice_lanes;

template <class T>
inline void load_slices(const T* p, Lanes (&out)[slices_at_once]) {
    for (int i = 0; i < slices_at_once; ++i) out[i] = load_slice(p + i * slice_lanes);
}

#if defined(__aarch64__)
inline void load_slices(const float* p, Lanes (&out)[slices_at_once]) {
    const float32x4_t four = vld1q_f32(p);
    out[0] = vcvt_f64_f32(vget_low_f32(four)), out[1] = vcvt_high_f64_f32(four);
}
#endif

// A register of doubles rounded to float; what is stored is returned. (By name for NEON: GCC 12 rounds them
// one by one.)
inline Lanes store_narrow(float* p, Lanes values) {
#if defined(__aarch64__)
    const float32x2_t narrow = vcvt_f32_f64(values);
    vst1_f32(p, narrow);
    return vcvt_f64_f32(narrow);
#else
    typedef VectorOf<float, slice_lanes>::anywhere Narrow;
    const Narrow narrow = __builtin_convertvector(values, Narrow);
    *reinterpret_cast<Narrow*>(p) = narrow;
    return __builtin_convertvector(narrow, Lanes);
#endif
}

// Packs of a tile in which something is not zero, as runs of neighbours. What the others would add to a sum
// is zero, and their rows are not read.
struct Run {
    int begin, end;
};

struct Picks {
    const Run* runs;
    int count;

    // Whether this pack is the last of them.
    bool ends_with(int pack) const { return count > 0 && runs[count - 1].end == pack + 1; }
};

// Where the element `at` of the row of the pair of a given age lies.
inline const Byte* place_of(const Byte* history, const HostVectors& v, const Options& o, int age, int head,
                            int pairs, int64_t at) {
    return history + int64_t(slot_of(age, head, pairs, o.slots)) * v.stride + at * bytes_of(o.history);
}

// One element of a row.
inline double element_at(const Byte* place, HistoryType type) {
    double value = 0;
    with_type(type, [&](auto of) { value = widened(*reinterpret_cast<const decltype(of)*>(place)); });
    return value;
}

SW_END
