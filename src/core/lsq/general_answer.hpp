// The answer of a problem with bounds, a bound sum, weights of rows and a penalty: x in the caller's units,
// and what is measured of it there.
#pragma once

#include "core/lsq/frank_wolfe.hpp"
#include "core/lsq/judge.hpp"
#include "core/lsq/search.hpp"

SW_BEGIN
namespace lsq {

// Of the x that is returned: |Ax - b|, scaled as b is, and |L x| in the caller's units.
struct ReturnedNorms {
    double residual = 0, penalty = 0;
};

// Writes x, its certificate, and the status that follows.
template <class State>
SW_HD void general_answer(State& s, const Job& job, int64_t system, const void* b, void* x, void* dual,
                          uint8_t* in_factor, double& residual, double& violation) {
    const Constraints& constraints = job.constraints;
    const int n = s.task.matrix.top.columns;
    const double unscale = 1 / s.b_scale;
    const double missing = double_nan();
    write_x(s, job, system, x, in_factor);
    const bool lost = is_lost(s);
    ReturnedNorms norms;
    const Measured measured = lost ? Measured{missing, missing, missing, missing, missing}
                                   : measure_answer(s, job, system, b, x, norms);
    s.team.each(n, [&](int j) {
        const double scale = lost ? 0.0 : s.task.scale_of(j);
        s.numbers.write(dual, j, lost ? missing : scale > 0 ? s.ws.w[j] / scale * unscale : 0.0);
    });
    residual = lost ? missing : norms.residual / s.b_scale;
    violation = lost ? missing : violation_of(job, measured);
    if (!lost) s.tally.status = judged_status(job, measured, s.numbers.rounds, s.tally.status);
    const bool is_beyond = !is_finite(residual) && !s.task.extent.gram_only;
    if (s.tally.status == converged && (s.search.lacks_level || is_beyond)) s.tally.status = stalled;
    s.team.sync();
    if (s.team.rank() == 0) {
        const double multiplier = lost ? missing : s.multiplier * unscale;
        constraints.multiplier[system] = multiplier;
        if (constraints.summed && constraints.gap)
            constraints.gap[system] = frank_wolfe_gap(
                constraints, system, ascent_of(s.numbers, constraints, system, n, x, dual, multiplier));
        constraints.equality_error[system] = lost ? missing : measured.sum_error;
        if (constraints.used_lam) {
            constraints.used_lam[system] = square_root(s.factor.penalty);
            constraints.fit[system] = residual * residual;
            constraints.seminorm[system] = lost ? missing : norms.penalty;
        }
    }
    s.team.sync();
}

// The factor in the caller's units, rows of a triangle one after the other: R of G on the columns between
// their bounds or, where the team keeps it, its inverse. Of large normal equations alone.
template <class State>
SW_CALL void keep_factor(const State& s, double* out, int32_t* order, bool known) {
    const int count = known && s.task.extent.in_blocks() ? s.factor.count : -1;
    if (s.team.rank() == 0) order[0] = count;
    s.team.each(max_of(count, 0), [&](int p) { order[1 + p] = s.ws.order[p]; });
    const bool inverse = s.factor.inverted();
    for (int t = s.team.row(); t < count; t += s.team.rows()) {
        const double *from = s.factor.triangle.row(t), own = s.task.scale_of(s.ws.order[t]);
        double* to = out + packed_row(count, t);
        s.team.lane_each(count - t, [&](int q) {
            to[t + q] = inverse ? own * from[t + q] : from[t + q] / s.task.scale_of(s.ws.order[t + q]);
        });
    }
    s.team.sync();
}

template <class State>
SW_HD bool is_lost(const State& s) {
    return s.tally.status == non_finite || s.tally.status == infeasible;
}

// x at a bound is the bound itself. An x beyond the largest number of its kind is lost.
template <class State>
SW_HD void write_x(State& s, const Job& job, int64_t system, void* x, uint8_t* in_factor) {
    const Constraints& constraints = job.constraints;
    const int n = s.task.matrix.top.columns;
    const bool lost = is_lost(s);
    int8_t* state = constraints.state + system * n;
    double* full = s.ws.score;  // x in the caller's units
    s.team.each(n, [&](int j) {
        const int own = lost ? 0 : s.ws.state[j];
        const bool masked =
            !lost && constraints.mask && !constraints.mask[system * constraints.mask_stride + j];
        const double at = own & is_free || masked ? 0.0
                          : own & reflected       ? s.given.upper[j]
                                                  : s.given.lower[j];
        full[j] = lost ? double_nan() : at;
        if (in_factor) in_factor[j] = !lost && (own & is_in_factor) ? 1 : 0;
        state[j] = lost || own & is_in_factor || own & is_free ? 0
                   : own & excluded                            ? 2
                   : own & reflected                           ? 1
                                                               : -1;
    });
    s.team.sync();
    if (!lost)
        s.team.each_short(s.factor.count, [&](int p) {
            const int j = s.ws.order[p];
            if (j >= n) return;
            full[j] += s.ws.x[p] * (s.task.scale_of(j) / s.b_scale);
        });
    s.team.sync();
    double bad = 0;
    s.team.each(n, [&](int j) {
        const bool masked = constraints.mask && !constraints.mask[system * constraints.mask_stride + j];
        const double value = lost || masked ? full[j] : clamp_to(full[j], s.given.lower[j], s.given.upper[j]);
        s.numbers.write(x, j, value);
        if (!is_finite(s.numbers.rounded(value))) bad = 1;
    });
    if (s.team.max(bad) > 0 && !lost) s.tally.status = non_finite;
    s.team.sync();
}

// The residual, the dual and the multiplier of x from what was given; the dual is in ws.w, scaled.
template <class State>
SW_CALL Measured measure_answer(State& s, const Job& job, int64_t system, const void* b, const void* x,
                                ReturnedNorms& norms) {
    const bool summed = s.task.matrix.summed;
    // Where x counts from zero, ever did and is not rounded, ws.w is that of x already.
    if (s.numbers.rounds || summed || s.given.relaxes || s.reference_size != 0 || s.has_moved)
        find_dual(s, job, system, b, x, norms);
    else
        norms.residual = square_root(max_of(0.0, s.ws.metric ? squared_fit(s) : double(s.squared_residual)));
    Measured measured{0, s.b_norm, 0, 0, 0};
    const int n = s.task.matrix.top.columns;
    const uint8_t* mask =
        job.constraints.mask ? job.constraints.mask + system * job.constraints.mask_stride : nullptr;
    double sum = 0, sum_size = 0;
    const auto lower = [&](int j) { return s.numbers.rounded(s.given.lower[j]); };
    const auto upper = [&](int j) { return s.numbers.rounded(s.given.upper[j]); };
    s.team.each(n, [&](int j) {
        const double value = s.numbers.read(x, j), scale = s.task.scale_of(j);
        const double part = scale > 0 ? absolute(value) * (s.b_scale / scale) * s.task.size_of(j) : 0.0;
        measured.size += part;
        if (!(s.ws.state[j] & is_in_factor)) measured.given += part;
        if (summed && s.ws.sum_of[j] > 0) {
            sum += s.task.matrix.coefficient(j) * value;
            sum_size += s.task.matrix.coefficient(j) * absolute(value);
        }
        if (summed || (mask && !mask[j])) return;
        // (A norm beyond the largest number, by a lambda as large, says nothing.)
        const double breach =
            !(s.task.norm_of(j) < double_infinity)
                ? double_infinity
                : breach_of(value, lower(j), upper(j), s.ws.w[j]) * s.task.inverse_norm_of(j);
        measured.breach = max_of(measured.breach, breach);
    });
    measured.breach = s.team.max(measured.breach);
    measured.size = s.b_norm + s.team.sum(measured.size);
    // (Of normal equations the residual is not known.)
    measured.given = s.b_norm + s.team.sum(measured.given);
    measured.task = s.task.extent.gram_only ? measured.size : measured.given + norms.residual;
    norms.penalty = norm_of_penalty(s, x);
    const double penalty =
        s.factor.penalty > 0 ? square_root(s.factor.penalty) * norms.penalty * s.b_scale : 0.0;
    if (summed) {
        sum = s.team.sum(sum);
        // (The ends that were given: those that are met may be theirs but for rounding.)
        const double low = job.constraints.sum_low[system * job.constraints.sum_stride],
                     high = job.constraints.sum_high[system * job.constraints.sum_stride];
        measured.sum_error = max_of(0.0, max_of(low - sum, sum - high));
        measured.sum_size = s.team.sum(sum_size) + absolute(is_finite(high) ? high : low);
        // (What a sum fixes is what comes of it.)
        measured.hides_duals =
            !s.task.extent.gram_only &&
            (hides_duals(s.b_norm + norms.residual + penalty, measured.size) || sum_hides_free_columns(s));
        measured.given = s.task.extent.gram_only ? measured.size : measured.task + penalty;
        measured.task = s.task.extent.gram_only
                            ? measured.size
                            : s.b_norm + norms.residual + penalty + size_of_way(s, mask, low, high);
        double shift;
        measured.breach = least_breach(
            s.team, n,
            [&](int j) {
                const bool out = mask && !mask[j];
                const double value = s.numbers.read(x, j);
                return SummedColumn{s.ws.w[j], s.ws.sum_of[j],
                                    s.ws.square[j] + penalty_in(s, j) > 0 ? s.task.inverse_norm_of(j) : 0.0,
                                    !out && value < upper(j), !out && value > lower(j)};
            },
            allowed_shifts(sum, low, high, rounding_of_sum(s.numbers.rounds) * measured.sum_size,
                           s.multiplier),
            shift);
        s.team.sync();
        s.team.each(s.columns(), [&](int j) { s.ws.w[j] += shift * s.ws.sum_of[j]; });
        s.multiplier += shift;
        s.team.sync();
    }
    // (What was no number on the way to the dual is not seen by a maximum.)
    if (!(norms.residual < double_infinity)) measured.breach = double_infinity;
    if (!s.task.extent.gram_only) measured.decrement = decrement(s);
    if (!summed && !s.task.extent.gram_only) {
        measured.objective = square_root(norms.residual * norms.residual + penalty * penalty);
        double size = 0;
        const int looked_at = measured.objective > s.b_norm ? n : 0;
        s.team.each(looked_at, [&](int j) {
            const double scale = s.task.scale_of(j);
            if (scale > 0 && !(mask && !mask[j]))
                size +=
                    absolute(nearest_to_zero(lower(j), upper(j))) * (s.b_scale / scale) * s.task.size_of(j);
        });
        measured.named = s.b_norm + s.team.sum(size);
    }
    return measured;
}

constexpr double heavy_sum = 1e12;  // of squares: half of the digits that products have
// Whether a free column that depends on others may do so because the row of the sum is so heavy in it
// that little is left of its digits in A.
template <class State>
SW_CALL bool sum_hides_free_columns(const State& s) {
    double any = 0;
    s.team.each(s.task.matrix.top.columns, [&](int j) {
        const bool out = (s.ws.state[j] & (is_free | is_in_factor | excluded)) == is_free;
        const double square = s.ws.square[j] + penalty_in(s, j);
        if (out && square > 0 && s.factor.row_weight * s.ws.sum_of[j] * s.ws.sum_of[j] > heavy_sum * square)
            any = 1;
    });
    return s.team.max(any) > 0;
}

// In scaled units.
template <class State>
SW_CALL double size_of_way(const State& s, const uint8_t* mask, double low, double high) {
    const int n = s.task.matrix.top.columns;
    const auto takes_part = [=](int j) { return !(mask && !mask[j]); };
    double nearest = 0;
    s.team.each(n, [&](int j) {
        if (takes_part(j))
            nearest += s.task.matrix.coefficient(j) * nearest_to_zero(s.given.lower[j], s.given.upper[j]);
    });
    WayToSum way(s.team.sum(nearest), low, high);
    s.team.each(n, [&](int j) {
        const double scale = s.task.scale_of(j), unit = scale > 0 ? s.b_scale / scale : 0.0;
        if (takes_part(j))
            way.add(s.given.lower[j], s.given.upper[j], unit * s.task.size_of(j),
                    s.task.matrix.coefficient(j));
    });
    way.size = s.team.sum(way.size);
    way.lowest = -s.team.max(-way.lowest);
    way.dearest = s.team.max(way.dearest);
    return way.length();
}

template <class State>
SW_HD double penalty_in(const State& s, int j) {
    return s.ws.penalty_square ? s.factor.penalty * s.ws.penalty_square[j] : 0.0;
}

template <class State>
SW_CALL void find_dual(State& s, const Job& job, int64_t system, const void* b, const void* x,
                       ReturnedNorms& norms) {
    const Constraints& constraints = job.constraints;
    const auto& matrix = s.task.matrix;
    const int length = s.task.extent.row_length(), rows = matrix.top.rows, n = matrix.top.columns;
    const double* weights =
        constraints.weights ? constraints.weights + system * constraints.weights_stride : nullptr;
    double *r = s.ws.r, *scaled = s.ws.score;
    s.team.each(s.columns(), [&](int j) { scaled[j] = j < n ? s.numbers.read(x, j) * s.b_scale : 0.0; });
    if (!s.task.extent.gram_only)
        s.team.each(rows, [&](int i) {
            r[i] = weights && !(weights[i] > 0) ? 0.0 : s.b_scale * s.numbers.read(b, i);
        });
    s.team.each(length - rows, [&](int i) { r[rows + i] = 0; });
    s.team.sync();
    matrix.subtract_product(s.team, scaled, r);
    double square = 0;
    s.team.each(rows, [&](int i) {
        const double weight = weights ? weights[i] * weights[i] : 1.0;
        square += weight * r[i] * r[i];
        r[i] *= weight;
    });
    s.team.each(matrix.rows_beneath(),
                [&](int i) { r[matrix.below + i] *= i < matrix.summed ? 0.0 : s.factor.penalty; });
    norms.residual = square_root(s.team.sum(square));
    if (!(norms.residual > 1e-140 && norms.residual < 1e150))
        norms.residual = norm_of_extremes(s, rows, weights);
    s.team.sync();
    if (s.task.extent.gram_only)
        dual_of_gram(s, constraints, system, scaled);
    else
        matrix.multiply(s.team, r, s.task.envelope, s.ws.w, s.ws.scratch);
    scale_dual(s);
    s.multiplier = s.ws.sum_of ? settle_multiplier(s.team, s.task, s.factor.count) : 0.0;
}

// |W r| over the rows of A, where its square is beyond the largest or the smallest number; ws.r has W^2
// r.
template <class State>
SW_CALL double norm_of_extremes(const State& s, int rows, const double* weights) {
    const auto entry = [&](int i) {
        return !weights ? s.ws.r[i] : weights[i] > 0 ? s.ws.r[i] / weights[i] : 0.0;
    };
    double largest = 0;
    s.team.each(rows, [&](int i) { largest = max_of(largest, absolute(entry(i))); });
    largest = s.team.max(largest);
    if (!(largest > 0)) return 0.0;
    double square = 0;
    s.team.each(rows, [&](int i) { square += (entry(i) / largest) * (entry(i) / largest); });
    return largest * square_root(s.team.sum(square));
}

// From normal equations, which are all there is.
template <class State>
SW_CALL void dual_of_gram(State& s, const Constraints& constraints, int64_t system, const double* x) {
    const int n = s.task.matrix.top.columns;
    const double* linear = constraints.linear + system * constraints.linear_stride;
    s.team.each(s.columns(), [&](int j) {
        double sum = 0;
        if (j < n) {
            const double* row = s.given.gram + static_cast<int64_t>(j) * n;
            for (int k = 0; k < n; ++k) sum += row[k] * x[k];
        }
        s.ws.w[j] = j < n ? s.b_scale * linear[j] - sum : 0.0;
    });
    s.team.sync();
    if (s.task.matrix.rows_beneath() > 0)
        s.task.matrix.add_beneath(s.team, s.ws.r + s.task.matrix.below, 0, s.task.matrix.rows_beneath(),
                                  s.ws.w);
}

// |L x|, of x in the caller's units.
template <class State>
SW_HD double norm_of_penalty(const State& s, const void* x) {
    const auto& matrix = s.task.matrix;
    double square = 0;
    s.team.each(matrix.penalty_rows, [&](int i) {
        double sum = 0;
        if (matrix.penalty) {
            const double* row = matrix.penalty + static_cast<int64_t>(i) * matrix.top.columns;
            for (int j = 0; j < matrix.top.columns; ++j) sum += row[j] * s.numbers.read(x, j);
        } else {
            sum = s.numbers.read(x, i);
        }
        square += sum * sum;
    });
    return square_root(s.team.sum(square));
}

}  // namespace lsq
SW_END
