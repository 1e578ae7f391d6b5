// Cost, gradient and JᵀWJ of one problem from the caller's values and derivatives, summed in double. Points
// of weight zero are left out before anything is added up, so that a masked point and one that is not there
// give the same bits. Sums have eight lanes whatever the instruction set.
#pragma once

#include <vector>

#include "core/common/simd.hpp"
#include "core/fit/loss.hpp"
#include "core/fit/size.hpp"
#include "host/fit/kernels.hpp"

namespace stepwell {
namespace SW_ISA {

inline double read(const FitNumbers& numbers, int64_t place) {
    return numbers.single ? double(static_cast<const float*>(numbers.data)[place])
                          : static_cast<const double*>(numbers.data)[place];
}

inline double lane_total(const Pack& sums) {
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// Points of one problem, a chunk at a time.
constexpr int fit_chunk = 128;

struct FitScratch {
    alignas(64) double pull[fit_chunk], curve[fit_chunk], weighed[fit_chunk], value[fit_chunk];
    int32_t point[fit_chunk];
    std::vector<double> columns;  // n of fit_chunk, then whatever `refine` needs

    double* column(int j) { return columns.data() + int64_t(j) * fit_chunk; }
};

// Reads points from `next` on, until the chunk is full or the problem done; returns how many, and adds their
// cost.
inline int read_points(const FitJob& job, int64_t problem, int64_t row, int32_t& next, FitScratch& scratch,
                       Pack& cost) {
    int count = 0;
    const int64_t y = problem * job.y.stride[0], w = problem * job.weights.stride[0];
    const int64_t v = row * job.values.stride[0];
    for (; next < job.points && count < fit_chunk; ++next) {
        const double weight = job.weights.data ? read(job.weights, w + next * job.weights.stride[1]) : 1.0;
        if (weight == 0) continue;
        const double datum = job.y.data ? read(job.y, y + next * job.y.stride[1]) : 0.0;
        const double value = read(job.values, v + next * job.values.stride[1]);
        const FitPoint found = fit_point(job.loss, job.scale, value, datum, weight);
        cost[count % lanes] += found.cost;
        scratch.pull[count] = found.pull;
        scratch.curve[count] = found.curve;
        scratch.value[count] = value;
        scratch.point[count++] = next;
    }
    return count;
}

inline double cost_of(const FitJob& job, int64_t problem, int64_t row, FitScratch& scratch) {
    Pack cost{};
    for (int32_t next = 0; next < job.points;) read_points(job, problem, row, next, scratch, cost);
    return lane_total(cost);
}

// One column of J at the points of a chunk, zeros behind them up to whole packs.
template <class T>
inline void read_column(const FitJob& job, const T* from, int count, const FitScratch& scratch, double* out) {
    const int64_t stride = job.jacobian.stride[1];
    const bool all = count > 0 && scratch.point[count - 1] - scratch.point[0] == count - 1;
    if (all && stride == 1) {
        const T* first = from + scratch.point[0];
        for (int i = 0; i < count; ++i) out[i] = double(first[i]);
    } else {
        for (int i = 0; i < count; ++i) out[i] = double(from[scratch.point[i] * stride]);
    }
    for (int i = count; i % lanes; ++i) out[i] = 0;
}

inline void read_columns(const FitJob& job, int64_t place, int count, FitScratch& scratch) {
    for (int j = 0; j < job.n; ++j) {
        double* out = scratch.column(j);
        const int column = job.moved ? job.column_of[j] : j;
        if (column < 0) {
            for (int i = 0; i < count || i % lanes; ++i) out[i] = 0;
            continue;
        }
        const int64_t begin = place * job.jacobian.stride[0] + column * job.jacobian.stride[2];
        if (job.jacobian.single)
            read_column(job, static_cast<const float*>(job.jacobian.data) + begin, count, scratch, out);
        else
            read_column(job, static_cast<const double*>(job.jacobian.data) + begin, count, scratch, out);
        if (!job.moved) continue;
        const double step = job.steps[place * job.n + j];
        for (int i = 0; i < count; ++i) out[i] = (out[i] - scratch.value[i]) / step;
    }
}

inline double dot(const double* a, const double* b, int packs) {
    Pack sums{};
    for (int i = 0; i < packs; ++i) sums += load(a + i * lanes) * load(b + i * lanes);
    return lane_total(sums);
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
        const int packs = (count + lanes - 1) / lanes;
        for (int i = count; i < packs * lanes; ++i) scratch.pull[i] = scratch.curve[i] = 0;
        read_columns(job, place, count, scratch);
        for (int j = 0; j < n; ++j) {
            const double* column = scratch.column(j);
            const double* weighed = column;
            if (!plain) {
                for (int i = 0; i < packs * lanes; ++i) scratch.weighed[i] = scratch.curve[i] * column[i];
                weighed = scratch.weighed;
            }
            g[j] += dot(scratch.pull, column, packs);
            for (int i = j; i < n; ++i) H[at(i, j)] += dot(scratch.column(i), weighed, packs);
        }
    }
    return lane_total(cost);
}

}  // namespace SW_ISA
}  // namespace stepwell
