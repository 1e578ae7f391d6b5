// What one point contributes: its cost, and the weights with which its row of J enters g and H. Robust losses
// are SciPy's, ½C²Σρ((r/C)²), minimised by plain reweighting (ρ′ alone); the Poisson likelihood is half its
// deviance, with the expected curvature 1/f.
#pragma once

#include "core/fit/types.hpp"
#if !defined(__CUDACC_RTC__)
#include <cmath>
#endif

namespace stepwell {

enum class FitLoss : int32_t { linear = 0, soft_l1 = 1, huber = 2, cauchy = 3, arctan = 4, poisson = 5 };

struct FitPoint {
    double cost, pull, curve;  // g += pull · J_i,  H += curve · J_i J_iᵀ
};

}  // namespace stepwell

SW_BEGIN

// ρ(z) and ρ′(z) of a robust loss.
SW_HD void robust(FitLoss loss, double z, double& rho, double& slope) {
    switch (loss) {
        case FitLoss::soft_l1: {
            const double root = square_root(1 + z);
            rho = 2 * z / (root + 1);  // 2 (√(1 + z) − 1) without its cancellation
            slope = 1 / root;
            return;
        }
        case FitLoss::huber: {
            const double root = z > 1 ? square_root(z) : 1;
            rho = z > 1 ? 2 * root - 1 : z;
            slope = 1 / root;
            return;
        }
        case FitLoss::cauchy:
            rho = log1p(z);
            slope = 1 / (1 + z);
            return;
        case FitLoss::arctan:
            rho = atan(z);
            slope = 1 / (1 + z * z);
            return;
        default:
            rho = z;
            slope = 1;
    }
}

// `value` is the model's, y the datum, weight 1/sigma, scale C. Points of weight 0 are not to be asked.
SW_HD FitPoint fit_point(FitLoss loss, double scale, double value, double y, double weight) {
    if (loss == FitLoss::poisson) {
        if (!(value > 0)) return {y > 0 || value < 0 ? double_infinity : value, 1, 0};
        const double part = y > 0 ? y * log(y / value) : 0;
        return {value - y + part, 1 - y / value, 1 / value};
    }
    const double r = (value - y) * weight;
    if (loss == FitLoss::linear) return {0.5 * r * r, weight * r, weight * weight};
    double rho, slope;
    const double ratio = r / scale;
    robust(loss, ratio * ratio, rho, slope);
    return {0.5 * scale * scale * rho, slope * weight * r, slope * weight * weight};
}

SW_END
