// What a sweep does to the rows of a problem's images: the right-hand side from differences and bounds, and
// these from the new image. Included by sources that are compiled once per instruction set.
#pragma once

#include <algorithm>
#include <vector>

#include "core/tv/pixel.hpp"
#include "host/tv/lines.hpp"

namespace stepwell {
namespace SW_ISA {

// Rows of a problem's images along the last axis, and their neighbours along the others.
struct Rows {
    int axes;
    std::int64_t length, sides[3], strides[3], pixels;

    template <class Real>
    explicit Rows(const TvGrid<Real>& grid) : axes(grid.axes), length(grid.sides[grid.axes - 1]) {
        pixels = 1;
        for (int k = axes - 1; k >= 0; --k) {
            sides[k] = grid.sides[k];
            strides[k] = pixels;
            pixels *= sides[k];
        }
    }
    std::int64_t count() const { return pixels / length; }
    std::int64_t place(std::int64_t row, int axis) const {
        return row * length / strides[axis] % sides[axis];
    }
};

// What one problem needs; z holds z + u and u holds z - u until the last sweep is done.
//
// In single precision a problem is solved for x - x0, so that rounding is relative to the step: then `origin`
// is ∇x0, and z, s and the bounds are less ∇x0 and x0.
template <class Real>
struct TvProblem {
    const TvSettings& job;
    const Rows& rows;
    const Lines<Real>* lines;
    Real *z, *u, *s, *x;  // of this problem; those of its differences are `block` apart per axis
    std::int64_t block;
    const Real* origin;  // null where x0 is zero
    Shrinking<Real> how;
    TvBound<Real> lower, upper;  // of this problem
    // In panels of the last axis: coefficients, and what is combined with them; and per panel its inner
    // products with the rows of `solved`.
    typename Lines<Real>::Element *coefficients, *linear, *inverse, *solved;
    double* partial;
    const double* small;
};

// The bounds of one row: pixels of their own, or one number repeated.
template <class Real>
struct BoundRow {
    const TvBound<Real>& bound;
    std::vector<Real> repeated;

    BoundRow(const TvBound<Real>& given, std::int64_t length, double missing) : bound(given) {
        if (!bound.per_pixel)
            repeated.assign(std::size_t(length), bound.values ? bound.values[0] : Real(missing));
    }
    const Real* at(std::int64_t pixel) const {
        return bound.per_pixel ? bound.values + pixel : repeated.data();
    }
};

template <class Real>
struct Scratch {
    Aligned<typename Lines<Real>::Element> panel;
    std::vector<Real> zeros;
    mutable std::vector<Real> squares;
    BoundRow<Real> lower, upper;

    explicit Scratch(const TvProblem<Real>& p)
        : panel(aligned<typename Lines<Real>::Element>(
              *std::max_element(p.rows.sides, p.rows.sides + p.rows.axes))),
          zeros(std::size_t(p.rows.length), Real(0)),
          squares(std::size_t(p.rows.length)),
          lower(p.lower, p.rows.length, -double_infinity),
          upper(p.upper, p.rows.length, double_infinity) {}
};

// x = ρ (∇ᵀ(z - u) + (s - v)), the right-hand side less its linear part.
template <class Real>
SW_CALLED void gather_row(const TvProblem<Real>& p, const Scratch<Real>& scratch, std::int64_t row) {
    const Rows& rows = p.rows;
    const std::int64_t at = row * rows.length, n = rows.length;
    const Real rho = Real(p.job.rho);
    Real* __restrict to = p.x + at;
    const int last = rows.axes - 1;
    const Real weight = rho * Real(p.job.weights[last]);
    const Real* __restrict along = p.u + last * p.block + at;
    to[0] = -weight * along[0];
    for (std::int64_t j = 1; j < n; ++j) to[j] = weight * (along[j - 1] - along[j]);
    for (int axis = 0; axis < last; ++axis) {
        const Real* __restrict here = p.u + axis * p.block + at;
        const Real* __restrict before =
            rows.place(row, axis) ? here - rows.strides[axis] : scratch.zeros.data();
        const Real w = rho * Real(p.job.weights[axis]);
        for (std::int64_t j = 0; j < n; ++j) to[j] += w * (before[j] - here[j]);
    }
    if (!p.s) return;
    const Real* __restrict h = p.s + at;
    const Real* __restrict low = scratch.lower.at(at);
    const Real* __restrict high = scratch.upper.at(at);
    for (std::int64_t j = 0; j < n; ++j) to[j] += rho * (2 * clipped(h[j], low[j], high[j]) - h[j]);
}

// w = z + u of one axis from the new x, and squares += (w + origin)²; at the end of the last axis the next
// pixel is the same.
template <bool moved, class Real>
SW_CALLED void relax_row(std::int64_t n, Real weight, Real over, const Real* __restrict x,
                         const Real* __restrict next, const Real* __restrict difference,
                         const Real* __restrict origin, Real* __restrict sum, Real* __restrict squares) {
    const Real half = Real(0.5);
    for (std::int64_t j = 0; j < n; ++j) {
        const Real z = half * (sum[j] + difference[j]);
        const Real w = sum[j] + over * (weight * (next[j] - x[j]) - z);
        sum[j] = w;
        const Real whole = moved ? w + origin[j] : w;
        squares[j] += whole * whole;
    }
}

// Lengths' squares become 2 factor - 1, by which w is to be multiplied for z - u.
template <class Real>
SW_CALLED void factor_row(std::int64_t n, Shrinking<Real> how, Real* __restrict squares) {
    for (std::int64_t j = 0; j < n; ++j) squares[j] = 2 * shrink_factor(root_of(squares[j]), how) - 1;
}

template <bool moved, class Real>
SW_CALLED void scale_row(std::int64_t n, const Real* __restrict factors, const Real* __restrict origin,
                         const Real* __restrict sum, Real* __restrict difference) {
    for (std::int64_t j = 0; j < n; ++j)
        difference[j] = moved ? factors[j] * (sum[j] + origin[j]) - origin[j] : factors[j] * sum[j];
}

// z and u, as sum and difference, and s from the new x.
template <bool moved, class Real>
SW_CALLED void update_row(const TvProblem<Real>& p, const Scratch<Real>& scratch, std::int64_t row) {
    const Rows& rows = p.rows;
    const std::int64_t at = row * rows.length, n = rows.length;
    const Real* x = p.x + at;
    const Real over = Real(p.job.over);
    Real* squares = scratch.squares.data();
    for (int k = 0; k < rows.axes; ++k) {
        if (k == 0 || p.job.anisotropic) std::fill(squares, squares + n, Real(0));
        Real* sum = p.z + k * p.block + at;
        Real* difference = p.u + k * p.block + at;
        const bool last = k == rows.axes - 1, end = last || rows.place(row, k) == rows.sides[k] - 1;
        const Real weight = Real(p.job.weights[k]);
        const Real* origin = moved ? p.origin + k * p.block + at : nullptr;
        if (last) relax_row<moved>(n - 1, weight, over, x, x + 1, difference, origin, sum, squares);
        const std::int64_t from = last ? n - 1 : 0;
        relax_row<moved>(n - from, weight, over, x + from, end ? x + from : x + rows.strides[k],
                         difference + from, moved ? origin + from : nullptr, sum + from, squares + from);
        if (!p.job.anisotropic) continue;
        factor_row(n, p.how, squares);
        scale_row<moved>(n, squares, origin, sum, difference);
    }
    if (!p.job.anisotropic) {
        factor_row(n, p.how, squares);
        for (int k = 0; k < rows.axes; ++k)
            scale_row<moved>(n, squares, moved ? p.origin + k * p.block + at : nullptr,
                             p.z + k * p.block + at, p.u + k * p.block + at);
    }
    if (!p.s) return;
    Real* __restrict h = p.s + at;
    const Real* __restrict low = scratch.lower.at(at);
    const Real* __restrict high = scratch.upper.at(at);
    for (std::int64_t j = 0; j < n; ++j) h[j] += over * (x[j] - clipped(h[j], low[j], high[j]));
}

}  // namespace SW_ISA
}  // namespace stepwell
