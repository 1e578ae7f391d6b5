// The pass over the rows of A as a device takes it: r . r of r = b - A x, and A'r, by the lanes that share a
// system or by a thread of its own. (A thread of a CPU has its own: host/lsq/one_core.hpp.)
#pragma once

#include "core/lsq/small/lanes.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// A row a lane, as many at a time as there are lanes.
template <bool wants_product, class System>
SW_HD double residual_by_lanes(System& s, bool subtracts) {
    const void* b = s.b();
    const int rows = s.job.rows, all = s.job.columns;
    double square = 0, sum[System::own_columns];
    SW_UNROLL
    for (int t = 0; t < System::own_columns; ++t) sum[t] = 0;
    SW_ROLLED
    for (int first = 0; first < rows; first += System::width) {
        const int row = first + s.lanes.lane(), here = min_of(System::width, rows - first);
        double r = 0;
        if (row < rows) {
            r = s.numbers.read(b, row);
            const double* entries = s.products.entries + row * s.products.row_step;
            if (subtracts)
                s.each_not_zero([&](int j) {
                    if (j < all) r -= entries[j * s.products.column_step] * s.x[j];
                });
        }
        square += r * r;
        if constexpr (wants_product) {
            s.lanes.sync();
            s.row_residuals[s.lanes.lane()] = r;
            s.lanes.sync();
            const double* entries = s.products.entries + first * s.products.row_step;
            SW_UNROLL_BY(4)
            for (int k = 0; k < here; ++k) {
                const double r_k = s.row_residuals[k];
                SW_UNROLL
                for (int t = 0; t < System::own_columns; ++t) {
                    const int j = s.lanes.lane() + System::width * t;
                    if (j < all) sum[t] += entries[j * s.products.column_step] * r_k;
                }
                entries += s.products.row_step;
            }
        }
    }
    if constexpr (wants_product) s.each_column([&](int j, int t) { s.w[j] = sum[t]; });
    s.lanes.sync();
    return s.lanes.sum(square);
}

template <bool wants_product, class System>
SW_HD double residual_by_thread(System& s, bool subtracts) {
    const void* b = s.b();
    const double* columns = s.products.shared.columns;
    const int64_t stride = s.products.shared.column_stride;
    const int rows = s.job.rows, all = s.job.columns;
    double square = 0;
    if constexpr (wants_product)
        for (int j = 0; j < s.n; ++j) s.w[j] = 0;
    SW_ROLLED
    for (int first = 0; first < rows; first += System::chunk) {
        double r[System::chunk];
        SW_UNROLL
        for (int t = 0; t < System::chunk; ++t) r[t] = first + t < rows ? s.numbers.read(b, first + t) : 0.0;
        if (subtracts) {
            const double* column = columns + first;
            SW_UNROLL_BY(2)
            for (int j = 0; j < all; ++j, column += stride) {
                const double value = s.x[j];
                SW_UNROLL
                for (int t = 0; t < System::chunk; ++t) r[t] -= column[t] * value;
            }
            // (Below A's rows there may be others.)
            if (first + System::chunk > rows) {
                SW_UNROLL
                for (int t = 0; t < System::chunk; ++t) r[t] = first + t < rows ? r[t] : 0.0;
            }
        }
        SW_UNROLL
        for (int t = 0; t < System::chunk; ++t) square += r[t] * r[t];
        if constexpr (wants_product) {
            const double* column = columns + first;
            SW_UNROLL_BY(2)
            for (int j = 0; j < all; ++j, column += stride) {
                double sum[2] = {0, 0};
                SW_UNROLL
                for (int t = 0; t < System::chunk; ++t) sum[t % 2] += column[t] * r[t];
                s.w[j] += sum[0] + sum[1];
            }
        }
    }
    return square;
}

}  // namespace small
}  // namespace lsq
SW_END
