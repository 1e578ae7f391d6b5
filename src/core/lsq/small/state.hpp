// A small system: what is known of it, and where it stands. The parts of the solver are functions of it, a
// file each: passes over the rows of A (rows.hpp), how it begins (start.hpp, sums.hpp, guess.hpp), the dual
// (dual.hpp), the factor (factor.hpp), columns in and out of it (set.hpp), steps to a solution (steps.hpp),
// the search for lambda (search.hpp), the answer (answer.hpp), and the iteration of them all (solver.hpp).
//
// Everything is in tables of products. Where a thread has a system of its own, indices go the same way for
// all threads of a warp wherever that can be, so that what they keep, an entry of each side by side, is read
// together.
#pragma once

#include "core/lsq/level.hpp"
#include "core/lsq/numbers.hpp"
#include "core/lsq/scaling.hpp"
#include "core/lsq/small/report.hpp"
#include "core/lsq/stacked.hpp"

SW_BEGIN
namespace lsq {
namespace small {

constexpr uint64_t no_columns = 0;  // as a set of columns, a bit each

// The step from x to the solution on the columns of the factor, which bounds may cut into parts.
struct StepInProgress {
    bool open = false;  // parts are left to take
    double left = 1;    // so much of the dual is left
    // Where one column entered, at the last place: its unknown has to rise (1) or to fall (-1). 0: none
    // entered, or several.
    double inward = 0;
    // The columns that entered, where the step solves for their duals alone: those of the other columns in
    // the factor are rounding, which a step of refinement sees to. Else none.
    uint64_t entered = no_columns;
};

// Where the search for lambda stands. phi is the squared residual.
struct Search {
    double unpenalized = double_nan();  // phi at nu = 0
    double level = 0;                   // what phi has to be
    int at_end = 0;                     // -1, 1: lambda lies at an end of its range
    int evaluations = 0;                // solutions with some lambda
    bool unfit = false;                 // squares are beyond the range of numbers
};
// With the search along s = ln lambda^2, where there is a penalty; without one a system has nothing to set
// up.
template <bool penalized>
struct SearchOf : Search {
    LevelSearch along;
};
template <>
struct SearchOf<false> : Search {};

template <class KindType, class LanesType>
struct State {
    typedef KindType Kind;
    typedef LanesType Lanes;
    typedef typename Kind::Numbers Numbers;
    static constexpr int source = Kind::source, capacity = Kind::capacity, positions = Kind::positions;
    static constexpr bool summed = Kind::summed, has_slack = Kind::has_slack, penalized = Kind::penalized,
                          boxed = Kind::boxed, bounded = Kind::bounded, shares = Kind::shares;
    static constexpr int width = Lanes::width;
    static constexpr bool has_sweeps = Lanes::has_sweeps;
    static constexpr int chunk = 8;  // columns that one thread sums at once
    // Columns and positions of a lane.
    static constexpr int own_columns = (capacity + width - 1) / width;
    static constexpr int own_positions = (positions + width - 1) / width;
    static_assert(sizeof(Store<Kind, width>) == 8 * store_length(capacity, positions, shares, width));
    // A host's thread keeps those of a bound sum for all systems of a matrix.
    static constexpr bool keeps_sum = has_sweeps && summed && shares && !penalized;
    static constexpr bool own_norms = Kind::own_norms && !keeps_sum;
    // Whether the inverses of all sets of columns are kept: there is no factor then but to find one, and a
    // column's position is its number.
    static constexpr bool keeps_inverses =
        has_sweeps && source == one_matrix && !penalized && capacity <= kept_columns;
    // Whether all columns of a step are looked at at once, as there are no bounds but zero; and some systems.
    static constexpr bool sweeps_signs = keeps_inverses && !bounded;
    // A device's thread does not keep duals that no step and no answer reads.
    static constexpr bool keeps_all = summed || !shares || width > 1 || has_sweeps;
    // Whether tables have the last word where the residual is large. (A device's thread that keeps few duals
    // has not all of them then.)
    static constexpr bool certifies = source == own_matrix || (shares && !penalized && keeps_all);
    // Whether a guess may keep some of the columns alone. (It misses a bound sum then, until all of a step is
    // taken.)
    static constexpr bool projects = !summed || !bounded;

    // What is given, and the memory of Store.
    const Job& job;
    const int64_t system;
    const Products& products;
    const Lanes lanes;
    const Numbers numbers;
    const int n;  // columns, a slack included
    double *const x, *const w, *const table;
    int32_t* const order;
    double *const row_residuals, *const factor;  // factor: L by rows, without the ones on its diagonal

    // A'b, 1 / |a_j| of a lane's columns, and what else is known from the start.
    double c[own_columns];
    double own_inverse[own_norms ? own_columns : 1];
    // With bounds so far away that x would lose its digits to them: they do not count while nothing is beyond
    // them (types.hpp: far_bounds).
    uint64_t far_below = 0, far_above = 0;
    double squared_b = 0, b_norm = 0;
    double nu = 0;  // lambda^2 of a penalty
    // Of a bound sum: the weight of its row, and the sum that x has to have.
    double rho = 0, wanted = 0;
    bool drops_upper = false;  // upper bounds do not count that the sum keeps x below anyhow
    double least_sum = 0;      // the sum of the columns at their first bounds, less its rounding
    double missing = 0;        // what x misses of the sum at the start

    // Sets of columns, a bit each: those in the factor, those at their upper bound, those that never enter
    // the factor, and those with x other than zero.
    uint64_t in_factor = 0, at_upper = 0, excluded = 0, nonzero = 0;
    uint64_t masked = 0;  // columns that the caller's mask leaves out
    int count = 0;        // how many columns are in the factor

    // The dual. As in dual.hpp of the solver for all sizes: the largest of a column at a bound and of one
    // between, over its norm; what rounding leaves of them; and |b| + sum |a_j x_j|.
    double top = 0, slope = 0, slack = 0, size = 0;
    int top_column = 0;
    double squared_residual = 0;  // |b - A x|^2 and the penalty; from tables only where it is needed
    double squared_fit = 0;       // |b - A x|^2
    double multiplier = 0;        // of a bound sum
    double deficit = 0;           // what x misses of the sum
    // Norms of columns, a whole number of eights, where sweeps read them and each system has its own.
    double own_norm[has_sweeps && own_norms ? capacity : 1];
    bool has_norms = false;
    // Where sweeps judge: the dual of a column at a bound over its norm, which says what leaving gains; else
    // zero.
    double scores[has_sweeps ? capacity : 1];

    // The factor. A lane's positions: 1 / D; a step; and, where a sum is bound, L^-1 s, s its coefficients.
    double inverse_pivot[own_positions], step[own_positions], sum[summed ? own_positions : 1];
    int factored = 0;  // how many rows of L are known

    Counts counts;
    StepInProgress in_progress;
    // Whether the next step may be a projected one: all of it is taken, and what would be beyond a bound is
    // at that bound, so that x is no solution; and whether the last one was.
    bool may_project = false, was_projected = false;

    // With A given, the dual comes from tables until nothing is left to do, and then from A.
    bool from_table = true;
    SearchOf<penalized> search;
    bool settled = true;    // x is a solution on the columns in the factor, but for rounding
    bool trusting = false;  // with a lambda that is only tried, tables will do

    bool solved = false;
    // Of a set: steps of refinement, duals from A that let a column enter, and how many solutions there may
    // be.
    int refinements = 0, looks = 0, limit = 0;
    int turns_left = 0;  // with this lambda: few of them solve nothing
    // How many projected steps there may still be. Afterwards every step ends where a bound is met, so that
    // no column enters and leaves for ever.
    int projections_left = 0;

    SW_HD State(const Job& job, int64_t system, const Products& products, const Lanes& lanes,
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
          row_residuals(store.residual),
          factor(store.factor) {}
    State(const State&) = delete;  // a lambda takes it by reference

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
    SW_HD int swept() const { return capacity <= padding ? capacity : min_of(capacity, int(padded(n))); }

    SW_HD const void* b() const { return numbers.after(job.b, system * job.b_stride); }
    SW_HD bool is_slack(int j) const { return has_slack && j >= job.columns; }
    SW_HD double scale(int j) const {
        if constexpr (shares)
            return products.shared.scale[j];
        else
            return 1.0;
    }
    SW_HD double gram(int i, int j) const {
        if constexpr (shares)
            return products.gram[i * products.stride + j];
        else
            return table[i * capacity + j];
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
        if constexpr (penalized) value += nu * penalty(j, j);
        return value;
    }
    // a_i . a_j, with all rows; and that of two that are not the same.
    SW_HD double product(int i, int j) const {
        double value = gram(i, j);
        if constexpr (penalized) value += nu * penalty(i, j);
        if constexpr (summed) value += rho * coefficient(i) * coefficient(j);
        return value;
    }
    SW_HD double product_apart(int i, int j) const {
        if constexpr (has_sweeps && penalized && !summed)
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
        if constexpr (!shares) return value;
        return products.unit ? value * products.unit[j] : value / products.shared.scale[j];
    }
    SW_HD SumRange sum_range() const {
        const Constraints& constraints = job.constraints;
        return range_of_sum(constraints.sum_low[system * constraints.sum_stride],
                            constraints.sum_high[system * constraints.sum_stride]);
    }

    // Bounds as given, and in the units of the scaled columns.
    SW_HD double given_bound(int j, bool upper) const {
        const Constraints& constraints = job.constraints;
        if constexpr (!bounded) return upper ? double_infinity : 0.0;
        if (is_slack(j)) {
            const SumRange range = sum_range();
            return upper ? range.slack_high : range.slack_low;
        }
        if constexpr (!boxed) return upper ? double_infinity : 0.0;
        return upper ? constraints.upper[system * constraints.upper_stride + j]
                     : constraints.lower[system * constraints.lower_stride + j];
    }
    // Bounds as they count: far ones are infinite.
    SW_HD double bound(int j, bool upper) const {
        if constexpr (boxed)
            if ((upper ? far_above : far_below) & bit_of(j))
                return upper ? double_infinity : -double_infinity;
        return given_bound(j, upper);
    }
    SW_HD double lower(int j) const {
        if (!boxed && !is_slack(j)) return 0.0;
        return in_units_of(j, bound(j, false));
    }
    SW_HD double upper(int j) const {
        if (!boxed && !is_slack(j)) return double_infinity;
        const double high = in_units_of(j, bound(j, true));
        if (summed && drops_upper && is_finite(high)) {
            const double low = lower(j), s = coefficient(j);
            if (!(at_upper & bit_of(j)) && s * high - s * low >= wanted - least_sum) return double_infinity;
        }
        return high;
    }
    SW_HD bool is_masked(int j) const { return masked & bit_of(j); }
    // Whether a column is out of the factor and may enter it; and all that are.
    SW_HD bool is_at_bound(int j) const { return out_of_factor() & bit_of(j); }
    SW_HD uint64_t out_of_factor() const { return ~(in_factor | excluded); }

    // Columns with x other than zero; where there are no bounds but zero these are in the factor.
    template <class Body>
    SW_HD void each_not_zero(Body body) const {
        if constexpr (width > 1 && !bounded) {
            SW_UNROLL_BY(2)
            for (int p = 0; p < count; ++p) body(order[p]);
        } else {
            SW_ROLLED
            for (uint64_t rest = nonzero; rest; rest &= rest - 1) body(lowest_of(rest));
        }
    }

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
