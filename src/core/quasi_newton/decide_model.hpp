// Decisions about an accepted point: whether to stop there, what its pair is worth, and the subspace step
// from it (after the absorb and the regather sweep). Team code: rank 0 changes the state, all members see the
// result after sync().
#pragma once

#include "core/quasi_newton/cauchy_walk.hpp"
#include "core/quasi_newton/decide_search.hpp"
#include "core/quasi_newton/history.hpp"

SW_BEGIN

SW_HD Status stopping_status(const State& s, const Options& o) {
    if (s.projected_gradient <= o.gtol) return Status::gradient;
    if (o.eps > 0 && is_finite(s.x_norm) && s.projected_norm <= o.eps * max_of(1.0, s.x_norm))
        return Status::gradient_norm;
    if (s.f <= o.target) return Status::target;
    if (s.pending != Status::running) return s.pending;
    if (is_out_of_patience(s, o) && !may_go_on(s, o)) return o.ftol > 0 ? Status::decrease : Status::rounding;
    if (s.iterations >= o.max_iterations) return Status::max_iterations;
    if (s.evaluations >= o.max_evaluations) return Status::max_evaluations;
    return Status::running;
}

// What the first read of the history is for: no pair yet; a new pair; sums again with carried variables.
enum class Gather { start, pair, again };

// Number of pairs that it puts into its sums: after a step, those kept and the new one.
SW_HD int rows_to_gather(Gather gather, const State& s, const Options& o) {
    return gather == Gather::start   ? 0
           : gather == Gather::again ? int(s.pairs)
                                     : min_of(s.pairs + 1, int(o.capacity));
}

// Bounds of sᵀy / yᵀy, the scale of H0, and its inverse: what a double holds with ease.
constexpr double min_scale = 1e-250;

// Takes the new pair into the history, or refuses it: sᵀy must exceed the rounding of its two terms, of which
// the older is the descent -g·s that the step promised. (Not ε yᵀy, which depends on the units of x.) The
// oldest pair of a full history is not in the sums, and therefore gone either way.
template <class Team>
SW_HD void take_pair(Team& team, State& s, const Options& o, const SmallMatrices& m, const SumLayout& layout,
                     const double* sums) {
    const int r = layout.rows;
    const double sy = sums[layout.new_sy() + r - 1], yy = sums[layout.new_yy() + r - 1];
    const double promised = -s.search.slope0 * s.step, scale = pair_scale(o.narrowed, promised);
    const bool keep =
        sy > double_epsilon * (scale * scale * promised) && sy > min_scale * yy && sy < yy / min_scale;
    if (team.rank() == 0) {
        if (keep) {
            s.head = s.head + 1 == o.slots ? 0 : s.head + 1;
            s.pairs = r;
            if (!o.weighted) s.gamma = sy / yy;
        } else {
            s.pairs = min_of(s.pairs, int(o.capacity) - 1);
            ++s.skipped;
            if (s.pairs > 0 && went_to_the_limit(s, o)) drop_history(s);
            // Too steep for its square; the other scale of a pair has none of y.
            const double ss = sums[layout.new_ss() + r - 1];
            if (!o.weighted && !is_finite(yy) && sy > ss && is_finite(sy) && ss > 0) s.gamma = ss / sy;
        }
    }
    team.sync();
    if (keep) store_new_products(team, m, s, layout, sums);
}

// Notes what the sweep found at the accepted point: stop here, or aim from here. Scalar.
SW_HD void judge_point(State& s, const Options& o, const AbsorbTotals& found) {
    s.gradient_norm = square_root(found.gradient_squared);
    s.projected_norm = square_root(found.projected_squared);
    s.x_norm = square_root(found.x_squared);
    s.projected_gradient = found.projected_gradient;
    s.movable_descent = found.movable_descent;
    s.first_break = found.first_break;
    s.held = int64_t(found.held);
    s.confine = Confine::project;
    s.carry_time = -1;
    // A step as long as there is any says nothing of f but that the scale was too short: its pair has
    // another, and if that was refused, take it anew.
    const bool longer = went_to_the_limit(s, o) && (s.pairs > 0 || renew_scale(s, o, NewScale::longer));
    s.cauchy_time = s.gamma;
    if (s.iterations > 0 && !(longer && stalls(s, o))) count_stall(s, o);
    const Status status = stopping_status(s, o);
    if (status != Status::running) {
        finish(s, status);
    } else {
        s.action = Action::aim;
    }
}

// The minimiser on the first segment of the path: t* = A / (A/gamma - qᵀK⁻¹q), `form` = qᵀK⁻¹q. Beyond it,
// the path bends. Scalar.
SW_HD void judge_first_segment(State& s, const Options& o, double form) {
    const PathSlope slope{-s.movable_descent, s.movable_descent / s.gamma - form};
    double t = 0;
    const bool inside = settles(slope, 0.0, s.first_break, t);
    s.cauchy_time = inside ? t : s.first_break;
    if (!inside && o.cauchy != Cauchy::none) {
        ++s.cauchy_walks;
        if (o.cauchy == Cauchy::exact) {
            start_walk(s, slope);
        } else {
            s.carry_time = s.first_break;
            s.action = Action::regather;
        }
    }
}

// What the factors of K and of the subspace model say of the next step. Scalar.
SW_HD void judge_model(State& s, const Options& o, const BothFactored& factors) {
    if (has_bounds(s, o) && factors.first) judge_first_segment(s, o, factors.form);
    if (!factors.first || (s.action == Action::aim && !factors.second)) aim_without_history(s);
}

// After the absorb sweep. (The layout by value: a device has it in registers then, not in memory.)
template <class Team>
SW_HD_CALLED void decide_absorb(Team& team, State& s, const Options& o, const SmallMatrices& m,
                                const Scratch& w, const AbsorbTotals& found, const SumLayout layout,
                                const double* sums) {
    if (layout.rows > 0) take_pair(team, s, o, m, layout, sums);
    if (o.weights_vary) store_whole_ss(team, m, s, layout, sums);
    const int pairs = s.pairs, size = 2 * pairs;
    const double theta = 1 / s.gamma;
    form_model(team, w, m, s, layout, sums, theta, true);
    SW_ROLLED
    for (int i = team.rank(); i < size; i += team.size()) {
        const double q = stacked_sum(sums + layout.q(), pairs, layout.rows, theta, i);
        w.path[i] = q;
        w.carried[i] = 0;
        w.coefficients[i] = s.gamma * q;
    }
    team.sync();
    // The model is on its way whatever the judgement, which takes one member as long as the others need for
    // it.
    const auto judge = [&] { judge_point(s, o, found); };
    if (pairs == 0) {
        if (team.rank() == 0) judge();
        team.sync();
        return;
    }
    const Factoring model{o.bounded ? w.k : nullptr, w.path}, subspace{w.kg, w.coefficients};
    const BothFactored factors = factor_both(team, model, subspace, size, pairs, judge);
    if (s.action == Action::done) return;
    // One member judges while others go the way back; that is in vain if the path bends.
    if (team.rank() == 0) judge_model(s, o, factors);
    if (factors.second) solve_upper(team, w.kg, size, w.coefficients);
    team.sync();
}

// After the regather sweep: sums over the free variables F and the carried ones H.
template <class Team>
SW_HD_CALLED void decide_regather(Team& team, State& s, const SmallMatrices& m, const Scratch& w,
                                  const SumLayout& layout, const double* sums) {
    const bool sound = solve_carried(team, w, m, s, layout, sums);
    team.sync();
    if (team.rank() == 0) {
        if (sound) {
            s.action = Action::aim;
        } else {
            aim_without_history(s);
        }
    }
    team.sync();
}

SW_END
