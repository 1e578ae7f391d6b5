// The pass over the rows of A: r . r of r = b - A x, and A'r. A thread of a CPU has its own
// (host/lsq/one_core.hpp); a device takes it by the lanes that share a system or by a thread of its own.
#pragma once

#include "core/lsq/small/state.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// A row a lane, as many at a time as there are lanes.
template <bool wants_product, class State>
SW_HD double residual_by_lanes(State& s, bool subtracts) {
    const void* b = s.b();
    const int rows = s.job.rows, all = s.job.columns;
    double square = 0, sum[State::own_columns];
    SW_UNROLL
    for (int t = 0; t < State::own_columns; ++t) sum[t] = 0;
    SW_ROLLED
    for (int first = 0; first < rows; first += State::width) {
        const int row = first + s.lanes.lane(), here = min_of(State::width, rows - first);
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
                for (int t = 0; t < State::own_columns; ++t) {
                    const int j = s.lanes.lane() + State::width * t;
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

template <bool wants_product, class State>
SW_HD double residual_by_thread(State& s, bool subtracts) {
    const void* b = s.b();
    const double* columns = s.products.shared.columns;
    const int64_t stride = s.products.shared.column_stride;
    const int rows = s.job.rows, all = s.job.columns;
    double square = 0;
    if constexpr (wants_product)
        for (int j = 0; j < s.n; ++j) s.w[j] = 0;
    SW_ROLLED
    for (int first = 0; first < rows; first += State::chunk) {
        double r[State::chunk];
        SW_UNROLL
        for (int t = 0; t < State::chunk; ++t) r[t] = first + t < rows ? s.numbers.read(b, first + t) : 0.0;
        if (subtracts) {
            const double* column = columns + first;
            SW_UNROLL_BY(2)
            for (int j = 0; j < all; ++j, column += stride) {
                const double value = s.x[j];
                SW_UNROLL
                for (int t = 0; t < State::chunk; ++t) r[t] -= column[t] * value;
            }
            // (Below A's rows there may be others.)
            if (first + State::chunk > rows) {
                SW_UNROLL
                for (int t = 0; t < State::chunk; ++t) r[t] = first + t < rows ? r[t] : 0.0;
            }
        }
        SW_UNROLL
        for (int t = 0; t < State::chunk; ++t) square += r[t] * r[t];
        if constexpr (wants_product) {
            const double* column = columns + first;
            SW_UNROLL_BY(2)
            for (int j = 0; j < all; ++j, column += stride) {
                double sum[2] = {0, 0};
                SW_UNROLL
                for (int t = 0; t < State::chunk; ++t) sum[t % 2] += column[t] * r[t];
                s.w[j] += sum[0] + sum[1];
            }
        }
    }
    return square;
}

// r . r of r = b - A x over the rows of A, or of b alone; with `wants_product` A'r in w. Eight rows are
// at work at a time, so that nothing as long as a column is kept.
template <bool wants_product, class State>
SW_HD double residual_of_rows(State& s, bool subtracts) {
    if constexpr (State::has_sweeps) {
        if constexpr (wants_product && State::summed) s.w[s.n - 1] = 0;  // perhaps a slack
        return s.numbers.with(s.b(), [&](const auto* values) {
            return s.lanes.template residual<wants_product>(values, s.job.rows, s.products.shared, s.x,
                                                            subtracts ? s.nonzero : 0, s.job.columns, s.w);
        });
    } else if constexpr (State::width > 1)
        return residual_by_lanes<wants_product>(s, subtracts);
    else
        return residual_by_thread<wants_product>(s, subtracts);
}

// |b - A x|^2, and A'(b - A x) in w, of a matrix of its own: one pass over A, a row a lane.
template <class State, class Scalar>
SW_HD double residual_by_own_rows(State& s, const Scalar* a, const void* b) {
    if constexpr (State::has_sweeps)
        return s.lanes.residual_of_own(a, s.job.row_stride, b, s.job.rows, s.n, s.x, s.w);
    double own[max_tabled_columns], sum[max_tabled_columns], square = 0;
    SW_UNROLL
    for (int j = 0; j < max_tabled_columns; ++j) {
        own[j] = j < s.n ? s.x[j] : 0.0;
        sum[j] = 0;
    }
    SW_UNROLL_BY(2)
    for (int i = s.lanes.lane(); i < s.job.rows; i += State::width) {
        Scalar entry[max_tabled_columns];
        const Scalar* row = a + i * s.job.row_stride;
        double r = s.numbers.read(b, i);
        SW_UNROLL
        for (int j = 0; j < max_tabled_columns; ++j) entry[j] = j < s.n ? row[j] : Scalar(0);
        SW_UNROLL
        for (int j = 0; j < max_tabled_columns; ++j) r -= double(entry[j]) * own[j];
        SW_UNROLL
        for (int j = 0; j < max_tabled_columns; ++j) sum[j] += double(entry[j]) * r;
        square += r * r;
    }
    SW_UNROLL
    for (int j = 0; j < max_tabled_columns; ++j) {
        if (j >= s.n) continue;
        const double whole = s.lanes.sum(sum[j]);
        if (s.lanes.lane() == 0) s.w[j] = whole;
    }
    s.lanes.sync();
    return s.lanes.sum(square);
}

template <class State>
SW_HD double residual_of_own_rows(State& s) {
    const auto own_rows = [&](const auto* a) { return residual_by_own_rows(s, a, s.b()); };
    return s.numbers.with(s.numbers.after(s.job.a, s.system * s.job.a_stride), own_rows);
}

}  // namespace small
}  // namespace lsq
SW_END
