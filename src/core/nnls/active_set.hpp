// Non-negative least squares by an active set (Lawson & Hanson), written once for every team.
//
// Everything is done in scaled units: columns by a power of two to a norm in [1, 2), b by a power of two. The
// scaling is exact, so the residual and the dual of the scaled problem are those of the answer. Decisions are
// replicated: all members of a team read the same numbers after a sync and take the same branch.
#pragma once

#include "core/nnls/insertion.hpp"

SW_BEGIN
namespace nnls {

// A warm start: values (x itself) or marks (which unknowns are positive), or neither.
template <class Scalar>
struct WarmStart {
    const Scalar* values = nullptr;
    const uint8_t* marks = nullptr;
};

template <class Team, class Matrix, class Scalar>
struct ActiveSet : Insertion<Team, Matrix> {
    using Base = Insertion<Team, Matrix>;
    using Base::any_barred;
    using Base::any_dependent;
    using Base::b_norm;
    using Base::b_scale;
    using Base::exact;
    using Base::factor;
    using Base::fresh;
    using Base::from_gram;
    using Base::inserted_count;
    using Base::projected;
    using Base::slack;
    using Base::slope;
    using Base::slope_slack;
    using Base::squared_residual;
    using Base::tally;
    using Base::task;
    using Base::team;
    using Base::top;
    using Base::ws;

    // Lowest squared residual so far; its point is in ws.best_x, ws.best_order.
    double best = double_infinity;
    int best_count = 0;
    bool restarted = false;  // with Q and R in place of the Gram factor

    SW_HD ActiveSet(const Team& team, const Task<Matrix>& task) : Base(team, task) {}

    SW_HD void run(const Scalar* b, WarmStart<Scalar> warm) {
        if (!this->begin(b)) {
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
        if (projected) fresh = projected = false;
        if (restarted) tally.escalated = 1;
        if (!fresh || from_gram) this->dual_from_matrix();
        if (any_barred) this->unbar();
        if (sizeof(Scalar) < sizeof(double)) round_answer();
        if (tally.status >= stalled && top <= slack && slope <= slack) tally.status = converged;
    }

    // x, w and the residual norm in the caller's units, into arrays of the caller's kind.
    SW_HD void answer(Scalar* x, Scalar* dual, uint8_t* active, double& residual) {
        const double missing = tally.status == non_finite ? double_nan() : 0.0;
        team.each(this->columns(), [&](int j) { x[j] = Scalar(missing); });
        team.each(this->columns(), [&](int j) { active[j] = 0; });
        if (tally.status == non_finite || b_norm == 0) {
            team.each(this->columns(), [&](int j) { dual[j] = Scalar(missing); });
        } else {
            const double* scale = task.shared.scale ? task.shared.scale : ws.scale;
            const double b_unscale = 1 / b_scale;
            team.each(this->columns(),
                      [&](int j) { dual[j] = Scalar(scale[j] > 0 ? ws.w[j] / scale[j] * b_unscale : 0.0); });
        }
        team.sync();
        bool fits = true;
        team.each_short(factor.count, [&](int p) {
            const int j = ws.order[p];
            x[j] = Scalar(ws.x[p] * (task.scale_of(j) / b_scale));
            active[j] = 1;
            fits = fits && is_finite(x[j]);
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

    // Largest w_j / (|a_j| |b|) over the zeros, |w_j| over the positives. Of a finished run.
    SW_HD double violation() const { return b_norm > 0 ? max_of(0.0, max_of(top, slope)) / b_norm : 0.0; }

private:
    // What has to be done before the next dual: nothing, the way to a solution still to be found, or to ws.z.
    enum class Pending { nothing, solution, way };

    SW_HD int iterate(Pending pending) {
        int refinements = 0;
        for (;;) {
            if (pending != Pending::nothing) {
                if (!advance(pending == Pending::way)) return limit;
                finish_step();
                pending = Pending::nothing;
            }
            if (!fresh) {
                if (from_gram && tally.solves < 5 * this->columns() + 50)
                    this->dual_from_gram();
                else
                    this->dual_from_matrix();
                if (!from_gram && !progress()) continue;
            }
            const bool nothing_left = top <= slack, steep = slope > slope_slack;
            // The positives' dual is zero but for the factor's error: refine before relying on the zeros'
            // dual.
            bool refines =
                factor.count > 0 && steep && (nothing_left || slope > 0.1 * top) && refinements < 3;
            if (!refines) {
                // An exact residual shows rounding of x itself: no refinement takes that away.
                const bool at_rest = !steep || (exact && refinements >= 3);
                if (nothing_left && at_rest && !from_gram) {
                    if (!projected && this->rounding_hides_a_dual() && look_closer()) {
                        refinements = 0;
                        continue;
                    }
                    // Barred columns do not count in `top`: only with them is the point certified.
                    const bool depended = any_dependent;
                    if (any_barred) this->unbar();
                    if (top <= slack) return converged;
                    if (factor.update != gram) return depended ? dependent : stalled;
                }
                if (tally.solves >= task.options.max_solves) return limit;
                if (!nothing_left && this->insert_several()) {
                    refinements = 0;
                    pending = this->solved ? Pending::way : Pending::solution;
                    continue;
                }
                // The end of this road: look at A itself, then rely on Q and R, then refine, then give up.
                if (from_gram && inserted_count >= 0) {
                    from_gram = false;
                    fresh = false;
                    refinements = 0;
                    continue;
                }
                if (factor.update == gram) {
                    escalate();
                    refinements = 0;
                    if (factor.count > 0) pending = Pending::solution;
                    continue;
                }
                if (!steep || refinements >= 3) return any_dependent ? dependent : stalled;
            }
            ++refinements;
            refine();
            pending = Pending::way;
        }
    }

    // The positive set of a neighbour: its columns enter at once; what then is negative leaves.
    SW_HD Pending start_from(WarmStart<Scalar> warm) {
        for (int j = 0; j < this->columns(); ++j) {
            const bool wanted = warm.values ? warm.values[j] > Scalar(0) : warm.marks[j] != 0;
            if (!wanted || task.norm_of(j) == 0) continue;
            if (this->insert_alone(j) != Entry::entered) continue;
            const double value = warm.values ? double(warm.values[j]) / task.scale_of(j) * b_scale : 0.0;
            if (team.rank() == 0) ws.x[factor.count - 1] = is_finite(value) ? value : 0.0;
            team.sync();
        }
        if (factor.count == 0) return Pending::nothing;
        fresh = false;
        if (warm.values) return Pending::solution;
        for (bool all_positive = false; !all_positive && factor.count > 0;) {
            factor.solve();
            all_positive = true;
            for (int p = factor.count - 1; p >= 0; --p)
                if (!(ws.z[p] > 0)) {
                    all_positive = false;
                    this->remove(p);
                    // ws.z keeps the old order below p: only higher places moved.
                }
        }
        finish_step();
        return Pending::nothing;
    }

    // x becomes z, which is positive: settled.
    SW_HD void finish_step() {
        team.each_short(factor.count, [&](int p) { ws.x[p] = ws.z[p]; });
        factor.settled = factor.count;
        fresh = false;
        team.sync();
    }

    // From x towards the least-squares solution z, dropping what reaches zero, until z is positive (Lawson &
    // Hanson's inner loop). Starts with z solved when `solved`. False at the limit, with x feasible.
    SW_HD bool advance(bool solved) {
        for (;;) {
            if (tally.solves >= task.options.max_solves) return false;
            ++tally.solves;
            if (!solved) solve();
            solved = false;
            // Each group finds minus the longest feasible step for itself.
            double step = -double_infinity;
            team.lane_each(factor.count, [&](int p) {
                if (!(ws.z[p] > 0)) step = max_of(step, -longest_step(p));
            });
            step = team.lane_max(step);
            if (!(step > -double_infinity)) return true;
            const double alpha = min_of(1.0, -step);
            team.sync();
            team.each_short(factor.count, [&](int p) {
                const bool blocks = !(ws.z[p] > 0) && !(longest_step(p) > alpha);
                const double moved = ws.x[p] + alpha * (ws.z[p] - ws.x[p]);
                ws.x[p] = blocks || !(moved > 0) ? 0.0 : moved;
            });
            team.sync();
            factor.settled = 0;
            fresh = false;
            for (int end = factor.count; end > 0;) {  // the last of those at zero, and so on
                int last = -1;
                team.lane_each(end, [&](int p) {
                    if (!(ws.x[p] > 0)) last = max_of(last, p);
                });
                end = team.lane_max_int(last);
                if (end >= 0) this->remove(end);
            }
            if (factor.count == 0) return true;
        }
    }

    // How far from x to z position p can go.
    SW_HD double longest_step(int p) const { return ws.x[p] > 0 ? ws.x[p] / (ws.x[p] - ws.z[p]) : 0.0; }

    // ws.z becomes the solution on the positive columns.
    SW_HD void solve() {
        if (!projected) return factor.solve();
        // As a step from x, whose error is that of a small vector.
        if (!fresh) this->residual_from_matrix();
        project_residual<Team>(factor);
        factor.solve();
        team.each_short(factor.count, [&](int p) { ws.z[p] += ws.x[p]; });
        team.sync();
    }

    // ws.z becomes the solution that the dual at x says is better.
    SW_HD void refine() {
        if (projected) {
            inserted_count = 0;
            return solve();
        }
        team.each_short(factor.count, [&](int p) { ws.g[p] = ws.w[ws.order[p]]; });
        team.sync();
        factor.refine();
        inserted_count = 0;
    }

    // Rounding can let an insertion fail to lower the residual. Its columns are then barred until another
    // does, and a point that is worse is given up for the best: so the iteration ends. False after a return
    // to the best point.
    SW_HD bool progress() {
        if (squared_residual < best) {
            best = squared_residual;
            best_count = factor.count;
            team.each_short(factor.count, [&](int p) {
                ws.best_x[p] = ws.x[p];
                ws.best_order[p] = ws.order[p];
            });
            team.sync();
            if (any_barred) this->unbar();
            return true;
        }
        if (inserted_count <= 0) return true;
        for (int q = 0; q < inserted_count; ++q) this->bar(ws.inserted[q]);
        inserted_count = 0;
        team.sync();
        if (squared_residual > best * (1 + 1e-12)) {
            rebuild(ws.best_order, ws.best_x, best_count, factor.update);
            return false;
        }
        this->mask_scores();
        return true;
    }

    // Rounding may hide a dual: first the residual becomes exact and the point as good as its columns let it
    // be, which is all that a fit to rounding wants. Then Q and R decide, on columns they chose themselves:
    // those that the normal equations chose can be beyond repair. False where there is nothing closer.
    SW_HD bool look_closer() {
        fresh = false;
        best = double_infinity;
        if (!exact) {
            exact = true;
        } else if (factor.update == csne) {
            return false;
        } else if (tally.escalated || factor.update == gram) {
            tally.escalated = 0;
            exact = false;
            rebuild(ws.best_order, ws.best_x, 0, cgs2);
            restarted = true;
        } else {
            projected = true;
        }
        return true;
    }

    // Gives the Gram factor up for Q and R, on the columns and from the point it has.
    SW_HD void escalate() {
        tally.escalated = 1;
        inserted_count = 0;
        team.each_short(factor.count, [&](int p) {
            ws.best_x[p] = ws.x[p];
            ws.best_order[p] = ws.order[p];
        });
        best_count = factor.count;
        best = double_infinity;
        from_gram = false;
        team.sync();
        rebuild(ws.best_order, ws.best_x, best_count, cgs2);
    }

    // Factors a remembered point anew.
    SW_HD void rebuild(const int32_t* order, const double* x, int count, int update) {
        for (int p = 0; p < factor.count; ++p)
            if (team.rank() == 0) this->mark(ws.order[p], ws.state[ws.order[p]] & ~is_positive);
        team.sync();
        const int insertions = factor.insertions;
        factor.restart(update);
        for (int p = 0; p < count; ++p) {
            if (this->insert_alone(order[p]) != Entry::entered) continue;
            if (team.rank() == 0) ws.x[factor.count - 1] = x[p];
            team.sync();
        }
        factor.insertions = insertions;
        factor.settled = factor.count;
        fresh = false;
        team.sync();
    }

    // The residual and the dual that are reported belong to the x that is returned, rounding to float
    // included.
    SW_HD void round_answer() {
        const bool was_fine = top <= slack && slope <= slack;
        const int32_t status = tally.status;
        team.each_short(factor.count, [&](int p) { ws.x[p] = double(Scalar(ws.x[p])); });
        team.sync();
        this->dual_from_matrix();
        tally.status = status >= stalled && was_fine ? int32_t(converged) : status;
    }
};

}  // namespace nnls
SW_END
