// Sweeps over a few long columns by a team of CPU threads: see core/lsq/columns.hpp.
#pragma once

#include "core/lsq/columns.hpp"
#include "host/lsq/vectors.hpp"

SW_BEGIN
namespace lsq {

template <class Team>
SW_CALL void dot_columns(const Team& team, const Columns columns, int count, const double* v, int first,
                         int last, double* out) {
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
    team.sync();
}

template <class Team>
SW_CALL void subtract_columns(const Team& team, const Columns columns, int count, const double* f, double* v,
                              int length) {
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
    team.sync();
}

template <class Team>
SW_CALL void rotate_columns(const Team& team, double* base, int64_t stride, int position, int count,
                            const double* cosine, const double* sine, int length) {
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
    team.sync();
}

}  // namespace lsq
SW_END
