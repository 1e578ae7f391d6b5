// How a problem with bounds, a bound sum, weights of rows and a penalty begins: what is given becomes scaled
// columns, bounds and references, and the dual of the references.
#pragma once

#include "core/lsq/general_columns.hpp"
#include "core/lsq/judge.hpp"

SW_BEGIN
namespace lsq {

// Reads the system, measures its columns, and finds the dual of the references. What is wrong with it, or
// `converged`.
template <class State>
SW_CALL int begin_general(State& s, const Job& job, int64_t system, const void* b, double penalty) {
    const Constraints& constraints = job.constraints;
    s.has_moved = false;
    s.given.lower = constraints.lower + system * constraints.lower_stride;
    s.given.upper = constraints.upper + system * constraints.upper_stride;
    const uint8_t* mask = constraints.mask ? constraints.mask + system * constraints.mask_stride : nullptr;
    const double* weights =
        constraints.weights ? constraints.weights + system * constraints.weights_stride : nullptr;
    if (constraints.summed) {
        s.given.sum_low = constraints.sum_low[system * constraints.sum_stride];
        s.given.sum_high = constraints.sum_high[system * constraints.sum_stride];
    }
    s.team.each_short(4, [&](int k) { s.ws.costs[k] = 0; });
    if (!s.task.shared.columns) s.team.each(s.task.extent.positions(), [&](int p) { s.ws.slot[p] = p; });
    if (s.task.extent.square_q) square_identity(s);
    double least_size = 0;  // of what b is scaled by
    for (int turn = 0; turn < 2; ++turn) {
        if (s.task.extent.gram_only ? !read_gram(s, constraints, system)
                                    : !read_b(s, b, weights, least_size) || !measure_columns(s, weights))
            return non_finite;
        if ((constraints.summed && !sum_is_within_bounds(s, mask)) || !read_bounds(s, mask))
            return infeasible;
        if (s.task.extent.gram_only || least_size > 0) break;
        least_size = size_beyond_b(s, mask, penalty);
        if (least_size == 0) break;
    }
    subtract_references(s);
    set_penalty(s, penalty);
    s.from_gram = s.task.shared.gram != nullptr;
    dual_of_references(s);
    if (constraints.summed && !sum_is_possible(s)) return infeasible;
    return converged;
}

// Far bounds that the point is beyond count from now on. Whether there are any.
template <class State>
SW_CALL bool keep_met_bounds(State& s) {
    if (!s.given.relaxes) return false;
    double any = 0;
    const auto look = [&](int j, double value) {
        if (j >= s.task.matrix.top.columns || s.ws.state[j] & excluded) return;
        const double scale = s.task.scale_of(j), unit = scale > 0 ? s.b_scale / scale : 1.0;
        const int side = value < s.given.lower[j] * unit   ? int(lower_side)
                         : value > s.given.upper[j] * unit ? int(upper_side)
                                                           : 0;
        if (side == 0 || s.ws.kept_bounds[j] & side) return;
        s.ws.kept_bounds[j] |= side;
        any = 1;
    };
    s.team.each(s.columns(), [&](int j) {
        if (!(s.ws.state[j] & is_in_factor)) look(j, s.task.reference_of(j));
    });
    s.team.sync();
    s.team.each_short(s.factor.count,
                      [&](int p) { look(s.ws.order[p], s.task.reference_of(s.ws.order[p]) + s.ws.x[p]); });
    any = s.team.max(any);
    s.team.sync();
    return any > 0;
}

// Bounds in scaled units and states. False where a lower bound is above its upper. Far bounds are left
// out until a solution without them is beyond them: x counts from bounds, and would lose its digits.
template <class State>
SW_HD bool read_bounds(State& s, const uint8_t* mask) {
    const auto& matrix = s.task.matrix;
    const SumRange range = range_of_sum(s.given.sum_low, s.given.sum_high);
    double crossed = 0, any_far = 0;
    s.team.each(matrix.columns, [&](int j) {
        const bool slack = j >= matrix.top.columns;
        double lower = slack ? range.slack_low : s.given.lower[j],
               upper = slack ? range.slack_high : s.given.upper[j];
        const bool masked = !slack && mask && !mask[j];
        if (masked) lower = upper = 0;
        if (!(lower <= upper)) crossed = 1;
        const double scale = s.task.scale_of(j), unit = scale > 0 ? s.b_scale / scale : 0.0;
        int state = zero;
        if (!slack && !masked && lower < upper) {
            const double reach = far_bounds * reach_of(s, j);
            const bool nothing = unit == 0;  // x changes nothing
            const auto is_far = [&](double bound, int side) {
                const bool beyond = nothing ? bound != 0 : absolute(bound) * unit > reach;
                return is_finite(bound) && beyond && !(s.ws.kept_bounds[j] & side);
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
        s.ws.lower[j] = is_finite(lower) ? lower * unit : lower;
        s.ws.upper[j] = is_finite(upper) ? upper * unit : upper;
        s.ws.state[j] = state;
        if (s.ws.sum_of && masked) s.ws.sum_of[j] = 0;
    });
    crossed = s.team.max(crossed);
    s.given.relaxes = s.team.max(any_far) > 0;
    s.team.sync();
    return crossed == 0;
}

// What bounds and the sum take of b and of the penalty, where that is so much more than b that its
// squares are no numbers; else 0. Then they are what is scaled to one.
template <class State>
SW_HD double size_beyond_b(const State& s, const uint8_t* mask, double penalty) {
    constexpr double far_beyond = 1e50;
    double size = 0;
    s.team.each(s.task.matrix.top.columns, [&](int j) {
        const double scale = mask && !mask[j] ? 0.0 : s.task.scale_of(j);
        const int state = s.ws.state[j];
        const double at = state & is_free ? 0.0 : state & reflected ? s.given.upper[j] : s.given.lower[j];
        if (scale > 0 && is_finite(at)) size += absolute(at) / scale * norm_with_penalty(s, j, penalty);
    });
    size = s.team.sum(size);
    if (s.task.matrix.summed)
        size +=
            absolute(range_of_sum(s.given.sum_low, s.given.sum_high).sum) * square_root(s.factor.row_weight);
    const bool beyond =
        s.b_norm > 0 ? size * s.b_scale > far_beyond : size > far_beyond || size < 1 / far_beyond;
    return beyond && is_finite(size) ? size : 0.0;
}

template <class State>
SW_HD double norm_with_penalty(const State& s, int j, double penalty) {
    if (!s.ws.square) return s.task.norm_of(j);
    return square_root(s.ws.square[j] + (s.ws.penalty_square ? penalty * s.ws.penalty_square[j] : 0.0));
}

// What b, or the sum, would make of x_j if nothing else took part in it.
template <class State>
SW_HD double reach_of(const State& s, int j) {
    const double norm = s.ws.square ? square_root(s.ws.square[j]) : s.task.norm_of(j);
    double reach = norm > 0 ? s.b_norm / norm : 0.0;
    if (s.ws.sum_of && s.ws.sum_of[j] > 0)
        reach += absolute(range_of_sum(s.given.sum_low, s.given.sum_high).sum) * s.b_scale / s.ws.sum_of[j];
    return reach;
}

// b less what the references take of it.
template <class State>
SW_HD void subtract_references(State& s) {
    const auto& matrix = s.task.matrix;
    double* x = s.ws.score;
    double any = 0;
    s.team.each(matrix.columns, [&](int j) {
        const double reference = s.task.reference_of(j);
        if (reference != 0) any = 1;
        x[j] = reference * s.task.scale_of(j);
    });
    any = s.team.max(any);
    s.team.sync();
    if (matrix.summed) {
        s.factor.remainder = range_of_sum(s.given.sum_low, s.given.sum_high).sum * s.b_scale;
        if (s.team.rank() == 0) s.ws.b[matrix.below] = s.factor.remainder;
        s.team.sync();
    }
    if (any == 0) return;
    matrix.subtract_product(s.team, x, s.ws.b);
    if (matrix.summed) s.factor.remainder = s.ws.b[matrix.below];
    s.team.sync();
    double* r = s.ws.r;
    const double *b = s.ws.b, *metric = s.task.extent.weighted ? s.ws.metric : nullptr;
    const int below = matrix.below;
    s.team.each(s.task.extent.row_length(),
                [=](int i) { r[i] = i < below ? (metric ? metric[i] : 1.0) * b[i] : 0.0; });
    s.team.sync();
    // What was found of A'b is that of b itself.
    if (!s.task.shared.scale && !s.task.extent.gram_only)
        matrix.top.multiply(s.team, s.ws.r, s.task.envelope, s.ws.w, s.ws.scratch);
}

// Whether any x within the bounds that were given has a sum that is allowed, but for the rounding of the
// caller's numbers; then the sum that is nearest to it is the one to be met.
template <class State>
SW_HD bool sum_is_within_bounds(State& s, const uint8_t* mask) {
    double lowest = 0, highest = 0, size_low = 0, size_high = 0;
    s.team.each(s.task.matrix.top.columns, [&](int j) {
        if (mask && !mask[j]) return;
        const double c = s.task.matrix.coefficient(j), low = c * s.given.lower[j],
                     high = c * s.given.upper[j];
        lowest += low;
        highest += high;
        size_low += absolute(low);
        size_high += absolute(high);
    });
    lowest = s.team.sum(lowest);
    highest = s.team.sum(highest);
    // (Each is rounded as its own terms are: far bounds of one side say nothing of the other.)
    const double share = rounding_of_sum(s.numbers.rounds) / 8;
    if (!(lowest <= s.given.sum_high + share * (s.team.sum(size_low) + absolute(s.given.sum_high))))
        return false;
    if (!(highest >= s.given.sum_low - share * (s.team.sum(size_high) + absolute(s.given.sum_low))))
        return false;
    if (lowest > s.given.sum_high) s.given.sum_low = s.given.sum_high = lowest;
    if (highest < s.given.sum_low) s.given.sum_low = s.given.sum_high = highest;
    return true;
}

// Drops upper bounds that the sum keeps anyway, so that a point at one of them is no corner. False where
// bounds that count leave no x with the sum.
template <class State>
SW_HD bool sum_is_possible(State& s) {
    double lowest = 0, highest = 0, size = absolute(s.factor.remainder);
    for (int j = 0; j < s.columns(); ++j) {
        const double c = s.ws.sum_of[j];
        if (!(c > 0) || (s.ws.state[j] & excluded)) continue;
        lowest += c * s.task.least_of(j);
        highest += c * s.task.most_of(j);
        const double reference = s.task.reference_of(j);
        size += c * absolute(reference);
    }
    const double room = 8 * double_epsilon * size;
    const double e = s.factor.remainder;
    s.team.sync();
    if (!(lowest <= e + room) || !(highest >= e - room)) return false;
    s.team.each(s.columns(), [&](int j) {
        const double c = s.ws.sum_of[j];
        if (lowest == 0 && s.ws.state[j] == zero && c > 0 && c * s.ws.upper[j] - c * s.ws.lower[j] >= e)
            s.ws.upper[j] = double_infinity;
    });
    s.team.sync();
    return true;
}

// The dual where all columns are at their references; the row of a bound sum does not count in it.
template <class State>
SW_HD void dual_of_references(State& s) {
    const auto& matrix = s.task.matrix;
    const int n = matrix.columns;
    if (s.task.shared.scale) matrix.top.multiply(s.team, s.ws.r, s.task.envelope, s.ws.w, s.ws.scratch);
    s.team.each(n - matrix.top.columns, [&](int q) { s.ws.w[matrix.top.columns + q] = 0; });
    s.team.sync();
    scale_dual(s);
    ++s.tally.passes;
    if (s.ws.c_penalty) {
        const int length = static_cast<int>(padded(n));
        s.team.each(length, [&](int j) { s.ws.c_penalty[j] = 0; });
        s.team.sync();
        matrix.add_beneath(s.team, s.ws.b + matrix.below, matrix.summed, matrix.rows_beneath(),
                           s.ws.c_penalty);
        s.team.each(n, [&](int j) { s.ws.c_penalty[j] *= s.task.scale_of(j); });
    }
    s.team.sync();
    if (s.task.extent.gram_only) {
        for (int k = s.team.row(); k < n; k += s.team.rows())
            if (s.task.reference_of(k) != 0) scale_row(s, k);
        s.team.sync();
        for (int k = 0; k < n; ++k) {
            const double reference = s.task.reference_of(k),
                         *row = s.ws.own_gram + k * s.task.shared.gram_stride;
            if (reference != 0) s.team.each(n, [&](int j) { s.ws.w[j] -= reference * row[j]; });
        }
        s.team.sync();
    }
    if (s.from_gram) s.team.each(n, [&](int j) { s.ws.c[j] = s.ws.w[j]; });
    if (s.ws.c_penalty) s.team.each(n, [&](int j) { s.ws.w[j] += s.factor.penalty * s.ws.c_penalty[j]; });
    // The row of the sum does not count.
    const int row = matrix.below;
    const double in_row = matrix.summed ? s.ws.weighed_b[row] * s.ws.b[row] : 0.0;
    s.squared_residual =
        s.team.sum(part_of_dot(s.team, s.ws.b, s.ws.weighed_b, s.task.extent.row_length())) - in_row;
    double* r = s.ws.r;
    const double* weighed = s.ws.weighed_b;
    s.team.each(s.task.extent.row_length(), [=](int i) { r[i] = weighed[i]; });
    s.multiplier = 0;
    mask_scores(s);
    s.fresh = true;
    s.team.sync();
}

}  // namespace lsq
SW_END
