// The exact minimiser of ½ dᵀA d + bᵀd within a box, for one small positive definite A: the solution without
// bounds if it lies within them, else an active set that begins there, held within the box. Each step solves
// on the free variables, goes as far as the box lets it, and at a solution frees the variable that pushes
// hardest.
#pragma once

#include "core/fit/size.hpp"

SW_BEGIN

// A = L D Lᵀ over the packed triangle: L below the diagonal, 1/D on it (a division a pivot and no root: the
// chain of pivots is what a small factorisation waits for). Pivots below `least` are raised to it where
// `rescue` is set (rounding has eaten them), and else end the factorisation: false.
template <class Size>
SW_HD bool factor_packed(Size size, double* a, double least, bool rescue) {
    for (int i = 0; i < size; ++i) {
        double pivot = a[at(i, i)];
        for (int j = 0; j < i; ++j) {
            double sum = a[at(i, j)];  // L_ij D_j
            for (int k = 0; k < j; ++k) sum -= a[at(i, k)] * a[at(j, k)];
            a[at(i, j)] = sum;
        }
        for (int j = 0; j < i; ++j) {
            const double entry = a[at(i, j)] * a[at(j, j)];
            pivot -= entry * a[at(i, j)];
            a[at(i, j)] = entry;
        }
        if (!(pivot >= least)) {
            if (!rescue) return false;
            pivot = least;
        }
        a[at(i, i)] = 1 / pivot;
    }
    return true;
}

// v <- -A⁻¹ v.
template <class Size>
SW_HD void solve_negative(Size size, const double* factor, double* v) {
    for (int i = 1; i < size; ++i) {
        double sum = v[i];
        for (int k = 0; k < i; ++k) sum -= factor[at(i, k)] * v[k];
        v[i] = sum;
    }
    for (int i = size - 1; i >= 0; --i) {
        double sum = -v[i] * factor[at(i, i)];
        for (int k = i + 1; k < size; ++k) sum -= factor[at(k, i)] * v[k];
        v[i] = sum;
    }
}

// The value ½ dᵀA d + bᵀd.
template <class Size>
SW_HD double model_value(Size n, const double* A, const double* b, const double* d) {
    double value = 0;
    for (int i = 0; i < n; ++i) {
        double sum = b[i] + 0.5 * A[at(i, i)] * d[i];
        for (int j = 0; j < i; ++j) sum += A[at(i, j)] * d[j];
        value += sum * d[i];
    }
    return value;
}

// Where the minimiser lies: d, and per variable -1 at the lower bound, 1 at the upper one, 0 between.
template <int N>
struct BoundedStep {
    double d[N];
    int8_t side[N];
    double bend;  // dᵀA⁻¹d over what is free: how fast damping shortens the step
};

// vᵀA⁻¹v from the factor; v is overwritten.
template <class Size>
SW_HD double bend_of(Size size, const double* factor, double* v) {
    double total = 0;
    for (int i = 0; i < size; ++i) {
        double sum = v[i];
        for (int k = 0; k < i; ++k) sum -= factor[at(i, k)] * v[k];
        v[i] = sum;
        total += sum * sum * factor[at(i, i)];
    }
    return total;
}

// The active set; `step` holds a point of the box and the sides to begin with.
template <class Size>
SW_HD_CALLED void walk_active_set(Size n, const double* A, const double* b, const double* low,
                                  const double* high, double least, BoundedStep<Size::capacity>& step) {
    constexpr int N = Size::capacity;
    double factor[N * (N + 1) / 2], z[N];
    int32_t free[N];
    double steepest = 0;
    for (int i = 0; i < n; ++i) steepest = max_of(steepest, absolute(b[i]));
    const double tolerance = 64 * double_epsilon * steepest;
    for (int turn = 0; turn < 4 * n + 10; ++turn) {
        int count = 0;
        for (int i = 0; i < n; ++i)
            if (step.side[i] == 0) free[count++] = i;
        for (int i = 0; i < count; ++i) {
            for (int j = 0; j <= i; ++j) factor[at(i, j)] = A[at(free[i], free[j])];
            double slope = b[free[i]];
            for (int j = 0; j < n; ++j)
                if (step.side[j] != 0) slope += A[either(free[i], j)] * step.d[j];
            z[i] = slope;
        }
        const AtMost<N> size{count};
        factor_packed(size, factor, least, true);
        solve_negative(size, factor, z);
        double reach = 1;
        int blocking = -1;
        for (int i = 0; i < count; ++i) {
            const int j = free[i];
            const double way = z[i] - step.d[j];
            const bool below = z[i]<low[j], above = z[i]> high[j];
            if (!below && !above) continue;
            const double part = clamp_to(((below ? low[j] : high[j]) - step.d[j]) / way, 0.0, 1.0);
            if (blocking < 0 || part < reach) {
                reach = part;
                blocking = i;
            }
        }
        for (int i = 0; i < count; ++i) {
            const int j = free[i];
            const double there = blocking < 0 ? z[i] : step.d[j] + reach * (z[i] - step.d[j]);
            step.d[j] = clamp_to(there, low[j], high[j]);
        }
        if (blocking >= 0) {
            const int j = free[blocking];
            step.side[j] = z[blocking] < low[j] ? -1 : 1;
            step.d[j] = step.side[j] < 0 ? low[j] : high[j];
            continue;
        }
        double hardest = tolerance;
        int leaving = -1;
        for (int i = 0; i < n; ++i) {
            if (step.side[i] == 0 || !(low[i] < high[i])) continue;
            double slope = b[i];
            for (int j = 0; j < n; ++j) slope += A[either(i, j)] * step.d[j];
            const double push = step.side[i] < 0 ? -slope : slope;
            if (push > hardest) {
                hardest = push;
                leaving = i;
            }
        }
        if (leaving < 0) {
            for (int i = 0; i < count; ++i) z[i] = step.d[free[i]];
            step.bend = bend_of(size, factor, z);
            return;
        }
        step.side[leaving] = 0;
    }
}

// Minimises within the box. `least` is the smallest pivot that is believed; with rescue = false, false is
// returned where A is not positive definite by that measure.
template <class Size>
SW_HD bool bounded_step(Size n, const double* A, const double* b, const double* low, const double* high,
                        double least, bool rescue, BoundedStep<Size::capacity>& step) {
    constexpr int N = Size::capacity;
    double factor[N * (N + 1) / 2];
    for (int i = 0; i < at(n, 0); ++i) factor[i] = A[i];
    if (!factor_packed(n, factor, least, rescue)) return false;
    for (int i = 0; i < n; ++i) step.d[i] = b[i];
    solve_negative(n, factor, step.d);
    bool inside = true;
    for (int i = 0; i < n; ++i) {
        const int side = !(low[i] < high[i]) || step.d[i] < low[i] ? -1 : step.d[i] > high[i] ? 1 : 0;
        step.side[i] = int8_t(side);
        inside = inside && side == 0;
    }
    if (inside) {
        double v[N];
        for (int i = 0; i < n; ++i) v[i] = step.d[i];
        step.bend = bend_of(n, factor, v);
        return true;
    }
    step.bend = 0;
    for (int i = 0; i < n; ++i) step.d[i] = clamp_to(step.d[i], low[i], high[i]);
    walk_active_set(n, A, b, low, high, least, step);
    return true;
}

SW_END
