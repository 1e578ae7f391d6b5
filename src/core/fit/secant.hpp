// What the second derivatives of the residuals add to JᵀJ, learnt from gradients (Dennis, Gay and Welsch
// 1981): S s ≈ y#. Theirs is y# = (J⁺ − J)ᵀr⁺; this is y# = g⁺ − g − ½(H + H⁺)s, what Gauss-Newton's model
// leaves of the change of the gradient, by the trapezoidal rule along the step. It needs no Jacobian of the
// point before, holds for losses whose weights change from point to point, and takes as many evaluations
// (within 2 % on simulated batches).
#pragma once

#include "core/fit/size.hpp"

SW_BEGIN

// (M v) for a packed symmetric M.
template <class Size>
SW_HD void symmetric_product(Size n, const double* M, const double* v, double* out) {
    for (int i = 0; i < n; ++i) {
        double sum = 0;
        for (int j = 0; j < n; ++j) sum += M[either(i, j)] * v[j];
        out[i] = sum;
    }
}

// S <- τS + (e yᵀ + y eᵀ)/yᵀs − (eᵀs) y yᵀ/(yᵀs)², e = y# − τSs, τ = min(1, |sᵀy#| / |sᵀSs|), after an
// accepted step that took `gain` off the cost. Returns whether the old S foretold that better than H alone.
template <class Size>
SW_HD bool learn_secant(Size n, const double* step, const double* g, const double* H, const double* g_after,
                        const double* H_after, double gain, double* S) {
    constexpr int N = Size::capacity;
    double y[N], e[N], Ss[N], Hs[N];
    symmetric_product(n, S, step, Ss);
    symmetric_product(n, H, step, Hs);
    symmetric_product(n, H_after, step, e);
    double ys = 0, yy = 0, ss = 0, sSs = 0, sharp = 0, foretold = 0;
    for (int i = 0; i < n; ++i) {
        y[i] = g_after[i] - g[i];
        e[i] = y[i] - 0.5 * (Hs[i] + e[i]);
        ys += y[i] * step[i];
        yy += y[i] * y[i];
        ss += step[i] * step[i];
        sSs += step[i] * Ss[i];
        sharp += step[i] * e[i];
        foretold -= step[i] * (g[i] + 0.5 * Hs[i]);
    }
    const bool helps = absolute(foretold - 0.5 * sSs - gain) < absolute(foretold - gain);
    if (!(ys * ys > 1e-24 * yy * ss)) return helps;
    const double tau = sSs != 0 ? min_of(1.0, absolute(sharp) / absolute(sSs)) : 1.0;
    double es = 0;
    for (int i = 0; i < n; ++i) {
        e[i] -= tau * Ss[i];
        es += e[i] * step[i];
    }
    const double inverse = 1 / ys, back = es * inverse * inverse;
    for (int i = 0; i < n; ++i)
        for (int j = 0; j <= i; ++j)
            S[at(i, j)] = tau * S[at(i, j)] + (e[i] * y[j] + y[i] * e[j]) * inverse - back * y[i] * y[j];
    return helps;
}

SW_END
