// The standard deviations of an answer.
#pragma once

#include "core/lsq/state.hpp"

SW_BEGIN
namespace lsq {

// The standard deviation of x where entries of b have deviation one and the set is what it is, in the
// caller's units: its square may be no number. With M = R^-1 (I - v v'/v'v) R^-T it is |A_P M e_p| for
// the unknown at p, which is M_pp^(1/2) without a penalty, and zero for those at bounds.
template <class State>
SW_CALL void deviations(State& s, double* out, bool known) {
    const auto& matrix = s.task.matrix;
    const int n = matrix.top.columns, count = known ? s.factor.count : 0;
    const double missing = known ? 0.0 : double_nan();
    s.team.each(n, [&](int j) { out[j] = missing; });
    s.team.sync();
    double *y = s.ws.z, *image = s.ws.v;
    const double* sum = s.ws.triangle.sum;
    for (int p = 0; p < count; ++p) {
        const int j = s.ws.order[p];
        s.team.each_short(count, [&](int q) { y[q] = q == p ? 1.0 : 0.0; });
        s.team.sync();
        s.factor.solve_with_r_transposed(y, y);
        double along = 0, size = 0, square = 0;
        if (sum) {
            s.team.lane_each(count, [&](int q) {
                along += y[q] * sum[q];
                size += sum[q] * sum[q];
            });
            along = s.team.lane_sum(along);
            size = s.team.lane_sum(size);
            s.team.sync();
            s.team.each_short(count, [&](int q) { y[q] -= along / size * sum[q]; });
            s.team.sync();
        }
        if (s.factor.penalty > 0 && !s.task.extent.gram_only) {
            const int length = s.task.extent.row_length();
            s.factor.solve_with_r(y, y);
            s.team.each(length, [&](int i) { image[i] = 0; });
            s.team.sync();
            subtract_columns(s.team, s.factor.positive(), count, y, image, length);
            s.team.each(matrix.top.rows, [&](int i) { square += s.ws.metric[i] * image[i] * image[i]; });
            square = s.team.sum(square);
        } else {
            s.team.lane_each(count, [&](int q) { square += y[q] * y[q]; });
            square = s.team.lane_sum(square);
        }
        s.team.sync();
        const double scale = s.task.scale_of(j);
        if (s.team.rank() == 0 && j < n) out[j] = square_root(square) * scale;
    }
    s.team.sync();
}

}  // namespace lsq
SW_END
