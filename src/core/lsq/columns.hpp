// Sweeps over a few long columns: products, sums, rotations. Two bodies each, as in vectors.hpp.
#pragma once

#include "core/lsq/vectors.hpp"

SW_BEGIN
namespace lsq {

// Columns by position: the p-th is at base + slot[p] * stride, non-zero within [low[slot], high[slot]), and
// multiplied with factor[slot]. Without slots the p-th is the p-th; without bounds it is `length` long;
// without factors it is as it is.
struct Columns {
    const double* base;
    int64_t stride;
    const int32_t* slot;
    const int32_t* low;
    const int32_t* high;
    const double* factor;
    int length;

    SW_HD int place(int position) const { return slot ? slot[position] : position; }
    SW_HD double factor_of(int position) const { return factor ? factor[place(position)] : 1.0; }
    SW_HD const double* at(int position) const { return base + place(position) * stride; }
    // Of the four positions from p on, the last for those past it.
    SW_HD void places(int p, int count, int* place) const {
        SW_UNROLL
        for (int q = 0; q < 4; ++q) place[q] = min_of(p + q, count - 1);
        if (!slot) return;
        SW_UNROLL
        for (int q = 0; q < 4; ++q) place[q] = slot[place[q]];
    }
    SW_HD int first(int position) const { return low ? low[place(position)] : 0; }
    SW_HD int last(int position) const { return low ? high[place(position)] : length; }
};

// v = column_p, zero where it is. No sync.
template <class Team>
SW_HD void copy_column(const Team& team, const Columns& columns, int p, double* v, int length) {
    const double* column = columns.at(p);
    const int first = columns.first(p), last = columns.last(p);
    const double factor = columns.factor_of(p);
    team.each(length, [&](int i) { v[i] = i >= first && i < last ? factor * column[i] : 0.0; });
}

// out[p] = column_p . v for p < count, v non-zero within [first, last). Ends in a sync.
template <class Team>
SW_CALL void dot_columns(const Team& team, const Columns columns, int count, const double* v, int first,
                         int last, double* out) {
#if defined(__CUDACC__)
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
#else
    int begin, end;
    team.chunk(count, begin, end);
    int p = begin;
    while (p < end) {
        // Dense columns go four at a time over the whole length; short ones alone over what overlaps.
        if (p + 4 <= end && !columns.factor) {
            const double* four[4];
            int shortest = last - first;
            for (int q = 0; q < 4; ++q) {
                four[q] = columns.at(p + q) + first;
                shortest = min_of(shortest, columns.last(p + q) - columns.first(p + q));
            }
            if (2 * shortest >= last - first) {
                const int64_t start = first & ~(padding - 1);
                for (int q = 0; q < 4; ++q) four[q] -= first - start;
                dot_four(four, v + start, padded(last) - start, out + p);
                p += 4;
                continue;
            }
        }
        const int from = max_of(first, columns.first(p)), to = min_of(last, columns.last(p));
        out[p] = to > from ? columns.factor_of(p) * dot(columns.at(p) + from, v + from, to - from) : 0.0;
        ++p;
    }
#endif
    team.sync();
}

#if defined(__CUDACC__)
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
#endif

#if defined(__CUDACC__)
// v -= sum of f[p] column_p of columns without bounds, by a wide team: rows of lanes share an entry of v,
// each with every so many of the columns. `scratch` has a number a member. Ends in a sync.
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
#endif

// v -= sum of f[p] column_p. Ends in a sync.
template <class Team>
SW_CALL void subtract_columns(const Team& team, const Columns columns, int count, const double* f, double* v,
                              int length) {
#if defined(__CUDACC__)
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
#else
    int begin, end;
    team.chunk(length, begin, end);
    int p = 0;
    while (p < count) {
        if (p + 4 <= count && !columns.factor) {
            int shortest = length;
            for (int q = 0; q < 4; ++q)
                shortest = min_of(shortest, columns.last(p + q) - columns.first(p + q));
            if (2 * shortest >= length) {
                const double *a0 = columns.at(p), *a1 = columns.at(p + 1), *a2 = columns.at(p + 2),
                             *a3 = columns.at(p + 3);
                const double f0 = f[p], f1 = f[p + 1], f2 = f[p + 2], f3 = f[p + 3];
                int i = begin;
                for (; i + 8 <= end; i += 8)
                    store(v + i, load(v + i) - ((f0 * load(a0 + i) + f1 * load(a1 + i)) +
                                                (f2 * load(a2 + i) + f3 * load(a3 + i))));
                for (; i < end; ++i) {
                    SW_SHORT_LOOP(i);
                    v[i] -= (f0 * a0[i] + f1 * a1[i]) + (f2 * a2[i] + f3 * a3[i]);
                }
                p += 4;
                continue;
            }
        }
        const int from = max_of(begin, columns.first(p)), to = min_of(end, columns.last(p));
        if (to > from) add_scaled(-f[p] * columns.factor_of(p), columns.at(p) + from, v + from, to - from);
        ++p;
    }
#endif
    team.sync();
}

// Applies the rotations of a removal to the columns base + t * stride, t = position .. count - 1: each member
// its own rows, one read and one write of every column. Ends in a sync.
template <class Team>
SW_CALL void rotate_columns(const Team& team, double* base, int64_t stride, int position, int count,
                            const double* cosine, const double* sine, int length) {
#if defined(__CUDACC__)
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
#else
    int begin, end;
    team.chunk(length, begin, end);
    for (int i = begin; i < end; i += 32) {
        const int parts = min_of(4, (end - i) / 8);
        double* column = base + position * stride + i;
        Pack carry[4] = {};
        for (int q = 0; q < parts; ++q) carry[q] = load(column + 8 * q);
        for (int t = position; t < count - 1; ++t, column += stride) {
            const double c = cosine[t], s = sine[t];
            for (int q = 0; q < parts; ++q) {
                const Pack next = load(column + stride + 8 * q);
                store(column + 8 * q, c * carry[q] + s * next);
                carry[q] = c * next - s * carry[q];
            }
        }
        for (int q = 0; q < parts; ++q) store(column + 8 * q, carry[q]);
    }
#endif
    team.sync();
}

}  // namespace lsq
SW_END
