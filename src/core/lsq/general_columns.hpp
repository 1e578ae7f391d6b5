// What a problem with bounds, a bound sum, weights of rows and a penalty is given, read and measured: b, or
// the normal equations; scales and norms of columns; and the rows beneath A.
#pragma once

#include "core/lsq/active_set.hpp"
#include "core/lsq/sum.hpp"

SW_BEGIN
namespace lsq {

template <class State>
SW_HD bool read_b(State& s, const void* b, const double* weights, double least_size) {
    const int length = s.task.extent.row_length(), rows = s.task.matrix.top.rows, below = s.task.matrix.below;
    double magnitude;
    if (weights) {
        double highest = 0;
        s.team.each(rows, [&](int i) {
            const double value = weights[i] > 0 ? absolute(s.numbers.read(b, i)) : 0.0;
            highest = max_of(highest, is_finite(value) ? value : double_infinity);
        });
        magnitude = s.team.max(highest);
    } else {
        magnitude =
            s.numbers.with(b, [&](const auto* values) { return largest_magnitude(s.team, values, rows); });
    }
    if (!is_finite(magnitude)) return false;
    magnitude = max_of(magnitude, least_size);
    s.b_scale = magnitude >= 1e-290 ? power_below(magnitude) : 1.0;
    const int before = static_cast<int>(padded(s.task.matrix.zeros_before()));
    double square = 0;
    if (weights) {
        s.team.each(length, [&](int i) {
            const double weight = i < rows ? weights[i] * weights[i] : 0.0;
            const double value = i < rows && weight > 0 ? s.b_scale * s.numbers.read(b, i) : 0.0;
            s.ws.b[i] = value;
            s.ws.r[i] = weight * value;
            s.ws.metric[i] = weight;
            square += weight * value * value;
        });
    } else {
        double *r = s.ws.r, *own_b = s.ws.b, *metric = s.ws.metric;
        const double scale = s.b_scale;
        s.numbers.with(b, [&](const auto* values) {
            s.team.each(rows, [=](int i) { own_b[i] = r[i] = scale * double(values[i]); });
        });
        s.team.each(length - rows, [=](int i) { own_b[rows + i] = r[rows + i] = 0; });
        if (metric) s.team.each(length, [=](int i) { metric[i] = i < below ? 1.0 : 0.0; });
        s.team.sync();
        square = part_of_dot(s.team, r, r, length);
    }
    s.team.each(before, [&](int i) { s.ws.r[i - before] = 0; });
    s.team.each(s.task.matrix.zeros_after(), [&](int i) { s.ws.r[length + i] = 0; });
    s.team.sync();
    s.b_norm = square_root(s.team.sum(square));
    return true;
}

// Scales and norms, what the sum's row weighs, and A'b in ws.w, unscaled.
template <class State>
SW_HD bool measure_columns(State& s, const double* weights) {
    const auto& matrix = s.task.matrix;
    const int n = matrix.columns;
    const bool shared = s.task.shared.scale != nullptr;
    double bad = 0;
    if (shared) {
        matrix.prepare(s.team);
        if (s.ws.square && !weights) {
            s.team.each(
                n, [&](int j) { s.ws.square[j] = s.task.shared.top_norm[j] * s.task.shared.top_norm[j]; });
        } else if (weights) {
            const Shared& common = s.task.shared;
            const Columns all{common.columns, common.column_stride,      nullptr, common.low, common.high,
                              nullptr,        s.task.extent.row_length()};
            const int rows = matrix.top.rows;
            for (int j = s.team.row(); j < n; j += s.team.rows()) {
                const double* column = all.at(j);
                double part = 0;
                s.team.lane_each(rows, [&](int i) { part += s.ws.metric[i] * column[i] * column[i]; });
                part = s.team.lane_sum(part);
                if (s.team.lane() == 0) s.ws.square[j] = part;
            }
        }
    } else {
        matrix.measure(s.team, s.ws.r, s.task.envelope, s.ws.score, s.ws.w);
        if (weights) matrix.weighted_squares(s.team, s.ws.metric, s.ws.score);
        s.team.each(n, [&](int j) {
            double scale, norm;
            if (!scale_stacked(matrix, j, s.ws.score[j], scale, norm)) bad = 1;
            if (weights)
                norm = s.ws.score[j] > 1e-200 && s.ws.score[j] < 1e200 ? scale * square_root(s.ws.score[j])
                                                                       : weighted_norm(s, j, scale);
            s.ws.scale[j] = scale;
            s.ws.norm[j] = norm;
            s.ws.inverse_norm[j] = norm > 0 ? 1.0 / norm : 0.0;
            if (s.ws.square) s.ws.square[j] = norm * norm;
        });
    }
    bad = s.team.max(bad);
    s.team.sync();
    if (bad != 0) return false;
    if (s.ws.square) add_rows_beneath(s, shared);
    return true;
}

// The norm of a scaled column in the metric, where its unscaled square is beyond the range of numbers.
template <class State>
SW_CALL double weighted_norm(const State& s, int j, double scale) {
    const auto& matrix = s.task.matrix;
    double square = 0;
    for (int i = 0; i < matrix.top.rows && j < matrix.top.columns; ++i) {
        const double entry = matrix.top.entry(i, j) * scale;
        square += s.ws.metric[i] * entry * entry;
    }
    return square_root(square);
}

// The squares of the rows beneath A.
template <class State>
SW_HD void add_rows_beneath(State& s, bool shared) {
    const auto& matrix = s.task.matrix;
    const int n = matrix.columns;
    if (matrix.summed) {
        double row_weight = weight_of_sum(s);
        s.factor.row_weight = row_weight;
        if (s.team.rank() == 0) s.ws.metric[matrix.below] = row_weight;
    }
    s.team.sync();
    s.team.each(n, [&](int j) {
        if (s.ws.penalty_square) {
            s.ws.penalty_square[j] =
                shared ? s.task.shared.penalty_diagonal[j] : square_in_penalty(matrix, j, s.ws.scale[j]);
        }
        if (matrix.summed) {
            s.ws.sum_of[j] = s.task.scale_of(j) * matrix.coefficient(j);
        }
    });
    s.team.sync();
}

template <class State>
SW_HD double weight_of_sum(State& s) {
    const auto& matrix = s.task.matrix;
    double highest = 0, coefficient = 0;
    s.team.each(matrix.top.columns, [&](int j) {
        const double scale = s.task.scale_of(j);
        if (scale > 0) highest = max_of(highest, s.ws.square[j] / (scale * scale));
        coefficient = max_of(coefficient, matrix.coefficient(j));
    });
    highest = s.team.max(highest);
    coefficient = s.team.max(coefficient);
    return weight_of_row(highest, matrix.top.rows, coefficient);
}

// Normal equations in place of A and b: scales, norms, and A'b in ws.w.
template <class State>
SW_HD bool read_gram(State& s, const Constraints& constraints, int64_t system) {
    const int n = s.task.matrix.top.columns, all = s.columns();
    const double *gram = constraints.gram + system * constraints.gram_stride,
                 *linear = constraints.linear + system * constraints.linear_stride;
    double odd = all_finite(s.team, gram, static_cast<int64_t>(n) * n) ? 0.0 : 1.0, highest = 0;
    s.given.gram = gram;
    s.team.each(all, [&](int j) { s.ws.has_row[j] = 0; });
    s.team.each(all, [&](int j) {
        const double square = j < n ? gram[static_cast<int64_t>(j) * n + j] : 0.0,
                     c = j < n ? linear[j] : 0.0;
        odd += c - c;
        double scale = square > 0 && is_finite(square) ? power_below(square_root(square)) : 0.0;
        if (scale == 0 && s.task.matrix.summed) scale = 1;
        s.ws.scale[j] = scale;
        s.ws.norm[j] = square > 0 ? scale * square_root(square) : 0.0;
        s.ws.inverse_norm[j] = s.ws.norm[j] > 0 ? 1.0 / s.ws.norm[j] : 0.0;
        if (s.ws.square) s.ws.square[j] = s.ws.norm[j] * s.ws.norm[j];
        highest = max_of(highest, absolute(c) * scale);
    });
    odd = s.team.max(odd == 0 ? 0.0 : 1.0);
    highest = s.team.max(highest);
    s.team.sync();
    if (odd != 0 || !is_finite(highest)) return false;
    s.b_scale = highest >= 1e-290 ? power_below(highest) : 1.0;
    s.team.each(all, [&](int j) { s.ws.w[j] = j < n ? s.b_scale * linear[j] : 0.0; });
    const double given =
        constraints.squared_b ? constraints.squared_b[system * constraints.squared_b_stride] : 0.0;
    s.b_norm = given > 0 ? s.b_scale * square_root(given) : s.b_scale * highest;
    s.team.each(s.task.extent.row_length(), [&](int i) {
        s.ws.b[i] = s.ws.r[i] = 0;
        if (s.ws.metric) s.ws.metric[i] = 0;
    });
    s.team.sync();
    if (s.ws.square) add_rows_beneath(s, false);
    return true;
}

}  // namespace lsq
SW_END
