// Products with the matrices of core/lsq by the lanes of a device's team.
#pragma once

#include "core/lsq/convolution.hpp"
#include "core/lsq/dense.hpp"
#include "core/lsq/stacked.hpp"

SW_BEGIN
namespace lsq {

template <class Scalar>
SW_HD double Dense<Scalar>::slice_of_product(const double* r, int j, int first, int last, int slices) const {
    constexpr int ahead = 16;
    double sum[4] = {0, 0, 0, 0};
    const Scalar* a = values + first * stride + j;
    const int64_t step = slices * stride;
    SW_ROLLED
    for (int i = first; i < last; i += ahead * slices, a += ahead * step) {
        Scalar entry[ahead];
        SW_UNROLL
        for (int u = 0; u < ahead; ++u) entry[u] = i + u * slices < last ? a[u * step] : Scalar(0);
        SW_UNROLL
        for (int u = 0; u < ahead; ++u) sum[u % 4] += entry[u] * r[min_of(i + u * slices, rows - 1)];
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

template <class Scalar>
template <class Team>
SW_CALL void Dense<Scalar>::measure(const Team& team, const double* r, Envelope envelope, double* squares,
                                    double* sums) const {
    team.each(columns, [&](int j) {
        int low = rows, high = 0;
        double square = 0, sum = 0;
        SW_UNROLL_BY(16)
        for (int i = 0; i < rows; ++i) {
            const double a = values[i * stride + j];
            if (a != 0) {
                if (low > i) low = i;
                high = i + 1;
            }
            square += a * a;
            sum += a * r[i];
        }
        envelope.low[j] = min_of(low, high);
        envelope.high[j] = high;
        squares[j] = square;
        sums[j] = sum;
    });
    team.sync();
}

template <class Scalar>
template <class Team>
SW_CALL void Dense<Scalar>::multiply(const Team& team, const double* r, Envelope envelope, double* sums,
                                     double* scratch) const {
    // Where there are more members than columns, several share one, each with every so many of its rows.
    const int slices = max_of(1, team.size() / max_of(columns, 1));
    if (slices == 1) {
        // The lanes of a row go down the same rows, where any of their columns is not zero.
        for (int base = team.row() * team.lanes(); base < columns; base += team.size()) {
            const int j = min_of(base + team.lane(), columns - 1);
            const int first = team.lane_min_int(envelope.low[j]), last = team.lane_max_int(envelope.high[j]);
            const double sum = slice_of_product(r, j, first, last, 1);
            if (base + team.lane() < columns) sums[j] = sum;
        }
    } else {
        const int slice = team.rank() / columns, j = team.rank() % columns;
        if (slice < slices)
            scratch[team.rank()] = slice_of_product(r, j, envelope.low[j] + slice, envelope.high[j], slices);
        team.sync();
        team.each(columns, [&](int column) {
            double sum = 0;
            for (int s = 0; s < slices; ++s) sum += scratch[s * columns + column];
            sums[column] = sum;
        });
    }
    team.sync();
}

template <class Scalar>
template <class Team>
SW_CALL void Dense<Scalar>::gather(const Team& team, Envelope envelope, int j, double scale, double* out,
                                   int length) const {
    (void)length;
    const int last = envelope.high[j], step = team.lanes();
    SW_ROLLED
    for (int i = envelope.low[j] + team.lane(); i < last; i += 8 * step) {
        double a[8];
        SW_UNROLL
        for (int u = 0; u < 8; ++u) a[u] = i + u * step < last ? values[(i + u * step) * stride + j] : 0;
        SW_UNROLL
        for (int u = 0; u < 8; ++u)
            if (i + u * step < last) out[i + u * step] = scale * a[u];
    }
}

template <class Scalar>
SW_HD void Dense<Scalar>::bounds(Envelope envelope, int j, const double* column, int32_t& low,
                                 int32_t& high) const {
    (void)column;
    low = envelope.low[j];
    high = envelope.high[j];
}

template <class Scalar>
template <class Team>
SW_CALL void Convolution<Scalar>::multiply(const Team& team, const double* r, Envelope envelope, double* sums,
                                           double*) const {
    const double *shifted = r - origin, *samples = copy, unscale = samples[length + 1];
    const int first = envelope.low[0], last = envelope.high[0];
    // A member takes two columns at a time: each sample that it reads serves both.
    SW_ROLLED
    for (int j = team.rank(); j < columns; j += 2 * team.size()) {
        const int k = min_of(j + team.size(), columns - 1);
        double s[2][2] = {{0, 0}, {0, 0}};
        SW_ROLLED
        for (int t = first; t < last; t += 8) {
            SW_UNROLL
            for (int u = 0; u < 8; ++u) {
                if (t + u >= last) continue;
                const double sample = samples[t + u];
                s[0][u % 2] += sample * shifted[j + t + u];
                s[1][u % 2] += sample * shifted[k + t + u];
            }
        }
        sums[j] = (s[0][0] + s[0][1]) * unscale;
        if (k == j + team.size()) sums[k] = (s[1][0] + s[1][1]) * unscale;
    }
    team.sync();
}

template <class Scalar>
template <class Team>
SW_CALL void Convolution<Scalar>::gather(const Team& team, Envelope envelope, int j, double scale,
                                         double* out, int padded_length) const {
    int32_t first, last;
    bounds(envelope, j, nullptr, first, last);
    (void)padded_length;
    for (int i = first + team.lane(); i < last; i += team.lanes())
        out[i] = scale * double(pulse[i - j + origin]);
}

template <class Top>
template <class Team>
SW_CALL void Stacked<Top>::weighted_squares(const Team& team, const double* weights, double* squares) const {
    team.each(columns, [&](int j) {
        double square = 0;
        if (j < top.columns)
            for (int i = 0; i < top.rows; ++i) {
                const double a = top.entry(i, j);
                square += weights[i] * a * a;
            }
        squares[j] = square;
    });
    team.sync();
}

template <class Top>
template <class Team>
SW_CALL void Stacked<Top>::gather(const Team& team, Envelope envelope, int j, double scale, double* out,
                                  int length) const {
    if (rows == 0) return;
    if (rows_beneath() == 0 && j < top.columns) return top.gather(team, envelope, j, scale, out, length);
    (void)envelope;
    for (int i = team.lane(); i < length; i += team.lanes()) out[i] = i < rows ? scale * entry(i, j) : 0.0;
}

}  // namespace lsq
SW_END
