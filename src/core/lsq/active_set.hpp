// Least squares by an active set (Lawson & Hanson), written once for every team: x >= 0 here; bounds, sums
// and penalties in general_system.hpp and the headers above it. P are the columns in the factor (the passive
// set), w = A'(b - Ax) is the dual.
//
//   start         P empty, or that of a neighbour (start_from)
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

#include "core/lsq/judge.hpp"
#include "core/lsq/numbers.hpp"
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

template <class Team, class Matrix, class Numbers>
struct ActiveSet : Rebuild<Team, Matrix> {
    using Base = Rebuild<Team, Matrix>;
    using Base::any_barred;
    using Base::any_dependent;
    using Base::b_norm;
    using Base::b_scale;
    using Base::best;
    using Base::best_count;
    using Base::exact;
    using Base::factor;
    using Base::fresh;
    using Base::from_gram;
    using Base::inserted_count;
    using Base::projected;
    using Base::restarted;
    using Base::slack;
    using Base::slope;
    using Base::slope_slack;
    using Base::squared_residual;
    using Base::tally;
    using Base::task;
    using Base::team;
    using Base::top;
    using Base::ws;

    bool trusting = false;  // the dual is not verified from A at the end
    Numbers numbers;        // those of b, x and the dual

    SW_HD ActiveSet(const Team& team, const Task<Matrix>& task) : Base(team, task) {}

    SW_HD void run(const Job& job, const void* b, WarmStart warm) {
        numbers = Numbers(job);
        if (!this->begin(numbers, b)) {
            tally.status = non_finite;
            return;
        }
        best = squared_residual;
        if (b_norm == 0) {
            team.each(this->columns(), [&](int j) { ws.w[j] = 0; });
            team.sync();
            return;
        }
        tally.status = iterate(warm.values || warm.marks ? start_from(warm) : Pending::nothing);
        finish();
    }

    SW_HD void finish() {
        if (projected) fresh = projected = false;
        if (restarted) tally.escalated = 1;
        if (task.extent.gram_only) {
            if (!fresh) this->dual_from_gram();
        } else if (!fresh || from_gram) {
            this->dual_from_matrix();
        }
        if (any_barred) this->unbar();
        if (numbers.rounds && !this->is_general()) round_answer();
    }

    // x, w and the residual norm in the caller's units, into arrays of the caller's kind.
    SW_HD void answer(void* x, void* dual, uint8_t* active, double& residual) {
        const double missing = tally.status == non_finite ? double_nan() : 0.0;
        team.each(this->columns(), [&](int j) { numbers.write(x, j, missing); });
        team.each(this->columns(), [&](int j) { active[j] = 0; });
        if (tally.status == non_finite || b_norm == 0) {
            team.each(this->columns(), [&](int j) { numbers.write(dual, j, missing); });
        } else {
            const double* scale = task.shared.scale ? task.shared.scale : ws.scale;
            const double b_unscale = 1 / b_scale;
            team.each(this->columns(), [&](int j) {
                numbers.write(dual, j, scale[j] > 0 ? ws.w[j] / scale[j] * b_unscale : 0.0);
            });
        }
        team.sync();
        bool fits = true;
        team.each_short(factor.count, [&](int p) {
            const int j = ws.order[p];
            const double value = numbers.rounded(ws.x[p] * (task.scale_of(j) / b_scale));
            numbers.write(x, j, value);
            active[j] = 1;
            fits = fits && is_finite(value);
        });
        residual = missing;
        if (b_norm > 0 && tally.status != non_finite) {
            // An x beyond the largest number of its kind spoils the sum, so that all members learn of it.
            const double part = part_of_dot(team, ws.r, ws.r, task.extent.row_length());
            residual = square_root(team.sum(fits ? part : double_nan())) / b_scale;
            if (residual != residual) tally.status = non_finite;
        }
        team.sync();
    }

    // Of a finished run: its violation, and the status that follows.
    SW_HD double judge(const Job& job) {
        if (tally.status == non_finite) return double_nan();
        Measured measured{max_of(0.0, max_of(top, slope)), b_norm, this->size, b_norm,
                          b_norm + square_root(max_of(0.0, squared_residual))};
        if (!numbers.rounds) measured.decrement = this->decrement();
        tally.status = judged_status(job, measured, numbers.rounds, tally.status);
        return violation_of(job, measured);
    }

protected:
    // What has to be done before the next dual: nothing, the way to a solution still to be found, or to ws.z.
    enum class Pending { nothing, solution, way };

    SW_CALL int iterate_called(Pending pending) { return iterate(pending); }

    SW_HD int iterate(Pending pending) {
        int refinements = 0, idle = 0, solves = tally.solves;
        for (;;) {
            // Few turns solve nothing, one after the other. Whatever rounding does, this ends.
            idle = tally.solves == solves ? idle + 1 : 0;
            solves = tally.solves;
            if (idle > max_idle_turns || this->is_interrupted()) return limit;
            if (pending != Pending::nothing) {
                if (!this->advance(pending == Pending::way)) return limit;
                this->finish_step();
                pending = Pending::nothing;
            }
            if (!fresh) {
                if (from_gram && (task.extent.gram_only || tally.solves < 5 * this->columns() + 50))
                    this->dual_from_gram();
                else
                    this->dual_from_matrix();
                if (!from_gram && !this->progress()) continue;
            }
            const bool nothing_left = top <= slack, steep = slope > slope_slack;
            // The positives' dual is zero but for the factor's error: refine before relying on the zeros'
            // dual.
            // (What a bound sum leaves to one column alone is where it is: another may have to take its
            // place.)
            const bool sole = Matrix::general && ws.sum_of && factor.count == 1 && refinements == 0;
            bool refines =
                factor.count > 0 && steep && (nothing_left || slope > 0.1 * top) && refinements < 3 && !sole;
            // Semi-normal equations are as good as Q and R once they are corrected, whatever the dual says.
            if (nothing_left && !from_gram && factor.update == gram && refinements < 3 && !sole)
                refines = refines || this->has_pivot_below(this->weak_pivot);
            if (!refines) {
                // An exact residual shows rounding of x itself: no refinement takes that away.
                const bool at_rest = !steep || (refinements >= 3 && (exact || this->rests_on_sum()));
                if (nothing_left && at_rest && !from_gram) {
                    if (!projected && this->rounding_hides_a_dual() && look_closer()) {
                        refinements = 0;
                        // (Free columns are in the factor from the start.)
                        if (restarted && !exact && factor.count > 0) pending = Pending::solution;
                        continue;
                    }
                    // Barred columns do not count in `top`: only with them is the point certified.
                    const bool depended = any_dependent;
                    if (any_barred) this->unbar();
                    if (top <= slack) return converged;
                    if (factor.update != gram) return depended ? dependent : stalled;
                }
                if (tally.solves >= task.options.max_solves) return limit;
                if constexpr (Matrix::general) {
                    if (!nothing_left || (sole && steep)) this->reseat();
                    if (!fresh) continue;
                }
                if (!nothing_left && this->insert_several()) {
                    refinements = 0;
                    pending = this->solved ? Pending::way : Pending::solution;
                    continue;
                }
                // Normal equations that are given are all there is.
                if (Matrix::general && task.extent.gram_only) {
                    const bool depended = any_dependent;
                    if (any_barred) this->unbar();
                    if (top <= slack && (!steep || refinements >= 3)) return converged;
                    return depended ? dependent : stalled;
                }
                // With a lambda that is only tried, the tables will do.
                if (trusting && from_gram && nothing_left) return converged;
                // No step is left: verify with A, then switch to Q and R, refine, stop.
                if (from_gram && inserted_count >= 0) {
                    from_gram = false;
                    fresh = false;
                    refinements = 0;
                    continue;
                }
                if (factor.update == gram) {
                    this->escalate();
                    refinements = 0;
                    if (factor.count > 0) pending = Pending::solution;
                    continue;
                }
                if (!steep || refinements >= 3) return any_dependent ? dependent : stalled;
            }
            ++refinements;
            this->refine();
            pending = Pending::way;
        }
    }

    // The positive set of a neighbour: its columns enter at once; what then is negative leaves.
    SW_CALL Pending start_from(WarmStart warm) {
        for (int j = 0; j < this->columns(); ++j) {
            const bool wanted = warm.values ? numbers.read(warm.values, j) > 0 : warm.marks[j] != 0;
            if (!wanted || task.norm_of(j) == 0) continue;
            if (this->insert_alone(j) != Entry::entered) continue;
            const double value =
                warm.values ? numbers.read(warm.values, j) / task.scale_of(j) * b_scale : 0.0;
            if (team.rank() == 0) ws.x[factor.count - 1] = is_finite(value) ? value : 0.0;
            team.sync();
        }
        if (factor.count == 0) return Pending::nothing;
        fresh = false;
        if (warm.values) return Pending::solution;
        for (bool all_positive = false; !all_positive && factor.count > 0;) {
            factor.solve();
            const int before = factor.count;
            team.each_short(before, [&](int p) { ws.x[p] = ws.z[p] > 0 ? ws.z[p] : 0.0; });
            team.sync();
            this->remove_zeros();
            all_positive = factor.count == before;
        }
        this->finish_step();
        return Pending::nothing;
    }
    // Rounding may hide a dual: first the residual becomes exact and the point as good as its columns let it
    // be, which is all that a fit to rounding wants. Then Q and R decide, on columns they chose themselves:
    // those that the normal equations chose can be beyond repair, unless damping keeps them apart. False
    // where there is nothing closer.
    SW_CALL bool look_closer() {
        // (With a bound sum the set has to have it all the time.)
        const bool summed = Matrix::general && ws.sum_of;
        if (exact && (factor.update == csne || summed || damping_outweighs_rounding())) return false;
        fresh = false;
        best = double_infinity;
        if (!exact) {
            exact = true;
        } else if (tally.escalated || factor.update == gram) {
            tally.escalated = 0;
            exact = false;
            const bool sound = damping_keeps_columns_apart();
            if (sound) this->remember();
            this->rebuild(ws.best_order, ws.best_x, sound ? best_count : 0, cgs2, false);
            if constexpr (Matrix::general)
                if (this->is_general()) this->insert_free();
            restarted = true;
        } else {
            projected = true;
        }
        return true;
    }

    // Whether the damping bounds what a hidden dual can be worth: the objective is strictly convex, so that
    // duals w_j of the zeros lower it by sum w_j^2 / below(j)^2 at the most. Few columns are looked at closer
    // all the same, which costs nothing.
    SW_HD bool damping_outweighs_rounding() const {
        if (!task.extent.damped || factor.count < many_columns) return false;
        double part = 0;
        team.each(this->columns(), [&](int j) {
            const double share = ws.gate[j] != 0 ? slack * task.norm_of(j) / task.below(j) : 0.0;
            part += share * share;
        });
        return team.sum(part) < 1e-4 * squared_residual;
    }

    // Whether no positive column can be nearly dependent: each is alone in its row of the damping. Few
    // columns are chosen anew all the same, which costs nothing.
    SW_HD bool damping_keeps_columns_apart() const {
        if (this->is_general() || !task.extent.damped || factor.count < many_columns) return false;
        double nearest = 0;
        team.each(this->columns(), [&](int j) {
            if (ws.state[j] & is_positive && task.below(j) < escalate_below * task.norm_of(j)) nearest = 1;
        });
        return team.max(nearest) == 0;
    }

    // The residual and the dual that are reported belong to the x that is returned, rounding to float
    // included.
    SW_CALL void round_answer() {
        team.each_short(factor.count, [&](int p) { ws.x[p] = numbers.rounded(ws.x[p]); });
        team.sync();
        this->dual_from_matrix();
    }
};

}  // namespace lsq
SW_END
