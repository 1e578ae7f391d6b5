// Every decision of the quasi-Newton iteration, taken from the sums of a sweep: sums -> decide -> next
// action.
//
//   slope     phi'(step) = g·d                     the line search goes on, accepts, or fails
//   absorb    new pair, pair products, free set    stopping tests, Cauchy point, subspace step
//   walk      breakpoints in order                 the exact Cauchy point (the target walks with cauchy.hpp)
//   regather  sums over the free set again         subspace step with carried variables
//   aim       the direction                        descent test, first trial step
//   step      a later trial                        nothing
//
// Team code: rank 0 changes the state, all members see the result after sync().
#pragma once

#include "core/quasi_newton/cauchy.hpp"
#include "core/quasi_newton/line_search.hpp"

SW_BEGIN

// Scalars summed by the absorb sweep.
struct AbsorbScalars {
    double movable_descent;  // Σ over movable variables of h g²
    double gradient_squared, projected_squared, x_squared;
    double projected_gradient;  // maximum norm
    double first_break;         // smallest breakpoint of a movable variable
    double held;                // count
};

struct AimScalars {
    double slope, direction_squared;
    double step_limit;  // largest feasible multiple of the direction
    double truncation;  // Confine::measure only: largest feasible fraction of the way from the Cauchy point
};

SW_HD void finish(State& s, Status status) {
    s.status = status;
    s.action = Action::done;
}

SW_HD void drop_history(State& s) {
    s.pairs = s.head = 0;
    s.gamma = 1;
    ++s.resets;
}

// Aim along the (scaled) steepest descent direction: what is left when the history cannot be trusted.
SW_HD void aim_without_history(State& s) {
    drop_history(s);
    s.held_time = -1;
    s.cauchy_time = 1;
    s.confine = Confine::project;
    s.action = Action::aim;
}

SW_HD void start_state(State& s) {
    s = State{};
    s.gamma = 1;
    s.held_time = -1;
    s.info = SearchInfo::searching;
    s.status = s.pending = Status::running;
    s.action = Action::evaluate;
}

// Goes back to the best step of the search, if it lowers f, to end there: its gradient has to be evaluated
// again.
SW_HD bool return_to_best(State& s, Status why) {
    if (!(s.search.best > 0 && s.search.f_best < s.f)) return false;
    s.pending = why;
    s.search.step = s.search.best;
    s.action = Action::step;
    return true;
}

SW_HD void search_failed(State& s, SearchInfo info, double f) {
    s.info = info;
    const Status why = s.search.nonfinite                                             ? Status::nonfinite
                       : info == SearchInfo::rounding || info == SearchInfo::interval ? Status::rounding
                                                                                      : Status::line_search;
    if (s.pairs > 0) {
        aim_without_history(s);
    } else if (f < s.f && f <= s.search.f_best) {
        s.pending = why;  // keep the better point, then stop
        s.action = Action::absorb;
    } else if (!return_to_best(s, why)) {
        finish(s, why);
    }
}

// After the slope sweep: `slope` is g·d at the trial point, not finite if g is not. Scalar.
SW_HD void decide_slope(State& s, const Options& o, double f, double slope) {
    ++s.evaluations;
    s.accepted = 0;
    const bool finite = is_finite(f) && is_finite(slope);
    if (!s.started) {
        if (!finite) {
            s.f = f;
            finish(s, Status::nonfinite_start);
            return;
        }
        s.started = 1;
        s.f = s.f_before = f;
        s.action = Action::absorb;
        return;
    }
    const double tried = s.search.step;  // the search moves on to its next, even from a point that is taken
    const bool ending = s.pending != Status::running;  // back at the best step of a search that was given up
    const bool spent = s.evaluations >= o.max_evaluations;
    SearchInfo info = ending   ? s.info
                      : finite ? advance_search(s.search, o.search, f, slope)
                               : retreat_search(s.search, o.search);
    const bool warning = info == SearchInfo::interval || info == SearchInfo::rounding ||
                         info == SearchInfo::step_min || info == SearchInfo::step_max;
    // A step cut short by a bound is as good as it can be, whatever the preset makes of a warning.
    const bool at_bound = info == SearchInfo::step_max && s.search.step_max < o.search.step_max;
    const bool accept = !ending && finite &&
                        (info == SearchInfo::converged || f <= o.target ||
                         (warning && (o.search.warning_is_step || at_bound) && f <= s.search.f0));
    if (accept) {
        s.action = Action::absorb;
    } else if (ending || spent) {
        if (!ending) s.pending = Status::max_evaluations;
        if (finite && f < s.f) {
            s.action = Action::absorb;
        } else {
            finish(s, s.pending);
        }
    } else if (info == SearchInfo::searching) {
        s.action = Action::step;
        // The last evaluation goes to the best step so far, so that the run ends there.
        if (s.evaluations + 1 == o.max_evaluations && return_to_best(s, Status::max_evaluations))
            s.info = info;
    } else {
        search_failed(s, info, finite ? f : double_infinity);
    }
    s.steady = accept && s.search.evaluations == 1;
    if (s.action == Action::absorb) {
        s.info = info;
        s.step = s.search.step = tried;
        s.f_before = s.f;
        s.f = f;
        s.accepted = 1;
        ++s.iterations;
    }
}

// Whether the trial point to be judged next is likely to be accepted: the first of its search, after a search
// that took its first. A target may then absorb it in the sweep that measures the slope.
SW_HD bool expects_acceptance(const State& s) {
    return s.steady && s.pending == Status::running && s.search.evaluations == 0;
}

SW_HD Status stopping_status(const State& s, const Options& o) {
    if (s.projected_gradient <= o.gtol) return Status::gradient;
    if (o.eps > 0 && is_finite(s.x_norm) && s.projected_norm <= o.eps * max_of(1.0, s.x_norm))
        return Status::gradient_norm;
    if (s.f <= o.target) return Status::target;
    if (s.pending != Status::running) return s.pending;
    if (s.iterations > 0) {
        const double scale = max_of(max_of(absolute(s.f_before), absolute(s.f)), 1.0);
        if (s.f_before - s.f <= o.ftol * scale) return o.ftol > 0 ? Status::decrease : Status::rounding;
    }
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

// Bounds of sᵀy / yᵀy, the scale of H0, and its inverse: what a double holds with room to spare.
constexpr double least_scale = 1e-250;

// Takes the new pair into the history, or refuses it: sᵀy must exceed the rounding of its two terms, of which
// the older is the descent -g·s that the step promised. (Not ε yᵀy, which depends on the units of x.) The
// oldest pair of a full history is not in the sums, and therefore gone either way.
template <class Team>
SW_HD void take_pair(Team& team, State& s, const Options& o, const SmallMatrices& m, const SumLayout& layout,
                     const double* sums) {
    const int r = layout.rows;
    const double sy = sums[layout.new_sy() + r - 1], yy = sums[layout.new_yy() + r - 1];
    const double promised = -s.search.slope0 * s.step;
    const bool keep = sy > double_epsilon * promised && sy > least_scale * yy && sy < yy / least_scale;
    if (team.rank() == 0) {
        if (keep) {
            s.head = s.head + 1 == o.slots ? 0 : s.head + 1;
            s.pairs = r;
            if (!o.weighted) s.gamma = sy / yy;
        } else {
            s.pairs = min_of(s.pairs, int(o.capacity) - 1);
            ++s.skipped;
        }
    }
    team.sync();
    if (keep) store_new_products(team, m, s, layout, sums);
}

// Notes what the sweep found at the accepted point: stop here, or aim from here. Scalar.
SW_HD void judge_point(State& s, const Options& o, const AbsorbScalars& scalars) {
    s.gradient_norm = square_root(scalars.gradient_squared);
    s.projected_norm = square_root(scalars.projected_squared);
    s.x_norm = square_root(scalars.x_squared);
    s.projected_gradient = scalars.projected_gradient;
    s.movable_descent = scalars.movable_descent;
    s.first_break = scalars.first_break;
    s.held = int64_t(scalars.held);
    s.confine = Confine::project;
    s.held_time = -1;
    s.cauchy_time = s.gamma;
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
        s.held_time = s.first_break;
        s.action = o.cauchy == Cauchy::exact ? Action::walk : Action::regather;
    }
}

// After the absorb sweep.
template <class Team>
SW_HD_CALLED void decide_absorb(Team& team, State& s, const Options& o, const SmallMatrices& m,
                                const Scratch& w, const AbsorbScalars& scalars, const SumLayout& layout,
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
    const auto judge = [&] { judge_point(s, o, scalars); };
    if (pairs == 0) {
        if (team.rank() == 0) judge();
        team.sync();
        return;
    }
    const Factoring model{o.bounded ? w.k : nullptr, w.path}, subspace{w.kg, w.coefficients};
    const BothFactored found = factor_both(team, model, subspace, size, pairs, judge);
    if (s.action == Action::done) return;
    // One member judges while others go the way back; that is in vain if the path bends.
    if (team.rank() == 0) {
        if (o.bounded && found.first) judge_first_segment(s, o, found.form);
        if (!found.first || (s.action == Action::aim && !found.second)) aim_without_history(s);
    }
    if (found.second) solve_upper(team, w.kg, size, w.coefficients);
    team.sync();
}

// After the walk: variables with breakpoints up to held_time are carried to their bounds. Scalar.
SW_HD void decide_walk(State& s, double held_time, double cauchy_time) {
    s.held_time = held_time;
    s.cauchy_time = cauchy_time;
    s.action = Action::regather;
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

// The share of the Cauchy step's descent below which a projected direction is refused, and the share of such
// a direction below which a search has not got anywhere along it.
constexpr double least_descent = 0.1;
constexpr double least_step = 1e-3;

// After the aim sweep. Scalar.
SW_HD void decide_aim(State& s, const Options& o, const AimScalars& scalars) {
    if (s.confine == Confine::measure) {
        s.truncation = min_of(1.0, scalars.truncation);
        s.confine = Confine::truncate;
        return;
    }
    s.slope = scalars.slope;
    s.direction_norm = square_root(scalars.direction_squared);
    s.step_limit = scalars.step_limit;
    // Projecting may leave a direction that hardly descends, along which runs crawl to a halt far from any
    // minimum. The step to the Cauchy point promises about A t; a direction with less than a small part of
    // that is no better than one that ascends, and gets the same fallback. So does the next direction after
    // one of which next to nothing could be taken: near kinks projected steps lead across the same one again
    // and again, each time by less. A first step, whose length is a guess, says nothing of the kind.
    const bool projected = s.pairs > 0 && o.bounded && s.confine == Confine::project;
    const double promised = projected ? least_descent * s.movable_descent * s.cauchy_time : 0.0;
    const bool crawls = projected && s.pairs > 1 && s.step < least_step * min_of(1.0, o.search.step_max);
    if (!(scalars.slope < -promised) || crawls || !is_finite(scalars.slope) ||
        !is_finite(scalars.direction_squared)) {
        s.info = SearchInfo::improper;
        if (projected) {
            s.confine = Confine::measure;
            ++s.truncations;
        } else if (s.pairs > 0) {
            aim_without_history(s);
        } else {
            finish(s, scalars.direction_squared == 0 ? Status::rounding : Status::line_search);
        }
        return;
    }
    const bool first = s.iterations == 0;
    double step = 1, step_max = o.search.step_max;
    if (first && o.search.first_step_gradient) {
        step = 1 / s.projected_norm;
    } else if (first && !o.boxed) {
        step = 1 / s.direction_norm;
    }
    if (o.bounded) step_max = first ? 1.0 : min_of(step_max, s.step_limit);
    if (!(step <= step_max)) step = step_max;
    start_search(s.search, o.search, s.f, s.slope, step, step_max);
    s.action = s.search.step == 1.0 ? Action::evaluate : Action::step;
}

SW_END
