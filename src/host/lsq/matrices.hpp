// Products with the matrices of core/lsq by a team of CPU threads, in vector registers.
#pragma once

#include "core/common/simd.hpp"
#include "core/lsq/convolution.hpp"
#include "core/lsq/dense.hpp"
#include "core/lsq/stacked.hpp"

SW_BEGIN
namespace lsq {

// Whether 32 values are all +0.
template <class Scalar>
inline bool all_zero(const Scalar* values) {
    typedef unsigned long long Bits __attribute__((vector_size(64), aligned(4), may_alias));
    const Bits* bits = reinterpret_cast<const Bits*>(values);
    Bits any = bits[0];
    for (unsigned q = 1; q < 32 * sizeof(Scalar) / sizeof(Bits); ++q) any |= bits[q];
    return ((any[0] | any[1]) | (any[2] | any[3]) | (any[4] | any[5]) | (any[6] | any[7])) == 0;
}

typedef VectorOf<double, 4>::anywhere Four;
inline Four& four_at(double* p) {
    return *reinterpret_cast<Four*>(p);
}
inline Four four(const double* p) {
    return *reinterpret_cast<const Four*>(p);
}
inline Four four(const float* p) {
    return load_wide<4>(p);
}

template <class Scalar>
inline Envelope Dense<Scalar>::own(Envelope all, int rank) const {
    const int64_t start = envelope_length(rows, 1) * rank;
    return {all.low + start, all.high + start};
}

template <class Scalar>
inline void Dense<Scalar>::measure_rows(const Scalar* a, const double* r, int from, int to, double* squares,
                                        double* sums) const {
    const Scalar *a0 = a, *a1 = a + stride, *a2 = a + 2 * stride, *a3 = a + 3 * stride;
    const double r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3];
    int j = from;
    for (; j + 8 <= to; j += 8) {
        const Pack v0 = load(a0 + j), v1 = load(a1 + j), v2 = load(a2 + j), v3 = load(a3 + j);
        store(sums + j, load(sums + j) + ((v0 * r0 + v1 * r1) + (v2 * r2 + v3 * r3)));
        store(squares + j, load(squares + j) + ((v0 * v0 + v1 * v1) + (v2 * v2 + v3 * v3)));
    }
    for (; j < to; ++j) {
        const double v0 = a0[j], v1 = a1[j], v2 = a2[j], v3 = a3[j];
        sums[j] += (v0 * r0 + v1 * r1) + (v2 * r2 + v3 * r3);
        squares[j] += (v0 * v0 + v1 * v1) + (v2 * v2 + v3 * v3);
    }
}

template <class Scalar>
inline void Dense<Scalar>::add_rows(const Scalar* a, const double* r, int from, int to, double* sums) const {
    const Scalar *a0 = a, *a1 = a + stride, *a2 = a + 2 * stride, *a3 = a + 3 * stride;
    const Scalar *a4 = a0 + 4 * stride, *a5 = a1 + 4 * stride, *a6 = a2 + 4 * stride, *a7 = a3 + 4 * stride;
    int j = from;
    for (; j + 8 <= to; j += 8) {
        Pack s = load(sums + j), t = load(a4 + j) * r[4];
        s += load(a0 + j) * r[0];
        t += load(a5 + j) * r[5];
        s += load(a1 + j) * r[1];
        t += load(a6 + j) * r[6];
        s += load(a2 + j) * r[2];
        t += load(a7 + j) * r[7];
        s += load(a3 + j) * r[3];
        store(sums + j, s + t);
    }
    // The same sums as one by one: narrow matrices, of a few spectra say, have no more than these.
    for (; j + 4 <= to; j += 4)
        four_at(sums + j) +=
            ((four(a0 + j) * r[0] + four(a1 + j) * r[1]) + (four(a2 + j) * r[2] + four(a3 + j) * r[3])) +
            ((four(a4 + j) * r[4] + four(a5 + j) * r[5]) + (four(a6 + j) * r[6] + four(a7 + j) * r[7]));
    for (; j < to; ++j)
        sums[j] += ((a0[j] * r[0] + a1[j] * r[1]) + (a2[j] * r[2] + a3[j] * r[3])) +
                   ((a4[j] * r[4] + a5[j] * r[5]) + (a6[j] * r[6] + a7[j] * r[7]));
}

template <class Scalar>
template <class Team>
SW_CALL void Dense<Scalar>::measure(const Team& team, const double* r, Envelope envelope, double* squares,
                                    double* sums) const {
    int begin, end;
    team.chunk(columns, begin, end);
    const Envelope mine = own(envelope, team.rank());
    for (int j = begin; j < end; ++j) squares[j] = sums[j] = 0;
    for (int i = 0; i < rows; i += rows_at_once) {
        const int height = min_of(rows_at_once, rows - i);
        int from = end, to = begin;
        for (int q = 0; q < height; ++q) {
            const Scalar* row = values + (i + q) * stride;
            int first = begin, last = end;
            while (first + 32 <= min_of(last, from) && all_zero(row + first)) first += 32;
            while (first < min_of(last, from) && row[first] == 0) ++first;
            while (max_of(first, to) + 32 <= last && all_zero(row + last - 32)) last -= 32;
            while (last > max_of(first, to) && row[last - 1] == 0) --last;
            from = min_of(from, first);
            to = max_of(to, last);
        }
        mine.low[i / rows_at_once] = from;
        mine.high[i / rows_at_once] = to;
        int q = 0;
        for (; q + 4 <= height; q += 4)
            measure_rows(values + (i + q) * stride, r + i + q, from, to, squares, sums);
        for (; q < height; ++q)
            for (int j = from; j < to; ++j) {
                const double a = values[(i + q) * stride + j];
                squares[j] += a * a;
                sums[j] += a * r[i + q];
            }
    }
    team.sync();
}

template <class Scalar>
template <class Team>
SW_CALL void Dense<Scalar>::multiply(const Team& team, const double* r, Envelope envelope, double* sums,
                                     double* scratch) const {
    int begin, end;
    team.chunk(columns, begin, end);
    (void)scratch;
    const Envelope mine = own(envelope, team.rank());
    for (int j = begin; j < end; ++j) sums[j] = 0;
    int i = 0, eight = 0;
    for (; i + rows_at_once <= rows; i += rows_at_once, ++eight)
        add_rows(values + i * stride, r + i, mine.low[eight], mine.high[eight], sums);
    for (; i < rows; ++i)
        for (int j = mine.low[eight]; j < mine.high[eight]; ++j) sums[j] += values[i * stride + j] * r[i];
    team.sync();
}

template <class Scalar>
template <class Team>
SW_CALL void Dense<Scalar>::gather(const Team& team, Envelope envelope, int j, double scale, double* out,
                                   int length) const {
    int first = 0, last = rows;
    // A lone thread knows the range of all rows: only those that reach column j are read.
    if (team.size() == 1) {
        const int32_t *low = envelope.low, *high = envelope.high;
        int head = 0, tail = (rows + rows_at_once - 1) / rows_at_once;
        while (head < tail && (j < low[head] || j >= high[head])) ++head;
        while (tail > head && (j < low[tail - 1] || j >= high[tail - 1])) --tail;
        first = head * rows_at_once;
        last = min_of(rows, tail * rows_at_once);
    }
    for (int i = 0; i < first; ++i) out[i] = 0;
    for (int i = first; i < last; ++i) out[i] = scale * values[i * stride + j];
    for (int i = last; i < length; ++i) out[i] = 0;
}

template <class Scalar>
SW_HD void Dense<Scalar>::bounds(Envelope envelope, int j, const double* column, int32_t& low,
                                 int32_t& high) const {
    (void)envelope, (void)j;
    int first = 0, last = rows;
    while (first + 32 <= last && all_zero(column + first)) first += 32;
    while (first < last && column[first] == 0) ++first;
    while (first + 32 <= last && all_zero(column + last - 32)) last -= 32;
    while (last > first && column[last - 1] == 0) --last;
    low = first;
    high = last;
}

template <class Scalar>
template <class Team>
SW_CALL void Convolution<Scalar>::multiply(const Team& team, const double* r, Envelope envelope, double* sums,
                                           double*) const {
    const double *shifted = r - origin, *samples = copy, unscale = samples[length + 1];
    const int first = envelope.low[0], last = envelope.high[0];
    int begin, end;
    team.chunk(columns, begin, end);
    int j = begin;
    for (; j + 32 <= end; j += 32) {
        Pack s0{}, s1{}, s2{}, s3{};
        for (int t = first; t < last; ++t) {
            const double p = samples[t];
            const double* at = shifted + j + t;
            s0 += p * load(at);
            s1 += p * load(at + 8);
            s2 += p * load(at + 16);
            s3 += p * load(at + 24);
        }
        store(sums + j, s0 * unscale);
        store(sums + j + 8, s1 * unscale);
        store(sums + j + 16, s2 * unscale);
        store(sums + j + 24, s3 * unscale);
    }
    for (; j < end; ++j) {
        double s = 0;
        for (int t = first; t < last; ++t) s += samples[t] * shifted[j + t];
        sums[j] = s * unscale;
    }
    team.sync();
}

template <class Scalar>
template <class Team>
SW_CALL void Convolution<Scalar>::gather(const Team& team, Envelope envelope, int j, double scale,
                                         double* out, int padded_length) const {
    int32_t first, last;
    bounds(envelope, j, nullptr, first, last);
    (void)team;
    for (int i = 0; i < padded_length; ++i)
        out[i] = i >= first && i < last ? scale * double(pulse[i - j + origin]) : 0.0;
}

template <class Top>
template <class Team>
SW_CALL void Stacked<Top>::weighted_squares(const Team& team, const double* weights, double* squares) const {
    int begin, end;
    team.chunk(columns, begin, end);
    for (int j = begin; j < end; ++j) squares[j] = 0;
    end = min_of(end, top.columns);
    for (int i = 0; i < top.rows; ++i)
        for (int j = begin; j < end; ++j) {
            const double a = top.entry(i, j);
            squares[j] += weights[i] * a * a;
        }
    team.sync();
}

template <class Top>
template <class Team>
SW_CALL void Stacked<Top>::gather(const Team& team, Envelope envelope, int j, double scale, double* out,
                                  int length) const {
    if (rows == 0) return;
    if (rows_beneath() == 0 && j < top.columns) return top.gather(team, envelope, j, scale, out, length);
    if (j < top.columns)
        top.gather(team, envelope, j, scale, out, length);
    else
        for (int i = 0; i < length; ++i) out[i] = 0;
    for (int i = 0; i < rows_beneath(); ++i) out[below + i] = scale * entry_beneath(i, j);
}

}  // namespace lsq
SW_END
