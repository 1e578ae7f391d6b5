// What a problem with bounds, a bound sum, weights of rows and a penalty is given, read and measured: b, or
// the normal equations; scales and norms of columns; and the rows beneath A.
#pragma once

#include "core/lsq/active_set.hpp"

SW_BEGIN
namespace lsq {

template <class Team, class Matrix, class Numbers>
struct GeneralColumns : ActiveSet<Team, Matrix, Numbers> {
    using Base = ActiveSet<Team, Matrix, Numbers>;
    using Base::b_norm;
    using Base::b_scale;
    using Base::factor;
    using Base::numbers;
    using Base::task;
    using Base::team;
    using Base::ws;

    SW_HD GeneralColumns(const Team& team, const Task<Matrix>& task) : Base(team, task) {}

protected:
    SW_HD bool read_b(const void* b, const double* weights, double least_size) {
        const int length = task.extent.row_length(), rows = task.matrix.top.rows, below = task.matrix.below;
        double magnitude;
        if (weights) {
            double highest = 0;
            team.each(rows, [&](int i) {
                const double value = weights[i] > 0 ? absolute(numbers.read(b, i)) : 0.0;
                highest = max_of(highest, is_finite(value) ? value : double_infinity);
            });
            magnitude = team.max(highest);
        } else {
            magnitude =
                numbers.with(b, [&](const auto* values) { return largest_magnitude(team, values, rows); });
        }
        if (!is_finite(magnitude)) return false;
        magnitude = max_of(magnitude, least_size);
        b_scale = magnitude >= 1e-290 ? power_below(magnitude) : 1.0;
        const int before = static_cast<int>(padded(task.matrix.zeros_before()));
        double square = 0;
        if (weights) {
            team.each(length, [&](int i) {
                const double weight = i < rows ? weights[i] * weights[i] : 0.0;
                const double value = i < rows && weight > 0 ? b_scale * numbers.read(b, i) : 0.0;
                ws.b[i] = value;
                ws.r[i] = weight * value;
                ws.metric[i] = weight;
                square += weight * value * value;
            });
        } else {
            double *r = ws.r, *own_b = ws.b, *metric = ws.metric;
            const double scale = b_scale;
            numbers.with(b, [&](const auto* values) {
                team.each(rows, [=](int i) { own_b[i] = r[i] = scale * double(values[i]); });
            });
            team.each(length - rows, [=](int i) { own_b[rows + i] = r[rows + i] = 0; });
            if (metric) team.each(length, [=](int i) { metric[i] = i < below ? 1.0 : 0.0; });
            team.sync();
            square = part_of_dot(team, r, r, length);
        }
        team.each(before, [&](int i) { ws.r[i - before] = 0; });
        team.each(task.matrix.zeros_after(), [&](int i) { ws.r[length + i] = 0; });
        team.sync();
        b_norm = square_root(team.sum(square));
        return true;
    }

    // Scales and norms, what the sum's row weighs, and A'b in ws.w, unscaled.
    SW_HD bool measure_columns(const double* weights) {
        const Matrix& matrix = task.matrix;
        const int n = matrix.columns;
        const bool shared = task.shared.scale != nullptr;
        double bad = 0;
        if (shared) {
            matrix.prepare(team);
            if (ws.square && !weights) {
                team.each(n,
                          [&](int j) { ws.square[j] = task.shared.top_norm[j] * task.shared.top_norm[j]; });
            } else if (weights) {
                const Shared& common = task.shared;
                const Columns all{common.columns, common.column_stride,    nullptr, common.low, common.high,
                                  nullptr,        task.extent.row_length()};
                const int rows = matrix.top.rows;
                for (int j = team.row(); j < n; j += team.rows()) {
                    const double* column = all.at(j);
                    double part = 0;
                    team.lane_each(rows, [&](int i) { part += ws.metric[i] * column[i] * column[i]; });
                    part = team.lane_sum(part);
                    if (team.lane() == 0) ws.square[j] = part;
                }
            }
        } else {
            matrix.measure(team, ws.r, task.envelope, ws.score, ws.w);
            if (weights) matrix.weighted_squares(team, ws.metric, ws.score);
            team.each(n, [&](int j) {
                double scale, norm;
                if (!scale_stacked(matrix, j, ws.score[j], scale, norm)) bad = 1;
                if (weights)
                    norm = ws.score[j] > 1e-200 && ws.score[j] < 1e200 ? scale * square_root(ws.score[j])
                                                                       : weighted_norm(j, scale);
                ws.scale[j] = scale;
                ws.norm[j] = norm;
                ws.inverse_norm[j] = norm > 0 ? 1.0 / norm : 0.0;
                if (ws.square) ws.square[j] = norm * norm;
            });
        }
        bad = team.max(bad);
        team.sync();
        if (bad != 0) return false;
        if (ws.square) add_rows_beneath(shared);
        return true;
    }

    // Of a scaled column whose own square is no number.
    SW_CALL double weighted_norm(int j, double scale) const {
        const Matrix& matrix = task.matrix;
        double square = 0;
        for (int i = 0; i < matrix.top.rows && j < matrix.top.columns; ++i) {
            const double entry = matrix.top.entry(i, j) * scale;
            square += ws.metric[i] * entry * entry;
        }
        return square_root(square);
    }

    // The squares of the rows beneath A.
    SW_HD void add_rows_beneath(bool shared) {
        const Matrix& matrix = task.matrix;
        const int n = matrix.columns;
        if (matrix.summed) {
            double row_weight = weight_of_sum();
            factor.row_weight = row_weight;
            if (team.rank() == 0) ws.metric[matrix.below] = row_weight;
        }
        team.sync();
        team.each(n, [&](int j) {
            if (ws.penalty_square) {
                ws.penalty_square[j] =
                    shared ? task.shared.penalty_diagonal[j] : square_in_penalty(matrix, j, ws.scale[j]);
            }
            if (matrix.summed) {
                ws.sum_of[j] = task.scale_of(j) * matrix.coefficient(j);
            }
        });
        team.sync();
    }

    // A power of four near the mean square of the largest column's entries, over the largest coefficient's:
    // the row then counts as much as one of A.
    SW_HD double weight_of_sum() {
        const Matrix& matrix = task.matrix;
        double highest = 0, coefficient = 0;
        team.each(matrix.top.columns, [&](int j) {
            const double scale = task.scale_of(j);
            if (scale > 0) highest = max_of(highest, ws.square[j] / (scale * scale));
            coefficient = max_of(coefficient, matrix.coefficient(j));
        });
        highest = team.max(highest);
        coefficient = team.max(coefficient);
        const double root =
            highest > 0 ? square_root(highest / max_of(matrix.top.rows, 1)) / coefficient : 1 / coefficient;
        const double power = power_below(root);
        return 1 / (power * power);
    }

    // Normal equations in place of A and b: scales, norms, and A'b in ws.w.
    SW_HD bool read_gram(const Constraints& constraints, int64_t system) {
        const int n = task.matrix.top.columns, all = this->columns();
        const double *gram = constraints.gram + system * constraints.gram_stride,
                     *linear = constraints.linear + system * constraints.linear_stride;
        double odd = all_finite(team, gram, static_cast<int64_t>(n) * n) ? 0.0 : 1.0, highest = 0;
        this->given_gram = gram;
        team.each(all, [&](int j) { ws.has_row[j] = 0; });
        team.each(all, [&](int j) {
            const double square = j < n ? gram[static_cast<int64_t>(j) * n + j] : 0.0,
                         c = j < n ? linear[j] : 0.0;
            odd += c - c;
            double scale = square > 0 && is_finite(square) ? power_below(square_root(square)) : 0.0;
            if (scale == 0 && task.matrix.summed) scale = 1;
            ws.scale[j] = scale;
            ws.norm[j] = square > 0 ? scale * square_root(square) : 0.0;
            ws.inverse_norm[j] = ws.norm[j] > 0 ? 1.0 / ws.norm[j] : 0.0;
            if (ws.square) ws.square[j] = ws.norm[j] * ws.norm[j];
            highest = max_of(highest, absolute(c) * scale);
        });
        odd = team.max(odd == 0 ? 0.0 : 1.0);
        highest = team.max(highest);
        team.sync();
        if (odd != 0 || !is_finite(highest)) return false;
        b_scale = highest >= 1e-290 ? power_below(highest) : 1.0;
        team.each(all, [&](int j) { ws.w[j] = j < n ? b_scale * linear[j] : 0.0; });
        const double given =
            constraints.squared_b ? constraints.squared_b[system * constraints.squared_b_stride] : 0.0;
        b_norm = given > 0 ? b_scale * square_root(given) : b_scale * highest;
        team.each(task.extent.row_length(), [&](int i) {
            ws.b[i] = ws.r[i] = 0;
            if (ws.metric) ws.metric[i] = 0;
        });
        team.sync();
        if (ws.square) add_rows_beneath(false);
        return true;
    }
};

}  // namespace lsq
SW_END
