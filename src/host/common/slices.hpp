// The lanes of a pack, a register at a time (core/common/simd.hpp).
#pragma once

#include "core/common/simd.hpp"

SW_BEGIN

// Before a loop over the registers of a pack.
#if defined(__clang__)
#define SW_UNROLLED _Pragma("unroll")
#else
#define SW_UNROLLED _Pragma("GCC unroll 8")
#endif

// Sums are formed a register of lanes at a time: as many at once as there are registers for. (A compiler
// keeps Packs that are wider than a register in memory, and compares them lane by lane.)
typedef Register<double> Lanes;
constexpr int slice_lanes = register_lanes<double>;
constexpr int slices = lanes / slice_lanes;

inline Lanes& slice_of(Pack& pack, int slice) {
    return reinterpret_cast<Lanes*>(&pack)[slice];
}

inline Lanes load_slice(const double* p) {
    return register_at(p);
}

template <class Narrow>
inline Lanes load_slice(const Narrow* p) {
    return load_wide<slice_lanes>(p);
}

inline Lanes lanes_of(double value) {
    return value - Lanes{};  // (to add zero would be an addition: -0 + 0 is 0)
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

SW_END
