// A matrix with rows beneath it: the sum's, which is bound, and the penalty's, L of lambda^2 |L x|^2; and,
// where the sum has a range, a column of zeros beside it. Nothing of A is copied. What the rows beneath weigh
// is not in them but in the metric (workspace.hpp), so that systems with one matrix share them.
#pragma once

#include "core/lsq/convolution.hpp"
#include "core/lsq/dense.hpp"
#include "core/lsq/types.hpp"

SW_BEGIN
namespace lsq {

// Row i of a matrix times x; those told apart at run time have one of their own.
template <class Any>
SW_HD double row_product(const Any& matrix, int i, const double* x) {
    double sum[4] = {0, 0, 0, 0};
    int j = 0;
    for (; j + 4 <= matrix.columns; j += 4) {
        SW_UNROLL
        for (int u = 0; u < 4; ++u) sum[u] += matrix.entry(i, j + u) * x[j + u];
    }
    for (; j < matrix.columns; ++j) sum[0] += matrix.entry(i, j) * x[j];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

template <class Top>
struct Stacked {
    static constexpr bool shifts = false;
    static constexpr bool general = true, plain = false;

    Top top;
    const double* penalty;       // L, rows of `top.columns`; null: the unit matrix
    const double* coefficients;  // of the sum; null: ones
    const double* lam;           // where it is given, one for all systems; else null
    int penalty_rows, summed;
    int below;  // the first row beneath A's
    int rows, columns;

    SW_HD Stacked() {}
    SW_HD Stacked(const Top& matrix, const Constraints& constraints)
        : top(matrix),
          penalty(constraints.penalty),
          coefficients(constraints.coefficients),
          lam(constraints.rule == rule_given && constraints.lam_stride == 0 ? constraints.lam : nullptr),
          penalty_rows(constraints.penalized ? constraints.penalty_rows : 0),
          summed(constraints.summed),
          // Where more rows follow, the zeros that a convolution reads past its last lie between.
          below(matrix.rows + (penalty_rows + summed ? matrix.zeros_after() : 0)),
          rows(below + summed + penalty_rows),
          columns(matrix.columns + constraints.slack) {}

    SW_HD int rows_beneath() const { return summed + penalty_rows; }
    SW_HD int zeros_before() const { return top.zeros_before(); }
    SW_HD int zeros_after() const { return rows_beneath() ? 0 : top.zeros_after(); }
    SW_HD int pulse_length() const { return top.pulse_length(); }
    SW_HD int pulse_origin() const { return top.pulse_origin(); }
    SW_HD void keep_copy_in(double* memory) { top.keep_copy_in(memory); }
    template <class Team>
    SW_HD void prepare(const Team& team) const {
        top.prepare(team);
    }

    SW_HD double coefficient(int j) const { return coefficients && j < top.columns ? coefficients[j] : 1.0; }

    // Entry (i, j) of the rows beneath A: the sum's coefficients, if there is one, then L.
    SW_HD double entry_beneath(int i, int j) const {
        if (i < summed) return coefficient(j);
        if (j >= top.columns) return 0.0;
        i -= summed;
        return penalty ? penalty[static_cast<int64_t>(i) * top.columns + j] : i == j ? 1.0 : 0.0;
    }

    SW_HD double entry(int i, int j) const {
        if (i >= below) return entry_beneath(i - below, j);
        return i < top.rows && j < top.columns ? top.entry(i, j) : 0.0;
    }

    SW_HD double largest_in(int j) const { return j < top.columns ? top.largest_in(j) : 0.0; }

    // squares[j] = |a_j|^2 of A alone, sums[j] = a_j . r of A alone, and the envelope. Ends in a sync.
    template <class Team>
    SW_HD void measure(const Team& team, const double* r, Envelope envelope, double* squares,
                       double* sums) const {
        top.measure(team, r, envelope, squares, sums);
        team.each(columns - top.columns,
                  [&](int q) { squares[top.columns + q] = sums[top.columns + q] = 0; });
        team.sync();
    }

    // sums[j] = a_j . r. Ends in a sync.
    template <class Team>
    SW_HD void multiply(const Team& team, const double* r, Envelope envelope, double* sums,
                        double* scratch) const {
        top.multiply(team, r, envelope, sums, scratch);
        if (rows_beneath() > 0 || columns > top.columns)
            add_beneath(team, r + below, 0, rows_beneath(), sums);
    }

    // sums[j] += what rows from `first` to `last` beneath A's add to a_j . r. Ends in a sync.
    template <class Team>
    SW_CALL void add_beneath(const Team& team, const double* r, int first, int last, double* sums) const {
        team.each(columns, [&](int j) {
            double sum = j < top.columns ? sums[j] : 0.0;
            if (first < summed) sum += coefficient(j) * r[0];
            if (j < top.columns && last > summed) {
                const double* low = r + summed;
                if (!penalty) {
                    sum += low[j];
                } else {
                    for (int i = 0; i < penalty_rows; ++i)
                        sum += penalty[static_cast<int64_t>(i) * top.columns + j] * low[i];
                }
            }
            sums[j] = sum;
        });
        team.sync();
    }

    // r -= A x, the rows beneath included. Ends in a sync.
    template <class Team>
    SW_CALL void subtract_product(const Team& team, const double* x, double* r) const {
        team.each(top.rows, [&](int i) { r[i] -= row_product(top, i, x); });
        team.each(rows_beneath(), [&](int i) {
            double sum = 0;
            for (int j = 0; j < columns; ++j) sum += entry_beneath(i, j) * x[j];
            r[below + i] -= sum;
        });
        team.sync();
    }

    // squares[j] = sum of weights_i a_ij^2 over the rows of A. Ends in a sync.
    template <class Team>
    SW_CALL void weighted_squares(const Team& team, const double* weights, double* squares) const;

    template <class Team>
    SW_CALL void gather(const Team& team, Envelope envelope, int j, double scale, double* out,
                        int length) const;

    SW_HD void bounds(Envelope envelope, int j, const double* column, int32_t& low, int32_t& high) const {
        low = high = 0;
        if (rows == 0) return;
        if (rows_beneath() == 0 && j < top.columns) return top.bounds(envelope, j, column, low, high);
        low = 0;
        high = penalty_rows && !penalty ? below + summed + min_of(j + 1, top.columns) : rows;
    }
};

// |scale L e_j|^2
template <class Top>
SW_CALL double square_in_penalty(const Stacked<Top>& matrix, int j, double scale) {
    double square = 0;
    for (int i = 0; i < matrix.penalty_rows; ++i) {
        const double entry = scale * matrix.entry_beneath(matrix.summed + i, j);
        square += entry * entry;
    }
    return square;
}

// The largest |L_ij| of column j.
template <class Top>
SW_CALL double largest_in_penalty(const Stacked<Top>& matrix, int j) {
    double largest = 0;
    for (int i = 0; i < matrix.penalty_rows; ++i)
        largest = max_of(largest, absolute(matrix.entry_beneath(matrix.summed + i, j)));
    return largest;
}

// scale_column() for a stacked matrix, whose columns may be nothing in A beside their rows beneath: they then
// have the scale of these, so that no square overflows. `norm` is that of the scaled column of A.
template <class Top>
SW_CALL bool scale_stacked(const Stacked<Top>& matrix, int j, double square, double& scale, double& norm) {
    constexpr double far_apart = 1e70;
    scale = norm = 0;
    if (j < matrix.top.columns && !scale_column(matrix.top, j, square, 0.0, scale, norm)) return false;
    // (A lambda that is chosen makes both count alike.)
    if (scale > 0 && !matrix.lam) return true;
    const double beneath = largest_in_penalty(matrix, j) * (matrix.lam ? *matrix.lam : 1.0);
    if (scale > 0 && !(beneath * scale > far_apart)) return true;
    const double own = beneath >= smallest_size ? power_below(beneath) : matrix.summed ? 1.0 : 0.0;
    norm = scale > 0 ? norm * (own / scale) : 0.0;
    scale = own;
    return true;
}

}  // namespace lsq
SW_END
