// The type in which pairs (s, y) are kept: that of the vectors, or a narrower one for half or a quarter of
// the memory and of its traffic. All sums are taken over the pair as it is stored, so that what is kept is a
// sound history, of a pair that differs from the true one by its rounding.
#pragma once

#include "core/quasi_newton/options.hpp"

namespace stepwell {

// The upper half of a float: its range, and 8 bits of its digits.
struct Bfloat16 {
    uint16_t bits;
};

}  // namespace stepwell

SW_BEGIN

SW_HD float widened(Bfloat16 value) {
    return __builtin_bit_cast(float, uint32_t(value.bits) << 16);
}
SW_HD double widened(float value) {
    return value;
}
SW_HD double widened(double value) {
    return value;
}

// To the nearest, ties to even; finite values only.
SW_HD Bfloat16 bfloat16_of(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    return {uint16_t((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16)};
}

template <class Kept>
SW_HD Kept narrowed_to(double value) {
    if constexpr (sizeof(Kept) == sizeof(Bfloat16)) {
        return bfloat16_of(float(value));
    } else {
        return Kept(value);
    }
}

// (a s, a y) gives the same update as (s, y): pairs that are narrowed are first scaled by a power of two, so
// that sᵀy is about 1 and their range does not matter. `promised` is the descent -g·s of the step, of which
// sᵀy is at most a few times and, by the curvature condition, a tenth at least.
SW_HD double pair_scale(bool narrowed, double promised) {
    if (!narrowed || !(promised > 0)) return 1;
    const int64_t exponent = int64_t(__builtin_bit_cast(uint64_t, promised) >> 52);
    if (exponent == 0x7ff) return 1;
    return __builtin_bit_cast(double, uint64_t(1023 + (1023 - exponent) / 2) << 52);
}

SW_END
