// The exact minimiser of ½ dᵀA d + bᵀd within a box (core/fit/bounded_step.hpp), for problems side by side:
// each is at its own place of the search, a call is one factorisation for all of them, and decisions are
// choices. With R = double it is one problem, in code that a device keeps in registers: there is one
// factorisation, and no array whose address leaves.
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

// Where a search is.
template <class R, int N>
struct BoxSearch {
    typedef typename DecisionsOf<R>::Where Where;
    typedef typename DecisionsOf<R>::Count Count;
    R d[N];
    Count side[N];   // -1, 0, 1
    Where fresh;     // nothing is held yet but what is fixed
    Where definite;  // A was, by the measure of `least`
    Count turns;

    SW_HD void begin(Where where) {
        fresh = fresh | where;
        definite = definite | where;
        turns = choose(where, Count(0), turns);
    }
};

// One step of the searches of `need`; those of the others stay. Returns which have found their minimiser: d,
// with a parameter whose bounds are equal at its lower one. `bend` is then dᵀA⁻¹d over what is free, from
// which the next damping follows.
template <class R, class Size, class Model, class Where>
SW_HD Where search_box(Size n, const Model& model, R least, Where need, BoxSearch<R, Size::capacity>& at_work,
                       R& bend) {
    typedef typename DecisionsOf<R>::Count Count;
    constexpr int N = Size::capacity;
    R* const d = at_work.d;
    Count* const side = at_work.side;
    const Where begins = need & at_work.fresh, goes_on = need & !at_work.fresh;
    const bool some_begin = any(begins), some_go_on = any(goes_on);
    R L[N * (N + 1) / 2], z[N];
    Where free[N], held_some = Where(false);
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        free[i] = (at_work.fresh | (side[i] == 0)) & model.movable(i);
        held_some = held_some | (need & !free[i]);
    }
    const bool all = !any(held_some);
    Where definite = at_work.definite;
    factor_where(n, model, free, all, least, L, definite);
    at_work.definite = definite;
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        R slope = model.b(i);
        if (some_go_on) {  // (what is fixed does not move: before that, nothing is held anywhere else)
            SW_UNROLL
            for (int j = 0; j < n; ++j)
                slope = slope + choose(free[j] | begins, R(0.0), model.either(i, j) * d[j]);
        }
        z[i] = all ? slope : choose(free[i], slope, R(0.0));
    }
    solve_factored(n, L, z);
    Where ended = Where(false);
    if (some_begin) {
        Where outside = Where(false);
        SW_UNROLL
        for (int i = 0; i < n; ++i) {
            const R low = model.low(i), high = model.high(i);
            const Where below = z[i]<low, above = z[i]> high;
            const Count at_low = choose(below | !free[i], Count(-1), choose(above, Count(1), Count(0)));
            side[i] = choose(begins, at_low, side[i]);
            d[i] = choose(begins, choose(free[i], smaller_of(larger_of(z[i], low), high), low), d[i]);
            outside = outside | (free[i] & (below | above));
        }
        ended = begins & !outside;
    }
    if (some_go_on) {
        // As far as the box lets each go.
        R reach = R(2.0), way = R(1.0);
        Count blocking = Count(-1);
        SW_UNROLL
        for (int i = 0; i < n; ++i) {
            const R low = model.low(i), high = model.high(i);
            const Where below = z[i] < low, out = free[i] & (below | (z[i] > high));
            // (d lies between the bounds and z beyond one: parts are compared without dividing.)
            const R part = size_of(choose(below, low, high) - d[i]), whole = size_of(z[i] - d[i]);
            const Where nearer = out & (part * way < reach * whole);
            reach = choose(nearer, part, reach);
            way = choose(nearer, whole, way);
            blocking = choose(nearer, Count(i), blocking);
        }
        const Where blocked = blocking >= 0;
        reach = smaller_of(reach / way, R(1.0));
        R steepest = R(0.0);
        SW_UNROLL
        for (int i = 0; i < n; ++i) {
            const R low = model.low(i), high = model.high(i);
            R there = choose(blocked, d[i] + reach * (z[i] - d[i]), z[i]);
            there = smaller_of(larger_of(there, low), high);
            d[i] = choose(goes_on & free[i], there, d[i]);
            const Where stops = goes_on & (blocking == i), below = z[i] < low;
            side[i] = choose(stops, choose(below, Count(-1), Count(1)), side[i]);
            d[i] = choose(stops, choose(below, low, high), d[i]);
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
        ended = ended | (goes_on & !blocked & (leaving < 0));
        SW_UNROLL
        for (int i = 0; i < n; ++i) side[i] = choose(goes_on & !blocked & (leaving == i), Count(0), side[i]);
    }
    at_work.fresh = at_work.fresh & !need;
    at_work.turns = choose(need, at_work.turns + 1, at_work.turns);
    ended = ended | (need & (at_work.turns >= 4 * int(n) + 10));
    // (L is of the free set of each that has ended.)
    bend = R(0.0);
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        R sum = choose(free[i] & (side[i] == 0), d[i], R(0.0));
        SW_UNROLL
        for (int k = 0; k < i; ++k) sum = sum - L[at(i, k)] * z[k];
        z[i] = sum;
        bend = bend + sum * sum * L[at(i, i)];
    }
    return ended;
}

}  // namespace fit
SW_END
