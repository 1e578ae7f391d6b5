// A problem with bounds, a bound sum, weights of rows and a penalty from its start to its answer.
#pragma once

#include "core/nnls/block_exchange.hpp"
#include "core/nnls/frank_wolfe.hpp"

SW_BEGIN
namespace nnls {

template <class Team, class Matrix, class Rounding>
struct GeneralSet : BlockExchange<Team, Matrix, Rounding> {
    using Base = BlockExchange<Team, Matrix, Rounding>;
    using Base::b_norm;
    using Base::b_scale;
    using Base::factor;
    using Base::fresh;
    using Base::slope;
    using Base::squared_residual;
    using Base::tally;
    using Base::task;
    using Base::team;
    using Base::top;
    using Base::ws;
    using Exchange = typename Base::Exchange;
    using Pending = typename Base::Pending;

    SW_HD GeneralSet(const Team& team, const Task<Matrix>& task) : Base(team, task) {}

    // violation() over |a_j| (|b| + sum |a_j| |x_j|), free columns that stayed out included.
    SW_HD double general_violation() {
        double outside = 0, size = 0;
        team.each(this->columns(), [&](int j) {
            if ((ws.state[j] & is_free) && !(ws.state[j] & is_positive))
                outside = max_of(outside, absolute(ws.w[j]) * task.inverse_norm_of(j));
        });
        outside = team.max(outside);
        team.lane_each(factor.count, [&](int p) { size += absolute(ws.x[p]) * task.size_of(ws.order[p]); });
        const double room = b_norm + this->reference_size + team.lane_sum(size);
        return room > 0 ? max_of(max_of(0.0, outside), max_of(top, slope)) / room : 0.0;
    }

    // What general problems have beside: x at a bound is the bound itself.
    template <class Scalar>
    SW_HD void general_answer(const Job& job, int64_t system, Scalar* x, Scalar* dual, uint8_t* active,
                              double& residual) {
        const Family& family = job.family;
        const int n = task.matrix.top.columns;
        const bool lost = tally.status == non_finite || tally.status == infeasible;
        int8_t* state = family.state + system * n;
        const double unscale = 1 / b_scale;
        double* full = ws.score;  // x in the caller's units
        team.each(n, [&](int j) {
            const int own = lost ? 0 : ws.state[j];
            const bool masked = !lost && family.mask && !family.mask[system * family.mask_stride + j];
            const double at = own & is_free || masked ? 0.0
                              : own & reflected       ? this->given_upper[j]
                                                      : this->given_lower[j];
            full[j] = lost ? double_nan() : at;
            const double scale = lost ? 0.0 : task.scale_of(j);
            dual[j] = Scalar(lost ? double_nan() : scale > 0 ? ws.w[j] / scale * unscale : 0.0);
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
                const double at = ws.state[j] & from_zero ? 0.0 : full[j];
                const double value = at + ws.x[p] * (task.scale_of(j) * unscale);
                full[j] = clamp_to(value, this->given_lower[j], this->given_upper[j]);
            });
        team.sync();
        bool fits = true;
        double sum = 0;
        team.each(n, [&](int j) {
            x[j] = Scalar(full[j]);
            fits = fits && is_finite(x[j]);
            sum += task.matrix.coefficient(j) * double(x[j]);
        });
        sum = team.sum(sum);
        residual = double_nan();
        double fit = double_nan(), seminorm = double_nan(), missed = double_nan();
        if (!lost) {
            const double worst = team.max(fits ? 0.0 : 1.0);
            fit = (ws.metric ? this->squared_fit() : squared_residual) * unscale * unscale;
            residual = worst > 0 ? double_nan() : square_root(fit);
            if (residual != residual) tally.status = non_finite;
            missed = family.summed ? max_of(0.0, max_of(this->sum_low - sum, sum - this->sum_high)) : 0.0;
            seminorm = norm_of_penalty(full);
        }
        if (team.rank() == 0) {
            const double multiplier = lost ? double_nan() : this->multiplier * unscale;
            family.multiplier[system] = multiplier;
            if (family.summed && family.gap)
                family.gap[system] =
                    frank_wolfe_gap(family, system, ascent_of(family, system, n, x, dual, multiplier));
            family.equality_error[system] = missed;
            if (family.used_lam) {
                family.used_lam[system] = square_root(factor.penalty);
                family.fit[system] = fit;
                family.seminorm[system] = seminorm;
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

protected:
    // The start of a problem with bounds. Of a warm start the set counts, and which columns are at which
    // bound; where it does not lead to a point within the bounds, the start is cold.
    template <class Scalar>
    SW_CALL Pending start_general(const Job& job, int64_t system, const Scalar* b, WarmStart<Scalar> warm,
                                  double penalty) {
        if (task.extent.in_blocks() && task.options.guarded) {
            const Exchange outcome = start_in_blocks(warm);
            if (outcome == Exchange::settled) return Pending::nothing;
            if (outcome == Exchange::unsettled && come_inside()) {
                this->finish_step();
                return Pending::nothing;
            }
            begin_anew(job, system, b, penalty);
        }
        if (warm.values || warm.marks || warm.states) {
            if (start_from_set(warm)) {
                this->finish_step();
                return Pending::nothing;
            }
            begin_anew(job, system, b, penalty);
        }
        if (ws.sum_of)
            this->fill_up();
        else
            this->insert_free();
        return factor.count > 0 ? Pending::solution : Pending::nothing;
    }

    // As before the first column entered.
    template <class Scalar>
    SW_HD void begin_anew(const Job& job, int64_t system, const Scalar* b, double penalty) {
        for (int p = 0; p < factor.count; ++p) {
            const int j = ws.order[p];
            team.sync();
            if (team.rank() == 0) this->mark(j, ws.state[j] & ~is_positive);
        }
        team.sync();
        factor.restart(factor.update);
        this->begin_general(job, system, b, penalty);
    }

    // Exchanges from the set of a warm start, the free columns with it, or from these alone.
    template <class Scalar>
    SW_CALL Exchange start_in_blocks(WarmStart<Scalar> warm) {
        const bool cold = !(warm.values || warm.marks || warm.states);
        if (!cold) cross_as_said(warm);
        const int number = this->list(ws.order, [&](int j) {
            const int state = ws.state[j];
            const bool wanted = state & is_free || (!cold && !(state & excluded) && said_of(warm, j) == 0);
            return wanted && task.norm_of(j) > 0;
        });
        if (number > 0 && !this->enter_named(number)) return Exchange::impossible;
        return this->exchange();
    }

    // What a warm start says of column j: -1 at its lower bound, 1 at its upper, 0 between.
    template <class Scalar>
    SW_HD int said_of(WarmStart<Scalar> warm, int j) const {
        if (j >= task.matrix.top.columns) return 0;
        if (warm.states) return warm.states[j] == 2 ? -1 : warm.states[j];
        if (warm.marks) return warm.marks[j] ? 0 : -1;
        const double value = warm.values[j];
        return value <= this->given_lower[j] ? -1 : value >= this->given_upper[j] ? 1 : 0;
    }

    // Takes the set of a warm start: what the solution then has outside its bounds leaves there. Whether a
    // point within all bounds came of it, which is in ws.z.
    template <class Scalar>
    SW_CALL bool start_from_set(WarmStart<Scalar> warm) {
        cross_as_said(warm);
        this->insert_free();
        for (int j = 0; j < this->columns(); ++j) {
            const bool wanted = !(ws.state[j] & (excluded | is_free)) && said_of(warm, j) == 0;
            if (wanted && task.norm_of(j) > 0) this->insert_called(j);
        }
        return come_inside();
    }

    // Takes columns to the bounds that a warm start has them at.
    template <class Scalar>
    SW_HD void cross_as_said(WarmStart<Scalar> warm) {
        const auto crosses = [&](int j) {
            const int state = ws.state[j];
            if (state & (excluded | is_free)) return false;
            const int said = said_of(warm, j);
            return said > 0 ? state == zero && is_finite(ws.upper[j])
                            : said < 0 && state == reflected && is_finite(ws.lower[j]);
        };
        double any = 0;
        team.each(this->columns(), [&](int j) { any = crosses(j) ? 1.0 : any; });
        any = team.max(any);
        for (int j = 0; any > 0 && j < this->columns(); ++j) {
            const bool own = crosses(j);
            team.sync();
            if (own) this->cross(j);
        }
        team.sync();
    }

    // What the solution has outside its bounds leaves there, until nothing has to; the solution is in ws.z.
    SW_CALL bool come_inside() {
        fresh = false;
        for (;;) {
            if (factor.count == 0) return !ws.sum_of;
            factor.solve();
            bool inside = true;
            for (int p = factor.count - 1; p >= 0; --p) {
                const int j = ws.order[p];
                const double z = ws.z[p], least = task.least_of(j), most = task.most_of(j);
                if (z > least && z < most) continue;
                inside = false;
                team.sync();
                if (team.rank() == 0) ws.x[p] = z > least ? most : least;
                team.sync();
                this->leave_at_bound(p);
                // ws.z keeps the old order below p: only higher places moved.
            }
            if (inside) return true;
        }
    }

private:
    // |L x|, of x in the caller's units.
    SW_HD double norm_of_penalty(const double* x) const {
        const Matrix& matrix = task.matrix;
        double square = 0;
        team.each(matrix.penalty_rows, [&](int i) {
            double sum = 0;
            if (matrix.penalty) {
                const double* row = matrix.penalty + static_cast<int64_t>(i) * matrix.top.columns;
                for (int j = 0; j < matrix.top.columns; ++j) sum += row[j] * x[j];
            } else {
                sum = x[i];
            }
            square += sum * sum;
        });
        return square_root(team.sum(square));
    }
};

}  // namespace nnls
SW_END
