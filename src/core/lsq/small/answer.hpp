// What is written of a small system that is solved.
#pragma once

#include "core/lsq/frank_wolfe.hpp"
#include "core/lsq/judge.hpp"
#include "core/lsq/small/sums.hpp"

SW_BEGIN
namespace lsq {
namespace small {

template <class Kind, class Lanes>
struct Answer : Sums<Kind, Lanes> {
    using Base = Sums<Kind, Lanes>;
    using Base::b_norm;
    using Base::count;
    using Base::in_factor;
    using Base::job;
    using Base::lanes;
    using Base::nu;
    using Base::numbers;
    using Base::order;
    using Base::size;
    using Base::slope;
    using Base::squared_fit;
    using Base::system;
    using Base::top;
    using Base::w;
    using Base::width;
    using Base::x;

    // With A given, the dual comes from tables until nothing is left to do, and then from A.
    bool from_table = true;
    // Whether tables have the last word where the residual is large. (A device's thread that keeps few duals
    // has not all of them then.)
    static constexpr bool certifies =
        Kind::source == own_matrix || (Kind::shares && !Kind::penalized && Base::keeps_all);
    // Of a lambda that is chosen: phi at nu = 0, whether it lies at an end of its range, and how many were
    // tried.
    double unpenalized = double_nan();
    int at_end = 0, evaluations = 0;

    SW_HD Answer(const Job& job, int64_t system, const Products& products, const Lanes& lanes,
                 Store<Kind, width>& store)
        : Base(job, system, products, lanes, store) {}

    // The residual and the dual that are reported belong to the x that is returned.
    SW_HD void round_answer() {
        this->each_in_factor([&](int j, int) {
            const double scale = this->scale(j);
            x[j] = numbers.rounded(x[j] * scale) / scale;
        });
        lanes.sync();
        if (from_table) {
            this->dual_from_table();
            if constexpr (certifies) {
                this->fit_from_table();
                finish_fit();
            }
        } else {
            this->dual_from_rows();
        }
    }

    // The fit from A where products do not have its digits.
    SW_HD void finish_fit() {
        if (is_large(squared_fit, size)) return;
        if constexpr (Kind::shares && Lanes::has_sweeps) {
            const double below = this->squared_residual - squared_fit;
            ++this->passes;
            squared_fit = this->template residual_of_rows<false>(true);
            this->squared_residual = squared_fit + below;
        }
    }

    SW_HD Counts counted() const {
        Counts counts{this->insertions, this->removals, this->solves, this->passes, {}};
        SW_UNROLL
        for (int k = 0; k < 4; ++k) counts.costs[k] = this->costs[k];
        return counts;
    }

    // False where x is beyond the largest number of its kind or a far bound, or where it is not certified.
    SW_HD bool answer() {
        if (is_beyond_far_bounds() || !write_vectors()) return false;
        if (size > 0 && size < smallest_square_root) return false;  // the squares of residuals are no numbers
        Measured measured{max_of(0.0, max_of(top, slope)), b_norm, size, b_norm,
                          b_norm + square_root(max_of(0.0, squared_fit))};
        // (Of normal equations the residual is not known.)
        if constexpr (Kind::source == normal_equations)
            measured.given = size;
        else if constexpr (Kind::bounded)
            measured.given = max_of(b_norm, this->size_of_references());
        if constexpr (Kind::summed && Kind::source != normal_equations) {
            const double left = square_root(max_of(0.0, max_of(squared_fit, this->squared_residual)));
            measured.hides_duals = hides_duals(b_norm + left, size);
            measured.given += left;
            measured.task = b_norm + left;
        } else {
            measured.task = max_of(measured.task, measured.given);
        }
        if constexpr (Kind::summed) {
            if (zeros_object()) return false;
            measure_sum(measured);
        }
        if constexpr ((Kind::boxed || Kind::penalized) && !Kind::summed) {
            measured.objective = square_root(max_of(0.0, max_of(squared_fit, this->squared_residual)));
            measured.named = measured.objective > b_norm ? b_norm + size_of_nearest() : b_norm;
        }
        if constexpr (Kind::penalized) {
            // (A norm beyond the largest number, by a lambda as large, says nothing.)
            bool any = false;
            this->each_column([&](int j, int) { any = any || !(this->square(j) < double_infinity); });
            if (lanes.any(any)) return false;
        }
        if (Kind::source != normal_equations && this->has_weak_pivot())
            measured.decrement = doubtful_decrement();
        if (!is_certified(job, measured, numbers.rounds)) return false;
        if (lanes.lane() == 0) {
            job.residual[system] = square_root(squared_fit);
            job.violation[system] = violation_of(job, measured);
            write_counts<1>(job, system, counted());
        }
        if (job.constraints.general) write_more(measured);
        return true;
    }

protected:
    // Whether x is beyond a bound that did not count, as it was far.
    SW_HD bool is_beyond_far_bounds() const {
        if (!Kind::boxed || !(this->far_below | this->far_above)) return false;
        bool beyond = false;
        this->each_column([&](int j, int) {
            const double at = returned_x(j);
            const bool within = at >= this->given_bound(j, false) && at <= this->given_bound(j, true);
            beyond = beyond || (j < job.columns && !this->is_masked(j) && !within);
        });
        return lanes.any(beyond);
    }

    // How far the objective may be from the lowest on the columns in the factor, as a root, where products
    // have lost digits of a pivot: what the factor says of it, and what the rounding of a dual from A may
    // hide. (The penalty's part of a dual comes from products.)
    SW_HD double doubtful_decrement() {
        const double part = Kind::penalized ? size : square_root(max_of(0.0, squared_fit));
        return max_of(doubtful_pivots * this->decrement(),
                      double_epsilon * part / square_root(this->smallest_part()));
    }

private:
    // x_j in the caller's units; of a column out of the factor the bound itself.
    SW_HD double returned_x(int j) const {
        const double value = x[j] * this->scale(j);
        if constexpr (!Kind::bounded) return value;
        const double low = this->bound(j, false), high = this->bound(j, true);
        if (in_factor & bit_of(j)) return clamp_to(value, low, high);
        if (this->is_masked(j) || (!is_finite(low) && !is_finite(high))) return 0.0;
        return this->at_upper & bit_of(j) ? high : low;
    }

    // False where not all of x is finite.
    SW_HD bool write_vectors() {
        const Constraints& constraints = job.constraints;
        const int given = job.columns;
        const int64_t row = system * given;
        void *out = numbers.after(job.x, row), *dual = numbers.after(job.dual, row);
        // (A byte that is written might be any of what is known here: so it is read before.)
        uint8_t* const active = job.active ? job.active + row : nullptr;
        int8_t* const states = constraints.general ? constraints.state + row : nullptr;
        const uint64_t in_factor = this->in_factor, masked = this->masked;
        if constexpr (Lanes::has_sweeps && Kind::shares && !Kind::bounded) {
            if (active) lanes.write_bytes(active, given, in_factor, 1, 0, 0);
            if (states) lanes.write_bytes(states, given, ~in_factor, 0xff, masked, 2);
            numbers.with(dual, [&](auto* to) { lanes.scale_into(to, w, this->products.unit, given); });
            return numbers.with(
                out, [&](auto* to) { return lanes.scale_into(to, x, this->products.shared.scale, given); });
        }
        double odd = 0;
        this->each_column([&](int j, int) {
            if (j >= given) return;
            const bool is_in_factor = in_factor & bit_of(j), is_masked = masked & bit_of(j);
            const double value = returned_x(j);
            int state = is_in_factor ? 0 : -1;
            if constexpr (Kind::bounded) {
                const double low = this->bound(j, false), high = this->bound(j, true);
                const bool up = this->at_upper & bit_of(j), is_free = !is_finite(low) && !is_finite(high);
                if (!is_in_factor) state = is_masked || low == high ? 2 : is_free ? 0 : up ? 1 : -1;
            } else if (is_masked) {
                state = 2;
            }
            const double rounded = numbers.rounded(value);
            numbers.write(out, j, rounded);
            numbers.write(dual, j, this->dual_in_units(j));
            if (active) active[j] = is_in_factor;
            if (states) states[j] = static_cast<int8_t>(state);
            odd += rounded - rounded;
        });
        lanes.sync();
        return !lanes.any(odd != 0);
    }

    // sum |k_j| |y_j| of the y within the bounds that is nearest to zero.
    SW_HD double size_of_nearest() const {
        double size = 0;
        this->each_column([&](int j, int) {
            const double nearest = nearest_to_zero(this->given_bound(j, false), this->given_bound(j, true));
            if (nearest != 0 && !this->is_masked(j) && this->scale(j) > 0)
                size += absolute(this->in_units_of(j, nearest)) * square_root(this->square(j));
        });
        return lanes.sum(size);
    }

    // Whether a column of zeros, or the slack, asks for another multiplier, of which it says the sign or that
    // it is zero, and the duals of the others would not be those any more: least_breach() finds the one that
    // suits all.
    SW_HD bool zeros_object() const {
        const double mu = this->multiplier;
        bool objects = false;
        this->each_column([&](int j, int) {
            if (this->square(j) > 0 || this->is_masked(j)) return;
            const bool falls = (in_factor | this->at_upper) & bit_of(j),
                       rises = !(this->at_upper & bit_of(j));
            objects = objects || (mu > 0 && rises) || (mu < 0 && falls);
        });
        if (!lanes.any(objects)) return false;
        // Whether the duals of the others would change by more than rounding.
        const double room = max_of(job.options.tolerance, job.options.rounding) * size;
        bool matters = false;
        this->each_column([&](int j, int) {
            const double square = this->square(j);
            if (!(square > 0) || this->is_masked(j)) return;
            matters = matters || absolute(mu) * this->coefficient(j) > room * square_root(square);
        });
        return lanes.any(matters);
    }

    // What the sum of the x that is returned misses.
    SW_HD void measure_sum(Measured& measured) const {
        const Constraints& constraints = job.constraints;
        const void* out = numbers.after(job.x, system * job.columns);
        const double low = constraints.sum_low[system * constraints.sum_stride],
                     high = constraints.sum_high[system * constraints.sum_stride];
        double sum = 0, sum_size = absolute(is_finite(high) ? high : low);
        SW_ROLLED
        for (int j = 0; j < job.columns; ++j) {
            const double part =
                (constraints.coefficients ? constraints.coefficients[j] : 1.0) * numbers.read(out, j);
            sum += part;
            sum_size += absolute(part);
        }
        measured.sum_error = max_of(0.0, max_of(low - sum, sum - high));
        measured.sum_size = sum_size;
    }

    SW_HD void write_more(const Measured& measured) {
        const Constraints& constraints = job.constraints;
        const int given = job.columns;
        const void* out = numbers.after(job.x, system * given);
        double seminorm = 0;
        if constexpr (Kind::penalized) {
            SW_ROLLED
            for (int i = lanes.lane(); i < constraints.penalty_rows; i += width) {
                double entry = 0;
                if (constraints.penalty)
                    for (int j = 0; j < given; ++j)
                        entry +=
                            constraints.penalty[static_cast<int64_t>(i) * given + j] * numbers.read(out, j);
                else
                    entry = numbers.read(out, i);
                seminorm += entry * entry;
            }
            seminorm = lanes.sum(seminorm);
        }
        if (lanes.lane() == 0) {
            constraints.multiplier[system] = this->multiplier;
            constraints.equality_error[system] = measured.sum_error;
            if constexpr (Kind::summed)
                if (constraints.gap)
                    constraints.gap[system] =
                        frank_wolfe_gap(constraints, system,
                                        ascent_of(numbers, constraints, system, given, out,
                                                  numbers.after(job.dual, system * given), this->multiplier));
            if (constraints.used_lam) {
                constraints.used_lam[system] = square_root(nu);
                constraints.fit[system] = squared_fit;
                constraints.seminorm[system] = square_root(seminorm);
                constraints.unpenalized[system] = unpenalized;
                constraints.at_end[system] = at_end;
                constraints.evaluations[system] = evaluations;
                constraints.passive[system] = count - Kind::summed;
            }
        }
        if (!constraints.deviation) return;
        double* deviation = constraints.deviation + system * given;
        this->each_column([&](int j, int) {
            if (j < given && !(in_factor & bit_of(j))) deviation[j] = 0;
        });
        SW_ROLLED
        for (int p = 0; p < (Base::keeps_inverses ? given : count); ++p) {
            const int j = Base::keeps_inverses ? p : order[p];
            if (!(in_factor & bit_of(j))) continue;
            const double scale = this->scale(j), square = this->variance_at(p);
            if (j < given && lanes.lane() == 0) deviation[j] = square_root(square) * scale;
        }
    }
};

}  // namespace small
}  // namespace lsq
SW_END
