// How a small system begins: what is given is read, and every column is put at a bound or in the factor.
#pragma once

#include "core/lsq/small/system.hpp"

SW_BEGIN
namespace lsq {
namespace small {

template <class Kind, class Lanes>
struct Start : System<Kind, Lanes> {
    using Base = System<Kind, Lanes>;
    using Base::at_upper;
    using Base::b_norm;
    using Base::c;
    using Base::count;
    using Base::excluded;
    using Base::far_above;
    using Base::far_below;
    using Base::job;
    using Base::keeps_sum;
    using Base::lanes;
    using Base::masked;
    using Base::n;
    using Base::nonzero;
    using Base::numbers;
    using Base::own_columns;
    using Base::own_inverse;
    using Base::own_norms;
    using Base::products;
    using Base::rho;
    using Base::squared_b;
    using Base::sweeps_signs;
    using Base::system;
    using Base::table;
    using Base::w;
    using Base::width;
    using Base::x;

    SW_HD Start(const Job& job, int64_t system, const Products& products, const Lanes& lanes,
                Store<Kind, Lanes::width>& store)
        : Base(job, system, products, lanes, store) {}

    // Reads what is given, and puts every column at a bound or, without bounds, in the factor. False where
    // another solver has to see to it: it is told apart there what is wrong, if something is.
    SW_HD bool read() {
        excluded = n < 64 ? ~uint64_t(0) << n : 0;
        if constexpr (Lanes::has_sweeps)
            lanes.clear_two(sweeps_signs && products.guess ? w : x, w, this->swept());
        this->template each<own_columns>(this->swept(), [&](int j, int t) {
            if constexpr (!Lanes::has_sweeps) x[j] = w[j] = 0;
            if constexpr (!(Kind::shares && Lanes::has_sweeps)) c[t] = 0;
            if constexpr (own_norms) own_inverse[t] = 0;
        });
        read_mask();
        lanes.sync();
        if constexpr (Kind::shares && Lanes::has_sweeps) {
            lanes.gather(products.linear, products.linear_step, c, this->swept());
            squared_b = products.squared_b;
        } else if constexpr (Kind::shares) {
            squared_b = this->template residual_of_rows<true>(false);
            this->each_column([&](int j, int t) { c[t] = w[j]; });
        } else if (!read_table()) {
            return false;
        }
        if (!(squared_b == 0 ? is_zero() : is_in_range(squared_b))) return false;
        b_norm = square_root(squared_b);
        if constexpr (keeps_sum) {
            if (!(products.sum->weight > 0)) keep_sum(*products.sum);
            rho = products.sum->weight;
        } else if constexpr (Kind::summed && Kind::shares && Lanes::has_sweeps) {
            if (!(products.sum->weight > 0)) products.sum->weight = weight_of_sum();
            rho = products.sum->weight;
        } else if constexpr (Kind::summed) {
            rho = weight_of_sum();
        }
        this->find_norms();
        return put_at_bounds();
    }

    SW_HD void keep_sum(KeptSum& kept) {
        for (int j = 0; j < padded(n); ++j) kept.coefficients[j] = j < n ? this->find_coefficient(j) : 0.0;
        kept.weight = rho = weight_of_sum();
        for (int j = n; j < padded(n); ++j) kept.inverse_norm[j] = kept.norm[j] = 0;
        this->find_inverse_norms(kept.inverse_norm);
        for (int j = 0; j < n; ++j) {
            kept.norm[j] = this->square(j) * kept.inverse_norm[j];
            kept.inverse[j] = 1 / kept.coefficients[j];
            if (!(this->scale(j) > 0) || !(kept.inverse_norm[j] > 0)) kept.nothing |= bit_of(j);
            const int best = kept.pivot;
            if (kept.coefficients[j] * kept.norm[best] > kept.coefficients[best] * kept.norm[j])
                kept.pivot = j;
        }
    }

private:
    SW_HD void read_mask() {
        const Constraints& constraints = job.constraints;
        if (!constraints.mask) return;
        const uint8_t* mask = constraints.mask + system * constraints.mask_stride;
        this->each_column([&](int j, int) {
            if (j < job.columns && !mask[j]) masked |= bit_of(j);
        });
        masked = lanes.join(masked);
    }

    // The products that are given, of `given` columns, and zeros for a slack. False where one is not finite.
    SW_HD bool read_products(const double* from, int given) {
        if constexpr (Lanes::has_sweeps) {
            return lanes.copy_rows(from, given, n, table, Kind::capacity);
        } else {
            double odd = 0;
            this->each_column([&](int j, int) {
                for (int i = 0; i < n; ++i) {
                    const double value = i < given && j < given ? from[i * given + j] : 0.0;
                    table[i * Kind::capacity + j] = value;
                    odd += value - value;
                }
            });
            return odd == 0;
        }
    }

    SW_HD bool read_table() {
        double odd = 0, highest = 0;
        const double* linear = nullptr;
        if constexpr (Kind::source == own_matrix) {
            linear = products.table + n * n;
            if (!read_products(products.table, n)) odd = 1;
            squared_b = products.table[n * (n + 1)];
        } else if constexpr (Kind::source == normal_equations) {
            const Constraints& constraints = job.constraints;
            linear = constraints.linear + system * constraints.linear_stride;
            if (!read_products(constraints.gram + system * constraints.gram_stride, job.columns)) odd = 1;
        }
        this->each_column([&](int j, int t) {
            double& square = table[j * Kind::capacity + j];
            if (j < job.columns) c[t] = linear[j];
            // (Of general problems the damping is zero.)
            if constexpr (Kind::source == own_matrix) square += job.options.damping * job.options.damping;
            odd += c[t] - c[t];
            // (A square of zero may be one of entries too small for it.)
            if ((Kind::source == own_matrix || square != 0) && !(square > 1e-200 && square < 1e200)) odd = 1;
            if (Kind::source == normal_equations && square > 0)
                highest = max_of(highest, absolute(c[t]) * power_below(square_root(square)));
        });
        lanes.sync();
        if constexpr (Kind::source == normal_equations) {
            const Constraints& constraints = job.constraints;
            const double given =
                constraints.squared_b ? constraints.squared_b[system * constraints.squared_b_stride] : 0.0;
            highest = lanes.most(highest);
            squared_b = given > 0 ? given : highest * highest;
        }
        return !lanes.any(!(odd == 0));
    }

    // Whether b is, and not only its square.
    SW_HD bool is_zero() const {
        bool none = true;
        if constexpr (Kind::source != normal_equations) {
            SW_ROLLED
            for (int i = lanes.lane(); i < job.rows; i += width)
                none = none && numbers.read(this->b(), i) == 0;
        }
        return !lanes.any(!none);
    }

    // A power of four near the mean square of the largest column's entries, over the largest coefficient's:
    // the row then counts as much as one of A.
    SW_HD double weight_of_sum() const {
        double highest = 0, largest = 0;
        SW_ROLLED
        for (int j = 0; j < job.columns; ++j) {
            const double own = this->scale(j), coefficient = this->coefficient(j) / own;
            if (own > 0) highest = max_of(highest, this->gram(j, j) / (own * own));
            largest = max_of(largest, coefficient);
        }
        const double root = highest > 0 ? square_root(highest / max_of(job.rows, 1)) / largest : 1 / largest;
        const double power = power_below(root);
        return 1 / (power * power);
    }

    // Which bounds of column j are far, as a BoundSide. Called for few columns.
    SW_CALL int far_sides(double low, double high, double low_in_units, double high_in_units,
                          double reach) const {
        if (!(low < high)) return 0;
        return (is_finite(low) && absolute(low_in_units) > reach ? int(lower_side) : 0) |
               (is_finite(high) && absolute(high_in_units) > reach ? int(upper_side) : 0);
    }
    // What b, or the sum, would make of x_j if nothing else took part in it.
    SW_HD double reach_of(int j, double inverse) const {
        double reach = b_norm * inverse;
        if constexpr (Kind::summed) {
            const double s = this->coefficient(j);
            if (s > 0) reach += absolute(this->sum_range().sum) / s;
        }
        return reach;
    }

    SW_HD bool put_at_bounds() {
        uint64_t out = 0, up = 0, not_zero = 0, unbounded = 0;
        bool crossed = false;  // bounds; or a square is beyond the largest number
        if constexpr (Lanes::has_sweeps && Kind::shares && !own_norms && !Kind::bounded) {
            excluded |= (keeps_sum ? products.sum->nothing : products.nothing) | masked;
            return true;
        }
        uint64_t below = 0, above = 0;
        this->each_column([&](int j, int t) {
            const uint64_t bit = bit_of(j);
            const bool nothing = !(this->scale(j) > 0) || !(this->inverse_norm(j, t) > 0),
                       masked = this->is_masked(j);
            if (nothing || masked) out |= bit;
            // For another solver: squares beyond the largest number, and columns that are there in L alone.
            if (Kind::penalized && !masked && (nothing || !(this->square(j) < double_infinity)))
                crossed = true;
            if constexpr (Kind::bounded) {
                double low = this->given_bound(j, false), high = this->given_bound(j, true);
                if constexpr (Kind::boxed) {
                    // (Of a column that changes nothing any bound but zero is far.)
                    const double reach = nothing ? 0.0 : far_bounds * reach_of(j, this->inverse_norm(j, t)),
                                 lowest = nothing ? low : this->in_units_of(j, low),
                                 highest = nothing ? high : this->in_units_of(j, high);
                    if (max_of(absolute(lowest), absolute(highest)) > reach && !this->is_slack(j) &&
                        !masked) {
                        const int far = far_sides(low, high, lowest, highest, reach);
                        if (far & lower_side) low = -double_infinity, below |= bit;
                        if (far & upper_side) high = double_infinity, above |= bit;
                    }
                }
                const bool fixed = low == high;
                crossed = crossed || !(low <= high);
                if (fixed) out |= bit;
                if (masked) return;
                if (!is_finite(low) && !is_finite(high)) {
                    if (!nothing && !fixed) unbounded |= bit;
                    return;
                }
                const bool at_upper = !is_finite(low) || (high == 0 && this->is_slack(j));
                if (at_upper) up |= bit;
                if (this->scale(j) > 0) x[j] = this->in_units_of(j, at_upper ? high : low);
                if (x[j] != 0) not_zero |= bit;
            }
        });
        lanes.sync();
        excluded |= lanes.join(out);
        if constexpr (Kind::boxed) {
            far_below = lanes.join(below);
            far_above = lanes.join(above);
        }
        if (lanes.any(crossed)) return false;
        if constexpr (Kind::bounded) {
            at_upper = lanes.join(up);
            nonzero = lanes.join(not_zero);
            SW_ROLLED
            for (uint64_t rest = lanes.join(unbounded); rest; rest &= rest - 1) {
                if (count == Kind::positions) return false;
                this->enter(lowest_of(rest));
            }
        }
        return true;
    }
};

}  // namespace small
}  // namespace lsq
SW_END
