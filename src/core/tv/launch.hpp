// What the kernels of total variation are launched with (src/cuda/tv/tv_sweeps.cu): plain data, whose layout
// the module tells Python. Arrays of numbers have the type that the kernels were compiled for.
#pragma once

#include "core/common/config.hpp"

namespace stepwell {

// Where the values of lines come from, and what becomes of them.
enum TvSource { tv_plain = 0, tv_pull = 1, tv_model = 2 };
enum TvFinish { tv_store = 0, tv_through = 1, tv_dots = 2 };

struct TvLaunch {
    int32_t axes, axis, source, finish, back, rows, anisotropic, bounded, lower_per_pixel, upper_per_pixel;
    int32_t lanes, row_lanes;  // complex lines of a panel, and how far apart their elements lie
    int64_t side0, side1, side2, panels, batch, lower_stride, upper_stride;
    double weight0, weight1, weight2, rho, over;
    const void *numbers, *places;  // tables of this axis
    const void *counts, *threshold, *least;
    const void *linear, *inverse, *solved, *small;
    void *partial, *w, *h, *image;
    const void *lower, *upper;
    const void* origin;  // ∇x0 where everything else is less x0 and that; null where x0 is zero
    int64_t* turn;       // sweeps that are done; null for transforms alone
    void* reflected;     // 2z - w and 2s - h, where a kernel keeps them
};

}  // namespace stepwell
