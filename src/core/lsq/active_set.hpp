// Non-negative least squares by an active set (Lawson & Hanson), written once for every team.
//
// Everything is done in scaled units: columns by a power of two to a norm in [1, 2), b by a power of two. The
// scaling is exact, so the residual and the dual of the scaled problem are those of the answer. Decisions are
// replicated: all members of a team read the same numbers after a sync and take the same branch.
#pragma once

#include "core/lsq/bounded.hpp"
#include "core/lsq/judge.hpp"
#include "core/lsq/numbers.hpp"

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
struct ActiveSet : Bounded<Team, Matrix> {
    using Base = Bounded<Team, Matrix>;
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
    bool trusting = false;   // the dual is not verified from A at the end
    bool restarted = false;  // with Q and R in place of the Gram factor
    Numbers numbers;         // those of b, x and the dual

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
        if (numbers.rounds && !Matrix::general) round_answer();
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
        if (!numbers.rounds) measured.decrement = decrement();
        tally.status = judged_status(job, measured, numbers.rounds, tally.status);
        return violation_of(job, measured);
    }

protected:
    // |R^-T w| of the columns in the factor, along the plane of a bound sum: how far their solution is from
    // the lowest objective on them. Where they nearly depend on each other a dual that is as small as
    // rounding makes it says little of that.
    SW_HD double decrement() const {
        if (factor.count == 0) return 0.0;
        team.each_short(factor.count, [&](int p) { ws.g[p] = ws.w[ws.order[p]]; });
        team.sync();
        return square_root(max_of(0.0, square_in_factor()));
    }

    // g' (R'R)^-1 g, outside the direction of a bound sum; g in ws.g. Takes ws.z.
    SW_CALL double square_in_factor() const {
        const int count = factor.count;
        double* z = ws.z;
        factor.solve_with_r_transposed(ws.g, z);
        const double* sum = ws.triangle.sum;
        double square = 0, along = 0, size = 0;
        team.lane_each(count, [&](int p) {
            square += z[p] * z[p];
            if (!sum) return;
            along += z[p] * sum[p];
            size += sum[p] * sum[p];
        });
        square = team.lane_sum(square);
        along = team.lane_sum(along);
        size = team.lane_sum(size);
        team.sync();
        return size > 0 ? square - along * along / size : square;
    }

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
                if (!advance(pending == Pending::way)) return limit;
                finish_step();
                pending = Pending::nothing;
            }
            if (!fresh) {
                if (from_gram && (task.extent.gram_only || tally.solves < 5 * this->columns() + 50))
                    this->dual_from_gram();
                else
                    this->dual_from_matrix();
                if (!from_gram && !progress()) continue;
            }
            const bool nothing_left = top <= slack, steep = slope > slope_slack;
            // The positives' dual is zero but for the factor's error: refine before relying on the zeros'
            // dual.
            // (What a bound sum leaves to one column alone is where it is: another may have to take its
            // place.)
            const bool sole = Matrix::general && ws.sum_of && factor.count == 1 && refinements == 0;
            bool refines =
                factor.count > 0 && steep && (nothing_left || slope > 0.1 * top) && refinements < 3 && !sole;
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
        finish_step();
        return Pending::nothing;
    }

    // From x towards z as advance() goes, within all bounds.
    SW_CALL bool advance_within(bool solved) {
        for (;;) {
            if (tally.solves >= task.options.max_solves) return false;
            ++tally.solves;
            if (!solved) solve();
            solved = false;
            // What a bound sum leaves to one column alone is where it is.
            const bool sole = ws.sum_of && factor.count == 1;
            double step = -double_infinity;
            team.lane_each(factor.count, [&](int p) { step = max_of(step, -room_towards(p)); });
            step = team.lane_max(step);
            team.sync();
            if (!(step > -double_infinity) || sole) {
                if (sole) {
                    const int j = ws.order[0];
                    const double z =
                        clamp_to(factor.remainder / ws.sum_of[j], task.least_of(j), task.most_of(j));
                    team.sync();
                    if (team.rank() == 0) ws.z[0] = z;
                    team.sync();
                }
                return true;
            }
            const double alpha = min_of(1.0, -step);
            team.sync();
            int stay = 0;
            team.each_short(factor.count, [&](int p) {
                const int j = ws.order[p];
                const double least = task.least_of(j), most = task.most_of(j);
                const double moved = ws.x[p] + alpha * (ws.z[p] - ws.x[p]);
                const bool blocks =
                    !(room_towards(p) > alpha) || (ws.z[p] > ws.x[p] ? !(moved < most) : !(moved > least));
                if (blocks) {
                    const bool up = ws.z[p] > least && (ws.z[p] > ws.x[p] || !(ws.z[p] < most));
                    ws.x[p] = up ? most : least;
                    ws.state[j] |= leaving;
                } else {
                    ws.x[p] = clamp_to(moved, least, most);
                    stay = 1;
                }
            });
            const bool any_stays = team.max(double(stay)) > 0;
            team.sync();
            // A bound sum needs one.
            if (ws.sum_of && !any_stays) {
                if (team.rank() == 0) ws.state[ws.order[0]] &= ~leaving;
                team.sync();
            }
            factor.settled = 0;
            fresh = false;
            for (int p = factor.count - 1; p >= 0; --p) {
                const bool leaves = ws.state[ws.order[p]] & leaving;
                team.sync();
                if (leaves) this->leave_at_bound(p);
            }
            if (factor.count == 0) return true;
        }
    }

    // How far from x to z position p can go; infinite where it can go all the way.
    SW_HD double room_towards(int p) const {
        const int j = ws.order[p];
        const double x = ws.x[p], z = ws.z[p], least = task.least_of(j), most = task.most_of(j);
        if (!(z > least)) return x > least ? (x - least) / (x - z) : 0.0;
        if (!(z < most)) return x < most ? (most - x) / (z - x) : 0.0;
        return double_infinity;
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
        if constexpr (Matrix::general)
            return advance_within(solved);
        else
            return advance_positive(solved);
    }

    SW_HD bool advance_positive(bool solved) {
        const bool many = factor.count >= many_columns;
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
            const bool leaps = many && may_leap(alpha);
            team.each_short(factor.count, [&](int p) {
                const bool blocks = !(ws.z[p] > 0) && (leaps || !(longest_step(p) > alpha));
                const double moved = leaps ? ws.z[p] : ws.x[p] + alpha * (ws.z[p] - ws.x[p]);
                ws.x[p] = blocks || !(moved > 0) ? 0.0 : moved;
            });
            team.sync();
            factor.settled = 0;
            fresh = false;
            this->remove_zeros();
            if (factor.count == 0) return true;
        }
    }

    // Whether all negatives of z may leave at once: x with them at zero and the rest at z is then no worse
    // than where the step of length alpha ends. On the positive columns the objective is that of z plus
    // |A_P (x - z)|^2, which the step brings down to (1 - alpha)^2 of what it is.
    SW_CALL bool may_leap(double alpha) {
        double negatives = 0;
        team.lane_each(factor.count, [&](int p) { negatives += ws.z[p] > 0 ? 0.0 : 1.0; });
        // The look costs two products: as much as a few removals.
        if (projected || !task.options.guarded || 16 * team.lane_sum(negatives) < factor.count) return false;
        const double left = square_of_image([&](int p) { return (1 - alpha) * (ws.x[p] - ws.z[p]); });
        return square_of_image([&](int p) { return ws.z[p] > 0 ? 0.0 : -ws.z[p]; }) < left;
    }

    // |A_P y|^2, the rows of the damping included.
    template <class Entry>
    SW_HD double square_of_image(const Entry& entry) const {
        const int length = task.extent.row_length();
        double* image = ws.v;
        team.sync();
        team.each_short(factor.count, [&](int p) { ws.g[p] = entry(p); });
        team.each(length, [&](int i) { image[i] = 0; });
        team.sync();
        subtract_columns(team, factor.positive(), factor.count, ws.g, image, length);
        double part = part_of_dot(team, image, image, length);
        if (task.extent.damped)
            team.each_short(factor.count, [&](int p) {
                const double d = task.below(ws.order[p]) * ws.g[p];
                part += d * d;
            });
        const double square = team.sum(part);
        team.sync();
        return square;
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
            remember();
            if (any_barred) this->unbar();
            return true;
        }
        if (inserted_count <= 0) return true;
        return without_inserted();
    }

    SW_CALL bool without_inserted() {
        for (int q = 0; q < inserted_count; ++q) this->bar(ws.inserted[q]);
        inserted_count = 0;
        team.sync();
        if (squared_residual > best * (1 + 1e-12)) {
            rebuild(ws.best_order, ws.best_x, best_count, factor.update, true);
            return false;
        }
        this->mask_scores();
        return true;
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
            if (sound) remember();
            rebuild(ws.best_order, ws.best_x, sound ? best_count : 0, cgs2, false);
            if constexpr (Matrix::general) this->insert_free();
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
        if (Matrix::general || !task.extent.damped || factor.count < many_columns) return false;
        double nearest = 0;
        team.each(this->columns(), [&](int j) {
            if (ws.state[j] & is_positive && task.below(j) < escalate_below * task.norm_of(j)) nearest = 1;
        });
        return team.max(nearest) == 0;
    }

    // No column is in the factor, and nothing is known of any point.
    SW_HD void empty_factor(int update) {
        for (int p = 0; p < factor.count; ++p) {
            const int j = ws.order[p];
            team.sync();
            if (team.rank() == 0) this->mark(j, ws.state[j] & ~is_positive);
        }
        team.sync();
        factor.restart(update);
        exact = projected = restarted = any_barred = any_dependent = false;
        best = double_infinity;
        best_count = inserted_count = 0;
    }

    // Factors the columns it has anew, for another lambda^2.
    SW_HD void refactor(double penalty) {
        if (any_barred) this->unbar();
        exact = projected = restarted = false;
        best = double_infinity;
        inserted_count = 0;
        remember();
        this->set_penalty(penalty);
        rebuild(ws.best_order, ws.best_x, best_count, task.options.update, false);
        // (Free columns that depended on others may no longer do so.)
        from_gram = task.shared.gram != nullptr;
        if constexpr (Matrix::general) enter_free(this->insert_free());
        factor.settled = 0;
    }

    // After the free columns were inserted, all but those for which the Gram factor has to give way.
    SW_CALL void enter_free(bool all) {
        if (all) return;
        escalate();
        this->insert_free();
    }

    // Gives the Gram factor up for Q and R, on the columns and from the point it has.
    SW_HD void escalate() {
        tally.escalated = 1;
        inserted_count = 0;
        best = double_infinity;
        from_gram = false;
        remember();
        rebuild(ws.best_order, ws.best_x, best_count, cgs2, false);
    }

    // Keeps the point, and which columns are at their upper bounds there. Ends in a sync.
    SW_HD void remember() {
        best_count = factor.count;
        team.each_short(factor.count, [&](int p) {
            ws.best_x[p] = ws.x[p];
            ws.best_order[p] = ws.order[p];
        });
        if constexpr (Matrix::general)
            team.each(this->columns(), [&](int j) { ws.best_state[j] = ws.state[j]; });
        team.sync();
    }

    // Factors a remembered point anew.
    SW_CALL void rebuild(const int32_t* order, const double* x, int count, int update, bool moved) {
        for (int p = 0; p < factor.count; ++p)
            if (team.rank() == 0) this->mark(ws.order[p], ws.state[ws.order[p]] & ~is_positive);
        team.sync();
        const int insertions = factor.insertions;
        factor.restart(update);
        if constexpr (Matrix::general) {
            if (ws.metric && factor.keeps_q()) this->find_roots();
            for (int j = 0; moved && j < this->columns(); ++j) {
                const bool crosses = (ws.state[j] ^ ws.best_state[j]) & reflected;
                team.sync();
                if (crosses) this->cross(j);
            }
        }
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
    SW_CALL void round_answer() {
        team.each_short(factor.count, [&](int p) { ws.x[p] = numbers.rounded(ws.x[p]); });
        team.sync();
        this->dual_from_matrix();
    }
};

}  // namespace lsq
SW_END
