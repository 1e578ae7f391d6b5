// A small system: what is known of it, and where it stands. Everything is in tables of products. Where a
// thread has a system of its own, indices go the same way for all threads of a warp wherever that can be, so
// that what they keep, an entry of each side by side, is read together.
#pragma once

#include "core/lsq/numbers.hpp"
#include "core/lsq/scaling.hpp"
#include "core/lsq/small/device_rows.hpp"
#include "core/lsq/small/report.hpp"
#include "core/lsq/stacked.hpp"

SW_BEGIN
namespace lsq {
namespace small {

template <class Kind, class Lanes>
struct System {
    typedef typename Kind::Numbers Numbers;
    static constexpr int width = Lanes::width;
    static constexpr int chunk = 8;  // columns that one thread sums at once
    // Columns and positions of a lane.
    static constexpr int own_columns = (Kind::capacity + width - 1) / width;
    static constexpr int own_positions = (Kind::positions + width - 1) / width;
    static_assert(sizeof(Store<Kind, width>) ==
                  8 * store_length(Kind::capacity, Kind::positions, Kind::shares, width));

    const Job& job;
    const int64_t system;
    const Products& products;
    const Lanes lanes;
    const Numbers numbers;
    const int n;  // columns, a slack included
    double *const x, *const w, *const table;
    int32_t* const order;
    double* const row_residuals;

    double c[own_columns];
    // A host's thread keeps those of a bound sum for all systems of a matrix.
    static constexpr bool keeps_sum = Lanes::has_sweeps && Kind::summed && Kind::shares && !Kind::penalized;
    static constexpr bool own_norms = Kind::own_norms && !keeps_sum;
    // Whether the inverses of all sets of columns are kept: there is no factor then but to find one, and a
    // column's position is its number.
    static constexpr bool keeps_inverses =
        Lanes::has_sweeps && Kind::source == one_matrix && !Kind::penalized && Kind::capacity <= kept_columns;
    // Whether all columns of a step are looked at at once, as there are no bounds but zero; and some systems.
    static constexpr bool sweeps_signs = keeps_inverses && !Kind::bounded;
    double own_inverse[own_norms ? own_columns : 1];
    // Columns in the factor; out of it at their upper bound; that take no part; and with x other than zero.
    uint64_t in_factor = 0, at_upper = 0, excluded = 0, nonzero = 0;
    uint64_t masked = 0;  // that are not there
    // With bounds so far away that x would lose its digits to them: they do not count while nothing is beyond
    // them (types.hpp: far_bounds).
    uint64_t far_below = 0, far_above = 0;
    double squared_b = 0, b_norm = 0;
    double nu = 0;               // lambda^2 of a penalty
    double rho = 0, wanted = 0;  // what the row of the sum weighs; the sum
    bool drops_upper = false;    // the sum keeps x below upper bounds that are as large as it
    double least_sum = 0;        // with all columns at their references
    int count = 0;               // of columns in the factor

    SW_HD System(const Job& job, int64_t system, const Products& products, const Lanes& lanes,
                 Store<Kind, width>& store)
        : job(job),
          system(system),
          products(products),
          lanes(lanes),
          numbers(job),
          n(job.columns + job.constraints.slack),
          x(sweeps_signs && products.guess ? products.guess->x : store.x),
          w(store.w),
          table(store.table),
          order(store.order),
          row_residuals(store.residual) {}

    // Calls body(column, index within this lane) for a lane's own columns; the same of its positions among
    // `count`.
    template <class Body>
    SW_HD void each_column(Body body) const {
        each<own_columns>(n, body);
    }
    template <class Body>
    SW_HD void each_position(int count, Body body) const {
        each<own_positions>(count, body);
    }
    // A lane's own columns in the factor, and which of its entries of a step is theirs.
    template <class Body>
    SW_HD void each_in_factor(Body body) const {
        if constexpr (keeps_inverses) {
            for (uint64_t rest = in_factor; rest; rest &= rest - 1) body(lowest_of(rest), lowest_of(rest));
        } else {
            each_position(count, [&](int p, int t) { body(order[p], t); });
        }
    }

    // Columns, and those that fill up a whole number of eights: as many as are swept over.
    SW_HD int swept() const {
        return Kind::capacity <= padding ? Kind::capacity : min_of(Kind::capacity, int(padded(n)));
    }

    SW_HD const void* b() const { return numbers.after(job.b, system * job.b_stride); }
    SW_HD bool is_slack(int j) const { return Kind::has_slack && j >= job.columns; }
    SW_HD double scale(int j) const {
        if constexpr (Kind::shares)
            return products.shared.scale[j];
        else
            return 1.0;
    }
    SW_HD double gram(int i, int j) const {
        if constexpr (Kind::shares)
            return products.gram[i * products.stride + j];
        else
            return table[i * Kind::capacity + j];
    }
    // Of L's columns.
    SW_HD double penalty(int i, int j) const {
        const Shared& shared = products.shared;
        if (shared.penalty_gram) return shared.penalty_gram[i * shared.gram_stride + j];
        return i == j ? shared.penalty_diagonal[j] : 0.0;
    }
    SW_HD double coefficient(int j) const {
        if constexpr (keeps_sum) return products.sum->coefficients[j];
        return find_coefficient(j);
    }
    SW_HD double find_coefficient(int j) const {
        const Constraints& constraints = job.constraints;
        const bool given = constraints.coefficients && !is_slack(j);
        return (given ? constraints.coefficients[j] : 1.0) * scale(j);
    }
    // |a_j|^2, the penalty's rows included, not the sum's.
    SW_HD double square(int j) const {
        double value = gram(j, j);
        if constexpr (Kind::penalized) value += nu * penalty(j, j);
        return value;
    }
    // a_i . a_j, with all rows; and that of two that are not the same.
    SW_HD double product(int i, int j) const {
        double value = gram(i, j);
        if constexpr (Kind::penalized) value += nu * penalty(i, j);
        if constexpr (Kind::summed) value += rho * coefficient(i) * coefficient(j);
        return value;
    }
    SW_HD double product_apart(int i, int j) const {
        if constexpr (Lanes::has_sweeps && Kind::penalized && !Kind::summed)
            if (!products.shared.penalty_gram) return gram(i, j);
        return product(i, j);
    }
    // Of column j, which is a lane's own, its t-th.
    SW_HD double inverse_norm(int j, int t) const {
        if constexpr (own_norms)
            return own_inverse[t];
        else
            return inverse_norms()[j];
    }
    // Of all columns, used by the SIMD (CPU) implementation.
    SW_HD const double* inverse_norms() const {
        if constexpr (own_norms)
            return own_inverse;
        else if constexpr (keeps_sum)
            return products.sum->inverse_norm;
        else
            return products.inverse_norm;
    }
    SW_HD double norm(int j, int t) const { return square(j) * inverse_norm(j, t); }

    SW_HD double in_units_of(int j, double value) const {
        if constexpr (!Kind::shares) return value;
        return products.unit ? value * products.unit[j] : value / products.shared.scale[j];
    }
    // (Of columns of zeros, whose unit is none.)
    SW_HD double dual_in_units(int j) const {
        if constexpr (Lanes::has_sweeps) return in_units_of(j, w[j]);
        return scale(j) > 0 ? in_units_of(j, w[j]) : 0.0;
    }

    SW_HD SumRange sum_range() const {
        const Constraints& constraints = job.constraints;
        return range_of_sum(constraints.sum_low[system * constraints.sum_stride],
                            constraints.sum_high[system * constraints.sum_stride]);
    }

    // Bounds as given, and in the units of the scaled columns.
    SW_HD double given_bound(int j, bool upper) const {
        const Constraints& constraints = job.constraints;
        if constexpr (!Kind::bounded) return upper ? double_infinity : 0.0;
        if (is_slack(j)) {
            const SumRange range = sum_range();
            return upper ? range.slack_high : range.slack_low;
        }
        if constexpr (!Kind::boxed) return upper ? double_infinity : 0.0;
        return upper ? constraints.upper[system * constraints.upper_stride + j]
                     : constraints.lower[system * constraints.lower_stride + j];
    }
    // Bounds as they count: far ones are infinite.
    SW_HD double bound(int j, bool upper) const {
        if constexpr (Kind::boxed)
            if ((upper ? far_above : far_below) & bit_of(j))
                return upper ? double_infinity : -double_infinity;
        return given_bound(j, upper);
    }
    SW_HD double lower(int j) const {
        if (!Kind::boxed && !is_slack(j)) return 0.0;
        return in_units_of(j, bound(j, false));
    }
    SW_HD double upper(int j) const {
        if (!Kind::boxed && !is_slack(j)) return double_infinity;
        const double high = in_units_of(j, bound(j, true));
        if (Kind::summed && drops_upper && is_finite(high)) {
            const double low = lower(j), s = coefficient(j);
            if (!(at_upper & bit_of(j)) && s * high - s * low >= wanted - least_sum) return double_infinity;
        }
        return high;
    }
    SW_HD bool is_masked(int j) const { return masked & bit_of(j); }
    // For all lanes at once, when all have read what was there.
    SW_HD void set_x(int j, double value) {
        lanes.sync();
        if (lanes.lane() == 0) x[j] = value;
        lanes.sync();
        nonzero = value != 0 ? nonzero | bit_of(j) : nonzero & ~bit_of(j);
    }
    SW_HD void enter(int j) {
        if constexpr (!keeps_inverses) {
            if (lanes.lane() == 0) order[count] = j;
            lanes.sync();
        }
        ++count;
        in_factor |= bit_of(j);
        at_upper &= ~bit_of(j);
    }
    // Columns that are out of the factor, as many as it has room for.
    SW_HD void enter_some(uint64_t columns) {
        if constexpr (keeps_inverses) {
            in_factor |= columns;
            at_upper &= ~columns;
            count = bits_in(static_cast<unsigned>(in_factor));
            return;
        }
        int place = count;
        SW_ROLLED
        for (; columns && place < Kind::positions; columns &= columns - 1, ++place) {
            const int j = lowest_of(columns);
            if (lanes.lane() == 0) order[place] = j;
            in_factor |= bit_of(j);
        }
        at_upper &= ~in_factor;
        count = place;
        lanes.sync();
    }

    // Norms for the scores, with the lambda of this system.
    SW_HD void find_norms() {
        if constexpr (!own_norms) return;
        find_inverse_norms(own_inverse);
    }
    SW_HD void find_inverse_norms(double* inverse) const {
        each_column([&](int j, int t) { inverse[t] = judged_square(j); });
        if constexpr (Lanes::has_sweeps)
            lanes.invert_roots(inverse, n);
        else
            each_column([&](int, int t) { inverse[t] = inverse[t] > 0 ? 1 / square_root(inverse[t]) : 0.0; });
    }
    // For columns of zeros there is nothing but the row of a sum.
    SW_HD double judged_square(int j) const {
        const double square = this->square(j);
        return square > 0 ? square : coefficient_square(j);
    }
    SW_HD double coefficient_square(int j) const {
        if constexpr (Kind::summed)
            return rho * coefficient(j) * coefficient(j);
        else
            return 0.0;
    }

    // Columns with x other than zero; where there are no bounds but zero these are in the factor.
    template <class Body>
    SW_HD void each_not_zero(Body body) const {
        if constexpr (width > 1 && !Kind::bounded) {
            SW_UNROLL_BY(2)
            for (int p = 0; p < count; ++p) body(order[p]);
        } else {
            SW_ROLLED
            for (uint64_t rest = nonzero; rest; rest &= rest - 1) body(lowest_of(rest));
        }
    }

    // r . r of r = b - A x over the rows of A, or of b alone; with `wants_product` A'r in w. Eight rows are
    // at work at a time, so that nothing as long as a column is kept.
    template <bool wants_product>
    SW_HD double residual_of_rows(bool subtracts) {
        if constexpr (Lanes::has_sweeps) {
            if constexpr (wants_product && Kind::summed) w[n - 1] = 0;  // perhaps a slack
            return numbers.with(b(), [&](const auto* values) {
                return lanes.template residual<wants_product>(values, job.rows, products.shared, x,
                                                              subtracts ? nonzero : 0, job.columns, w);
            });
        } else if constexpr (width > 1)
            return residual_by_lanes<wants_product>(*this, subtracts);
        else
            return residual_by_thread<wants_product>(*this, subtracts);
    }

protected:
    template <int most, class Body>
    SW_HD void each(int count, Body body) const {
        if constexpr (width == 1) {
            SW_ROLLED
            for (int j = 0; j < count; ++j) body(j, j);
        } else {
            SW_UNROLL
            for (int t = 0; t < most; ++t) {
                const int j = lanes.lane() + width * t;
                if (j < count) body(j, t);
            }
        }
    }
};

}  // namespace small
}  // namespace lsq
SW_END
