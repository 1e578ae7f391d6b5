// The generalized Cauchy point (Byrd, Lu, Nocedal, Zhu 1995, section 4): the first local minimiser of the
// quadratic model along the projected path x(t) = P(x - t h g).
//
// Between breakpoints the slope of the model is linear in t. With A = Σ h g² and q = Σ h w g over the
// variables still moving, and r = Σ w delta over those already at their bound,
//
//   slope(t) = offset + curvature t,   offset = -A + qᵀK⁻¹r,   curvature = A/gamma - qᵀK⁻¹q
//
// Crossing the breakpoint t_i of one variable with u = h w g takes h g² from A, u from q and t_i u from r.
// All are kept in the basis of K = L D Lᵀ (q̂ = L⁻¹ q), so that a crossing costs one triangular solve and two
// dot products.
#pragma once

#include "core/quasi_newton/compact.hpp"

SW_BEGIN

struct PathSlope {
    double offset, curvature;
    SW_HD double at(double t) const { return offset + curvature * t; }
};

// q̂ and r̂ of length `size`; k the factors of K, inverse pivots on the diagonal.
SW_HD_CALLED PathSlope path_slope(double moving, double gamma, const double* q, const double* r,
                                  const double* k, int size) {
    double qr = 0, qq = 0;
    SW_FOUR_AT_A_TIME
    for (int i = 0; i < size; ++i) {
        const double scaled = q[i] * k[i * size + i];
        qr += scaled * r[i];
        qq += scaled * q[i];
    }
    return {-moving + qr, moving / gamma - qq};
}

// Whether the minimiser lies in the segment [t_from, t_to], and if so where.
SW_HD_CALLED bool settles(const PathSlope& slope, double t_from, double t_to, double& t) {
    if (!(slope.at(t_from) < 0)) {
        t = t_from;
        return true;
    }
    if (!(slope.curvature > 0)) {
        // Rounding only: B is positive definite. Go to the end of the segment; on an unbounded last one stay.
        t = t_from;
        return !is_finite(t_to);
    }
    const double root = -slope.offset / slope.curvature;
    t = max_of(root, t_from);
    return t <= t_to;
}

// What still moves is below the rounding of these sums, and so is the slope: the path ends here.
SW_HD bool path_ends(double moving, double moving_at_start) {
    return moving <= double_epsilon * moving_at_start;
}

SW_END
