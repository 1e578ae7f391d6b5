// The dual of a point of a small system, from tables or from A, and what it asks for.
#pragma once

#include "core/lsq/small/start.hpp"

SW_BEGIN
namespace lsq {
namespace small {

template <class Kind, class Lanes>
struct Dual : Start<Kind, Lanes> {
    using Base = Start<Kind, Lanes>;
    using Base::b_norm;
    using Base::c;
    using Base::chunk;
    using Base::count;
    using Base::in_factor;
    using Base::job;
    using Base::lanes;
    using Base::n;
    using Base::nonzero;
    using Base::nu;
    using Base::order;
    using Base::own_columns;
    using Base::products;
    using Base::squared_b;
    using Base::w;
    using Base::width;
    using Base::x;

    // A device's thread does not keep duals that no step and no answer reads.
    static constexpr bool keeps_all = Kind::summed || !Kind::shares || width > 1 || Lanes::has_sweeps;

    // As in dual.hpp of the solver for all sizes: the largest dual of a column at a bound and of one between,
    // over its norm; what rounding leaves of them; and |b| + sum |a_j x_j|.
    double top = 0, slope = 0, slack = 0, size = 0;
    int top_column = 0, passes = 0;
    double squared_residual = 0;         // the penalty included; of a table only where it is needed
    double squared_fit = 0;              // without it
    double multiplier = 0, deficit = 0;  // of a bound sum; what x misses of it
    // Norms of columns, a whole number of eights, where sweeps read them and each system has its own.
    double own_norm[Lanes::has_sweeps && Base::own_norms ? Kind::capacity : 1];
    bool has_norms = false;
    // What columns gain by leaving their bounds, zero of the others, where sweeps judge.
    double scores[Lanes::has_sweeps ? Kind::capacity : 1];

    SW_HD Dual(const Job& job, int64_t system, const Products& products, const Lanes& lanes,
               Store<Kind, width>& store)
        : Base(job, system, products, lanes, store) {}

    // w = c - G x, and what it asks for; where that is known, w alone.
    template <bool judges = true>
    SW_HD void dual_from_table() {
        top = 0;
        if constexpr (Lanes::has_sweeps)
            table_by_sweep();
        else if constexpr (width > 1)
            table_by_lanes();
        else
            table_by_thread();
        if constexpr (judges)
            judge_the_rest();
        else if constexpr (Kind::summed)
            find_deficit();  // (Directions that keep a sum know nothing of its multiplier.)
    }

    // r = b - A x and w = A'r from A itself.
    SW_HD void dual_from_rows() {
        ++passes;
        if constexpr (Kind::shares) {
            squared_fit = this->template residual_of_rows<true>(true);
        } else if constexpr (Kind::source == own_matrix) {
            squared_fit = residual_of_own_rows();
        }
        double below = 0;
        top = 0;
        this->each_column([&](int j, int t) {
            double from_penalty = 0;
            if constexpr (Kind::penalized) {
                from_penalty = nu * penalty_product(j);
            } else if constexpr (!Kind::bounded) {
                const double damping = job.options.damping * this->scale(j);
                from_penalty = damping * damping * x[j];
            }
            w[j] -= from_penalty;
            below += from_penalty * x[j];
            if constexpr (!Kind::summed) judge(j, t, w[j]);
        });
        lanes.sync();
        squared_residual = squared_fit + lanes.sum(below);
        judge_the_rest();
    }

    // |b - A x|^2 from tables without a penalty: b.b - x.(c + w), w without the multiplier of a sum. (Taken
    // out of each, since what it takes of them all may be far larger than b.b.)
    SW_HD void fit_from_table() {
        double inside = 0;
        if constexpr (Kind::summed)
            this->each_column([&](int j, int t) { inside += x[j] * (c[t] + (w[j] - in_multiplier(j))); });
        else if constexpr (Lanes::has_sweeps)
            inside = inner(x, c) + inner(x, w);
        else
            this->each_column([&](int j, int t) { inside += x[j] * (c[t] + w[j]); });
        inside = lanes.sum(inside);
        squared_residual = squared_fit = squared_b - inside;
        // The table has the damping in it.
        if (!Kind::bounded && job.options.damping > 0) {
            double below = 0;
            this->each_column([&](int j, int) {
                const double damped = job.options.damping * this->scale(j) * x[j];
                below += damped * damped;
            });
            squared_fit -= lanes.sum(below);
        }
    }

    // Whether rounding may hide that a column should leave its bound: a dual is within it, and the residual
    // is so small that a better one would tell. All of w is there.
    SW_HD bool rounding_hides_a_dual() const {
        if (!out_of_factor()) return false;
        const double finest =
            max_of(job.options.tolerance * b_norm, job.options.rounding * square_root(squared_residual));
        if (!(finest < 0.01 * slack)) return false;
        const double rounded = double_epsilon * size_of_references();
        if (!(squared_residual > rounded * rounded)) return false;
        bool hidden = false;
        this->each_column(
            [&](int j, int t) { hidden = hidden || (is_at_bound(j) && score_of(j, t, w[j]) > -slack); });
        return lanes.any(hidden);
    }

    // What b - A x is rounded to at the least: |b| and what the columns at bounds take of it.
    SW_HD double size_of_references() const {
        if constexpr (!Kind::bounded) return b_norm;
        double sum = 0;
        this->each_column([&](int j, int t) {
            if ((nonzero & ~in_factor) & bit_of(j)) sum += absolute(x[j]) * this->norm(j, t);
        });
        return b_norm + lanes.sum(sum);
    }

    // (L'L x)_j
    SW_HD double penalty_product(int j) const {
        const Shared& shared = products.shared;
        if (!shared.penalty_gram) return shared.penalty_diagonal[j] * x[j];
        double sum = 0;
        this->each_not_zero([&](int i) { sum += shared.penalty_gram[i * shared.gram_stride + j] * x[i]; });
        return sum;
    }

    // What a bound sum misses.
    SW_HD void find_deficit() {
        double reached = 0;
        if (Lanes::has_sweeps && !nonzero) {
            deficit = this->wanted;
            return;
        }
        if constexpr (Base::keeps_sum)
            reached = inner(products.sum->coefficients, x);
        else
            this->each_column([&](int j, int) { reached += this->coefficient(j) * x[j]; });
        deficit = this->wanted - lanes.sum(reached);
    }

    // Whether a column is out of the factor and may enter it; and all that are.
    SW_HD bool is_at_bound(int j) const { return out_of_factor() & bit_of(j); }
    SW_HD uint64_t out_of_factor() const { return ~(in_factor | this->excluded); }

    // The column with the largest score.
    SW_HD int find_top_column() const {
        if constexpr (Lanes::has_sweeps) return lanes.place_of_score(top, scores, this->swept());
        return top_column;
    }

private:
    // Over all columns, used by the SIMD (CPU) implementation; what is kept of them ends in zeros.
    SW_HD double inner(const double* a, const double* b) const { return lanes.inner(a, b, this->swept()); }

    SW_HD void table_by_lanes() {
        double sum[own_columns];
        SW_UNROLL
        for (int t = 0; t < own_columns; ++t) sum[t] = c[t];
        this->each_not_zero([&](int i) {
            const double value = x[i];
            this->each_column([&](int j, int t) { sum[t] -= this->gram(i, j) * value; });
        });
        this->each_column([&](int j, int t) {
            if constexpr (Kind::penalized) sum[t] -= nu * penalty_product(j);
            w[j] = sum[t];
            if constexpr (!Kind::summed) judge(j, t, sum[t]);
        });
        lanes.sync();
    }

    SW_HD void table_by_sweep() {
        if constexpr (Base::keeps_inverses)
            lanes.subtract_few(c, products.gram, products.stride, x, n, w);
        else if constexpr (Kind::shares)
            lanes.subtract_rows(c, products.gram, products.stride, x, nonzero, n, w);
        else
            lanes.subtract_rows(c, this->table, Kind::capacity, x, nonzero, n, w);
        if constexpr (Kind::penalized) {
            const double* diagonal = products.shared.penalty_diagonal;
            if (products.shared.penalty_gram)
                for (int j = 0; j < n; ++j) w[j] -= nu * penalty_product(j);
            else
                for (int j = 0; j < n; ++j) w[j] -= nu * diagonal[j] * x[j];
        }
    }

    // Norms for a sweep, in which columns that are not there have none.
    SW_HD const double* norms() {
        if constexpr (Base::keeps_sum) return products.sum->norm;
        if constexpr (!Base::own_norms) return products.norm;
        if (!has_norms) {
            for (int j = 0; j < this->swept(); ++j) own_norm[j] = j < n ? this->norm(j, j) : 0.0;
            has_norms = true;
        }
        return own_norm;
    }

    // One matrix: only columns that are not zero are read. Where there is a table for each system, all are,
    // so that threads read the same places.
    SW_HD void table_by_thread() {
        SW_ROLLED
        for (int base = 0; base < n; base += chunk) {
            double sum[chunk];
            SW_UNROLL
            for (int u = 0; u < chunk; ++u) sum[u] = c[base + u];
            if constexpr (Kind::shares) {
                this->each_not_zero(
                    [&](int i) { subtract(sum, products.gram + i * products.stride + base, x[i]); });
            } else {
                SW_ROLLED
                for (int i = 0; i < n; ++i) subtract(sum, this->table + i * Kind::capacity + base, x[i]);
            }
            SW_UNROLL
            for (int u = 0; u < chunk; ++u) {
                const int j = base + u;
                if constexpr (Kind::penalized) sum[u] -= j < n ? nu * penalty_product(j) : 0.0;
                if (keeps_all || (in_factor & bit_of(j))) w[j] = sum[u];
                if constexpr (!Kind::summed) judge(j, j, sum[u]);
            }
        }
    }

    // |b - A x|^2, and A'(b - A x) in w, of a matrix of its own: one pass over A, a row a lane.
    SW_HD double residual_of_own_rows() {
        const auto own_rows = [&](const auto* a) { return residual_of_own_rows(a, this->b()); };
        return this->numbers.with(this->numbers.after(job.a, this->system * job.a_stride), own_rows);
    }
    template <class Scalar>
    SW_HD double residual_of_own_rows(const Scalar* a, const void* b) {
        if constexpr (Lanes::has_sweeps)
            return lanes.residual_of_own(a, job.row_stride, b, job.rows, n, x, w);
        double own[max_tabled_columns], sum[max_tabled_columns], square = 0;
        SW_UNROLL
        for (int j = 0; j < max_tabled_columns; ++j) {
            own[j] = j < n ? x[j] : 0.0;
            sum[j] = 0;
        }
        SW_UNROLL_BY(2)
        for (int i = lanes.lane(); i < job.rows; i += width) {
            Scalar entry[max_tabled_columns];
            const Scalar* row = a + i * job.row_stride;
            double r = this->numbers.read(b, i);
            SW_UNROLL
            for (int j = 0; j < max_tabled_columns; ++j) entry[j] = j < n ? row[j] : Scalar(0);
            SW_UNROLL
            for (int j = 0; j < max_tabled_columns; ++j) r -= double(entry[j]) * own[j];
            SW_UNROLL
            for (int j = 0; j < max_tabled_columns; ++j) sum[j] += double(entry[j]) * r;
            square += r * r;
        }
        SW_UNROLL
        for (int j = 0; j < max_tabled_columns; ++j) {
            if (j >= n) continue;
            const double whole = lanes.sum(sum[j]);
            if (lanes.lane() == 0) w[j] = whole;
        }
        lanes.sync();
        return lanes.sum(square);
    }

    // Rows are read in pairs, which they begin at.
    struct alignas(16) Pair {
        double first, second;
    };
    SW_HD static void subtract(double (&sum)[chunk], const double* row, double value) {
        SW_UNROLL
        for (int u = 0; u < chunk; u += 2) {
            const Pair pair = *reinterpret_cast<const Pair*>(row + u);
            sum[u] -= pair.first * value;
            sum[u + 1] -= pair.second * value;
        }
    }

    SW_HD double score_of(int j, int t, double dual) const {
        const double inverse = this->inverse_norm(j, t);
        if constexpr (Kind::bounded)
            if (this->at_upper & bit_of(j)) return -dual * inverse;
        return dual * inverse;
    }

    // A column at a bound.
    SW_HD void judge(int j, int t, double dual) {
        if constexpr (Lanes::has_sweeps) return;  // all at once, later
        const double score = score_of(j, t, dual);
        if (score > top && is_at_bound(j)) {
            top = score;
            top_column = j;
        }
    }

    // The columns in the factor, whose duals are in w, and what rounding leaves.
    SW_HD void judge_the_rest() {
        if constexpr (Kind::summed) settle_multiplier();
        top_column = lanes.place_of_most(top, top_column);
        double steepest = 0, sizes = 0;
        if constexpr (Lanes::has_sweeps) {
            const auto judged =
                lanes.template judge<Kind::bounded>(w, this->inverse_norms(), x, norms(), out_of_factor(),
                                                    this->at_upper, in_factor, this->swept(), scores);
            top = judged.top;
            steepest = judged.slope;
            sizes = judged.sizes;
        } else {
            this->each_column([&](int j, int t) {
                if (in_factor & bit_of(j))
                    steepest = max_of(steepest, absolute(w[j]) * this->inverse_norm(j, t));
                if (nonzero & bit_of(j)) sizes += absolute(x[j]) * this->norm(j, t);
            });
        }
        slope = lanes.most(steepest);
        size = b_norm + lanes.sum(sizes);
        slack = slack_of(job, b_norm, size);
    }

    // The multiplier mu of a bound sum makes w + mu s zero on the columns in the factor: -s'w / s's over
    // them. Then the rest is judged.
    SW_HD void settle_multiplier() {
        double along = 0, square = 0;
        find_deficit();
        if constexpr (Base::keeps_inverses) {
            if (lanes.kept->outside[in_factor] > 0) {
                multiplier = inner(lanes.kept->of(in_factor).multiplier, w);
                return add_multiplier();
            }
        }
        if constexpr (Base::keeps_sum) {
            const double* s = products.sum->coefficients;
            along = lanes.inner_of_set(s, w, in_factor, this->swept());
            square = lanes.inner_of_set(s, s, in_factor, this->swept());
        } else {
            this->each_column([&](int j, int) {
                const double s = this->coefficient(j);
                if (!(in_factor & bit_of(j))) return;
                along += s * w[j];
                square += s * s;
            });
        }
        along = lanes.sum(along);
        square = lanes.sum(square);
        multiplier = square > 0 ? -along / square : 0.0;
        add_multiplier();
    }

    SW_HD void add_multiplier() {
        if constexpr (Base::keeps_sum) {
            if (!this->masked) return add_scaled(multiplier, products.sum->coefficients, w, this->swept());
        }
        this->each_column([&](int j, int t) {
            w[j] += in_multiplier(j);
            judge(j, t, w[j]);
        });
        lanes.sync();
    }

    SW_HD double in_multiplier(int j) const {
        return multiplier * (this->is_masked(j) ? 0.0 : this->coefficient(j));
    }
};

}  // namespace small
}  // namespace lsq
SW_END
