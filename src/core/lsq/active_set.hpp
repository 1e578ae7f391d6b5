// Least squares by an active set (Lawson & Hanson), written once for every team: the iteration of all
// problems. Those with x >= 0 begin and end in plain.hpp, those with bounds, sums and penalties in
// general.hpp. P are the columns in the factor (the passive set), w = A'(b - Ax) is the dual.
//
//   start         P empty, or that of a neighbour (start_plain)
//   loop
//     advance     z = the solution on P; from x towards z, columns leave P     limit on solutions -> end
//                 at their bounds until z is inside (advance.hpp); x = z
//     dual        w and the residual: from the Gram matrix while that is       residual not lower? bar what
//                 trusted, else from A                                         entered, or back to the best
//                                                                              point (rebuild.hpp)
//     judge       w on P not zero?            refine: z = x + (R'R)^-1 w          -> advance
//                 w outside P > slack?        insert several columns              -> advance
//                                             (insertion.hpp)
//                 nothing left to insert:     the dual from A, not the Gram       -> dual
//                                             matrix; Q and R in its place        -> advance
//                                             (escalate); where rounding may      -> dual
//                                             hide a dual an exact residual,
//                                             then Q and R on columns chosen
//                                             anew (look_closer)
//                                             certified from A                    -> end: converged
//                                             no step helps                       -> end: stalled, dependent
//   end           dual from A, x rounded to the caller's numbers, status (judge.hpp)
//
// Everything is done in scaled units: columns by a power of two to a norm in [1, 2), b by a power of two. The
// scaling is exact, so the residual and the dual of the scaled problem are those of the answer. Decisions are
// replicated: all members of a team read the same numbers after a sync and take the same branch.
#pragma once

#include "core/lsq/rebuild.hpp"

SW_BEGIN
namespace lsq {

// A warm start: values (x itself), marks (which unknowns are positive) or states (-1 at the lower bound, 1 at
// the upper, 0 between), or none of them.
struct WarmStart {
    const void* values = nullptr;
    const uint8_t* marks = nullptr;
    const int8_t* states = nullptr;
};

// What has to be done before the next dual: nothing, the way to a solution still to be found, or to ws.z.
enum class Pending { nothing, solution, way };

template <class State>
SW_HD int iterate(State& s, Pending pending) {
    int refinements = 0, idle = 0, solves = s.tally.solves;
    for (;;) {
        // Few turns solve nothing, one after the other. Whatever rounding does, this ends.
        idle = s.tally.solves == solves ? idle + 1 : 0;
        solves = s.tally.solves;
        if (idle > max_idle_turns || s.is_interrupted()) return limit;
        if (pending != Pending::nothing) {
            if (!advance(s, pending == Pending::way)) return limit;
            finish_step(s);
            pending = Pending::nothing;
        }
        if (!s.fresh) {
            if (s.from_gram && (s.task.extent.gram_only || s.tally.solves < 5 * s.columns() + 50))
                dual_from_gram(s);
            else
                dual_from_matrix(s);
            if (!s.from_gram && !progress(s)) continue;
        }
        const bool nothing_left = s.top <= s.slack, steep = s.slope > s.slope_slack;
        // The positives' dual is zero but for the factor's error: refine before relying on the zeros' dual.
        // (What a bound sum leaves to one column alone is where it is: another may have to take its place.)
        const bool sole = State::general && s.ws.sum_of && s.factor.count == 1 && refinements == 0;
        bool refines = s.factor.count > 0 && steep && (nothing_left || s.slope > 0.1 * s.top) &&
                       refinements < 3 && !sole;
        // Semi-normal equations are as good as Q and R once they are corrected, whatever the dual says.
        if (nothing_left && !s.from_gram && s.factor.update == gram && refinements < 3 && !sole)
            refines = refines || has_pivot_below(s, weak_pivot);
        if (!refines) {
            // An exact residual shows rounding of x itself: no refinement takes that away.
            const bool at_rest = !steep || (refinements >= 3 && (s.exact || rests_on_sum(s)));
            if (nothing_left && at_rest && !s.from_gram) {
                if (!s.projected && rounding_hides_a_dual(s) && look_closer(s)) {
                    refinements = 0;
                    // (Free columns are in the factor from the start.)
                    if (s.restarted && !s.exact && s.factor.count > 0) pending = Pending::solution;
                    continue;
                }
                // Barred columns do not count in `top`: only with them is the point certified.
                const bool depended = s.any_dependent;
                if (s.any_barred) unbar(s);
                if (s.top <= s.slack) return converged;
                if (s.factor.update != gram) return depended ? dependent : stalled;
            }
            if (s.tally.solves >= s.task.options.max_solves) return limit;
            if constexpr (State::general) {
                if (!nothing_left || (sole && steep)) reseat(s);
                if (!s.fresh) continue;
            }
            if (!nothing_left && insert_several(s)) {
                refinements = 0;
                pending = s.solved ? Pending::way : Pending::solution;
                continue;
            }
            // Normal equations that are given are all there is.
            if (State::general && s.task.extent.gram_only) {
                const bool depended = s.any_dependent;
                if (s.any_barred) unbar(s);
                if (s.top <= s.slack && (!steep || refinements >= 3)) return converged;
                return depended ? dependent : stalled;
            }
            // With a lambda that is only tried, the tables will do.
            if (s.trusting && s.from_gram && nothing_left) return converged;
            // No step is left: verify with A, then switch to Q and R, refine, stop.
            if (s.from_gram && s.inserted_count >= 0) {
                s.from_gram = false;
                s.fresh = false;
                refinements = 0;
                continue;
            }
            if (s.factor.update == gram) {
                escalate(s);
                refinements = 0;
                if (s.factor.count > 0) pending = Pending::solution;
                continue;
            }
            if (!steep || refinements >= 3) return s.any_dependent ? dependent : stalled;
        }
        ++refinements;
        refine(s);
        pending = Pending::way;
    }
}

// Called rather than inlined.
template <class State>
SW_CALL int iterate_called(State& s, Pending pending) {
    return iterate(s, pending);
}

template <class State>
SW_HD void finish(State& s) {
    if (s.projected) s.fresh = s.projected = false;
    if (s.restarted) s.tally.escalated = 1;
    if (s.task.extent.gram_only) {
        if (!s.fresh) dual_from_gram(s);
    } else if (!s.fresh || s.from_gram) {
        dual_from_matrix(s);
    }
    if (s.any_barred) unbar(s);
    if (s.numbers.rounds && !s.is_general()) round_answer(s);
}

// Rounding may hide a dual: first the residual becomes exact and the point as good as its columns let it
// be, which is all that a fit to rounding wants. Then Q and R decide, on columns they chose themselves:
// those that the normal equations chose can be beyond repair, unless damping keeps them apart. False
// where there is nothing closer.
template <class State>
SW_CALL bool look_closer(State& s) {
    // (With a bound sum the set has to have it all the time.)
    const bool summed = State::general && s.ws.sum_of;
    if (s.exact && (s.factor.update == csne || summed || damping_outweighs_rounding(s))) return false;
    s.fresh = false;
    s.best = double_infinity;
    if (!s.exact) {
        s.exact = true;
    } else if (s.tally.escalated || s.factor.update == gram) {
        s.tally.escalated = 0;
        s.exact = false;
        const bool sound = damping_keeps_columns_apart(s);
        if (sound) remember(s);
        rebuild(s, s.ws.best_order, s.ws.best_x, sound ? s.best_count : 0, cgs2, false);
        if constexpr (State::general)
            if (s.is_general()) enter_free(s, insert_free(s));
        s.tally.escalated = 0;
        s.restarted = true;
    } else {
        s.projected = true;
    }
    return true;
}

// Whether the damping bounds what a hidden dual can be worth: the objective is strictly convex, so that
// duals w_j of the zeros lower it by sum w_j^2 / below(j)^2 at the most. Few columns are looked at closer
// all the same, which costs nothing.
template <class State>
SW_HD bool damping_outweighs_rounding(const State& s) {
    if (!s.task.extent.damped || s.factor.count < many_columns) return false;
    double part = 0;
    s.team.each(s.columns(), [&](int j) {
        const double share = s.ws.gate[j] != 0 ? s.slack * s.task.norm_of(j) / s.task.below(j) : 0.0;
        part += share * share;
    });
    return s.team.sum(part) < 1e-4 * s.squared_residual;
}

// Whether no positive column can be nearly dependent: each is alone in its row of the damping. Few
// columns are chosen anew all the same, which costs nothing.
template <class State>
SW_HD bool damping_keeps_columns_apart(const State& s) {
    if (s.is_general() || !s.task.extent.damped || s.factor.count < many_columns) return false;
    double nearest = 0;
    s.team.each(s.columns(), [&](int j) {
        if (s.ws.state[j] & is_in_factor && s.task.below(j) < escalate_below * s.task.norm_of(j)) nearest = 1;
    });
    return s.team.max(nearest) == 0;
}

// The residual and the dual that are reported belong to the x that is returned, rounding to float
// included.
template <class State>
SW_CALL void round_answer(State& s) {
    s.team.each_short(s.factor.count, [&](int p) { s.ws.x[p] = s.numbers.rounded(s.ws.x[p]); });
    s.team.sync();
    dual_from_matrix(s);
}

}  // namespace lsq
SW_END
