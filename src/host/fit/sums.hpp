// Cost, gradient and JᵀWJ of one problem from the caller's values and derivatives, summed in double. Points
// of weight zero are left out before anything is added up, so that a masked point and one that is not there
// give the same bits. Sums have eight lanes whatever the instruction set.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/fit/loss.hpp"
#include "core/fit/size.hpp"
#include "host/common/slices.hpp"
#include "host/fit/kernels.hpp"

namespace stepwell {
namespace SW_ISA {

inline double read(const FitNumbers& numbers, int64_t place) {
    return numbers.single ? double(static_cast<const float*>(numbers.data)[place])
                          : static_cast<const double*>(numbers.data)[place];
}

// Points of one problem, a chunk at a time.
constexpr int fit_chunk = 128;

struct FitScratch {
    alignas(64) double pull[fit_chunk], curve[fit_chunk], weighed[fit_chunk], value[fit_chunk];
    alignas(64) double weight[fit_chunk], datum[fit_chunk];
    int32_t point[fit_chunk];
    std::vector<double> columns;  // n of fit_chunk, then whatever `refine` needs

    double* column(int j) { return columns.data() + int64_t(j) * fit_chunk; }
};

inline int packs_of(int count) {
    return (count + lanes - 1) / lanes;
}

template <class T>
void read_at(const T* from, int64_t stride, int count, const int32_t* point, double* out) {
    const bool together = count > 0 && point[count - 1] - point[0] == count - 1;
    if (together && stride == 1) {
        const T* first = from + point[0];
        for (int i = 0; i < count; ++i) out[i] = double(first[i]);
    } else {
        for (int i = 0; i < count; ++i) out[i] = double(from[point[i] * stride]);
    }
}

// Numbers from `begin` on at the points of a chunk, zeros behind them up to whole packs.
inline void read_numbers(const FitNumbers& numbers, int64_t begin, int64_t stride, int count,
                         const int32_t* point, double* out) {
    if (numbers.single)
        read_at(static_cast<const float*>(numbers.data) + begin, stride, count, point, out);
    else
        read_at(static_cast<const double*>(numbers.data) + begin, stride, count, point, out);
    std::fill(out + count, out + packs_of(count) * lanes, 0.0);
}

// Lists points from `next` on with their weights, until the chunk is full or the problem done.
inline int list_points(const FitJob& job, int64_t problem, int32_t& next, FitScratch& scratch) {
    if (!job.weights.data) {
        const int count = int(std::min<int32_t>(job.points - next, fit_chunk));
        std::iota(scratch.point, scratch.point + count, next);
        std::fill_n(scratch.weight, count, 1.0);
        next += count;
        return count;
    }
    int count = 0;
    const int64_t begin = problem * job.weights.stride[0];
    for (; next < job.points && count < fit_chunk; ++next) {
        const double weight = read(job.weights, begin + next * job.weights.stride[1]);
        if (weight == 0) continue;
        scratch.weight[count] = weight;
        scratch.point[count++] = next;
    }
    return count;
}

// Reads the next points of a problem; returns how many, and adds their cost. Behind them, up to whole packs,
// nothing pulls.
inline int read_points(const FitJob& job, int64_t problem, int64_t row, int32_t& next, FitScratch& scratch,
                       Pack& cost) {
    FitScratch& s = scratch;
    const int count = list_points(job, problem, next, s), end = packs_of(count) * lanes;
    read_numbers(job.values, row * job.values.stride[0], job.values.stride[1], count, s.point, s.value);
    if (job.y.data)
        read_numbers(job.y, problem * job.y.stride[0], job.y.stride[1], count, s.point, s.datum);
    else
        std::fill_n(s.datum, end, 0.0);
    if (job.loss == FitLoss::linear) {  // in vectors, as it is the usual one
        std::fill(s.weight + count, s.weight + end, 0.0);
        for (int i = 0; i < end; i += lanes) {
            SW_UNROLLED
            for (int k = i; k < i + lanes; ++k) {
                const FitPoint found = fit_point(FitLoss::linear, 1, s.value[k], s.datum[k], s.weight[k]);
                cost[k - i] += found.cost;
                s.pull[k] = found.pull;
                s.curve[k] = found.curve;
            }
        }
        return count;
    }
    for (int i = 0; i < count; ++i) {
        const FitPoint found = fit_point(job.loss, job.scale, s.value[i], s.datum[i], s.weight[i]);
        cost[i % lanes] += found.cost;
        s.pull[i] = found.pull;
        s.curve[i] = found.curve;
    }
    for (int i = count; i < end; ++i) s.pull[i] = s.curve[i] = 0;
    return count;
}

inline double cost_of(const FitJob& job, int64_t problem, int64_t row, FitScratch& scratch) {
    Pack cost{};
    for (int32_t next = 0; next < job.points;) read_points(job, problem, row, next, scratch, cost);
    return add_lanes(cost);
}

// The columns of J at the points of a chunk, zeros behind them up to whole packs.
inline void read_columns(const FitJob& job, int64_t place, int count, FitScratch& scratch) {
    for (int j = 0; j < job.n; ++j) {
        double* out = scratch.column(j);
        const int column = job.moved ? job.column_of[j] : j;
        if (column < 0) {
            std::fill_n(out, packs_of(count) * lanes, 0.0);
            continue;
        }
        const int64_t begin = place * job.jacobian.stride[0] + column * job.jacobian.stride[2];
        read_numbers(job.jacobian, begin, job.jacobian.stride[1], count, scratch.point, out);
        if (!job.moved) continue;
        const double step = job.steps[place * job.n + j];
        for (int i = 0; i < count; ++i) out[i] = (out[i] - scratch.value[i]) / step;
    }
}

// Products of `a` with rows a whole number of packs long, as many at once as registers hold the sums of.
template <int number>
inline void dots(const double* a, const double* const (&rows)[number], int packs, double (&out)[number]) {
    Slices sums[number];
    for (int i = 0; i < packs * lanes; i += lanes) {
        SW_UNROLLED
        for (int k = 0; k < number; ++k) sums[k].add_product(a + i, rows[k] + i);
    }
    for (int k = 0; k < number; ++k) out[k] = sums[k].total();
}

inline double dot(const double* a, const double* b, int packs) {
    double out[1];
    dots(a, {b}, packs, out);
    return out[0];
}

// take(i, product of `a` with column i) for columns from `first` on.
template <class Size, class Take>
inline void over_dots(Size n, const double* a, int first, int packs, FitScratch& scratch, const Take& take) {
    constexpr int at_once = 4;
    for (int i = first; i < n; i += at_once) {
        const double* columns[at_once];
        double sums[at_once];
        for (int k = 0; k < at_once; ++k) columns[k] = scratch.column(min_of(i + k, int(n) - 1));
        dots(a, columns, packs, sums);
        for (int k = 0; k < at_once && i + k < n; ++k) take(i + k, sums[k]);
    }
}

// g = Jᵀ·pull and H = Jᵀ·curve·J (packed) of a row whose derivatives are at `place`; returns the cost.
template <class Size>
double form_sums(Size n, const FitJob& job, int64_t problem, int64_t row, int64_t place, FitScratch& scratch,
                 double* g, double* H) {
    Pack cost{};
    for (int i = 0; i < n; ++i) g[i] = 0;
    for (int i = 0; i < at(n, 0); ++i) H[i] = 0;
    const bool plain = job.loss == FitLoss::linear && !job.weights.data;
    for (int32_t next = 0; next < job.points;) {
        const int count = read_points(job, problem, row, next, scratch, cost);
        const int packs = packs_of(count);
        read_columns(job, place, count, scratch);
        over_dots(n, scratch.pull, 0, packs, scratch, [&](int i, double sum) { g[i] += sum; });
        for (int j = 0; j < n; ++j) {
            const double* weighed = scratch.column(j);
            if (!plain) {
                for (int i = 0; i < packs * lanes; ++i)
                    scratch.weighed[i] = scratch.curve[i] * scratch.column(j)[i];
                weighed = scratch.weighed;
            }
            over_dots(n, weighed, j, packs, scratch, [&](int i, double sum) { H[at(i, j)] += sum; });
        }
    }
    return add_lanes(cost);
}

}  // namespace SW_ISA
}  // namespace stepwell
