// The dual of a point of a small system, from tables or from A, and what it asks for.
#pragma once

#include "core/nnls/small/system.hpp"

SW_BEGIN
namespace nnls {
namespace small {

template <class Kind>
struct Dual : System<Kind> {
    using Base = System<Kind>;
    using Base::b_norm;
    using Base::c;
    using Base::chunk;
    using Base::count;
    using Base::job;
    using Base::n;
    using Base::nu;
    using Base::order;
    using Base::passive;
    using Base::products;
    using Base::squared_b;
    using Base::support;
    using Base::w;
    using Base::x;

    // As in dual.hpp of the solver for all sizes: the largest dual of a column at a bound and of one between,
    // over its norm; what rounding leaves of them; and |b| + sum |a_j x_j|.
    double top = 0, slope = 0, slack = 0, size = 0;
    int top_column = 0, passes = 0;
    double squared_residual = 0;         // the penalty included; of a table only where it is needed
    double squared_fit = 0;              // without it
    double multiplier = 0, deficit = 0;  // of a bound sum; what x misses of it

    SW_HD Dual(const Job& job, int64_t system, const Products& products) : Base(job, system, products) {}

    // w = c - G x. One matrix: only columns that are not zero are read. Where there is a table for each
    // system, all are, so that threads read the same places.
    SW_HD void dual_from_table() {
        top = 0;
        SW_ROLLED
        for (int base = 0; base < n; base += chunk) {
            double sum[chunk];
            SW_UNROLL
            for (int u = 0; u < chunk; ++u) sum[u] = c[base + u];
            if constexpr (Kind::shares) {
                SW_ROLLED
                for (uint64_t rest = support; rest; rest &= rest - 1) {
                    const int i = lowest_of(rest);
                    const double value = x[i];
                    subtract(sum, products.gram + i * products.stride + base, value);
                }
            } else {
                SW_ROLLED
                for (int i = 0; i < n; ++i) {
                    const double value = x[i];
                    subtract(sum, this->table + i * Kind::capacity + base, value);
                }
            }
            SW_UNROLL
            for (int u = 0; u < chunk; ++u) {
                const int j = base + u;
                if constexpr (Kind::penalized) sum[u] -= j < n ? nu * penalty_product(j) : 0.0;
                // What no step and no answer reads is not kept.
                if (Kind::summed || !Kind::shares || (passive & bit_of(j))) w[j] = sum[u];
                if constexpr (!Kind::summed) judge(j, sum[u]);
            }
        }
        judge_the_rest();
    }

    // r = b - A x and w = A'r from A itself.
    SW_HD void dual_from_rows() {
        ++passes;
        if constexpr (Kind::shares) {
            squared_fit = this->template residual_of_rows<true>(true);
        } else if constexpr (Kind::source == own_matrix) {
            squared_fit = residual_of_own_rows();
        }
        squared_residual = squared_fit;
        SW_ROLLED
        for (int j = 0; j < n; ++j) {
            double from_penalty = 0;
            if constexpr (Kind::penalized) {
                from_penalty = nu * penalty_product(j);
            } else if constexpr (!Kind::bounded) {
                const double below = job.options.damping * this->scale(j);
                from_penalty = below * below * x[j];
            }
            w[j] -= from_penalty;
            squared_residual += from_penalty * x[j];
        }
        top = 0;
        if constexpr (!Kind::summed)
            for (int j = 0; j < n; ++j) judge(j, w[j]);
        judge_the_rest();
    }

    // |b - A x|^2 from the table of a system of its own: b.b - x.(c + w).
    SW_HD void fit_from_table() {
        squared_fit = squared_b;
        SW_ROLLED
        for (int j = 0; j < n; ++j) squared_fit -= x[j] * (c[j] + w[j]);
        squared_residual = squared_fit;
        if constexpr (!Kind::bounded) {
            // The table has the damping in it.
            SW_ROLLED
            for (int j = 0; j < n; ++j) {
                const double below = job.options.damping * x[j];
                squared_fit -= below * below;
            }
        }
    }

    // Whether rounding may hide that a column should leave its bound: a dual is within it, and the residual
    // is so small that a better one would tell. All of w is there.
    SW_HD bool rounding_hides_a_dual() const {
        const double finest =
            max_of(job.options.tolerance * b_norm, job.options.rounding * square_root(squared_residual));
        const double rounded = double_epsilon * size_of_references();
        if (!(finest < 0.01 * slack && squared_residual > rounded * rounded)) return false;
        bool hidden = false;
        SW_ROLLED
        for (int j = 0; j < n; ++j) hidden = hidden || (is_at_bound(j) && score_of(j, w[j]) > -slack);
        return hidden;
    }

    // (L'L x)_j
    SW_HD double penalty_product(int j) const {
        const Shared& shared = products.shared;
        if (!shared.penalty_gram) return shared.penalty_diagonal[j] * x[j];
        double sum = 0;
        SW_ROLLED
        for (uint64_t rest = support; rest; rest &= rest - 1) {
            const int i = lowest_of(rest);
            sum += shared.penalty_gram[i * shared.gram_stride + j] * x[i];
        }
        return sum;
    }

    // Whether a column is out of the factor and may enter it.
    SW_HD bool is_at_bound(int j) const { return !((passive | this->shut) & bit_of(j)); }

private:
    // |b - A x|^2, and A'(b - A x) in w, of a matrix of its own: one pass over A.
    SW_HD double residual_of_own_rows() {
        typedef typename Kind::Scalar Scalar;
        const Scalar *a = static_cast<const Scalar*>(job.a) + this->system * job.a_stride,
                     *b = static_cast<const Scalar*>(job.b) + this->system * job.b_stride;
        double own[max_tabled_columns], sum[max_tabled_columns], square = 0;
        SW_UNROLL
        for (int j = 0; j < max_tabled_columns; ++j) {
            own[j] = j < n ? x[j] : 0.0;
            sum[j] = 0;
        }
        SW_UNROLL_BY(2)
        for (int i = 0; i < job.rows; ++i) {
            Scalar entry[max_tabled_columns];
            const Scalar* row = a + i * job.row_stride;
            double r = double(b[i]);
            SW_UNROLL
            for (int j = 0; j < max_tabled_columns; ++j) entry[j] = j < n ? row[j] : Scalar(0);
            SW_UNROLL
            for (int j = 0; j < max_tabled_columns; ++j) r -= double(entry[j]) * own[j];
            SW_UNROLL
            for (int j = 0; j < max_tabled_columns; ++j) sum[j] += double(entry[j]) * r;
            square += r * r;
        }
        SW_UNROLL
        for (int j = 0; j < max_tabled_columns; ++j)
            if (j < n) w[j] = sum[j];
        return square;
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

    SW_HD double score_of(int j, double dual) const {
        const double inverse = this->inverse_norm(j);
        if constexpr (Kind::bounded)
            if (this->at_upper & bit_of(j)) return -dual * inverse;
        return dual * inverse;
    }

    // A column at a bound.
    SW_HD void judge(int j, double dual) {
        const double score = score_of(j, dual);
        if (score > top && is_at_bound(j)) {
            top = score;
            top_column = j;
        }
    }

    // The columns in the factor, whose duals are in w, and what rounding leaves.
    SW_HD void judge_the_rest() {
        if constexpr (Kind::summed) settle_multiplier();
        slope = 0;
        SW_ROLLED
        for (int p = 0; p < count; ++p) {
            const int j = order[p];
            slope = max_of(slope, absolute(w[j]) * this->inverse_norm(j));
        }
        size = b_norm;
        SW_ROLLED
        for (uint64_t rest = support; rest; rest &= rest - 1) {
            const int j = lowest_of(rest);
            size += absolute(x[j]) * this->norm(j);
        }
        const double measure = is_relative_to_b(job.family) ? b_norm : size;
        slack = max_of(job.options.tolerance * measure, job.options.rounding * size);
    }

    // The multiplier mu of a bound sum makes w + mu s zero on the columns in the factor: -s'w / s's over
    // them. Then the rest is judged.
    SW_HD void settle_multiplier() {
        double along = 0, square = 0;
        deficit = this->wanted;
        SW_ROLLED
        for (int j = 0; j < n; ++j) {
            const double s = this->coefficient(j);
            deficit -= s * x[j];
            if (!(passive & bit_of(j))) continue;
            along += s * w[j];
            square += s * s;
        }
        multiplier = square > 0 ? -along / square : 0.0;
        SW_ROLLED
        for (int j = 0; j < n; ++j) {
            w[j] += multiplier * (this->is_masked(j) ? 0.0 : this->coefficient(j));
            judge(j, w[j]);
        }
    }

    // What b - A x is rounded to at the least: |b| and what the columns at bounds take of it.
    SW_HD double size_of_references() const {
        double sum = b_norm;
        SW_ROLLED
        for (int j = 0; j < n; ++j)
            if ((support & ~passive) & bit_of(j)) sum += absolute(x[j]) * this->norm(j);
        return sum;
    }
};

}  // namespace small
}  // namespace nnls
SW_END
