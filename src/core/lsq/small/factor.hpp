// The factor of the columns of a small system that are between their bounds, and solutions with it.
//
// L D L' = A_P'A_P, row after row in the order in which columns came; a row is the forward substitution of
// its column. Where all systems have one matrix of few columns inverses are kept in its place.
#pragma once

#include "core/lsq/small/dual.hpp"

SW_BEGIN
namespace lsq {
namespace small {

template <class Kind, class Lanes>
struct Factor : Dual<Kind, Lanes> {
    using Base = Dual<Kind, Lanes>;
    using Base::count;
    using Base::deficit;
    using Base::in_factor;
    using Base::keeps_inverses;
    using Base::lanes;
    using Base::order;
    using Base::own_positions;
    using Base::w;
    using Base::width;

    double* const factor;  // L by rows, without the ones on its diagonal
    // A lane's positions: 1 / D; a step; and, where a sum is bound, L^-1 s, s its coefficients.
    double inverse_pivot[own_positions], step[own_positions], sum[Kind::summed ? own_positions : 1];
    int factored = 0;  // rows of L that are there

    SW_HD Factor(const Job& job, int64_t system, const Products& products, const Lanes& lanes,
                 Store<Kind, width>& store)
        : Base(job, system, products, lanes, store), factor(store.factor) {}

    // Rows of L that are missing. False where a column depends on the others as far as products tell.
    SW_HD bool complete_factor() { return complete_factor(smallest_pivot<Kind>(this->n)); }

    // The same; false also where a column's part outside the others is less than `least` of its square.
    SW_HD bool complete_factor(double least) {
        if constexpr (keeps_inverses) {
            double& outside = lanes.kept->outside[in_factor];
            if (outside == 0) outside = find_inverse();
            return outside > least;
        } else {
            return complete_rows(least);
        }
    }

    // step = `left` of (L D L')^-1 w_P, or of columns that entered alone; where a sum is bound, of w_P + mu s
    // with s'step = what the sum misses.
    SW_HD void solve(double left, uint64_t entered) {
        if constexpr (keeps_inverses) {
            const auto& kept = lanes.kept->of(in_factor);
            lanes.template solve_by<Kind::summed>(kept, w, entered, this->n, deficit, left, step);
            return;
        }
        int first = 0;
        if (entered)
            for (first = count; first > 0 && (entered & bit_of(order[first - 1]));) --first;
        this->each_position(first, [&](int, int t) { step[t] = 0; });
        fill_step(first, count, [&](int p) { return left * w[order[p]]; });
        substitute(step, count, first);
        direct(left * deficit);
        substitute_back();
    }

    // g' (L D L')^-1 g, outside the direction of a bound sum; g in `step`, which is overwritten.
    SW_HD double square_in_factor() {
        substitute(step, count);
        direct(0);
        double square = 0;
        this->each_position(count, [&](int, int t) { square += step[t] * step[t] * inverse_pivot[t]; });
        return lanes.sum(square);
    }

    // The root of what a step of all columns in the factor would lower the objective by: see
    // general_answer.hpp.
    SW_HD double decrement() {
        if constexpr (keeps_inverses) {
            const auto& inverse = lanes.kept->of(in_factor).inverse;
            double square = 0;
            this->each_in_factor([&](int i, int) {
                this->each_in_factor([&](int j, int) { square += this->w[i] * inverse[i][j] * this->w[j]; });
            });
            return square_root(max_of(0.0, square));
        }
        if (!complete_factor()) return double_infinity;
        this->each_position(count, [&](int p, int t) { step[t] = this->w[order[p]]; });
        return square_root(max_of(0.0, square_in_factor()));
    }

    // The variance of x at a position, where entries of b have variance one and the set is what it is. With M
    // = L^-T (E - E v v'E / v'E v) L^-1, E = D^-1, v = L^-1 s, it is e_p'M A_P'A_P M e_p: M_pp without a
    // penalty.
    SW_HD double variance_at(int position) {
        if constexpr (keeps_inverses)
            return max_of(0.0, lanes.kept->of(in_factor).inverse[position][position]);
        this->each_position(count, [&](int p, int t) { step[t] = p == position; });
        double square = square_in_factor();
        if constexpr (Kind::penalized) {
            substitute_back();
            square = 0;
            SW_ROLLED
            for (int q = 0; q < count; ++q) {
                const int i = order[q];
                double entry = 0;
                this->each_position(count, [&](int p, int t) { entry += this->gram(i, order[p]) * step[t]; });
                square += lanes.sum(entry) * value_at(step, q);
            }
        }
        return max_of(0.0, square);
    }

    SW_HD bool has_weak_pivot(int refinements = 0) const {
        const double least =
            weak_pivot<Kind>(!this->out_of_factor(), this->job.options.damping > 0, refinements);
        if (least == 0) return false;
        return smallest_part() < least;
    }

    // The smallest part of a column's square that is outside those before it in the factor.
    SW_HD double smallest_part() const {
        if (count == 0) return 1.0;
        if constexpr (keeps_inverses) return lanes.kept->outside[in_factor];
        double over = 1;
        this->each_in_factor(
            [&](int j, int t) { over = max_of(over, inverse_pivot[t] * this->product(j, j)); });
        return 1 / lanes.most(over);
    }

    // The rows of L without those of some places, the first of them at `first`. (A device's threads find them
    // anew: each would take out others.)
    SW_HD void take_out(uint64_t places, int rows, int first) {
        lanes.take_out(factor, inverse_pivot, rows, places);
        factored = count;
        if constexpr (Kind::summed)
            for (int p = first; p < count; ++p)
                sum[p] = this->coefficient(order[p]) - lanes.inner(row_of(factor, p), sum, p);
    }

private:
    SW_HD bool complete_rows(double least) {
        if constexpr (Lanes::has_sweeps && !Kind::summed) {
            while (count - factored > 1)
                if (!complete_some(least)) return false;
        }
        SW_ROLLED
        for (; factored < count; ++factored) {
            const int place = factored, j = order[place];
            fill_step(0, place, [&](int p) { return this->product_apart(j, order[p]); });
            substitute(step, place);
            double *const row = row_of(factor, place), inside = 0, in_sum = 0;
            if constexpr (Lanes::has_sweeps) {
                inside = lanes.scale_row(step, inverse_pivot, row, place);
                if constexpr (Kind::summed) in_sum = lanes.inner(row, sum, place);
            } else {
                this->each_position(place, [&](int p, int t) {
                    const double entry = step[t] * inverse_pivot[t];
                    row[p] = entry;
                    inside += entry * step[t];
                    if constexpr (Kind::summed) in_sum += entry * sum[t];
                });
            }
            const double square = this->product(j, j), outside = square - lanes.sum(inside);
            if (!(outside > least * square)) return false;
            const double inverse = 1 / outside;
            if constexpr (Kind::summed) in_sum = this->coefficient(j) - lanes.sum(in_sum);
            const auto set = [&](int t) {
                inverse_pivot[t] = inverse;
                if constexpr (Kind::summed) sum[t] = in_sum;
            };
            if constexpr (width == 1)
                set(place);
            else
                this->each_position(place + 1, [&](int p, int t) {
                    if (p == place) set(t);
                });
            lanes.sync();
        }
        return true;
    }

    // Up to four rows at once: what they have in common with those before is found for all of them, so that
    // none waits for the one before.
    SW_HD bool complete_some(double least) {
        const int before = factored, here = min_of(4, count - before);
        static_assert(Kind::positions % 4 == 0 && sizeof(typename Lanes::Fours) >= 4 * 8 * Kind::positions);
        alignas(32) typename Lanes::Fours values;
        alignas(32) double products[4][4];
        double spare[Kind::positions], apart[4][4];  // `apart`: L D among themselves
        double* row[4];
        int column[4];
        for (int k = 0; k < 4; ++k) {
            row[k] = k < here ? row_of(factor, before + k) : spare;
            column[k] = order[before + min_of(k, here - 1)];
        }
        for (int p = 0; p < before; ++p)
            for (int k = 0; k < 4; ++k) values[p][k] = this->product_apart(column[k], order[p]);
        lanes.substitute_four(factor, values, before);
        lanes.scale_four(values, inverse_pivot, before, row, products);
        for (int k = 0; k < here; ++k, ++factored) {
            const double square = this->product(column[k], column[k]);
            double outside = square - products[k][k];
            for (int i = 0; i < k; ++i) {
                double entry = this->product_apart(column[k], column[i]) - products[k][i];
                for (int q = 0; q < i; ++q) entry -= row[i][before + q] * apart[k][q];
                const double scaled = entry * inverse_pivot[before + i];
                apart[k][i] = entry;
                row[k][before + i] = scaled;
                outside -= entry * scaled;
            }
            if (!(outside > least * square)) return false;
            inverse_pivot[before + k] = 1 / outside;
        }
        return true;
    }

    // Of the columns in the factor, in ascending order: the rows of (A_P'A_P)^-1, in the directions that keep
    // a bound sum, what changes that sum by one, and what its multiplier is of duals. Returns the smallest
    // part of a column's square outside those before it.
    SW_HD double find_inverse() {
        auto& kept = lanes.kept->of(in_factor);
        kept = {};
        if constexpr (Kind::summed) find_multiplier(kept.multiplier);
        int place = 0;
        for (uint64_t rest = in_factor; rest; rest &= rest - 1) order[place++] = lowest_of(rest);
        factored = 0;
        double outside = nothing_outside;
        if (complete_rows(0)) {
            const auto solve_for = [&](int position, double* row) {  // `count`: for what changes the sum
                for (int p = 0; p < count; ++p) step[p] = p == position;
                substitute(step, count);
                direct(position == count);
                substitute_back();
                for (int p = 0; p < count; ++p) row[order[p]] = step[p];
            };
            outside = 1;
            for (int p = 0; p < count; ++p) {
                const int j = order[p];
                solve_for(p, kept.inverse[j]);
                outside = min_of(outside, 1 / (inverse_pivot[p] * this->product(j, j)));
            }
            if (Kind::summed) solve_for(count, kept.along);
        }
        return outside;
    }

    SW_HD void find_multiplier(double* row) const {
        double square = 0;
        this->each_in_factor([&](int j, int) { square += this->coefficient(j) * this->coefficient(j); });
        this->each_in_factor([&](int j, int) { row[j] = -this->coefficient(j) / square; });
    }

    // Where a sum is bound: step += mu v, v = L^-1 s, so that v'E step is what is given.
    SW_HD void direct(double along) {
        if constexpr (Kind::summed) {
            double inside = 0, size = 0;
            this->each_position(count, [&](int, int t) {
                inside += sum[t] * inverse_pivot[t] * step[t];
                size += sum[t] * inverse_pivot[t] * sum[t];
            });
            inside = lanes.sum(inside);
            size = lanes.sum(size);
            const double mu = size > 0 ? (along - inside) / size : 0.0;
            this->each_position(count, [&](int, int t) { step[t] += mu * sum[t]; });
        }
    }

    // A position's value, from the lane that has it.
    SW_HD double value_at(const double (&values)[own_positions], int p) const {
        if constexpr (width == 1) return values[p];
        double mine = values[0];
        SW_UNROLL
        for (int t = 1; t < own_positions; ++t) mine = p >= width * t ? values[t] : mine;
        return lanes.pick(mine, p % width);
    }

    // step at the places from `first` up to `end`.
    template <class Value>
    SW_HD void fill_step(int first, int end, Value value) {
        if constexpr (Lanes::has_sweeps)
            lanes.fill(step, first, end, value);
        else
            this->each_position(end, [&](int p, int t) {
                if (p >= first) step[t] = value(p);
            });
    }

    // values = L^-1 values, the first `rows`, of which those before `first` are zero. A thread takes a row
    // after the other, lanes a column.
    SW_HD void substitute(double (&values)[own_positions], int rows, int first = 0) const {
        if constexpr (Lanes::has_sweeps) {
            lanes.substitute(factor, values, rows, first);
        } else if constexpr (width == 1) {
            for (int p = first + 1; p < rows; ++p) {
                const double* row = row_of(factor, p);
                double part[2] = {values[p], 0};
                SW_UNROLL_BY(4)
                for (int q = first; q < p; ++q) part[q % 2] -= row[q] * values[q];
                values[p] = part[0] + part[1];
            }
        } else {
            SW_UNROLL_BY(2)
            for (int q = first; q < rows - 1; ++q) {
                const double value = value_at(values, q);
                this->each_position(rows, [&](int p, int t) {
                    if (p > q) values[t] -= row_of(factor, p)[q] * value;
                });
            }
        }
    }

    // step = L^-T D^-1 step. Threads begin at the same row, so that they read the same places.
    SW_HD void substitute_back() {
        this->each_position(count, [&](int, int t) { step[t] *= inverse_pivot[t]; });
        if constexpr (Lanes::has_sweeps) {
            lanes.substitute_back(factor, step, count);
        } else if constexpr (width == 1) {
            for (int p = Kind::positions - 1; p > 0; --p) {
                if (p >= count) continue;
                const double* row = row_of(factor, p);
                const double value = step[p];
                SW_UNROLL_BY(4)
                for (int q = 0; q < p; ++q) step[q] -= row[q] * value;
            }
        } else {
            SW_UNROLL_BY(2)
            for (int p = count - 1; p > 0; --p) {
                const double* row = row_of(factor, p);
                const double value = value_at(step, p);
                this->each_position(p, [&](int q, int t) { step[t] -= row[q] * value; });
            }
        }
    }
};

}  // namespace small
}  // namespace lsq
SW_END
