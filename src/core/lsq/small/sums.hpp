// A small system whose sum is bound: the way to a point that has it, and the sum of what is returned.
#pragma once

#include "core/lsq/small/steps.hpp"

SW_BEGIN
namespace lsq {
namespace small {

template <class Kind, class Lanes>
struct Sums : Steps<Kind, Lanes> {
    using Base = Steps<Kind, Lanes>;
    using Base::count;
    using Base::in_factor;
    using Base::job;
    using Base::lanes;
    using Base::n;
    using Base::system;
    using Base::w;
    using Base::width;
    using Base::x;

    double missing = 0;  // of a bound sum, at the start

    SW_HD Sums(const Job& job, int64_t system, const Products& products, const Lanes& lanes,
               Store<Kind, width>& store)
        : Base(job, system, products, lanes, store) {}

    // With a bound sum: goes to a point that has it. The columns that lower the residual most are filled, one
    // after the other; the last is in the factor then.
    SW_HD bool fill_up() {
        if (count > 0) return true;  // columns without bounds take what is missing
        double rest = missing;
        this->dual_from_table();
        SW_ROLLED
        for (uint64_t tried = 0;;) {
            int best = -1;
            double most = -double_infinity;
            SW_ROLLED
            for (int j = 0; j < n; ++j) {
                if (!this->is_at_bound(j) || (tried & bit_of(j))) continue;
                const double value = value_of_filling(j, rest);
                if (value > most) {
                    most = value;
                    best = j;
                }
            }
            if (best < 0) return false;
            const double s = this->coefficient(best), far = other_bound(best), whole = x[best] + rest / s;
            if (rest > 0 ? whole < far : rest < 0 ? whole > far : true) {
                this->set_x(best, whole);
                this->enter(best);
                this->count_insertions();
                return true;
            }
            tried |= bit_of(best);
            rest -= s * (far - x[best]);
            this->set_x(best, far);
            this->at_upper ^= bit_of(best);
        }
    }

    // Whether some x within the bounds has the sum that is asked for, and how far x is from it.
    SW_HD bool has_sum() {
        this->wanted = missing = this->sum_range().sum;
        if constexpr (!Kind::bounded) return missing == 0 || (missing > 0 && ~this->excluded);
        double lowest = 0, highest = 0, around = absolute(this->wanted);
        SW_ROLLED
        for (int j = 0; j < n; ++j) {
            if (this->is_masked(j)) continue;
            const double s = this->coefficient(j), at = x[j];
            missing -= s * at;
            this->least_sum += s * at;
            around += s * absolute(at);
            if (!this->is_at_bound(j)) continue;
            lowest += s * (this->at_upper & bit_of(j) ? this->lower(j) - at : 0.0);
            highest += s * (this->at_upper & bit_of(j) ? 0.0 : this->upper(j) - at);
        }
        if (count > 0) return true;
        const double room = 8 * double_epsilon * around;
        this->drops_upper = lowest == 0;
        return lowest <= missing + room && highest >= missing - room;
    }

    // The sum of x is what it has to be, but for one rounding: the x with the most room takes what more is
    // missing. False where that is more than rounding, so that the dual is another.
    SW_HD bool mend_sum() {
        const double rest = this->deficit;  // at the point that was judged
        if (absolute(rest) <= double_epsilon * absolute(this->wanted)) return true;
        double highest = -1;
        int where = -1;
        if constexpr (Base::sweeps_signs) {
            where = lanes.place_of_largest(x, this->products.sum->coefficients, highest);
        } else {
            SW_ROLLED
            for (uint64_t columns = in_factor; columns; columns &= columns - 1) {
                const int j = lowest_of(columns);
                const double room =
                    min_of(this->upper(j) - x[j], x[j] - this->lower(j)) * this->coefficient(j);
                if (room > highest) {
                    highest = room;
                    where = j;
                }
            }
        }
        if (where < 0 || !(highest > absolute(rest))) return true;
        const double move = rest / this->coefficient(where);
        this->set_x(where, x[where] + move);
        return absolute(move) * square_root(this->square(where)) <= this->job.options.rounding * this->size;
    }

private:
    SW_HD double other_bound(int j) const {
        return this->at_upper & bit_of(j) ? this->lower(j) : this->upper(j);
    }

    // How much less the squared residual is with column j filled as far as it can be; w has no multiplier.
    SW_HD double value_of_filling(int j, double rest) const {
        const double s = this->coefficient(j), by = other_bound(j) - x[j];
        if (!(s > 0) || (rest > 0 ? !(by > 0) : rest < 0 ? !(by < 0) : false)) return -double_infinity;
        const double d = rest > 0 ? min_of(by, rest / s) : rest < 0 ? max_of(by, rest / s) : 0.0;
        return d == 0 ? (by < 0 ? -w[j] : w[j]) : d * (2 * w[j] - d * this->square(j));
    }
};

}  // namespace small
}  // namespace lsq
SW_END
