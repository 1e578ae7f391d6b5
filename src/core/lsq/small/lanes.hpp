// Who works on a small system: one thread, or some lanes of a device that share it. All lanes go through the
// same steps with the same numbers; columns, and positions in the factor, are dealt out among them: lane l
// has l, l + width, l + 2 width ...
#pragma once

#include "core/lsq/dot.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// One thread. A device's lanes (cuda/lsq/warp_lanes.cuh) have the same functions; a thread of a CPU
// (host/lsq/one_core.hpp) has sweeps of its own beside them, by vector registers.
struct OneLane {
    static constexpr int width = 1;
    static constexpr bool has_sweeps = false;
    SW_HD int lane() const { return 0; }
    // What the others have written can be read.
    SW_HD void sync() const {}
    SW_HD double sum(double value) const { return value; }
    // The largest and the smallest of numbers that are not negative.
    SW_HD double most(double value) const { return value; }
    SW_HD double least(double value) const { return value; }
    // Where the largest is; of several, that of the lowest lane.
    SW_HD int place_of_most(double&, int place) const { return place; }
    SW_HD uint64_t join(uint64_t bits) const { return bits; }
    SW_HD bool any(bool yes) const { return yes; }
    // A bit for each lane.
    SW_HD unsigned votes(bool yes) const { return yes; }
    SW_HD double pick(double value, int) const { return value; }
};

SW_HD int bits_in(unsigned bits) {
#if defined(__CUDA_ARCH__)
    return __popc(bits);
#else
    return __builtin_popcount(bits);
#endif
}

SW_HD int bits_in(uint64_t bits) {
#if defined(__CUDA_ARCH__)
    return __popcll(bits);
#else
    return __builtin_popcountll(bits);
#endif
}

// The place of the lowest bit that is set, of those of which one is.
SW_HD int lowest_of(uint64_t bits) {
#if defined(__CUDA_ARCH__)
    return __ffsll(static_cast<long long>(bits)) - 1;
#else
    return __builtin_ctzll(bits);
#endif
}

SW_HD uint64_t bit_of(int j) {
    return uint64_t(1) << j;
}

// Row p of a triangle by rows without its diagonal.
template <class Number>
SW_HD Number* row_of(Number* triangle, int p) {
    return triangle + p * (p - 1) / 2;
}

}  // namespace small
}  // namespace lsq
SW_END
