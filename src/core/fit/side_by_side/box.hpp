// The exact minimiser of ½ dᵀA d + bᵀd within a box (core/fit/bounded_step.hpp), for problems side by side:
// every loop runs until the last of them is done, and decisions are choices. With R = double it is one
// problem, in code that a device keeps in registers: there is one factorisation, and no array whose address
// leaves.
#pragma once

#include "core/fit/models/numbers.hpp"
#include "core/fit/size.hpp"

SW_BEGIN
namespace fit {

// A = L Lᵀ of the rows and columns where `free` holds, as if the others were those of the identity; the
// diagonal of L is kept inverted. `definite` becomes false where a pivot is below `least`, which it is raised
// to.
template <class R, class Size, class Where>
SW_HD void factor_free(Size n, const R* A, const Where* free, bool all, R least, R* L, Where& definite) {
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        SW_UNROLL
        for (int j = 0; j < i; ++j) {
            R sum = A[at(i, j)];
            if (!all) sum = choose(free[i] & free[j], sum, R(0.0));
            SW_UNROLL
            for (int k = 0; k < j; ++k) sum = sum - L[at(i, k)] * L[at(j, k)];
            L[at(i, j)] = sum * L[at(j, j)];
        }
        R pivot = A[at(i, i)];
        if (!all) pivot = choose(free[i], pivot, R(1.0));
        SW_UNROLL
        for (int k = 0; k < i; ++k) pivot = pivot - L[at(i, k)] * L[at(i, k)];
        const Where fine = pivot >= least;
        definite = definite & fine;
        L[at(i, i)] = inverse_root_of(choose(fine, pivot, least));
    }
}

// v <- -A⁻¹ v.
template <class R, class Size>
SW_HD void solve_factored(Size n, const R* L, R* v) {
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        R sum = v[i];
        SW_UNROLL
        for (int k = 0; k < i; ++k) sum = sum - L[at(i, k)] * v[k];
        v[i] = sum * L[at(i, i)];
    }
    SW_UNROLL
    for (int i = n - 1; i >= 0; --i) {
        R sum = v[i];
        SW_UNROLL
        for (int k = i + 1; k < n; ++k) sum = sum - L[at(k, i)] * v[k];
        v[i] = sum * L[at(i, i)];
    }
    SW_UNROLL
    for (int i = 0; i < n; ++i) v[i] = -v[i];
}

// Minimises for the problems of `need`; d and side (-1, 0, 1) of the others are anything. A parameter whose
// bounds are equal is at its lower one. `definite` is false where A was not, by the measure of `least`.
template <class R, class Size, class Where>
SW_HD void minimise_within(Size n, const R* A, const R* b, const R* low, const R* high, R least, Where need,
                           R* d, R* side, Where& definite) {
    constexpr int N = Size::capacity;
    R L[N * (N + 1) / 2], z[N], steepest = R(0.0);
    Where free[N], movable[N], fixed_some = Where(false);
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        movable[i] = free[i] = low[i] < high[i];
        fixed_some = fixed_some | !free[i];
        d[i] = R(0.0);
        steepest = larger_of(steepest, size_of(b[i]));
    }
    const R tolerance = steepest * (64 * double_epsilon);
    definite = Where(true);
    bool all = !any(fixed_some);
    Where open = need;
    SW_ROLLED
    for (int turn = 0; turn < 4 * n + 10; ++turn) {
        factor_free(n, A, free, all, least, L, definite);
        SW_UNROLL
        for (int i = 0; i < n; ++i) {
            R slope = b[i];
            if (!all) {
                SW_UNROLL
                for (int j = 0; j < n; ++j) slope = slope + choose(free[j], R(0.0), A[either(i, j)] * d[j]);
                slope = choose(free[i], slope, R(0.0));
            }
            z[i] = slope;
        }
        solve_factored(n, L, z);
        if (turn == 0) {
            Where outside = Where(false);
            SW_UNROLL
            for (int i = 0; i < n; ++i) {
                const Where below = z[i]<low[i], above = z[i]> high[i];
                side[i] = choose(below | !free[i], R(-1.0), choose(above, R(1.0), R(0.0)));
                d[i] = choose(free[i], smaller_of(larger_of(z[i], low[i]), high[i]), low[i]);
                outside = outside | (free[i] & (below | above));
                free[i] = side[i] == 0.0;
            }
            open = open & outside;
            if (!any(open)) return;
            all = false;
            continue;
        }
        // As far as the box lets each go.
        R reach = R(1.0), blocking = R(-1.0);
        SW_UNROLL
        for (int i = 0; i < n; ++i) {
            const Where below = z[i] < low[i], out = free[i] & (below | (z[i] > high[i]));
            const R bound = choose(below, low[i], high[i]);
            R part = (bound - d[i]) / (z[i] - d[i]);
            part = smaller_of(larger_of(part, R(0.0)), R(1.0));
            const Where nearer = out & ((blocking < 0.0) | (part < reach));
            reach = choose(nearer, part, reach);
            blocking = choose(nearer, R(double(i)), blocking);
        }
        const Where blocked = blocking >= 0.0;
        SW_UNROLL
        for (int i = 0; i < n; ++i) {
            R there = choose(blocked, d[i] + reach * (z[i] - d[i]), z[i]);
            there = smaller_of(larger_of(there, low[i]), high[i]);
            d[i] = choose(open & free[i], there, d[i]);
            const Where stops = open & (blocking == double(i)), below = z[i] < low[i];
            side[i] = choose(stops, choose(below, R(-1.0), R(1.0)), side[i]);
            d[i] = choose(stops, choose(below, low[i], high[i]), d[i]);
            free[i] = free[i] & !stops;
        }
        // Where nothing stopped it: who pushes away from its bound?
        R hardest = tolerance, leaving = R(-1.0);
        SW_UNROLL
        for (int i = 0; i < n; ++i) {
            R slope = b[i];
            SW_UNROLL
            for (int j = 0; j < n; ++j) slope = slope + A[either(i, j)] * d[j];
            const R push = side[i] * slope;
            const Where harder = movable[i] & !free[i] & (push > hardest);
            hardest = choose(harder, push, hardest);
            leaving = choose(harder, R(double(i)), leaving);
        }
        open = open & (blocked | (leaving >= 0.0));
        if (!any(open)) return;
        SW_UNROLL
        for (int i = 0; i < n; ++i) {
            const Where leaves = open & !blocked & (leaving == double(i));
            side[i] = choose(leaves, R(0.0), side[i]);
            free[i] = free[i] | leaves;
        }
    }
}

}  // namespace fit
SW_END
