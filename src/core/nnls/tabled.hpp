// A dense matrix of one system with its products formed beforehand: those of its columns, with b, and b's
// with itself. Of few columns: a member has a number of each in its registers. Nothing as long as a column is
// kept.
#pragma once

#include "core/nnls/dense.hpp"

SW_BEGIN
namespace nnls {

constexpr int max_tabled_columns = 15;

// Products of one system: columns x columns, columns, 1.
SW_HD int64_t table_length(int64_t columns) {
    return columns * (columns + 1) + 1;
}

template <class Scalar>
struct Tabled : Dense<Scalar> {
    static constexpr bool tabled = true;
    using Dense<Scalar>::columns;
    using Dense<Scalar>::rows;
    using Dense<Scalar>::stride;
    using Dense<Scalar>::values;

    const double* products;
    const Scalar* b;

    SW_HD double product(int i, int j) const { return products[static_cast<int64_t>(i) * columns + j]; }
    SW_HD double product_with_b(int j) const { return products[static_cast<int64_t>(columns) * columns + j]; }
    SW_HD double square_of_b() const { return products[static_cast<int64_t>(columns) * (columns + 1)]; }

    // sums[j] = a_j . r for r = scale b - A x, x in the units of A; returns r . r. One pass over A. Ends in a
    // sync.
    template <class Team>
    SW_CALL double residual_and_product(const Team& team, const double* x, double scale, double* sums) const {
        double own[max_tabled_columns], sum[max_tabled_columns], square = 0;
        SW_UNROLL
        for (int j = 0; j < max_tabled_columns; ++j) {
            own[j] = j < columns ? x[j] : 0.0;
            sum[j] = 0;
        }
        SW_UNROLL_BY(2)
        for (int i = team.rank(); i < rows; i += team.size()) {
            Scalar entry[max_tabled_columns];
            const Scalar* row = values + i * stride;
            double r = scale * double(b[i]);
            SW_UNROLL
            for (int j = 0; j < max_tabled_columns; ++j) entry[j] = j < columns ? row[j] : Scalar(0);
            SW_UNROLL
            for (int j = 0; j < max_tabled_columns; ++j) r -= double(entry[j]) * own[j];
            SW_UNROLL
            for (int j = 0; j < max_tabled_columns; ++j) sum[j] += double(entry[j]) * r;
            square += r * r;
        }
        team.sync();
        SW_UNROLL
        for (int j = 0; j < max_tabled_columns; ++j) {
            const double total = team.sum(sum[j]);
            if (j < columns && team.rank() == 0) sums[j] = total;
        }
        square = team.sum(square);
        team.sync();
        return square;
    }
};

}  // namespace nnls
SW_END
