// What a sweep of ADMM does at one pixel: relaxing, shrinking, clipping. Host and GPU sweep over the pixels
// each in their own way (src/stepwell/krylov/tv/sweeps.py has the iteration).
//
// With w = z + u of the differences and h = s + v of the bounds:
//   z = shrink(w),  w⁺ = w + over (∇x - z);    s = clip(h),  h⁺ = h + over (x - s)
#pragma once

#include "core/common/config.hpp"

SW_BEGIN

// Numbers of one problem: the threshold λ/ρ, and the least factor of shrinking, which is above 0 for Huber's.
template <class Real>
struct Shrinking {
    Real threshold, least;
};

template <class Real>
SW_HD Real root_of(Real value) {
#if defined(__CUDACC__)
    return sqrt(value);
#else
    return std::sqrt(value);
#endif
}

// The factor of a difference whose length is `size`: 1 - τ/size, not below `least`.
template <class Real>
SW_HD Real shrink_factor(Real size, Shrinking<Real> how) {
    return max_of(Real(1) - how.threshold / max_of(size, how.threshold), how.least);
}

// NaN stays NaN; a missing side is an infinity.
template <class Real>
SW_HD Real clipped(Real value, Real lower, Real upper) {
    value = value < lower ? lower : value;
    return value > upper ? upper : value;
}

SW_END
