// The minimum of a function of one number between two others (Brent 1973, chapter 5).
#pragma once

#include "core/common/config.hpp"

SW_BEGIN
namespace lsq {

// Between a and c, from x with value fx between them, to 1e-5; x and fx are then those of the minimum.
// Returns where value_at() was asked last.
template <class Function>
SW_HD double brent(double a, double& x, double c, double& fx, const Function& value_at) {
    constexpr double golden = 0.3819660112501051, tolerance = 1e-5;
    double w = x, v = x, fw = fx, fv = fx, step = 0, before = 0, last = -double_infinity;
    for (int k = 0; k < 40; ++k) {
        const double middle = 0.5 * (a + c);
        if (absolute(x - middle) <= 2 * tolerance - 0.5 * (c - a)) break;
        double p = 0, q = 0;
        if (absolute(before) > tolerance) {
            const double r = (x - w) * (fx - fv);
            q = (x - v) * (fx - fw);
            p = (x - v) * q - (x - w) * r;
            q = 2 * (q - r);
            if (q > 0) p = -p;
            q = absolute(q);
        }
        const double earlier = before;
        before = step;
        if (absolute(p) < absolute(0.5 * q * earlier) && p > q * (a - x) && p < q * (c - x)) {
            step = p / q;
        } else {
            before = x < middle ? c - x : a - x;
            step = golden * before;
        }
        if (absolute(step) < tolerance) step = step < 0 ? -tolerance : tolerance;
        const double u = x + step, fu = value_at(u);
        last = u;
        if (fu <= fx) {
            (u < x ? c : a) = x;
            v = w, fv = fw, w = x, fw = fx, x = u, fx = fu;
        } else {
            (u < x ? a : c) = u;
            if (fu <= fw || w == x) {
                v = w, fv = fw, w = u, fw = fu;
            } else if (fu <= fv || v == x || v == w) {
                v = u, fv = fu;
            }
        }
    }
    return last;
}

}  // namespace lsq
SW_END
