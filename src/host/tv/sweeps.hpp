// The inner loop of total variation on the host, and its cosine transforms. Arrays are C-ordered blocks of
// images, (batch, pixels); a problem's images have one to three sides, none of them 1 unless all are.
#pragma once

#include <cstdint>

#include "host/common/dispatch.hpp"

namespace stepwell {

// Images and their transforms. `numbers` and `places` hold the tables of one side after the other, as
// stepwell/krylov/tv/cosine_tables.py writes them.
template <class Real>
struct TvGrid {
    int axes;
    std::int64_t batch, sides[3];
    const Real* numbers;
    const std::int32_t* places;
};

// One side of the bounds: a number or a row of pixels, of one or of every problem; null for none.
template <class Real>
struct TvBound {
    const Real* values;
    std::int64_t problem_stride;
    bool per_pixel;

    Real at(std::int64_t problem, std::int64_t pixel, double missing) const {
        return values ? values[problem * problem_stride + (per_pixel ? pixel : 0)] : Real(missing);
    }
};

// What all problems of a call have in common; `rows` counts those of Woodbury's formula.
struct TvSettings {
    double weights[3], rho, over;
    bool anisotropic;
    int rows;
};

template <class Real>
struct TvJob : TvSettings {
    TvGrid<Real> grid;
    // Which problems are swept in single precision, with the tables for it; null for none. They are solved
    // for the step from x0, and `linear` is that of the step.
    const std::uint8_t* single;
    const float* single_numbers;
    const Real* x0;
    // Per problem: λ/ρ, the least factor of shrinking, and how many sweeps.
    const double *threshold, *least;
    const std::int64_t* counts;
    // The model: right-hand side, diagonal of the inverse, and what Woodbury's formula takes off it.
    const Real *linear, *inverse, *solved, *small;
    // The state before and after; s and v are null without bounds.
    const Real *z_before, *u_before, *s_before, *v_before;
    Real *z, *u, *s, *v, *x;
    TvBound<Real> lower, upper;
};

template <class Real>
struct TvSweeps {
    void (*run)(const TvJob<Real>& job, int threads);
    // Transforms images where they lie.
    void (*transform)(const TvGrid<Real>& grid, Real* images, bool back, int threads);
};

struct TvKernels {
    TvSweeps<double> d;
    TvSweeps<float> f;
};

SW_FOR_EACH_ISA(extern const TvKernels tv_kernels;)

}  // namespace stepwell
