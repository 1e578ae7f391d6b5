// The exact minimiser of ½ dᵀA d + bᵀd within a box (core/fit/bounded_step.hpp), for problems side by side:
// every loop runs until the last of them is done, and decisions are choices. With R = double it is one
// problem, in code that a device keeps in registers: there is one factorisation, and no array whose address
// leaves.
#pragma once

#include "core/fit/models/numbers.hpp"
#include "core/fit/size.hpp"

SW_BEGIN
namespace fit {

// A scaled model is asked for its entries: `a(i, j)`, j <= i, of A, `b(i)`, `low(i)` and `high(i)`. None is
// stored, since each is needed once in most turns, and registers are few.

// A = L D Lᵀ of the rows and columns where `free` holds, as if the others were those of the identity: L below
// the diagonal, 1/D on it. `definite` becomes false where a pivot is below `least`, which it is raised to.
template <class R, class Size, class Model, class Where>
SW_HD void factor_where(Size n, const Model& model, const Where* free, bool all, R least, R* L,
                        Where& definite) {
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        SW_UNROLL
        for (int j = 0; j < i; ++j) {
            R sum = model.a(i, j);
            if (!all) sum = choose(free[i] & free[j], sum, R(0.0));
            SW_UNROLL
            for (int k = 0; k < j; ++k) sum = sum - L[at(i, k)] * L[at(j, k)];
            L[at(i, j)] = sum;  // L_ij D_j
        }
        R pivot = model.a(i, i);
        if (!all) pivot = choose(free[i], pivot, R(1.0));
        SW_UNROLL
        for (int j = 0; j < i; ++j) {
            const R entry = L[at(i, j)] * L[at(j, j)];
            pivot = pivot - entry * L[at(i, j)];
            L[at(i, j)] = entry;
        }
        const Where fine = pivot >= least;
        definite = definite & fine;
        L[at(i, i)] = 1.0 / choose(fine, pivot, least);
    }
}

// v <- -A⁻¹ v.
template <class R, class Size>
SW_HD void solve_factored(Size n, const R* L, R* v) {
    SW_UNROLL
    for (int i = 1; i < n; ++i) {
        R sum = v[i];
        SW_UNROLL
        for (int k = 0; k < i; ++k) sum = sum - L[at(i, k)] * v[k];
        v[i] = sum;
    }
    SW_UNROLL
    for (int i = n - 1; i >= 0; --i) {
        R sum = -(v[i] * L[at(i, i)]);
        SW_UNROLL
        for (int k = i + 1; k < n; ++k) sum = sum - L[at(k, i)] * v[k];
        v[i] = sum;
    }
}

// Minimises for the problems of `need`: d, and side (-1, 0, 1); those of the others stay. A parameter whose
// bounds are equal is at its lower one. `definite` is false where A was not, by the measure of `least`.
// Returns dᵀA⁻¹d over what is free, from which the next damping follows.
template <class R, class Size, class Model, class Where, class Count>
SW_HD R minimise_within(Size n, const Model& model, R least, Where need, R* d, Count* side, Where& definite) {
    constexpr int N = Size::capacity;
    R L[N * (N + 1) / 2], z[N];
    Where free[N], fixed_some = Where(false);
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        free[i] = model.movable(i);
        fixed_some = fixed_some | !free[i];
    }
    definite = Where(true);
    bool all = !any(fixed_some);
    Where open = need;
    SW_ROLLED
    for (int turn = 0; turn < 4 * n + 10; ++turn) {
        factor_where(n, model, free, all, least, L, definite);
        SW_UNROLL
        for (int i = 0; i < n; ++i) {
            R slope = model.b(i);
            if (turn > 0) {  // (what is fixed does not move: before that, nothing is held anywhere else)
                SW_UNROLL
                for (int j = 0; j < n; ++j)
                    slope = slope + choose(free[j], R(0.0), model.either(i, j) * d[j]);
            }
            z[i] = all ? slope : choose(free[i], slope, R(0.0));
        }
        solve_factored(n, L, z);
        if (turn == 0) {
            Where outside = Where(false);
            SW_UNROLL
            for (int i = 0; i < n; ++i) {
                const R low = model.low(i), high = model.high(i);
                const Where below = z[i]<low, above = z[i]> high;
                const Count at_low = choose(below | !free[i], Count(-1), choose(above, Count(1), Count(0)));
                side[i] = choose(need, at_low, side[i]);
                d[i] = choose(need, choose(free[i], smaller_of(larger_of(z[i], low), high), low), d[i]);
                outside = outside | (free[i] & (below | above));
                free[i] = side[i] == 0;
            }
            open = open & outside;
            if (!any(open)) break;
            all = false;
            continue;
        }
        // As far as the box lets each go.
        R reach = R(1.0);
        Count blocking = Count(-1);
        SW_UNROLL
        for (int i = 0; i < n; ++i) {
            const R low = model.low(i), high = model.high(i);
            const Where below = z[i] < low, out = free[i] & (below | (z[i] > high));
            R part = (choose(below, low, high) - d[i]) / (z[i] - d[i]);
            part = smaller_of(larger_of(part, R(0.0)), R(1.0));
            const Where nearer = out & ((blocking < 0) | (part < reach));
            reach = choose(nearer, part, reach);
            blocking = choose(nearer, Count(i), blocking);
        }
        const Where blocked = blocking >= 0;
        R steepest = R(0.0);
        SW_UNROLL
        for (int i = 0; i < n; ++i) {
            const R low = model.low(i), high = model.high(i);
            R there = choose(blocked, d[i] + reach * (z[i] - d[i]), z[i]);
            there = smaller_of(larger_of(there, low), high);
            d[i] = choose(open & free[i], there, d[i]);
            const Where stops = open & (blocking == i), below = z[i] < low;
            side[i] = choose(stops, choose(below, Count(-1), Count(1)), side[i]);
            d[i] = choose(stops, choose(below, low, high), d[i]);
            free[i] = free[i] & !stops;
            steepest = larger_of(steepest, size_of(model.b(i)));
        }
        // Where nothing stopped it: who pushes away from its bound?
        R hardest = steepest * (64 * double_epsilon);
        Count leaving = Count(-1);
        SW_UNROLL
        for (int i = 0; i < n; ++i) {
            R slope = model.b(i);
            SW_UNROLL
            for (int j = 0; j < n; ++j) slope = slope + model.either(i, j) * d[j];
            const R push = choose(side[i] < 0, -slope, slope);
            const Where harder = (side[i] != 0) & model.movable(i) & (push > hardest);
            hardest = choose(harder, push, hardest);
            leaving = choose(harder, Count(i), leaving);
        }
        open = open & (blocked | (leaving >= 0));
        if (!any(open)) break;
        SW_UNROLL
        for (int i = 0; i < n; ++i) {
            const Where leaves = open & !blocked & (leaving == i);
            side[i] = choose(leaves, Count(0), side[i]);
            free[i] = free[i] | leaves;
        }
    }
    // (L is of the last free set of every problem: those that were done earlier kept theirs.)
    R bend = R(0.0);
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        R sum = choose(free[i], d[i], R(0.0));
        SW_UNROLL
        for (int k = 0; k < i; ++k) sum = sum - L[at(i, k)] * z[k];
        z[i] = sum;
        bend = bend + sum * sum * L[at(i, i)];
    }
    return bend;
}

}  // namespace fit
SW_END
