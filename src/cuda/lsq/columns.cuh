// Sweeps over a few long columns by a device's team: see core/lsq/columns.hpp.
#pragma once

#include "core/lsq/columns.hpp"
#include "cuda/lsq/vectors.cuh"

SW_BEGIN
namespace lsq {

template <class Team>
SW_CALL void dot_columns(const Team& team, const Columns columns, int count, const double* v, int first,
                         int last, double* out) {
    // A row of lanes takes four columns at a time, and four rows of them: so many loads overlap.
    for (int p = 4 * team.row(); p < count; p += 4 * team.rows()) {
        int place[4], from[4], to[4], start = last, end = first;
        const double* column[4];
        double sum[4];
        columns.places(p, count, place);
        SW_UNROLL
        for (int q = 0; q < 4; ++q) {
            from[q] = columns.low ? max_of(first, static_cast<int>(columns.low[place[q]])) : first;
            to[q] = columns.low ? min_of(last, static_cast<int>(columns.high[place[q]])) : last;
            column[q] = columns.base + place[q] * columns.stride;
            start = min_of(start, from[q]);
            end = max_of(end, to[q]);
            sum[q] = 0;
        }
        SW_ROLLED
        for (int i = start + team.lane(); i < end; i += 4 * team.lanes()) {
            double left[4][4], right[4];
            SW_UNROLL
            for (int u = 0; u < 4; ++u) {
                const int at = i + u * team.lanes();
                right[u] = at < end ? v[at] : 0.0;
                SW_UNROLL
                for (int q = 0; q < 4; ++q) left[u][q] = at >= from[q] && at < to[q] ? column[q][at] : 0.0;
            }
            SW_UNROLL
            for (int u = 0; u < 4; ++u) {
                SW_UNROLL
                for (int q = 0; q < 4; ++q) sum[q] += left[u][q] * right[u];
            }
        }
        SW_UNROLL
        for (int q = 0; q < 4; ++q) sum[q] = team.lane_sum(sum[q]);
        SW_UNROLL
        for (int q = 0; q < 4; ++q)
            if (team.lane() == q % team.lanes() && p + q < count)
                out[p + q] = columns.factor ? columns.factor[place[q]] * sum[q] : sum[q];
    }
    team.sync();
}

// v -= sum of f[p] column_p for short columns: as many rows as there are lanes look for those that reach
// them. No sync.
template <class Team>
SW_HD void subtract_short_columns(const Team& team, const Columns& columns, int count, const double* f,
                                  double* v, int length) {
    const int lanes = team.lanes(), lane = team.lane();
    SW_ROLLED
    for (int start = team.row() * lanes; start < length; start += team.rows() * lanes) {
        const int i = start + lane;
        double sum = 0;
        SW_ROLLED
        for (int base = 0; base < count; base += lanes) {
            const int p = base + lane, place = p < count ? columns.place(p) : 0;
            const int low = p < count ? columns.low[place] : 0, high = p < count ? columns.high[place] : 0;
            const double weight = p < count ? f[p] * columns.factor[place] : 0.0;
            unsigned int reaching = team.lane_votes(low < min_of(start + lanes, high) && high > start);
            SW_ROLLED
            while (reaching) {
                double part[4];
                SW_UNROLL
                for (int q = 0; q < 4; ++q) {
                    const int there = lowest_bit(reaching);  // of none: any, taken for empty
                    const int from = team.lane_pick(low, there);
                    const int to = reaching ? team.lane_pick(high, there) : from;
                    const double* column = columns.base + team.lane_pick(place, there) * columns.stride;
                    const double f_there = team.lane_pick(weight, there);
                    part[q] = i >= from && i < to ? f_there * column[i] : 0.0;
                    reaching &= reaching - 1;
                }
                sum += (part[0] + part[1]) + (part[2] + part[3]);
            }
        }
        if (i < length) v[i] -= sum;
    }
}

template <class Team>
SW_CALL void subtract_in_slices(const Team& team, const Columns columns, int count, const double* f,
                                double* v, int length, double* scratch) {
    const int lanes = team.lanes(), pieces = (length + lanes - 1) / lanes, slices = team.rows() / pieces;
    const int i = team.row() % pieces * lanes + team.lane(), slice = team.row() / pieces;
    if (slice < slices && i < length) {
        double s[4] = {0, 0, 0, 0};
        SW_UNROLL_BY(4)
        for (int p = 4 * slice; p < count; p += 4 * slices) {
            int place[4];
            columns.places(p, count, place);
            SW_UNROLL
            for (int q = 0; q < 4; ++q) {
                const double weight = p + q < count ? f[min_of(p + q, count - 1)] : 0.0;
                s[q] += weight * columns.base[place[q] * columns.stride + i];
            }
        }
        scratch[slice * pieces * lanes + i] = (s[0] + s[1]) + (s[2] + s[3]);
    }
    team.sync();
    team.each(length, [=](int i) {
        double sum = 0;
        for (int slice = 0; slice < slices; ++slice) sum += scratch[slice * pieces * lanes + i];
        v[i] -= sum;
    });
    team.sync();
}

template <class Team>
SW_CALL void subtract_columns(const Team& team, const Columns columns, int count, const double* f, double* v,
                              int length) {
    if (columns.factor) {
        subtract_short_columns(team, columns, count, f, v, length);
        team.sync();
        return;
    }
    // A member takes two rows at a time and four columns: so many loads overlap.
    SW_ROLLED
    for (int i = team.rank(); i < length; i += 2 * team.size()) {
        const int row[2] = {i, i + team.size()};
        double s[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
        SW_UNROLL_BY(2)
        for (int p = 0; p < count; p += 4) {
            int place[4], from[4], to[4];
            double weight[4], entry[2][4];
            columns.places(p, count, place);
            SW_UNROLL
            for (int q = 0; q < 4; ++q) {
                from[q] = columns.low ? columns.low[place[q]] : 0;
                to[q] = p + q >= count ? 0 : columns.low ? columns.high[place[q]] : length;
                weight[q] = f[min_of(p + q, count - 1)];
            }
            SW_UNROLL
            for (int q = 0; q < 4; ++q) {
                const double* column = columns.base + place[q] * columns.stride;
                SW_UNROLL
                for (int u = 0; u < 2; ++u)
                    entry[u][q] = row[u] >= from[q] && row[u] < to[q] ? column[row[u]] : 0.0;
            }
            SW_UNROLL
            for (int q = 0; q < 4; ++q) {
                s[0][q] += weight[q] * entry[0][q];
                s[1][q] += weight[q] * entry[1][q];
            }
        }
        v[row[0]] -= (s[0][0] + s[0][1]) + (s[0][2] + s[0][3]);
        if (row[1] < length) v[row[1]] -= (s[1][0] + s[1][1]) + (s[1][2] + s[1][3]);
    }
    team.sync();
}

template <class Team>
SW_CALL void rotate_columns(const Team& team, double* base, int64_t stride, int position, int count,
                            const double* cosine, const double* sine, int length) {
    team.each(length, [&](int i) {
        double carry = base[position * stride + i];
        int t = position;
        for (; t + 4 < count; t += 4) {
            double next[4];
            SW_UNROLL
            for (int u = 0; u < 4; ++u) next[u] = base[(t + u + 1) * stride + i];
            SW_UNROLL
            for (int u = 0; u < 4; ++u) {
                base[(t + u) * stride + i] = cosine[t + u] * carry + sine[t + u] * next[u];
                carry = cosine[t + u] * next[u] - sine[t + u] * carry;
            }
        }
        for (; t < count - 1; ++t) {
            const double next = base[(t + 1) * stride + i];
            base[t * stride + i] = cosine[t] * carry + sine[t] * next;
            carry = cosine[t] * next - sine[t] * carry;
        }
        base[(count - 1) * stride + i] = carry;
    });
    team.sync();
}

}  // namespace lsq
SW_END
