// Sums and largest numbers over the lanes of a warp.
#pragma once

#include "core/common/config.hpp"

SW_BEGIN

namespace warp {

// Butterfly: a + b = b + a, so all lanes end with the same bits.
__device__ inline double sum(double value) {
    for (int mask = 16; mask > 0; mask >>= 1) value += __shfl_xor_sync(0xffffffffu, value, mask);
    return value;
}

__device__ inline double max(double value) {
    for (int mask = 16; mask > 0; mask >>= 1) {
        const double other = __shfl_xor_sync(0xffffffffu, value, mask);
        value = other > value ? other : value;
    }
    return value;
}

// The larger value, the lower index of equals.
__device__ inline void largest(double& value, int& index) {
    for (int mask = 16; mask > 0; mask >>= 1) {
        const double other = __shfl_xor_sync(0xffffffffu, value, mask);
        const int there = __shfl_xor_sync(0xffffffffu, index, mask);
        if (other > value || (other == value && there < index)) {
            value = other;
            index = there;
        }
    }
}

}  // namespace warp

SW_END
