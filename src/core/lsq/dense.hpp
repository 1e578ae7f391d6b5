// A matrix of dense rows.
#pragma once

#include "core/lsq/matrix.hpp"

SW_BEGIN
namespace lsq {

#if !defined(__CUDACC__)
// Whether 32 values are all +0.
template <class Scalar>
inline bool all_zero(const Scalar* values) {
    typedef unsigned long long Bits __attribute__((vector_size(64), aligned(4), may_alias));
    const Bits* bits = reinterpret_cast<const Bits*>(values);
    Bits any = bits[0];
    for (unsigned q = 1; q < 32 * sizeof(Scalar) / sizeof(Bits); ++q) any |= bits[q];
    return ((any[0] | any[1]) | (any[2] | any[3]) | (any[4] | any[5]) | (any[6] | any[7])) == 0;
}
#endif

template <class Scalar>
struct Dense {
    static constexpr bool shifts = false;
    static constexpr bool general = false, plain = true;

    const Scalar* values;
    int64_t stride;
    int rows, columns;

    // Zeros the product reads before and after the vector it is multiplied with.
    SW_HD int zeros_before() const { return 0; }
    SW_HD int zeros_after() const { return 0; }
    SW_HD int pulse_length() const { return 0; }
    SW_HD int pulse_origin() const { return 0; }
    SW_HD void keep_copy_in(double*) {}
    template <class Team>
    SW_HD void prepare(const Team&) const {}

    // squares[j] = |a_j|^2, sums[j] = a_j . r, and the envelope. Ends in a sync.
    template <class Team>
    SW_CALL void measure(const Team& team, const double* r, Envelope envelope, double* squares,
                         double* sums) const {
#if defined(__CUDACC__)
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
#else
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
#endif
        team.sync();
    }

    // sums[j] = a_j . r. Ends in a sync.
    template <class Team>
    SW_CALL void multiply(const Team& team, const double* r, Envelope envelope, double* sums,
                          double* scratch) const {
#if defined(__CUDACC__)
        // Where there are more members than columns, several share one, each with every so many of its rows.
        const int slices = max_of(1, team.size() / max_of(columns, 1));
        if (slices == 1) {
            // The lanes of a row go down the same rows, where any of their columns is not zero.
            for (int base = team.row() * team.lanes(); base < columns; base += team.size()) {
                const int j = min_of(base + team.lane(), columns - 1);
                const int first = team.lane_min_int(envelope.low[j]),
                          last = team.lane_max_int(envelope.high[j]);
                const double sum = slice_of_product(r, j, first, last, 1);
                if (base + team.lane() < columns) sums[j] = sum;
            }
        } else {
            const int slice = team.rank() / columns, j = team.rank() % columns;
            if (slice < slices)
                scratch[team.rank()] =
                    slice_of_product(r, j, envelope.low[j] + slice, envelope.high[j], slices);
            team.sync();
            team.each(columns, [&](int column) {
                double sum = 0;
                for (int s = 0; s < slices; ++s) sum += scratch[s * columns + column];
                sums[column] = sum;
            });
        }
#else
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
#endif
        team.sync();
    }

    // out = scale a_j: on a device where it is not zero, else padded to `length` with zeros. By one group; no
    // sync.
    template <class Team>
    SW_CALL void gather(const Team& team, Envelope envelope, int j, double scale, double* out,
                        int length) const {
#if defined(__CUDACC__)
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
#else
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
#endif
    }

    // The largest magnitude in a column, NaN if it holds one.
    SW_CALL double largest_in(int j) const {
        double magnitude = 0;
        for (int i = 0; i < rows; ++i) {
            const double a = absolute(values[i * stride + j]);
            if (!is_finite(a)) return a;
            magnitude = max_of(magnitude, a);
        }
        return magnitude;
    }

    SW_HD double entry(int i, int j) const { return values[i * stride + j]; }

    // The rows within which column j, gathered in `column`, is not zero.
    SW_HD void bounds(Envelope envelope, int j, const double* column, int32_t& low, int32_t& high) const {
#if defined(__CUDACC__)
        (void)column;
        low = envelope.low[j];
        high = envelope.high[j];
#else
        (void)envelope, (void)j;
        int first = 0, last = rows;
        while (first + 32 <= last && all_zero(column + first)) first += 32;
        while (first < last && column[first] == 0) ++first;
        while (first + 32 <= last && all_zero(column + last - 32)) last -= 32;
        while (last > first && column[last - 1] == 0) --last;
        low = first;
        high = last;
#endif
    }

    // Of a_j . r, every so many rows from `first` on.
    SW_HD double slice_of_product(const double* r, int j, int first, int last, int slices) const {
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

#if !defined(__CUDACC__)
    Envelope own(Envelope all, int rank) const {
        const int64_t start = envelope_length(rows, 1) * rank;
        return {all.low + start, all.high + start};
    }

    void measure_rows(const Scalar* a, const double* r, int from, int to, double* squares,
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

    typedef VectorOf<double, 4>::anywhere Four;
    static Four& four_at(double* p) { return *reinterpret_cast<Four*>(p); }
    static Four four(const double* p) { return *reinterpret_cast<const Four*>(p); }
    static Four four(const float* p) { return load_wide<4>(p); }

    void add_rows(const Scalar* a, const double* r, int from, int to, double* sums) const {
        const Scalar *a0 = a, *a1 = a + stride, *a2 = a + 2 * stride, *a3 = a + 3 * stride;
        const Scalar *a4 = a0 + 4 * stride, *a5 = a1 + 4 * stride, *a6 = a2 + 4 * stride,
                     *a7 = a3 + 4 * stride;
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
#endif
};

}  // namespace lsq
SW_END
