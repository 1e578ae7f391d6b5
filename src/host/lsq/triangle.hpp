// R on a CPU: see core/lsq/triangle.hpp.
#pragma once

#include "core/lsq/triangle.hpp"
#include "host/lsq/vectors.hpp"

SW_BEGIN
namespace lsq {

inline void Triangle::rotate_rows(double* upper, double* lower, int count, double c, double s) {
    int q = 0;
    for (; q + 8 <= count; q += 8) {
        const Pack above = load(upper + q + 1), below = load(lower + q + 1);
        store(upper + q, c * above + s * below);
        store(lower + q + 1, c * below - s * above);
    }
    for (; q < count; ++q) {
        SW_SHORT_LOOP(q);
        const double above = upper[q + 1], below = lower[q + 1];
        upper[q] = c * above + s * below;
        lower[q + 1] = c * below - s * above;
    }
}

template <class Team>
SW_CALL void Triangle::solve_transposed(const Team& team, const Triangle r, int count, double* g) {
    const double* inverse_diagonal = r.storage->inverse_diagonal;
    (void)team;
    for (int t = 0; t < count; ++t) {
        const double h = g[t] * inverse_diagonal[t];
        g[t] = h;
        add_scaled(-h, r.row(t) + t + 1, g + t + 1, count - t - 1);
    }
}

template <class Team>
SW_CALL void Triangle::solve(const Team& team, const Triangle r, int count, double* g) {
    const double* inverse_diagonal = r.storage->inverse_diagonal;
    for (int t = count - 1; t >= 0; --t) {
        const double s = lane_dot(team, r.row(t) + t + 1, g + t + 1, count - t - 1);
        g[t] = (g[t] - s) * inverse_diagonal[t];
    }
}

template <class Team>
SW_CALL void Triangle::remove(const Team& team, const Triangle r, int count, int position) {
    if (team.row() != 0) return;
    double *target = r.storage->target, *inverse_diagonal = r.storage->inverse_diagonal;
    for (int t = 0; t < position; ++t) shift_left(team, r.row(t) + position, count - 1 - position);
    for (int t = position; t < count - 1; ++t) {
        double *upper = r.row(t), *lower = r.row(t + 1);
        const double a = upper[t + 1], b = lower[t + 1];
        // R's entries are between the dependence threshold and 2: no over- or underflow.
        const double inverse = inverse_root(a * a + b * b);
        const double c = a * inverse, s = b * inverse;
        rotate_rows(upper + t, lower + t, count - 1 - t, c, s);
        r.storage->cosine[t] = c;
        r.storage->sine[t] = s;
        inverse_diagonal[t] = inverse;
        const double above = target[t], below = target[t + 1];
        target[t] = c * above + s * below;
        target[t + 1] = c * below - s * above;
        if (double* sum = r.storage->sum) {
            const double first = sum[t], second = sum[t + 1];
            sum[t] = c * first + s * second;
            sum[t + 1] = c * second - s * first;
        }
    }
}

}  // namespace lsq
SW_END
