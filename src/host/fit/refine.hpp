// The factor of J itself, not of JᵀJ: for variances of problems whose columns are nearly dependent, where
// squares have lost the digits. Gram-Schmidt, each column twice, the longest that is left first.
#pragma once

#include "core/fit/certificate.hpp"
#include "host/fit/sums.hpp"

namespace stepwell {
namespace SW_ISA {

// Fills L, order, rank of a factor whose free columns are listed; J of problem p is in row `row` of the job.
template <class Size>
void factor_rows(Size n, const FitJob& job, int64_t problem, int64_t row, FitScratch& scratch,
                 FreeFactor<Size::capacity>& factor) {
    const int free = factor.free;
    const int64_t length = (int64_t(job.points) + lanes - 1) / lanes * lanes;
    std::vector<double> columns(size_t(free) * size_t(length));
    Pack cost{};
    int64_t filled = 0;
    for (int32_t next = 0; next < job.points;) {
        const int count = read_points(job, problem, row, next, scratch, cost);
        read_columns(job, row, count, scratch);
        for (int k = 0; k < free; ++k)
            for (int i = 0; i < count; ++i)
                columns[size_t(k * length + filled + i)] = scratch.column(factor.order[k])[i] *
                                                           factor.unit[factor.order[k]] *
                                                           std::sqrt(scratch.curve[i]);
        filled += count;
    }
    const int packs = int(length / lanes);
    const auto column = [&](int k) { return columns.data() + k * length; };
    const double least = max_of(4 * n * double_epsilon, 8 * job.accuracy);
    double* const L = factor.L;
    for (int i = 0; i < at(free, 0); ++i) L[i] = 0;
    factor.rank = 0;
    for (int k = 0; k < free; ++k) {
        int best = k;
        double longest = -1;
        for (int i = k; i < free; ++i) {
            const double size = dot(column(i), column(i), packs);
            if (size > longest) {
                longest = size;
                best = i;
            }
        }
        const double size = std::sqrt(longest);
        if (!(size > least)) break;
        if (best != k) {
            std::swap_ranges(column(k), column(k) + length, column(best));
            for (int j = 0; j < k; ++j) std::swap(L[at(k, j)], L[at(best, j)]);
            std::swap(factor.order[k], factor.order[best]);
        }
        double* const q = column(k);
        for (int64_t i = 0; i < length; ++i) q[i] /= size;
        L[at(k, k)] = 1 / size;
        ++factor.rank;
        // The others lose their part along this one at once, so that lengths are those of what is left;
        // twice.
        for (int i = k + 1; i < free; ++i) {
            for (int pass = 0; pass < 2; ++pass) {
                const double along = dot(q, column(i), packs);
                L[at(i, k)] += along;
                for (int64_t at_point = 0; at_point < length; ++at_point)
                    column(i)[at_point] -= along * q[at_point];
            }
        }
    }
}

}  // namespace SW_ISA
}  // namespace stepwell
