// A problem with x >= 0 and one lambda from its start to its answer. (With more than that: general.hpp.)
#pragma once

#include "core/lsq/active_set.hpp"
#include "core/lsq/judge.hpp"

SW_BEGIN
namespace lsq {

template <class State>
SW_HD void run_plain(State& s, const void* b, WarmStart warm) {
    if (!begin_plain(s, b)) {
        s.tally.status = non_finite;
        return;
    }
    s.best = s.squared_residual;
    if (s.b_norm == 0) {
        s.team.each(s.columns(), [&](int j) { s.ws.w[j] = 0; });
        s.team.sync();
        return;
    }
    s.tally.status = iterate(s, warm.values || warm.marks ? start_plain(s, warm) : Pending::nothing);
    finish(s);
}

// Scales b, measures the columns, and finds the dual of x = 0. False where something is not finite.
template <class State>
SW_HD bool begin_plain(State& s, const void* b) {
    const auto& matrix = s.task.matrix;
    const int length = s.task.extent.row_length();
    s.team.each_short(4, [&](int k) { s.ws.costs[k] = 0; });
    const double magnitude =
        s.numbers.with(b, [&](const auto* values) { return largest_magnitude(s.team, values, matrix.rows); });
    if (!is_finite(magnitude)) return false;
    s.b_scale = magnitude >= smallest_size ? power_below(magnitude) : 0.0;
    double *r = s.ws.r, *own_b = s.ws.b;
    const double scale = s.b_scale;
    const int rows = matrix.rows;
    // Without a condition a compiler makes vectors of it.
    s.numbers.with(b, [&](const auto* values) {
        s.team.each(rows, [=](int i) { own_b[i] = r[i] = scale * double(values[i]); });
    });
    s.team.each(length - rows, [=](int i) { own_b[rows + i] = r[rows + i] = 0.0; });
    const int before = static_cast<int>(padded(matrix.zeros_before()));
    s.team.each(before, [=](int i) { r[i - before] = 0; });
    s.team.each(matrix.zeros_after(), [=](int i) { r[length + i] = 0; });
    int32_t *state = s.ws.state, *slot = s.ws.slot;
    s.team.each(s.columns(), [=](int j) { state[j] = zero; });
    if (!s.task.shared.columns) s.team.each(s.task.extent.positions(), [=](int p) { slot[p] = p; });
    if (s.task.extent.square_q) square_identity(s);
    s.team.sync();
    s.squared_residual = s.team.sum(part_of_dot(s.team, r, r, length));
    s.b_norm = square_root(s.squared_residual);
    if (s.task.shared.scale) {
        matrix.prepare(s.team);
        if (s.b_norm > 0) matrix.multiply(s.team, s.ws.r, s.task.envelope, s.ws.w, s.ws.scratch);
    } else if (!find_norms(s)) {
        return false;
    }
    ++s.tally.passes;
    s.team.each(s.columns(), [&](int j) { s.ws.gate[j] = s.task.inverse_norm_of(j); });
    scale_dual(s);
    mask_scores(s);
    s.from_gram = s.task.shared.gram != nullptr;
    if (s.from_gram) s.team.each(s.columns(), [&](int j) { s.ws.c[j] = s.ws.w[j]; });
    s.fresh = true;
    s.team.sync();
    return true;
}

template <class State>
SW_HD bool find_norms(State& s) {
    const auto& matrix = s.task.matrix;
    double* squares = s.ws.score;
    matrix.measure(s.team, s.ws.r, s.task.envelope, squares, s.ws.w);
    double bad = 0;
    s.team.each(matrix.columns, [&](int j) {
        double scale, norm;
        if (!scale_column(matrix, j, squares[j], s.task.options.damping, scale, norm)) bad = 1;
        s.ws.scale[j] = scale;
        s.ws.norm[j] = norm;
        s.ws.inverse_norm[j] = norm > 0 ? 1.0 / norm : 0.0;
    });
    bad = s.team.max(bad);
    s.team.sync();
    if constexpr (State::shifts)
        if (s.task.extent.shifted())
            matrix.describe(s.team, s.task.envelope, s.ws.scale, s.ws.factor, s.ws.low, s.ws.high, s.ws.lags);
    return bad == 0;
}

// The positive set of a neighbour: its columns enter at once; what then is negative leaves.
template <class State>
SW_CALL Pending start_plain(State& s, WarmStart warm) {
    for (int j = 0; j < s.columns(); ++j) {
        const bool wanted = warm.values ? s.numbers.read(warm.values, j) > 0 : warm.marks[j] != 0;
        if (!wanted || s.task.norm_of(j) == 0) continue;
        if (insert_alone(s, j) != Entry::entered) continue;
        const double value =
            warm.values ? s.numbers.read(warm.values, j) / s.task.scale_of(j) * s.b_scale : 0.0;
        if (s.team.rank() == 0) s.ws.x[s.factor.count - 1] = is_finite(value) ? value : 0.0;
        s.team.sync();
    }
    if (s.factor.count == 0) return Pending::nothing;
    s.fresh = false;
    if (warm.values) return Pending::solution;
    for (bool all_positive = false; !all_positive && s.factor.count > 0;) {
        s.factor.solve();
        const int before = s.factor.count;
        s.team.each_short(before, [&](int p) { s.ws.x[p] = s.ws.z[p] > 0 ? s.ws.z[p] : 0.0; });
        s.team.sync();
        remove_zeros(s);
        all_positive = s.factor.count == before;
    }
    finish_step(s);
    return Pending::nothing;
}

// x, w and the residual norm in the caller's units, into arrays of the caller's kind.
template <class State>
SW_HD void answer_plain(State& s, void* x, void* dual, uint8_t* in_factor, double& residual) {
    const double missing = s.tally.status == non_finite ? double_nan() : 0.0;
    s.team.each(s.columns(), [&](int j) { s.numbers.write(x, j, missing); });
    s.team.each(s.columns(), [&](int j) { in_factor[j] = 0; });
    if (s.tally.status == non_finite || s.b_norm == 0) {
        s.team.each(s.columns(), [&](int j) { s.numbers.write(dual, j, missing); });
    } else {
        const double* scale = s.task.shared.scale ? s.task.shared.scale : s.ws.scale;
        const double b_unscale = 1 / s.b_scale;
        s.team.each(s.columns(), [&](int j) {
            s.numbers.write(dual, j, scale[j] > 0 ? s.ws.w[j] / scale[j] * b_unscale : 0.0);
        });
    }
    s.team.sync();
    bool fits = true;
    s.team.each_short(s.factor.count, [&](int p) {
        const int j = s.ws.order[p];
        const double value = s.numbers.rounded(s.ws.x[p] * (s.task.scale_of(j) / s.b_scale));
        s.numbers.write(x, j, value);
        in_factor[j] = 1;
        fits = fits && is_finite(value);
    });
    residual = missing;
    if (s.b_norm > 0 && s.tally.status != non_finite) {
        // An x beyond the largest number of its kind spoils the sum, so that all members learn of it.
        const double part = part_of_dot(s.team, s.ws.r, s.ws.r, s.task.extent.row_length());
        residual = square_root(s.team.sum(fits ? part : double_nan())) / s.b_scale;
        if (residual != residual) s.tally.status = non_finite;
    }
    s.team.sync();
}

// Of a finished run: its violation, and the status that follows.
template <class State>
SW_HD double judge_plain(State& s, const Job& job) {
    if (s.tally.status == non_finite) return double_nan();
    Measured measured{max_of(0.0, max_of(s.top, s.slope)), s.b_norm, s.size, s.b_norm,
                      s.b_norm + square_root(max_of(0.0, s.squared_residual))};
    if (!s.numbers.rounds) measured.decrement = decrement(s);
    s.tally.status = judged_status(job, measured, s.numbers.rounds, s.tally.status);
    return violation_of(job, measured);
}

}  // namespace lsq
SW_END
