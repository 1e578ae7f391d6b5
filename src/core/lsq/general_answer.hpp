// The answer of a problem with bounds, a bound sum, weights of rows and a penalty: x in the caller's units,
// and what is measured of it there.
#pragma once

#include "core/lsq/block_exchange.hpp"
#include "core/lsq/frank_wolfe.hpp"
#include "core/lsq/judge.hpp"

SW_BEGIN
namespace lsq {

template <class Team, class Matrix, class Numbers>
struct GeneralAnswer : BlockExchange<Team, Matrix, Numbers> {
    using Base = BlockExchange<Team, Matrix, Numbers>;
    using Base::b_norm;
    using Base::b_scale;
    using Base::factor;
    using Base::numbers;
    using Base::squared_residual;
    using Base::tally;
    using Base::task;
    using Base::team;
    using Base::ws;

    bool lacks_level = false;  // of a lambda by a level: the fit is not that, or it is of no least fit

    SW_HD GeneralAnswer(const Team& team, const Task<Matrix>& task) : Base(team, task) {}

    // Writes x, its certificate, and the status that follows.
    SW_HD void general_answer(const Job& job, int64_t system, const void* b, void* x, void* dual,
                              uint8_t* active, double& residual, double& violation) {
        const Constraints& constraints = job.constraints;
        const int n = task.matrix.top.columns;
        const double unscale = 1 / b_scale;
        const double missing = double_nan();
        write_x(job, system, x, active);
        const bool lost = is_lost();
        const Measured measured =
            lost ? Measured{missing, missing, missing, missing, missing} : measure(job, system, b, x);
        team.each(n, [&](int j) {
            const double scale = lost ? 0.0 : task.scale_of(j);
            numbers.write(dual, j, lost ? missing : scale > 0 ? ws.w[j] / scale * unscale : 0.0);
        });
        residual = lost ? missing : residual_norm / b_scale;
        violation = lost ? missing : violation_of(job, measured);
        if (!lost) tally.status = judged_status(job, measured, numbers.rounds, tally.status);
        const bool is_beyond = !is_finite(residual) && !task.extent.gram_only;
        if (tally.status == converged && (lacks_level || is_beyond)) tally.status = stalled;
        team.sync();
        if (team.rank() == 0) {
            const double multiplier = lost ? missing : this->multiplier * unscale;
            constraints.multiplier[system] = multiplier;
            if (constraints.summed && constraints.gap)
                constraints.gap[system] = frank_wolfe_gap(
                    constraints, system, ascent_of(numbers, constraints, system, n, x, dual, multiplier));
            constraints.equality_error[system] = lost ? missing : measured.sum_error;
            if (constraints.used_lam) {
                constraints.used_lam[system] = square_root(factor.penalty);
                constraints.fit[system] = residual * residual;
                constraints.seminorm[system] = lost ? missing : seminorm;
            }
        }
        team.sync();
    }

    // The factor in the caller's units, rows of a triangle one after the other: R of G on the columns between
    // their bounds or, where the team keeps it, its inverse. Of large normal equations alone.
    SW_CALL void keep_factor(double* out, int32_t* order, bool known) const {
        const int count = known && task.extent.in_blocks() ? factor.count : -1;
        if (team.rank() == 0) order[0] = count;
        team.each(max_of(count, 0), [&](int p) { order[1 + p] = ws.order[p]; });
        const bool inverse = factor.inverted();
        for (int t = team.row(); t < count; t += team.rows()) {
            const double *from = factor.triangle.row(t), own = task.scale_of(ws.order[t]);
            double* to = out + packed_row(count, t);
            team.lane_each(count - t, [&](int q) {
                to[t + q] = inverse ? own * from[t + q] : from[t + q] / task.scale_of(ws.order[t + q]);
            });
        }
        team.sync();
    }

private:
    // Of the x that is returned: |Ax - b|, scaled as b is, and |L x| in the caller's units.
    double residual_norm = 0, seminorm = 0;

    SW_HD bool is_lost() const { return tally.status == non_finite || tally.status == infeasible; }

    // x at a bound is the bound itself. An x beyond the largest number of its kind is lost.
    SW_HD void write_x(const Job& job, int64_t system, void* x, uint8_t* active) {
        const Constraints& constraints = job.constraints;
        const int n = task.matrix.top.columns;
        const bool lost = is_lost();
        int8_t* state = constraints.state + system * n;
        double* full = ws.score;  // x in the caller's units
        team.each(n, [&](int j) {
            const int own = lost ? 0 : ws.state[j];
            const bool masked =
                !lost && constraints.mask && !constraints.mask[system * constraints.mask_stride + j];
            const double at = own & is_free || masked ? 0.0
                              : own & reflected       ? this->given_upper[j]
                                                      : this->given_lower[j];
            full[j] = lost ? double_nan() : at;
            if (active) active[j] = !lost && (own & is_positive) ? 1 : 0;
            state[j] = lost || own & is_positive || own & is_free ? 0
                       : own & excluded                           ? 2
                       : own & reflected                          ? 1
                                                                  : -1;
        });
        team.sync();
        if (!lost)
            team.each_short(factor.count, [&](int p) {
                const int j = ws.order[p];
                if (j >= n) return;
                full[j] += ws.x[p] * (task.scale_of(j) / b_scale);
            });
        team.sync();
        double bad = 0;
        team.each(n, [&](int j) {
            const bool masked = constraints.mask && !constraints.mask[system * constraints.mask_stride + j];
            const double value =
                lost || masked ? full[j] : clamp_to(full[j], this->given_lower[j], this->given_upper[j]);
            numbers.write(x, j, value);
            if (!is_finite(numbers.rounded(value))) bad = 1;
        });
        if (team.max(bad) > 0 && !lost) tally.status = non_finite;
        team.sync();
    }

    // The residual, the dual and the multiplier of x from what was given; the dual is in ws.w, scaled.
    SW_CALL Measured measure(const Job& job, int64_t system, const void* b, const void* x) {
        const bool summed = task.matrix.summed;
        // Where x counts from zero, ever did and is not rounded, ws.w is that of x already.
        if (numbers.rounds || summed || this->relaxes || this->reference_size != 0 || this->has_moved)
            find_dual(job, system, b, x);
        else
            residual_norm =
                square_root(max_of(0.0, ws.metric ? this->squared_fit() : double(squared_residual)));
        Measured measured{0, b_norm, 0, 0, 0};
        const int n = task.matrix.top.columns;
        const uint8_t* mask =
            job.constraints.mask ? job.constraints.mask + system * job.constraints.mask_stride : nullptr;
        double sum = 0, sum_size = 0;
        const auto lower = [&](int j) { return numbers.rounded(this->given_lower[j]); };
        const auto upper = [&](int j) { return numbers.rounded(this->given_upper[j]); };
        team.each(n, [&](int j) {
            const double value = numbers.read(x, j), scale = task.scale_of(j);
            const double part = scale > 0 ? absolute(value) * (b_scale / scale) * task.size_of(j) : 0.0;
            measured.size += part;
            if (!(ws.state[j] & is_positive)) measured.given += part;
            if (summed && ws.sum_of[j] > 0) {
                sum += task.matrix.coefficient(j) * value;
                sum_size += task.matrix.coefficient(j) * absolute(value);
            }
            if (summed || (mask && !mask[j])) return;
            // (A norm beyond the largest number, by a lambda as large, says nothing.)
            const double breach =
                !(task.norm_of(j) < double_infinity)
                    ? double_infinity
                    : breach_of(value, lower(j), upper(j), ws.w[j]) * task.inverse_norm_of(j);
            measured.breach = max_of(measured.breach, breach);
        });
        measured.breach = team.max(measured.breach);
        measured.size = b_norm + team.sum(measured.size);
        // (Of normal equations the residual is not known.)
        measured.given = b_norm + team.sum(measured.given);
        measured.task = task.extent.gram_only ? measured.size : measured.given + residual_norm;
        seminorm = norm_of_penalty(x);
        const double penalty = factor.penalty > 0 ? square_root(factor.penalty) * seminorm * b_scale : 0.0;
        if (summed) {
            sum = team.sum(sum);
            // (The ends that were given: those that are met may be theirs but for rounding.)
            const double low = job.constraints.sum_low[system * job.constraints.sum_stride],
                         high = job.constraints.sum_high[system * job.constraints.sum_stride];
            measured.sum_error = max_of(0.0, max_of(low - sum, sum - high));
            measured.sum_size = team.sum(sum_size) + absolute(is_finite(high) ? high : low);
            // (What a sum fixes is what comes of it.)
            measured.hides_duals =
                !task.extent.gram_only &&
                (hides_duals(b_norm + residual_norm + penalty, measured.size) || sum_hides_free_columns());
            measured.given = task.extent.gram_only ? measured.size : measured.task + penalty;
            measured.task = task.extent.gram_only
                                ? measured.size
                                : b_norm + residual_norm + penalty + size_of_way(mask, low, high);
            double shift;
            measured.breach = least_breach(
                team, n,
                [&](int j) {
                    const bool out = mask && !mask[j];
                    const double value = numbers.read(x, j);
                    return SummedColumn{ws.w[j], ws.sum_of[j],
                                        ws.square[j] + penalty_in(j) > 0 ? task.inverse_norm_of(j) : 0.0,
                                        !out && value < upper(j), !out && value > lower(j)};
                },
                allowed_shifts(sum, low, high, rounding_of_sum(numbers.rounds) * measured.sum_size,
                               this->multiplier),
                shift);
            team.sync();
            team.each(this->columns(), [&](int j) { ws.w[j] += shift * ws.sum_of[j]; });
            this->multiplier += shift;
            team.sync();
        }
        // (What was no number on the way to the dual is not seen by a maximum.)
        if (!(residual_norm < double_infinity)) measured.breach = double_infinity;
        if (!task.extent.gram_only) measured.decrement = this->decrement();
        if (!summed && !task.extent.gram_only) {
            measured.objective = square_root(residual_norm * residual_norm + penalty * penalty);
            double size = 0;
            const int looked_at = measured.objective > b_norm ? n : 0;
            team.each(looked_at, [&](int j) {
                const double scale = task.scale_of(j);
                if (scale > 0 && !(mask && !mask[j]))
                    size +=
                        absolute(nearest_to_zero(lower(j), upper(j))) * (b_scale / scale) * task.size_of(j);
            });
            measured.named = b_norm + team.sum(size);
        }
        return measured;
    }

    // Whether a free column that depends on others may do so because the row of the sum is so heavy in it
    // that little is left of its digits in A.
    SW_CALL bool sum_hides_free_columns() const {
        double any = 0;
        team.each(task.matrix.top.columns, [&](int j) {
            const bool out = (ws.state[j] & (is_free | is_positive | excluded)) == is_free;
            const double square = ws.square[j] + penalty_in(j);
            if (out && square > 0 && factor.row_weight * ws.sum_of[j] * ws.sum_of[j] > heavy_sum * square)
                any = 1;
        });
        return team.max(any) > 0;
    }
    static constexpr double heavy_sum = 1e12;  // of squares: half of the digits that products have

    // In scaled units.
    SW_CALL double size_of_way(const uint8_t* mask, double low, double high) const {
        const int n = task.matrix.top.columns;
        const auto takes_part = [=](int j) { return !(mask && !mask[j]); };
        double nearest = 0;
        team.each(n, [&](int j) {
            if (takes_part(j))
                nearest +=
                    task.matrix.coefficient(j) * nearest_to_zero(this->given_lower[j], this->given_upper[j]);
        });
        WayToSum way(team.sum(nearest), low, high);
        team.each(n, [&](int j) {
            const double scale = task.scale_of(j), unit = scale > 0 ? b_scale / scale : 0.0;
            if (takes_part(j))
                way.add(this->given_lower[j], this->given_upper[j], unit * task.size_of(j),
                        task.matrix.coefficient(j));
        });
        way.size = team.sum(way.size);
        way.lowest = -team.max(-way.lowest);
        way.dearest = team.max(way.dearest);
        return way.length();
    }

    SW_HD double penalty_in(int j) const {
        return ws.penalty_square ? factor.penalty * ws.penalty_square[j] : 0.0;
    }

    SW_CALL void find_dual(const Job& job, int64_t system, const void* b, const void* x) {
        const Constraints& constraints = job.constraints;
        const Matrix& matrix = task.matrix;
        const int length = task.extent.row_length(), rows = matrix.top.rows, n = matrix.top.columns;
        const double* weights =
            constraints.weights ? constraints.weights + system * constraints.weights_stride : nullptr;
        double *r = ws.r, *scaled = ws.score;
        team.each(this->columns(), [&](int j) { scaled[j] = j < n ? numbers.read(x, j) * b_scale : 0.0; });
        if (!task.extent.gram_only)
            team.each(rows, [&](int i) {
                r[i] = weights && !(weights[i] > 0) ? 0.0 : b_scale * numbers.read(b, i);
            });
        team.each(length - rows, [&](int i) { r[rows + i] = 0; });
        team.sync();
        matrix.subtract_product(team, scaled, r);
        double square = 0;
        team.each(rows, [&](int i) {
            const double weight = weights ? weights[i] * weights[i] : 1.0;
            square += weight * r[i] * r[i];
            r[i] *= weight;
        });
        team.each(matrix.rows_beneath(),
                  [&](int i) { r[matrix.below + i] *= i < matrix.summed ? 0.0 : factor.penalty; });
        residual_norm = square_root(team.sum(square));
        if (!(residual_norm > 1e-140 && residual_norm < 1e150))
            residual_norm = norm_of_extremes(rows, weights);
        team.sync();
        if (task.extent.gram_only)
            dual_of_gram(constraints, system, scaled);
        else
            matrix.multiply(team, r, task.envelope, ws.w, ws.scratch);
        this->scale_dual();
        this->multiplier = ws.sum_of ? settle_multiplier(team, task, factor.count) : 0.0;
    }

    // |W r| over the rows of A, where its square is beyond the largest or the smallest number; ws.r has W^2
    // r.
    SW_CALL double norm_of_extremes(int rows, const double* weights) const {
        const auto entry = [&](int i) {
            return !weights ? ws.r[i] : weights[i] > 0 ? ws.r[i] / weights[i] : 0.0;
        };
        double largest = 0;
        team.each(rows, [&](int i) { largest = max_of(largest, absolute(entry(i))); });
        largest = team.max(largest);
        if (!(largest > 0)) return 0.0;
        double square = 0;
        team.each(rows, [&](int i) { square += (entry(i) / largest) * (entry(i) / largest); });
        return largest * square_root(team.sum(square));
    }

    // From normal equations, which are all there is.
    SW_CALL void dual_of_gram(const Constraints& constraints, int64_t system, const double* x) {
        const int n = task.matrix.top.columns;
        const double* linear = constraints.linear + system * constraints.linear_stride;
        team.each(this->columns(), [&](int j) {
            double sum = 0;
            if (j < n) {
                const double* row = this->given_gram + static_cast<int64_t>(j) * n;
                for (int k = 0; k < n; ++k) sum += row[k] * x[k];
            }
            ws.w[j] = j < n ? b_scale * linear[j] - sum : 0.0;
        });
        team.sync();
        if (task.matrix.rows_beneath() > 0)
            task.matrix.add_beneath(team, ws.r + task.matrix.below, 0, task.matrix.rows_beneath(), ws.w);
    }

    // |L x|, of x in the caller's units.
    SW_HD double norm_of_penalty(const void* x) const {
        const Matrix& matrix = task.matrix;
        double square = 0;
        team.each(matrix.penalty_rows, [&](int i) {
            double sum = 0;
            if (matrix.penalty) {
                const double* row = matrix.penalty + static_cast<int64_t>(i) * matrix.top.columns;
                for (int j = 0; j < matrix.top.columns; ++j) sum += row[j] * numbers.read(x, j);
            } else {
                sum = numbers.read(x, i);
            }
            square += sum * sum;
        });
        return square_root(team.sum(square));
    }
};

}  // namespace lsq
SW_END
