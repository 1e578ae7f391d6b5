// The turn of core/fit/turn.hpp for problems side by side: lanes of a CPU's registers (R = Decided), or one
// problem of a device thread (R = double). It decides as fit_turn does, by choices in place of branches, but
// for the search of the damping: Newton's steps here, which take two factorisations where a power of the
// ratio of lengths takes up to twelve, and every lane waits for the slowest. A test runs both.
#pragma once

#include "core/fit/side_by_side/box.hpp"
#include "core/fit/turn.hpp"

SW_BEGIN
namespace fit {

template <class R, int N>
struct SideState {
    typedef typename DecisionsOf<R>::Where Where;
    typedef typename DecisionsOf<R>::Count Count;
    static constexpr int packed = N * (N + 1) / 2;
    R x[N], trial[N], g[N], scale[N], H[packed], S[packed];  // as in FitState
    R cost, radius, damping, floor, predicted, last, promise;
    Count status, iterations, evaluations, accepted, rejections, nonfinite;
    Where secant_helps;
};

constexpr int still_running = int(FitStatus::running);

template <class R, class Size>
SW_HD R quadratic(Size n, const R* M, const R* v) {
    R value = R(0.0);
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        R sum = M[at(i, i)] * v[i] * 0.5;
        SW_UNROLL
        for (int j = 0; j < i; ++j) sum = sum + M[at(i, j)] * v[j];
        value = value + sum * v[i];
    }
    return value;  // ½ vᵀMv
}

// S learns from the step, where `where` holds (core/fit/secant.hpp).
template <class R, class Size, class Where>
SW_HD void learn(Size n, Where where, const R* step, const R* after, const R* H,
                 SideState<R, Size::capacity>& s) {
    constexpr int N = Size::capacity;
    R y[N], e[N], Ss[N];
    R ys = R(0.0), yy = R(0.0), ss = R(0.0), sSs = R(0.0), sharp = R(0.0);
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        R curved = R(0.0), product = R(0.0);
        SW_UNROLL
        for (int j = 0; j < n; ++j) {
            curved = curved + s.S[either(i, j)] * step[j];
            product = product + (s.H[either(i, j)] + H[either(i, j)]) * step[j];
        }
        Ss[i] = curved;
        y[i] = after[i] - s.g[i];
        e[i] = y[i] - product * 0.5;
        ys = ys + y[i] * step[i];
        yy = yy + y[i] * y[i];
        ss = ss + step[i] * step[i];
        sSs = sSs + step[i] * Ss[i];
        sharp = sharp + step[i] * e[i];
    }
    where = where & (ys * ys > yy * ss * 1e-24);
    const R tau = choose(sSs != 0.0, smaller_of(R(1.0), size_of(sharp) / size_of(sSs)), R(1.0));
    R es = R(0.0);
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        e[i] = e[i] - tau * Ss[i];
        es = es + e[i] * step[i];
    }
    const R inverse = 1.0 / ys, back = es * inverse * inverse;
    SW_UNROLL
    for (int i = 0; i < n; ++i) SW_UNROLL
    for (int j = 0; j <= i; ++j) {
        R& entry = s.S[at(i, j)];
        const R next = tau * entry + (e[i] * y[j] + y[i] * e[j]) * inverse - back * y[i] * y[j];
        entry = choose(where, next, entry);
    }
}

// Takes the trial point or not, and sets the radius.
template <class R, class Size>
SW_HD void judge(Size n, const FitOptions& options, SideState<R, Size::capacity>& s, R cost, const R* g,
                 const R* H) {
    typedef typename DecisionsOf<R>::Where Where;
    typedef typename DecisionsOf<R>::Count Count;
    constexpr int N = Size::capacity;
    const Where first = s.evaluations == 1;
    R step[N], length = R(0.0), place = R(0.0), slope = R(0.0), total = size_of(cost);
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        step[i] = s.trial[i] - s.x[i];
        const R scale = choose(s.scale[i] > 0.0, s.scale[i], R(1.0));
        length = length + scale * step[i] * step[i];
        place = place + scale * s.x[i] * s.x[i];
        slope = slope + s.g[i] * step[i];
        total = total + size_of(g[i]);
    }
    SW_UNROLL
    for (int k = 0; k < at(n, 0); ++k) total = total + size_of(H[k]);
    length = root_of(length);
    place = root_of(place);
    const Where finite = total - total == 0.0;
    const R gain = s.cost - cost;
    R ratio = gain / s.predicted;
    ratio = choose(finite & (ratio - ratio == 0.0), ratio, R(-1.0));
    const Where better = finite & (gain > 0.0) & (ratio > FitConstants::accept);
    const Where good = finite & (first | better);

    R radius = choose(s.evaluations == 2, smaller_of(s.radius, length), s.radius);
    R part = choose(gain >= 0.0, R(0.5), 0.5 * slope / (slope + 0.5 * gain));
    part = choose(finite & (cost < 100.0 * s.cost) & (part - part == 0.0), part, R(0.1));
    part = smaller_of(larger_of(part, R(0.1)), R(0.5));
    const R shrunk = part * smaller_of(radius, 10.0 * length);
    const R wider = choose((ratio >= 0.75) | (s.damping == 0.0), 2.0 * length, radius);
    s.radius = choose(first, s.radius, choose(ratio <= 0.25, shrunk, wider));

    const Where tiny = length <= 1e-15 * place;
    s.rejections = choose(good, Count(0), choose(tiny, Count(FitConstants::stall), s.rejections + 1));
    s.nonfinite = choose(finite, Count(0), s.nonfinite + 1);
    s.accepted = choose(good, s.accepted + 1, s.accepted);
    s.status = choose(first & !finite, Count(int(FitStatus::nonfinite_start)), s.status);
    const R taken = gain / s.cost;
    s.last =
        choose(better & !first, taken, choose(finite & !good, smaller_of(s.last, size_of(taken)), s.last));
    if (options.secant && any(better & !first)) {
        const R plain = -slope - quadratic(n, s.H, step), curved = quadratic(n, s.S, step);
        const Where helps = size_of(plain - curved - gain) < size_of(plain - gain);
        s.secant_helps = choose(better & !first, helps, s.secant_helps);
        learn(n, better & !first, step, g, H, s);
    }
    if (options.xtol > 0)
        s.status =
            choose(better & !first & (length <= options.xtol * place), Count(int(FitStatus::step)), s.status);
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        s.x[i] = choose(good, s.trial[i], s.x[i]);
        s.g[i] = choose(good, g[i], s.g[i]);
        s.scale[i] = choose(good, larger_of(s.scale[i], H[at(i, i)]), s.scale[i]);
    }
    SW_UNROLL
    for (int k = 0; k < at(n, 0); ++k) s.H[k] = choose(good, H[k], s.H[k]);
    s.cost = choose(good, cost, s.cost);
    // A residual that moving x by a thousandth of the start's rounding would change as much is none.
    if (any(first)) {
        R sum = R(0.0);
        SW_UNROLL
        for (int i = 0; i < n; ++i) sum = sum + s.scale[i] * s.x[i] * s.x[i];
        const R least = larger_of(s.floor, 8e-6 * options.epsilon * options.epsilon * sum);
        s.floor = choose(first, least, s.floor);
    }
}

// The model at x in variables that are scaled to columns of length one (of the largest that were seen), with
// S where `curved` holds, a damping, and a ridge of each column's own size that keeps the factor.
template <class R, class Size>
struct SideModel {
    typedef typename DecisionsOf<R>::Where Where;
    const SideState<R, Size::capacity>& s;
    const R *lows, *highs;
    double ridge;
    const R* to_x;
    R damping;
    Where curved;
    bool curves;  // somewhere

    SW_HD R scale(int i) const { return choose(s.scale[i] > 0.0, s.scale[i], R(1.0)); }
    SW_HD R a(int i, int j) const {
        R entry = s.H[at(i, j)] * to_x[i] * to_x[j];
        if (i == j) entry = choose(entry > 0.0, entry * (1 + ridge), R(1.0)) + damping;
        if (curves) entry = entry + choose(curved, s.S[at(i, j)] * to_x[i] * to_x[j], R(0.0));
        return entry;
    }
    SW_HD R either(int i, int j) const { return i < j ? a(j, i) : a(i, j); }
    SW_HD R b(int i) const { return s.g[i] * to_x[i]; }
    SW_HD R low(int i) const { return (lows[i] - s.x[i]) * (scale(i) * to_x[i]); }
    SW_HD R high(int i) const { return (highs[i] - s.x[i]) * (scale(i) * to_x[i]); }
    SW_HD Where movable(int i) const { return lows[i] < highs[i]; }
};

// The search of the next trial points: passes over the box, by the model without damping, then with S where
// that helps, then damped until the step is as long as the radius: λ inside a bracket (0, ‖b‖/Δ).
template <class R, int N>
struct Aim {
    typedef typename DecisionsOf<R>::Where Where;
    typedef typename DecisionsOf<R>::Count Count;
    BoxSearch<R, N> box;
    R to_x[N], damping, bottom, top;
    Where curved, need;      // with S; the search goes on
    Where stationary, zero;  // reasons to end
    Count passes;
};

template <class R, class Size>
SW_HD void aim_begins(Size n, const FitOptions& options, const R* low, const R* high,
                      SideState<R, Size::capacity>& s, Aim<R, Size::capacity>& aim) {
    typedef typename DecisionsOf<R>::Where Where;
    typedef typename DecisionsOf<R>::Count Count;
    aim.stationary = Where(true);
    R rounding = R(0.0), place = R(0.0), slopes = R(0.0);
    const double gtol2 = 2 * options.gtol * options.gtol;
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        const R diagonal = s.H[at(i, i)], scale = choose(s.scale[i] > 0.0, s.scale[i], R(1.0));
        const Where held = ((s.x[i] <= low[i]) & (s.g[i] >= 0.0)) | ((s.x[i] >= high[i]) & (s.g[i] <= 0.0));
        aim.stationary = aim.stationary & (held | (s.g[i] * s.g[i] <= gtol2 * diagonal * s.cost));
        rounding = rounding + diagonal * s.x[i] * s.x[i];
        place = place + scale * s.x[i] * s.x[i];
        aim.to_x[i] = inverse_root_of(scale);
        const R slope = s.g[i] * aim.to_x[i];
        slopes = slopes + slope * slope;
        aim.box.d[i] = R(0.0);
        aim.box.side[i] = Count(0);
    }
    s.radius = choose(s.radius < 0.0,
                      choose(place > 0.0, FitConstants::first_radius * root_of(place), R(100.0)), s.radius);
    aim.zero = s.cost <= larger_of(8 * options.epsilon * options.epsilon * rounding, s.floor);
    aim.damping = aim.bottom = R(0.0);
    aim.top = root_of(slopes) / larger_of(s.radius, R(1e-300));
    // (A step below xtol has ended the fit; what is promised there is told all the same.)
    aim.need = (s.status == still_running) | (s.status == int(FitStatus::step));
    aim.curved = Where(false);
    aim.passes = Count(0);
    aim.box.fresh = aim.box.definite = Where(false);
    aim.box.begin(Where(true));
}

// One factorisation; aim.need says which searches go on.
template <class R, class Size>
SW_HD void aim_goes_on(Size n, const FitOptions& options, const R* low, const R* high,
                       SideState<R, Size::capacity>& s, Aim<R, Size::capacity>& aim) {
    typedef typename DecisionsOf<R>::Where Where;
    typedef typename DecisionsOf<R>::Count Count;
    const SideModel<R, Size> model = {s,        low,         high,       4 * int(n) * double_epsilon,
                                      aim.to_x, aim.damping, aim.curved, any(aim.curved)};
    R bend;
    const R least = choose(aim.curved, R(1e-10), R(1e-300));
    const Where ended = search_box(n, model, least, aim.need, aim.box, bend);
    if (!any(ended)) return;
    const R* const d = aim.box.d;
    R length = R(0.0);
    SW_UNROLL
    for (int i = 0; i < n; ++i) length = length + d[i] * d[i];
    length = root_of(length);
    // Where S bends the model the wrong way a damping makes up for it, or S is left out; and it is where it
    // foretells next to nothing of what is promised.
    const Where bent = ended & aim.curved & !aim.box.definite;
    const Where first = ended & (aim.passes == 0);
    const Where asked = ended & aim.curved & !bent & (s.rejections == 0);
    Where once_more = bent & (aim.passes > FitConstants::bent_tries), alive = ended, helps = Where(false);
    if (any(first | asked)) {
        R value = R(0.0);  // ½ dᵀAd + bᵀd
        SW_UNROLL
        for (int i = 0; i < n; ++i) {
            R sum = model.b(i) + model.a(i, i) * d[i] * 0.5;
            SW_UNROLL
            for (int j = 0; j < i; ++j) sum = sum + model.a(i, j) * d[j];
            value = value + sum * d[i];
        }
        const R promise = larger_of(R(0.0), -value / s.cost);
        once_more = once_more | (asked & (promise < FitConstants::timid * s.promise));
        s.promise = choose(first, promise, s.promise);
        Count status = s.status;
        const auto end = [&](Where where, FitStatus reason) {
            status = choose(first & (status == still_running) & where, Count(int(reason)), status);
        };
        end(s.nonfinite >= FitConstants::wall, FitStatus::nonfinite);
        end(aim.zero, FitStatus::zero_residual);
        end(aim.stationary, FitStatus::gradient);
        end((promise <= options.ftol) & (s.last <= FitConstants::quiet), FitStatus::promise);
        end((s.rejections > 0) & (promise <= 8 * options.epsilon), FitStatus::rounding);
        const Where stuck = s.rejections >= FitConstants::stall;
        end(stuck & (promise * promise * s.cost <= s.floor), FitStatus::rounding);
        end(stuck, FitStatus::stalled);
        end((s.iterations >= options.max_iterations) | (s.evaluations >= options.max_evaluations),
            FitStatus::limit);
        s.status = status;
        alive = ended & (status == still_running);
        if (options.secant) helps = first & alive & s.secant_helps & (s.promise <= FitConstants::tail);
    }
    aim.curved = (aim.curved & !once_more) | helps;
    aim.damping = choose(once_more, R(0.0), aim.damping);
    aim.bottom = choose(once_more, R(0.0), aim.bottom);
    once_more = once_more | helps;
    // Who goes on beside those: whose step is too long, or not as long as wanted.
    const Where damped = aim.damping > 0.0;
    const Where longer = bent | (length > 1.1 * s.radius), shorter = length < 0.9 * s.radius;
    const Where begins = alive & !once_more & !damped & longer;
    const Where again = alive & !once_more & damped & (longer | shorter);
    // (Columns have length one at most: a damping of 1 is as much as JᵀJ.)
    aim.top = choose(bent, larger_of(aim.top, R(1.0)), aim.top);
    const Where below = bent | (length > s.radius);
    aim.bottom = choose(again & below, aim.damping, aim.bottom);
    aim.top = choose(again & !below, aim.damping, aim.top);
    // Newton's step for 1/‖d‖ (Hebden 1973), which falls short of what is wanted by little.
    R next = aim.damping + (length / s.radius - 1.0) * (length * length) / bend;
    const R middle = root_of(larger_of(aim.bottom, 1e-6 * aim.top) * aim.top);
    next = choose((!bent) & (next > aim.bottom) & (next < aim.top), next, middle);
    aim.passes = choose(ended, aim.passes + 1, aim.passes);
    const Where more = (once_more | begins | again) & (aim.passes < 3 + FitConstants::damping_tries);
    aim.damping = choose(more & (begins | again), next, aim.damping);
    aim.need = (aim.need & !ended) | more;
    aim.box.begin(more);
}

// The trial points of those that run.
template <class R, class Size>
SW_HD void aim_ends(Size n, const FitOptions& options, const R* low, const R* high,
                    SideState<R, Size::capacity>& s, Aim<R, Size::capacity>& aim) {
    typedef typename DecisionsOf<R>::Where Where;
    typedef typename DecisionsOf<R>::Count Count;
    R* const d = aim.box.d;
    const Count* const side = aim.box.side;
    s.damping = aim.damping;
    const Where running = s.status == still_running;
    Where moves = Where(false);
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        R there = s.x[i] + d[i] * aim.to_x[i];
        if (options.single) there = as_single(there);
        there = smaller_of(larger_of(there, low[i]), high[i]);
        there = choose(side[i] < 0, low[i], choose(side[i] > 0, high[i], there));
        s.trial[i] = choose(running, there, s.x[i]);
        d[i] = s.trial[i] - s.x[i];
        moves = moves | (d[i] != 0.0);
    }
    // A step below the resolution of x: there is nothing left to try.
    const Count nothing =
        choose(s.promise <= options.ftol, Count(int(FitStatus::promise)), Count(int(FitStatus::rounding)));
    s.status = choose(running & !moves, nothing, s.status);
    R value = quadratic(n, s.H, d);
    if (any(aim.curved)) value = value + choose(aim.curved, quadratic(n, s.S, d), R(0.0));
    SW_UNROLL
    for (int i = 0; i < n; ++i) value = value + s.g[i] * d[i];
    s.predicted = -value;
    s.iterations = choose(s.status == still_running, s.iterations + 1, s.iterations);
}

// Takes in what was found at s.trial, and begins to look for the next trial points.
template <class R, class Size>
SW_HD void side_turn_begins(Size n, const FitOptions& options, const R* low, const R* high,
                            SideState<R, Size::capacity>& s, R cost, const R* g, const R* H,
                            Aim<R, Size::capacity>& aim) {
    s.evaluations = s.evaluations + 1;
    judge(n, options, s, cost, g, H);
    aim_begins(n, options, low, high, s, aim);
}

// The whole turn; says which problems run on.
template <class R, class Size>
SW_HD typename DecisionsOf<R>::Where side_turn(Size n, const FitOptions& options, const R* low, const R* high,
                                               SideState<R, Size::capacity>& s, R cost, const R* g,
                                               const R* H) {
    Aim<R, Size::capacity> aim;
    side_turn_begins(n, options, low, high, s, cost, g, H, aim);
    SW_ROLLED
    while (any(aim.need)) aim_goes_on(n, options, low, high, s, aim);
    aim_ends(n, options, low, high, s, aim);
    return s.status == still_running;
}

}  // namespace fit
SW_END
