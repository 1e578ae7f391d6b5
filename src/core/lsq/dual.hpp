// The dual of a point: its residual, A'r, and which columns that asks for.
#pragma once

#include "core/lsq/block_entry.hpp"
#include "core/lsq/exact_residual.hpp"
#include "core/lsq/limits.hpp"
#include "core/lsq/state.hpp"

SW_BEGIN
namespace lsq {

struct Duals {
    double top, slope;  // the largest score; the largest |w_j| / |a_j| of a positive column
    double size;        // sum |a_j| x_j
    int top_column;     // whose score is the largest
};

// The scores, into ws.score, and what is largest of them and of the positive columns' duals.
template <class Team>
SW_CALL Duals find_largest_duals(const Team& team, const Setting& task, int count) {
    const Workspace& ws = task.ws;
    double *score = ws.score, *w = ws.w, *gate = ws.gate;
    team.each(task.extent.columns, [=](int j) { score[j] = w[j] * gate[j]; });
    team.sync();
    const Peak peak = largest(team, score, task.extent.columns);
    const double* inverse_norm = task.shared.inverse_norm ? task.shared.inverse_norm : ws.inverse_norm;
    const double* norm = task.shared.norm ? task.shared.norm : ws.norm;
    const int32_t* order = ws.order;
    const double* x = ws.x;
    double steepest = 0, size = 0;
    team.lane_each(count, [&](int p) {
        const int j = order[p];
        const double slope = task.extent.general ? breach(task, j, x[p], w[j]) : absolute(w[j]);
        steepest = max_of(steepest, slope * inverse_norm[j]);
        size += absolute(x[p]) * (task.extent.general ? task.size_of(j) : norm[j]);
    });
    return {peak.value, team.lane_max(steepest), team.lane_sum(size), peak.index};
}

// r = b - A x from A itself; under the metric, where there is one.
template <class State>
SW_HD void residual_from_matrix(State& s) {
    const int length = s.task.extent.row_length();
    double* r = s.ws.r;
    const double* b = s.ws.b;
    if (s.exact) {
        subtract_columns_exactly(s.team, s.factor.positive(), s.factor.count, s.ws.x, b, r, length);
    } else {
        s.team.each(length, [=](int i) { r[i] = b[i]; });
        s.team.sync();
        subtract_columns(s.team, s.factor.positive(), s.factor.count, s.ws.x, r, length);
    }
    if (s.ws.metric) s.weighed_square = weigh_residual(s.team, s.task);
}

// r = b - A x and w = A'r from A itself.
template <class State>
SW_CALL void dual_from_matrix(State& s) {
    residual_from_matrix(s);
    if (s.projected) {
        dual_outside_positives(s);
    } else {
        double part =
            s.ws.metric ? s.weighed_square : part_of_dot(s.team, s.ws.r, s.ws.r, s.task.extent.row_length());
        const bool damped = s.task.options.damping > 0;
        if (damped)
            s.team.each_short(s.factor.count, [&](int p) {
                const double d = s.task.below(s.ws.order[p]) * s.ws.x[p];
                part += d * d;
            });
        s.squared_residual = s.team.sum(part);
        s.task.matrix.multiply(s.team, s.ws.r, s.task.envelope, s.ws.w, s.ws.scratch);
        scale_dual(s);
        if (damped && s.factor.count > 0) {
            s.team.each_short(s.factor.count, [&](int p) {
                const int j = s.ws.order[p];
                const double d = s.task.below(j);
                s.ws.w[j] -= d * d * s.ws.x[p];
            });
            s.team.sync();
        }
    }
    ++s.tally.passes;
    s.multiplier = 0;
    mask_scores(s);
    s.fresh = true;
}

// w = A'b - A'A x from the shared Gram matrix: no pass over A.
template <class State>
SW_HD void dual_from_gram(State& s) {
    const int length = static_cast<int>(padded(s.columns()));
    const Columns products{
        s.task.shared.gram, s.task.shared.gram_stride, s.ws.order, nullptr, nullptr, nullptr, length};
    double *w = s.ws.w, *c = s.ws.c;
    s.team.each(length, [=](int j) { w[j] = c[j]; });
    s.team.sync();
    subtract_products(s, products, w, length);
    if (s.factor.penalty > 0) subtract_penalty(s.team, s.task, s.factor.count, s.factor.penalty);
    s.multiplier = 0;
    mask_scores(s);
    s.fresh = true;
}

// w -= sum of x_p products_p, by as many members as there are.
template <class State>
SW_HD void subtract_products(const State& s, const Columns& products, double* w, int length) {
#if defined(__CUDACC__)
    if (is_wide(s.team) && 2 * length <= s.team.size())
        return subtract_in_slices(s.team, products, s.factor.count, s.ws.x, w, length, s.ws.scratch);
#endif
    subtract_columns(s.team, products, s.factor.count, s.ws.x, w, length);
}

// Scores of the zeros that may be inserted, and the largest duals.
template <class State>
SW_CALL void mask_scores(State& s) {
    if constexpr (State::general)
        if (s.ws.sum_of) s.multiplier += settle_multiplier(s.team, s.task, s.factor.count);
    const Duals duals = find_largest_duals(s.team, s.task, s.factor.count);
    s.top = duals.top;
    s.top_column = duals.top_column;
    s.slope = duals.slope;
    // b - A x is rounded to a few ulp of |b| + sum |a_j| x_j.
    s.size = s.b_norm + duals.size + s.reference_size;
    const double wanted = s.task.options.tolerance * (s.task.extent.relative_to_b ? s.b_norm : s.size);
    s.slack = s.slope_slack = max_of(wanted, s.task.options.rounding * s.size);
    if (s.exact) s.slope_slack = max_of(wanted, 0.25 * double_epsilon * s.size);
    if (!s.projected) return;
    // How far x is from the solution on its columns is in Q'(b - A x). The rest is exact to a few ulp of
    // itself, until it is what b itself is rounded to.
    s.slope = largest_inside(s);
    if (s.squared_residual > square_of_rounding(s))
        s.slack = max_of(wanted, s.task.options.rounding * square_root(s.squared_residual));
}

// Whether rounding may hide that a zero should be positive: a dual is within it, and the residual is so
// small that a better one would tell.
template <class State>
SW_HD bool rounding_hides_a_dual(const State& s) {
    const double finest = max_of(s.task.options.tolerance * s.b_norm,
                                 s.task.options.rounding * square_root(s.squared_residual));
    const double *gate = s.ws.gate, *w = s.ws.w, within = s.slack;
    double hidden = 0;
    if (finest < 0.01 * within && s.squared_residual > square_of_rounding(s))
        s.team.each(s.columns(), [&](int j) {
            if (gate[j] != 0 && w[j] * gate[j] > -within) hidden = 1;
        });
    return s.team.max(hidden) > 0;
}

constexpr double rounding_with_sum = 256;
// Whether the positives' dual is as small as a factor that has the row of a bound sum in it makes it: the
// row is as long as those of the largest column, and rounds x of much smaller ones to fewer digits.
template <class State>
SW_HD bool rests_on_sum(const State& s) {
    if constexpr (State::general) return s.ws.sum_of && s.slope <= rounding_with_sum * s.slope_slack;
    return false;
}

// What b is rounded to.
template <class State>
SW_HD double square_of_rounding(const State& s) {
    const double size = s.b_norm + s.reference_size;
    return double_epsilon * double_epsilon * size * size;
}

template <class State>
SW_HD void bar(State& s, int j) {
    if (s.team.rank() == 0) s.mark(j, s.ws.state[j] | barred);
    s.any_barred = true;
}

template <class State>
SW_CALL void unbar(State& s) {
    s.team.each(s.columns(), [&](int j) { s.mark(j, s.ws.state[j] & ~barred); });
    s.any_barred = s.any_dependent = false;
    s.team.sync();
    mask_scores(s);
}

// Row j of the products in scaled units, where normal equations are given: made when it is first wanted,
// which of most columns is never. By one group; no sync.
template <class State>
SW_HD void scale_row(const State& s, int j) {
    const bool known = s.ws.has_row[j];
    s.team.lane_sync();
    if (known) return;
    const int n = s.task.matrix.top.columns;
    const double *from = s.given.gram + static_cast<int64_t>(j) * n, *scale = s.ws.scale, own = scale[j];
    double* row = s.ws.own_gram + j * s.task.shared.gram_stride;
    const bool inside = j < n;
    s.team.lane_each(static_cast<int>(s.task.shared.gram_stride),
                     [=](int i) { row[i] = inside && i < n ? own * scale[i] * from[i] : 0.0; });
    if (s.team.lane() == 0) s.ws.has_row[j] = 1;
}

template <class State>
SW_HD void square_identity(State& s) {
    const int length = s.task.extent.q_length();
    for (int c = 0; c < length; ++c)
        s.team.each(length,
                    [&](int i) { s.ws.q[static_cast<int64_t>(c) * length + i] = i == c ? 1.0 : 0.0; });
}

template <class State>
SW_HD void scale_dual(State& s) {
    double* w = s.ws.w;
    const double* scale = s.task.shared.scale ? s.task.shared.scale : s.ws.scale;
    s.team.each(s.columns(), [=](int j) { w[j] *= scale[j]; });
    s.team.sync();
}

// w from the part of r outside the span of the positives.
template <class State>
SW_HD void dual_outside_positives(State& s) {
    const int length = s.task.extent.row_length();
    s.squared_residual = project_residual(s.factor);
    double *r = s.ws.r, *outside = s.ws.v;
    // The product with A reads r, beyond whose ends there are zeros.
    const double* root = s.ws.root;
    const auto exchange = [=](int i) {
        const double kept = r[i];
        r[i] = root ? root[i] * outside[i] : outside[i];
        outside[i] = kept;
    };
    s.team.each(length, exchange);
    s.team.sync();
    s.task.matrix.multiply(s.team, r, s.task.envelope, s.ws.w, s.ws.scratch);
    s.team.each(length, [=](int i) { r[i] = outside[i]; });
    scale_dual(s);
    if (!s.task.extent.damped) return;
    s.team.each(s.columns(), [&](int j) { s.ws.w[j] += s.task.below(j) * outside[length + j]; });
    s.team.sync();
}

// The largest of Q'(b - A x).
template <class State>
SW_HD double largest_inside(const State& s) {
    double highest = 0;
    s.team.lane_each(s.factor.count,
                     [&](int p) { highest = max_of(highest, absolute(s.ws.triangle.target[p])); });
    return s.team.lane_max(highest);
}

}  // namespace lsq
SW_END
