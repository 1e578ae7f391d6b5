// The state of a solve as each member of a team keeps it, and the dual of a point: its residual, A'r, and
// which columns that asks for.
#pragma once

#include "core/lsq/exact_residual.hpp"
#include "core/lsq/limits.hpp"
#include "core/lsq/scaling.hpp"

SW_BEGIN
namespace lsq {

// A column's score counts only while it is zero and not barred: the gate. One at its upper bound may only go
// down.
SW_CALL void set_state(const Setting& task, int j, int state) {
    task.ws.state[j] = state;
    const double inverse = task.inverse_norm_of(j);
    task.ws.gate[j] = state == zero ? inverse : state == reflected ? -inverse : 0.0;
}

// The largest score and where, the largest dual of a positive column, and sum |a_j| x_j.
struct Duals {
    double top, slope, size;
    int top_column;
};

template <class Team>
SW_CALL Duals mask(const Team& team, const Setting& task, int count) {
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

template <class Team, class Matrix>
struct DualState {
    const Team& team;
    const Task<Matrix>& task;
    const Workspace& ws;
    Tally tally;
    Factor<Team> factor;

    double b_scale = 1, b_norm = 0;
    double squared_residual = 0;
    // The largest dual of a zero and of a positive, and what rounding leaves of each.
    double top = 0, slope = 0, slack = 0, slope_slack = 0;
    double size = 0;  // |b| + sum |a_j| |x_j|
    int top_column = 0;
    bool from_gram = false;  // the dual comes from the Gram matrix; at its end it is verified from A
    bool fresh = false;      // ws.r and ws.w are those of x, from A
    bool any_barred = false, any_dependent = false;
    bool exact = false;  // ws.r comes from twice the precision
    // The dual, and squared_residual, are of the part of the residual outside the span of the positives, and
    // Q'(b - A x) stands in place of Q'b.
    bool projected = false;
    // Of the general solver: sum |a_j| |x_j| of what is at bounds, and the multiplier of a bound sum, which
    // is in ws.w.
    double reference_size = 0, multiplier = 0;
    bool has_moved = false;              // b has lost a column's part once, to rounding
    double weighed_square = 0;           // this member's part of the residual's, under the metric
    const double* given_gram = nullptr;  // this system's, where normal equations are given

    SW_HD DualState(const Team& team, const Task<Matrix>& task)
        : team(team), task(task), ws(task.ws), factor(team, task) {}

    SW_HD int columns() const { return task.matrix.columns; }

    SW_HD bool is_general() const { return lsq::is_general(task); }

    // Whether the caller wants the call to end: the same for all members.
    SW_HD bool is_interrupted() const {
#if defined(__CUDACC__)
        return false;
#else
        const Options& options = task.options;
        if (!options.interrupted) return false;
        return team.max(team.rank() == 0 ? double(options.interrupted(options.watch)) : 0.0) > 0;
#endif
    }

    // Scales b, measures the columns, and finds the dual of x = 0. False where something is not finite.
    template <class Numbers>
    SW_HD bool begin(const Numbers& numbers, const void* b) {
        const Matrix& matrix = task.matrix;
        const int length = task.extent.row_length();
        team.each_short(4, [&](int k) { ws.costs[k] = 0; });
        const double magnitude =
            numbers.with(b, [&](const auto* values) { return largest_magnitude(team, values, matrix.rows); });
        if (!is_finite(magnitude)) return false;
        b_scale = magnitude >= smallest_size ? power_below(magnitude) : 0.0;
        double *r = ws.r, *own_b = ws.b;
        const double scale = b_scale;
        const int rows = matrix.rows;
        // Without a condition a compiler makes vectors of it.
        numbers.with(b, [&](const auto* values) {
            team.each(rows, [=](int i) { own_b[i] = r[i] = scale * double(values[i]); });
        });
        team.each(length - rows, [=](int i) { own_b[rows + i] = r[rows + i] = 0.0; });
        const int before = static_cast<int>(padded(matrix.zeros_before()));
        team.each(before, [=](int i) { r[i - before] = 0; });
        team.each(matrix.zeros_after(), [=](int i) { r[length + i] = 0; });
        int32_t *state = ws.state, *slot = ws.slot;
        team.each(columns(), [=](int j) { state[j] = zero; });
        if (!task.shared.columns) team.each(task.extent.positions(), [=](int p) { slot[p] = p; });
        if (task.extent.square_q) square_identity();
        team.sync();
        squared_residual = team.sum(part_of_dot(team, r, r, length));
        b_norm = square_root(squared_residual);
        if (task.shared.scale) {
            matrix.prepare(team);
            if (b_norm > 0) matrix.multiply(team, ws.r, task.envelope, ws.w, ws.scratch);
        } else if (!measure()) {
            return false;
        }
        ++tally.passes;
        team.each(columns(), [&](int j) { ws.gate[j] = task.inverse_norm_of(j); });
        scale_dual();
        mask_scores();
        from_gram = task.shared.gram != nullptr;
        if (from_gram) team.each(columns(), [&](int j) { ws.c[j] = ws.w[j]; });
        fresh = true;
        team.sync();
        return true;
    }

    // r = b - A x from A itself; under the metric, where there is one.
    SW_HD void residual_from_matrix() {
        const int length = task.extent.row_length();
        double* r = ws.r;
        const double* b = ws.b;
        if (exact) {
            subtract_columns_exactly(team, factor.positive(), factor.count, ws.x, b, r, length);
        } else {
            team.each(length, [=](int i) { r[i] = b[i]; });
            team.sync();
            subtract_columns(team, factor.positive(), factor.count, ws.x, r, length);
        }
        if (ws.metric) weighed_square = weigh_residual(team, task);
    }

    // r = b - A x and w = A'r from A itself.
    SW_CALL void dual_from_matrix() {
        residual_from_matrix();
        if (projected) {
            dual_outside_positives();
        } else {
            double part =
                ws.metric ? weighed_square : part_of_dot(team, ws.r, ws.r, task.extent.row_length());
            const bool damped = task.options.damping > 0;
            if (damped)
                team.each_short(factor.count, [&](int p) {
                    const double d = task.below(ws.order[p]) * ws.x[p];
                    part += d * d;
                });
            squared_residual = team.sum(part);
            task.matrix.multiply(team, ws.r, task.envelope, ws.w, ws.scratch);
            scale_dual();
            if (damped && factor.count > 0) {
                team.each_short(factor.count, [&](int p) {
                    const int j = ws.order[p];
                    const double d = task.below(j);
                    ws.w[j] -= d * d * ws.x[p];
                });
                team.sync();
            }
        }
        ++tally.passes;
        multiplier = 0;
        mask_scores();
        fresh = true;
    }

    // w = A'b - A'A x from the shared Gram matrix: no pass over A.
    SW_HD void dual_from_gram() {
        const int length = static_cast<int>(padded(columns()));
        const Columns products{
            task.shared.gram, task.shared.gram_stride, ws.order, nullptr, nullptr, nullptr, length};
        double *w = ws.w, *c = ws.c;
        team.each(length, [=](int j) { w[j] = c[j]; });
        team.sync();
        subtract_products(products, w, length);
        if (factor.penalty > 0) subtract_penalty(team, task, factor.count, factor.penalty);
        multiplier = 0;
        mask_scores();
        fresh = true;
    }

    // w -= sum of x_p products_p, by as many members as there are.
    SW_HD void subtract_products(const Columns& products, double* w, int length) const {
#if defined(__CUDACC__)
        if (is_wide(team) && 2 * length <= team.size())
            return subtract_in_slices(team, products, factor.count, ws.x, w, length, ws.scratch);
#endif
        subtract_columns(team, products, factor.count, ws.x, w, length);
    }

    // Scores of the zeros that may be inserted, and the largest duals.
    SW_CALL void mask_scores() {
        if constexpr (Matrix::general)
            if (ws.sum_of) multiplier += settle_multiplier(team, task, factor.count);
        const Duals duals = mask(team, task, factor.count);
        top = duals.top;
        top_column = duals.top_column;
        slope = duals.slope;
        // b - A x is rounded to a few ulp of |b| + sum |a_j| x_j.
        size = b_norm + duals.size + reference_size;
        const double wanted = task.options.tolerance * (task.extent.relative_to_b ? b_norm : size);
        slack = slope_slack = max_of(wanted, task.options.rounding * size);
        if (exact) slope_slack = max_of(wanted, 0.25 * double_epsilon * size);
        if (!projected) return;
        // How far x is from the solution on its columns is in Q'(b - A x). The rest is exact to a few ulp of
        // itself, until it is what b itself is rounded to.
        slope = largest_inside();
        if (squared_residual > square_of_rounding())
            slack = max_of(wanted, task.options.rounding * square_root(squared_residual));
    }

    // Whether rounding may hide that a zero should be positive: a dual is within it, and the residual is so
    // small that a better one would tell.
    SW_HD bool rounding_hides_a_dual() const {
        const double finest =
            max_of(task.options.tolerance * b_norm, task.options.rounding * square_root(squared_residual));
        const double *gate = ws.gate, *w = ws.w, within = slack;
        double hidden = 0;
        if (finest < 0.01 * within && squared_residual > square_of_rounding())
            team.each(columns(), [&](int j) {
                if (gate[j] != 0 && w[j] * gate[j] > -within) hidden = 1;
            });
        return team.max(hidden) > 0;
    }

    // Whether the positives' dual is as small as a factor that has the row of a bound sum in it makes it: the
    // row is as long as those of the largest column, and rounds x of much smaller ones to fewer digits.
    SW_HD bool rests_on_sum() const {
        if constexpr (Matrix::general) return ws.sum_of && slope <= rounding_with_sum * slope_slack;
        return false;
    }
    static constexpr double rounding_with_sum = 256;

    // What b is rounded to.
    SW_HD double square_of_rounding() const {
        const double size = b_norm + reference_size;
        return double_epsilon * double_epsilon * size * size;
    }

    SW_HD void mark(int j, int state) const { set_state(task, j, state); }

    SW_HD void bar(int j) {
        if (team.rank() == 0) mark(j, ws.state[j] | barred);
        any_barred = true;
    }

    SW_CALL void unbar() {
        team.each(columns(), [&](int j) { mark(j, ws.state[j] & ~barred); });
        any_barred = any_dependent = false;
        team.sync();
        mask_scores();
    }

    // Row j of the products in scaled units, where normal equations are given: made when it is first wanted,
    // which of most columns is never. By one group; no sync.
    SW_HD void scale_row(int j) const {
        const bool known = ws.has_row[j];
        team.lane_sync();
        if (known) return;
        const int n = task.matrix.top.columns;
        const double *from = given_gram + static_cast<int64_t>(j) * n, *scale = ws.scale, own = scale[j];
        double* row = ws.own_gram + j * task.shared.gram_stride;
        const bool inside = j < n;
        team.lane_each(static_cast<int>(task.shared.gram_stride),
                       [=](int i) { row[i] = inside && i < n ? own * scale[i] * from[i] : 0.0; });
        if (team.lane() == 0) ws.has_row[j] = 1;
    }

    SW_HD void square_identity() {
        const int length = task.extent.q_length();
        for (int c = 0; c < length; ++c)
            team.each(length,
                      [&](int i) { ws.q[static_cast<int64_t>(c) * length + i] = i == c ? 1.0 : 0.0; });
    }

    SW_HD void scale_dual() {
        double* w = ws.w;
        const double* scale = task.shared.scale ? task.shared.scale : ws.scale;
        team.each(columns(), [=](int j) { w[j] *= scale[j]; });
        team.sync();
    }

private:
    // w from the part of r outside the span of the positives.
    SW_HD void dual_outside_positives() {
        const int length = task.extent.row_length();
        squared_residual = project_residual<Team>(factor);
        double *r = ws.r, *outside = ws.v;
        // The product with A reads r, beyond whose ends there are zeros.
        const double* root = ws.root;
        const auto exchange = [=](int i) {
            const double kept = r[i];
            r[i] = root ? root[i] * outside[i] : outside[i];
            outside[i] = kept;
        };
        team.each(length, exchange);
        team.sync();
        task.matrix.multiply(team, r, task.envelope, ws.w, ws.scratch);
        team.each(length, [=](int i) { r[i] = outside[i]; });
        scale_dual();
        if (!task.extent.damped) return;
        team.each(columns(), [&](int j) { ws.w[j] += task.below(j) * outside[length + j]; });
        team.sync();
    }

    // The largest of Q'(b - A x).
    SW_HD double largest_inside() const {
        double highest = 0;
        team.lane_each(factor.count,
                       [&](int p) { highest = max_of(highest, absolute(ws.triangle.target[p])); });
        return team.lane_max(highest);
    }

    SW_HD bool measure() {
        const Matrix& matrix = task.matrix;
        double* squares = ws.score;
        matrix.measure(team, ws.r, task.envelope, squares, ws.w);
        double bad = 0;
        team.each(matrix.columns, [&](int j) {
            double scale, norm;
            if (!scale_column(matrix, j, squares[j], task.options.damping, scale, norm)) bad = 1;
            ws.scale[j] = scale;
            ws.norm[j] = norm;
            ws.inverse_norm[j] = norm > 0 ? 1.0 / norm : 0.0;
        });
        bad = team.max(bad);
        team.sync();
        if constexpr (Matrix::shifts)
            if (task.extent.shifted())
                matrix.describe(team, task.envelope, ws.scale, ws.factor, ws.low, ws.high, ws.lags);
        return bad == 0;
    }
};

}  // namespace lsq
SW_END
