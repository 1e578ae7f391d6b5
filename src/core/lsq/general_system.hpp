// How a problem with bounds, a bound sum, weights of rows and a penalty begins: what is given becomes scaled
// columns, bounds and references, and the dual of the references.
#pragma once

#include "core/lsq/general_columns.hpp"

SW_BEGIN
namespace lsq {

template <class Team, class Matrix, class Numbers>
struct GeneralSystem : GeneralColumns<Team, Matrix, Numbers> {
    using Base = GeneralColumns<Team, Matrix, Numbers>;
    using Base::b_norm;
    using Base::b_scale;
    using Base::factor;
    using Base::fresh;
    using Base::from_gram;
    using Base::multiplier;
    using Base::squared_residual;
    using Base::tally;
    using Base::task;
    using Base::team;
    using Base::ws;

    const double *given_lower = nullptr, *given_upper = nullptr;  // of this system
    double sum_low = 0, sum_high = 0;
    bool relaxes = false;  // some far bounds do not count

    SW_HD GeneralSystem(const Team& team, const Task<Matrix>& task) : Base(team, task) {}

    // Reads the system, measures its columns, and finds the dual of the references. What is wrong with it, or
    // `converged`.
    SW_CALL int begin_general(const Job& job, int64_t system, const void* b, double penalty) {
        const Constraints& constraints = job.constraints;
        this->has_moved = false;
        given_lower = constraints.lower + system * constraints.lower_stride;
        given_upper = constraints.upper + system * constraints.upper_stride;
        const uint8_t* mask =
            constraints.mask ? constraints.mask + system * constraints.mask_stride : nullptr;
        const double* weights =
            constraints.weights ? constraints.weights + system * constraints.weights_stride : nullptr;
        if (constraints.summed) {
            sum_low = constraints.sum_low[system * constraints.sum_stride];
            sum_high = constraints.sum_high[system * constraints.sum_stride];
        }
        team.each_short(4, [&](int k) { ws.costs[k] = 0; });
        if (!task.shared.columns) team.each(task.extent.positions(), [&](int p) { ws.slot[p] = p; });
        if (task.extent.square_q) this->square_identity();
        double least_size = 0;  // of what b is scaled by
        for (int turn = 0; turn < 2; ++turn) {
            if (task.extent.gram_only
                    ? !this->read_gram(constraints, system)
                    : !this->read_b(b, weights, least_size) || !this->measure_columns(weights))
                return non_finite;
            if ((constraints.summed && !sum_is_within_bounds(mask)) || !read_bounds(mask)) return infeasible;
            if (task.extent.gram_only || least_size > 0) break;
            least_size = size_beyond_b(mask, penalty);
            if (least_size == 0) break;
        }
        subtract_references();
        this->set_penalty(penalty);
        from_gram = task.shared.gram != nullptr;
        dual_of_references();
        if (constraints.summed && !sum_is_possible()) return infeasible;
        return converged;
    }

protected:
    // Far bounds that the point is beyond count from now on. Whether there are any.
    SW_CALL bool keep_met_bounds() {
        if (!relaxes) return false;
        double any = 0;
        const auto look = [&](int j, double value) {
            if (j >= task.matrix.top.columns || ws.state[j] & excluded) return;
            const double scale = task.scale_of(j), unit = scale > 0 ? b_scale / scale : 1.0;
            const int side = value < given_lower[j] * unit   ? int(lower_side)
                             : value > given_upper[j] * unit ? int(upper_side)
                                                             : 0;
            if (side == 0 || ws.kept_bounds[j] & side) return;
            ws.kept_bounds[j] |= side;
            any = 1;
        };
        team.each(this->columns(), [&](int j) {
            if (!(ws.state[j] & is_positive)) look(j, task.reference_of(j));
        });
        team.sync();
        team.each_short(factor.count,
                        [&](int p) { look(ws.order[p], task.reference_of(ws.order[p]) + ws.x[p]); });
        any = team.max(any);
        team.sync();
        return any > 0;
    }

private:
    // Bounds in scaled units and states. False where a lower bound is above its upper. Far bounds are left
    // out until a solution without them is beyond them: x counts from bounds, and would lose its digits.
    SW_HD bool read_bounds(const uint8_t* mask) {
        const Matrix& matrix = task.matrix;
        const SumRange range = range_of_sum(sum_low, sum_high);
        double crossed = 0, any_far = 0;
        team.each(matrix.columns, [&](int j) {
            const bool slack = j >= matrix.top.columns;
            double lower = slack ? range.slack_low : given_lower[j],
                   upper = slack ? range.slack_high : given_upper[j];
            const bool masked = !slack && mask && !mask[j];
            if (masked) lower = upper = 0;
            if (!(lower <= upper)) crossed = 1;
            const double scale = task.scale_of(j), unit = scale > 0 ? b_scale / scale : 0.0;
            int state = zero;
            if (!slack && !masked && lower < upper) {
                const double reach = far_bounds * reach_of(j);
                const bool nothing = unit == 0;  // x changes nothing
                const auto is_far = [&](double bound, int side) {
                    const bool beyond = nothing ? bound != 0 : absolute(bound) * unit > reach;
                    return is_finite(bound) && beyond && !(ws.kept_bounds[j] & side);
                };
                if (is_far(lower, lower_side)) lower = -double_infinity, any_far = 1;
                if (is_far(upper, upper_side)) upper = double_infinity, any_far = 1;
            }
            if (masked || lower == upper)
                state = excluded;
            else if (is_finite(lower) && !(slack && upper == 0))
                state = zero;
            else
                state = is_finite(upper) ? reflected : is_free;
            ws.lower[j] = is_finite(lower) ? lower * unit : lower;
            ws.upper[j] = is_finite(upper) ? upper * unit : upper;
            ws.state[j] = state;
            if (ws.sum_of && masked) ws.sum_of[j] = 0;
        });
        crossed = team.max(crossed);
        relaxes = team.max(any_far) > 0;
        team.sync();
        return crossed == 0;
    }

    // What bounds and the sum take of b and of the penalty, where that is so much more than b that its
    // squares are no numbers; else 0. Then they are what is scaled to one.
    SW_HD double size_beyond_b(const uint8_t* mask, double penalty) const {
        constexpr double far_beyond = 1e50;
        double size = 0;
        team.each(task.matrix.top.columns, [&](int j) {
            const double scale = mask && !mask[j] ? 0.0 : task.scale_of(j);
            const int state = ws.state[j];
            const double at = state & is_free ? 0.0 : state & reflected ? given_upper[j] : given_lower[j];
            if (scale > 0 && is_finite(at)) size += absolute(at) / scale * norm_with_penalty(j, penalty);
        });
        size = team.sum(size);
        if (task.matrix.summed)
            size += absolute(range_of_sum(sum_low, sum_high).sum) * square_root(factor.row_weight);
        const bool beyond =
            b_norm > 0 ? size * b_scale > far_beyond : size > far_beyond || size < 1 / far_beyond;
        return beyond && is_finite(size) ? size : 0.0;
    }
    SW_HD double norm_with_penalty(int j, double penalty) const {
        if (!ws.square) return task.norm_of(j);
        return square_root(ws.square[j] + (ws.penalty_square ? penalty * ws.penalty_square[j] : 0.0));
    }

    // What b, or the sum, would make of x_j if nothing else took part in it.
    SW_HD double reach_of(int j) const {
        const double norm = ws.square ? square_root(ws.square[j]) : task.norm_of(j);
        double reach = norm > 0 ? b_norm / norm : 0.0;
        if (ws.sum_of && ws.sum_of[j] > 0)
            reach += absolute(range_of_sum(sum_low, sum_high).sum) * b_scale / ws.sum_of[j];
        return reach;
    }

    // b less what the references take of it.
    SW_HD void subtract_references() {
        const Matrix& matrix = task.matrix;
        double* x = ws.score;
        double any = 0;
        team.each(matrix.columns, [&](int j) {
            const double reference = task.reference_of(j);
            if (reference != 0) any = 1;
            x[j] = reference * task.scale_of(j);
        });
        any = team.max(any);
        team.sync();
        if (matrix.summed) {
            factor.remainder = range_of_sum(sum_low, sum_high).sum * b_scale;
            if (team.rank() == 0) ws.b[matrix.below] = factor.remainder;
            team.sync();
        }
        if (any == 0) return;
        matrix.subtract_product(team, x, ws.b);
        if (matrix.summed) factor.remainder = ws.b[matrix.below];
        team.sync();
        double* r = ws.r;
        const double *b = ws.b, *metric = task.extent.weighted ? ws.metric : nullptr;
        const int below = matrix.below;
        team.each(task.extent.row_length(),
                  [=](int i) { r[i] = i < below ? (metric ? metric[i] : 1.0) * b[i] : 0.0; });
        team.sync();
        // What was found of A'b is that of b itself.
        if (!task.shared.scale && !task.extent.gram_only)
            matrix.top.multiply(team, ws.r, task.envelope, ws.w, ws.scratch);
    }

    // Whether any x within the bounds that were given has a sum that is allowed, but for the rounding of the
    // caller's numbers; then the sum that is nearest to it is the one to be met.
    SW_HD bool sum_is_within_bounds(const uint8_t* mask) {
        double lowest = 0, highest = 0, size_low = 0, size_high = 0;
        team.each(task.matrix.top.columns, [&](int j) {
            if (mask && !mask[j]) return;
            const double c = task.matrix.coefficient(j), low = c * given_lower[j], high = c * given_upper[j];
            lowest += low;
            highest += high;
            size_low += absolute(low);
            size_high += absolute(high);
        });
        lowest = team.sum(lowest);
        highest = team.sum(highest);
        // (Each is rounded as its own terms are: far bounds of one side say nothing of the other.)
        const double share = rounding_of_sum(this->numbers.rounds) / 8;
        if (!(lowest <= sum_high + share * (team.sum(size_low) + absolute(sum_high)))) return false;
        if (!(highest >= sum_low - share * (team.sum(size_high) + absolute(sum_low)))) return false;
        if (lowest > sum_high) sum_low = sum_high = lowest;
        if (highest < sum_low) sum_low = sum_high = highest;
        return true;
    }

    // Drops upper bounds that the sum keeps anyway, so that a point at one of them is no corner. False where
    // bounds that count leave no x with the sum.
    SW_HD bool sum_is_possible() {
        double lowest = 0, highest = 0, size = absolute(factor.remainder);
        for (int j = 0; j < this->columns(); ++j) {
            const double c = ws.sum_of[j];
            if (!(c > 0) || (ws.state[j] & excluded)) continue;
            lowest += c * task.least_of(j);
            highest += c * task.most_of(j);
            const double reference = task.reference_of(j);
            size += c * absolute(reference);
        }
        const double room = 8 * double_epsilon * size;
        const double e = factor.remainder;
        team.sync();
        if (!(lowest <= e + room) || !(highest >= e - room)) return false;
        team.each(this->columns(), [&](int j) {
            const double c = ws.sum_of[j];
            if (lowest == 0 && ws.state[j] == zero && c > 0 && c * ws.upper[j] - c * ws.lower[j] >= e)
                ws.upper[j] = double_infinity;
        });
        team.sync();
        return true;
    }

    // The dual where all columns are at their references; the row of a bound sum does not count in it.
    SW_HD void dual_of_references() {
        const Matrix& matrix = task.matrix;
        const int n = matrix.columns;
        if (task.shared.scale) matrix.top.multiply(team, ws.r, task.envelope, ws.w, ws.scratch);
        team.each(n - matrix.top.columns, [&](int q) { ws.w[matrix.top.columns + q] = 0; });
        team.sync();
        this->scale_dual();
        ++tally.passes;
        if (ws.c_penalty) {
            const int length = static_cast<int>(padded(n));
            team.each(length, [&](int j) { ws.c_penalty[j] = 0; });
            team.sync();
            matrix.add_beneath(team, ws.b + matrix.below, matrix.summed, matrix.rows_beneath(), ws.c_penalty);
            team.each(n, [&](int j) { ws.c_penalty[j] *= task.scale_of(j); });
        }
        team.sync();
        if (task.extent.gram_only) {
            for (int k = team.row(); k < n; k += team.rows())
                if (task.reference_of(k) != 0) this->scale_row(k);
            team.sync();
            for (int k = 0; k < n; ++k) {
                const double reference = task.reference_of(k),
                             *row = ws.own_gram + k * task.shared.gram_stride;
                if (reference != 0) team.each(n, [&](int j) { ws.w[j] -= reference * row[j]; });
            }
            team.sync();
        }
        if (from_gram) team.each(n, [&](int j) { ws.c[j] = ws.w[j]; });
        if (ws.c_penalty) team.each(n, [&](int j) { ws.w[j] += factor.penalty * ws.c_penalty[j]; });
        // The row of the sum does not count.
        const int row = matrix.below;
        const double in_row = matrix.summed ? ws.weighed_b[row] * ws.b[row] : 0.0;
        squared_residual = team.sum(part_of_dot(team, ws.b, ws.weighed_b, task.extent.row_length())) - in_row;
        double* r = ws.r;
        const double* weighed = ws.weighed_b;
        team.each(task.extent.row_length(), [=](int i) { r[i] = weighed[i]; });
        multiplier = 0;
        this->mask_scores();
        fresh = true;
        team.sync();
    }
};

}  // namespace lsq
SW_END
