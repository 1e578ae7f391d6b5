// From x to the least-squares solution on the columns in the factor: Lawson & Hanson's inner loop, in which
// columns leave at their bounds.
#pragma once

#include "core/lsq/bounded.hpp"

SW_BEGIN
namespace lsq {

template <class Team, class Matrix>
struct Advance : Bounded<Team, Matrix> {
    using Base = Bounded<Team, Matrix>;
    using Base::factor;
    using Base::fresh;
    using Base::inserted_count;
    using Base::projected;
    using Base::tally;
    using Base::task;
    using Base::team;
    using Base::ws;

    SW_HD Advance(const Team& team, const Task<Matrix>& task) : Base(team, task) {}

protected:
    // |R^-T w| of the columns in the factor, along the plane of a bound sum: how far their solution is from
    // the lowest objective on them. Where they nearly depend on each other a dual that is as small as
    // rounding makes it says little of that.
    SW_HD double decrement() const {
        if (factor.count == 0) return 0.0;
        team.each_short(factor.count, [&](int p) { ws.g[p] = ws.w[ws.order[p]]; });
        team.sync();
        const double length = square_root(max_of(0.0, square_in_factor()));
        return has_pivot_below(rounded_pivot) ? doubtful_pivots * length : length;
    }

    // What a step may be longer than the factor says where products have lost the digits of a pivot.
    static constexpr double doubtful_pivots = 1e3;
    // Squares of pivots, over those of columns: near the rounding of products; with few of their digits.
    static constexpr double rounded_pivot = 1e-12, weak_pivot = 1e-5;
    // Whether the square of a pivot, by products alone, is below a part of its column's.
    SW_HD bool has_pivot_below(double part) const {
        if (factor.keeps_q()) return false;
        const bool inverse = factor.inverted();
        double any = 0;
        team.each_short(factor.count, [&](int p) {
            const double entry = factor.triangle.row(p)[p], norm = task.norm_of(ws.order[p]);
            const double pivot = inverse ? 1 / entry : entry;
            if (pivot * pivot < part * norm * norm) any = 1;
        });
        return team.max(any) > 0;
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
        if constexpr (!Matrix::general)
            return advance_positive(solved);
        else if constexpr (!Matrix::plain)
            return advance_within(solved);
        else
            return this->is_general() ? advance_within(solved) : advance_positive(solved);
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
            const bool leaps = many && may_drop_all_negatives(alpha);
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
    SW_CALL bool may_drop_all_negatives(double alpha) {
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
};

}  // namespace lsq
SW_END
