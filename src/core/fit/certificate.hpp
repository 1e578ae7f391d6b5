// What holds at the point that is returned, from its own g and H: one judge for all ends, and the covariance.
#pragma once

#include "core/fit/turn.hpp"

SW_BEGIN

// Whether a parameter lies between its bounds.
SW_HD bool lies_between(double x, double low, double high) {
    return x > low && x < high;
}

// Promise, violation and optimality at s.x. `variance` is s² (2 cost / dof, or 1): distance is in units of
// it.
template <class Size>
SW_HD FitCertificate certify(Size n, const double* low, const double* high, const FitState<Size::capacity>& s,
                             double variance) {
    constexpr int N = Size::capacity;
    FitCertificate found{0, 0, 0, 0, 1, 0, 0};
    const double size = square_root(2 * s.cost);
    ScaledModel<N> model;
    double own[N];
    for (int i = 0; i < n; ++i) {
        const bool held = (s.x[i] <= low[i] && s.g[i] >= 0) || (s.x[i] >= high[i] && s.g[i] <= 0);
        if (lies_between(s.x[i], low[i], high[i])) ++found.free;
        const double diagonal = s.H[at(i, i)];
        own[i] = diagonal > 0 ? diagonal : 1;
        if (held || s.g[i] == 0) continue;
        found.optimality = max_of(found.optimality, absolute(s.g[i]));
        if (size > 0)
            found.violation = max_of(found.violation, absolute(s.g[i]) * inverse_root(own[i]) / size);
    }
    // Columns of length one at this very point: what was seen on the way does not count here.
    for (int i = 0; i < n; ++i) {
        const double inverse = inverse_root(own[i]), length = own[i] * inverse;
        model.to_x[i] = inverse;
        model.b[i] = s.g[i] * inverse;
        model.low[i] = (low[i] - s.x[i]) * length;
        model.high[i] = (high[i] - s.x[i]) * length;
        for (int j = 0; j <= i; ++j) model.A[at(i, j)] = s.H[at(i, j)] * inverse * model.to_x[j];
        model.A[at(i, i)] = 1 + 4 * n * double_epsilon;
    }
    BoundedStep<N> step;
    bounded_step(n, model.A, model.b, model.low, model.high, 1e-300, true, step);
    const double promised = max_of(0.0, -model_value(n, model.A, model.b, step.d));
    found.promise = s.cost > 0 ? promised / s.cost : 0;
    found.distance = variance > 0 ? square_root(2 * promised / variance) : promised > 0 ? double_infinity : 0;
    return found;
}

// The factor L of J_FᵀJ_F with columns of length one, over the parameters between bounds that the data see at
// all: pivots in order of size, the diagonal of L inverted, `rank` columns.
template <int N>
struct FreeFactor {
    double L[N * (N + 1) / 2], unit[N];
    int32_t order[N];
    bool lost[N];  // a parameter that the data do not determine
    int32_t free, rank;
    double smallest;  // pivot
};

// Which parameters take part; a column that has vanished, against what it was on the way, is lost.
template <class Size>
SW_HD void list_free(Size n, const double* low, const double* high, const FitState<Size::capacity>& s,
                     FreeFactor<Size::capacity>& factor) {
    factor.free = factor.rank = 0;
    factor.smallest = 1;
    for (int i = 0; i < n; ++i) {
        factor.lost[i] = false;
        if (!lies_between(s.x[i], low[i], high[i])) continue;
        if (s.H[at(i, i)] > 1e-28 * s.scale[i]) {
            factor.unit[i] = inverse_root(s.H[at(i, i)]);
            factor.order[factor.free++] = i;
        } else {
            factor.lost[i] = true;
        }
    }
}

// Cholesky from the right with symmetric pivoting, of H; pivots up to `least` are taken for zero.
template <class Size>
SW_HD_CALLED void factor_free(Size n, const double* low, const double* high,
                              const FitState<Size::capacity>& s, double least,
                              FreeFactor<Size::capacity>& factor) {
    list_free(n, low, high, s, factor);
    double* const L = factor.L;
    int32_t* const order = factor.order;
    const int free = factor.free;
    for (int i = 0; i < free; ++i)
        for (int j = 0; j <= i; ++j)
            L[at(i, j)] =
                i == j ? 1.0
                       : s.H[either(order[i], order[j])] * factor.unit[order[i]] * factor.unit[order[j]];
    for (int k = 0; k < free; ++k) {
        int best = k;
        for (int i = k + 1; i < free; ++i)
            if (L[at(i, i)] > L[at(best, best)]) best = i;
        if (!(L[at(best, best)] > least)) break;
        factor.smallest = min_of(factor.smallest, L[at(best, best)]);
        if (best != k) {
            for (int j = 0; j < free; ++j) {
                if (j == k || j == best) continue;
                const double kept = L[either(k, j)];
                L[either(k, j)] = L[either(best, j)];
                L[either(best, j)] = kept;
            }
            const double kept = L[at(k, k)];
            L[at(k, k)] = L[at(best, best)];
            L[at(best, best)] = kept;
            const int32_t name = order[k];
            order[k] = order[best];
            order[best] = name;
        }
        const double inverse = inverse_root(L[at(k, k)]);
        L[at(k, k)] = inverse;
        for (int i = k + 1; i < free; ++i) L[at(i, k)] *= inverse;
        for (int i = k + 1; i < free; ++i)
            for (int j = k + 1; j <= i; ++j) L[at(i, j)] -= L[at(i, k)] * L[at(j, k)];
        ++factor.rank;
    }
}

// Variances over the parameters between bounds, variance (J_FᵀJ_F)⁻¹, from their factor. 0 for a parameter at
// a bound. Infinite where the data do not determine it: its column has vanished, or combines with others to
// nothing (then all columns of that combination are undetermined). `covariance` is a packed triangle, or
// null.
template <class Size>
SW_HD_CALLED void spread_variance(Size n, const double* low, const double* high,
                                  const FitState<Size::capacity>& s, double variance,
                                  FreeFactor<Size::capacity>& factor, double* variances, double* covariance) {
    constexpr int N = Size::capacity;
    double* const L = factor.L;
    const int32_t* const order = factor.order;
    const int rank = factor.rank;
    // A column without a pivot is a combination L₁₁⁻ᵀl of those that have one: they are lost with it.
    double v[N];
    for (int k = rank; k < factor.free; ++k) {
        factor.lost[order[k]] = true;
        for (int i = rank - 1; i >= 0; --i) {
            double sum = L[at(k, i)];
            for (int j = i + 1; j < rank; ++j) sum -= L[at(j, i)] * v[j];
            v[i] = sum * L[at(i, i)];
            if (absolute(v[i]) > 1e-6) factor.lost[order[i]] = true;
        }
    }
    // The inverse: columns of L⁻¹ in place, then L⁻ᵀL⁻¹.
    for (int j = 0; j < rank; ++j) {
        for (int i = j + 1; i < rank; ++i) {
            double sum = 0;
            for (int k = j; k < i; ++k) sum -= L[at(i, k)] * L[at(k, j)];
            L[at(i, j)] = sum * L[at(i, i)];
        }
    }
    for (int i = 0; i < n; ++i) variances[i] = 0;
    if (covariance)
        for (int i = 0; i < at(n, 0); ++i) covariance[i] = 0;
    for (int i = 0; i < rank; ++i) {
        for (int j = covariance ? 0 : i; j <= i; ++j) {
            double sum = 0;
            for (int k = i; k < rank; ++k) sum += L[at(k, i)] * L[at(k, j)];
            const double entry = variance * sum * factor.unit[order[i]] * factor.unit[order[j]];
            if (i == j) variances[order[i]] = entry;
            if (covariance) covariance[either(order[i], order[j])] = entry;
        }
    }
    for (int i = 0; i < n; ++i) {
        if (!factor.lost[i]) continue;
        variances[i] = double_infinity;
        if (covariance)
            for (int j = 0; j < n; ++j)
                if (lies_between(s.x[j], low[j], high[j])) covariance[either(i, j)] = double_infinity;
    }
}

// All of it from H: variances, covariance (or null), rank and condition. `accuracy`: relative error of J's
// entries.
template <class Size>
SW_HD void find_covariance(Size n, const double* low, const double* high, const FitState<Size::capacity>& s,
                           double variance, double accuracy, FitCertificate& found, double* variances,
                           double* covariance) {
    FreeFactor<Size::capacity> factor;
    const double least = max_of(4 * n * double_epsilon, 64 * accuracy * accuracy);
    factor_free(n, low, high, s, least, factor);
    found.rank = factor.rank;
    found.condition = factor.smallest;
    spread_variance(n, low, high, s, variance, factor, variances, covariance);
}

SW_END
