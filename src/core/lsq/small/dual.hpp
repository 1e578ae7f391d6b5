// The dual of a point of a small system, from tables or from A, and what it asks for.
#pragma once

#include "core/lsq/small/rows.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// w = c - G x, and what it asks for; where that is known, w alone.
template <bool judges = true, class State>
SW_HD void dual_from_table(State& s) {
    s.top = 0;
    if constexpr (State::has_sweeps)
        table_by_sweep(s);
    else if constexpr (State::width > 1)
        table_by_lanes(s);
    else
        table_by_thread(s);
    if constexpr (judges)
        judge_the_rest(s);
    else if constexpr (State::summed)
        find_deficit(s);  // (Directions that keep a sum know nothing of its multiplier.)
}

// r = b - A x and w = A'r from A itself.
template <class State>
SW_HD void dual_from_rows(State& s) {
    ++s.counts.passes;
    if constexpr (State::shares) {
        s.squared_fit = residual_of_rows<true>(s, true);
    } else if constexpr (State::source == own_matrix) {
        s.squared_fit = residual_of_own_rows(s);
    }
    double below = 0;
    s.top = 0;
    s.each_column([&](int j, int t) {
        double from_penalty = 0;
        if constexpr (State::penalized) {
            from_penalty = s.nu * penalty_product(s, j);
        } else if constexpr (!State::bounded) {
            const double damping = s.job.options.damping * s.scale(j);
            from_penalty = damping * damping * s.x[j];
        }
        s.w[j] -= from_penalty;
        below += from_penalty * s.x[j];
        if constexpr (!State::summed) judge(s, j, t, s.w[j]);
    });
    s.lanes.sync();
    s.squared_residual = s.squared_fit + s.lanes.sum(below);
    judge_the_rest(s);
}

template <class State>
SW_HD void table_by_lanes(State& s) {
    double sum[State::own_columns];
    SW_UNROLL
    for (int t = 0; t < State::own_columns; ++t) sum[t] = s.c[t];
    s.each_not_zero([&](int i) {
        const double value = s.x[i];
        s.each_column([&](int j, int t) { sum[t] -= s.gram(i, j) * value; });
    });
    s.each_column([&](int j, int t) {
        if constexpr (State::penalized) sum[t] -= s.nu * penalty_product(s, j);
        s.w[j] = sum[t];
        if constexpr (!State::summed) judge(s, j, t, sum[t]);
    });
    s.lanes.sync();
}

template <class State>
SW_HD void table_by_sweep(State& s) {
    if constexpr (State::keeps_inverses)
        s.lanes.subtract_few(s.c, s.products.gram, s.products.stride, s.x, s.n, s.w);
    else if constexpr (State::shares)
        s.lanes.subtract_rows(s.c, s.products.gram, s.products.stride, s.x, s.nonzero, s.n, s.w);
    else
        s.lanes.subtract_rows(s.c, s.table, State::capacity, s.x, s.nonzero, s.n, s.w);
    if constexpr (State::penalized) {
        const Shared& shared = s.products.shared;
        if (shared.penalty_gram) {
            const double zeros[State::capacity] = {};
            double product[State::capacity];  // -L'L x
            s.lanes.subtract_rows(zeros, shared.penalty_gram, shared.gram_stride, s.x, s.nonzero, s.n,
                                  product);
            add_scaled(s.nu, product, s.w, s.n);
        } else {
            for (int j = 0; j < s.n; ++j) s.w[j] -= s.nu * shared.penalty_diagonal[j] * s.x[j];
        }
    }
}

// Rows are read in pairs, which they begin at.
struct alignas(16) Pair {
    double first, second;
};
template <int chunk>
SW_HD void subtract(double (&sum)[chunk], const double* row, double value) {
    SW_UNROLL
    for (int u = 0; u < chunk; u += 2) {
        const Pair pair = *reinterpret_cast<const Pair*>(row + u);
        sum[u] -= pair.first * value;
        sum[u + 1] -= pair.second * value;
    }
}

// One matrix: only columns that are not zero are read. Where there is a table for each system, all are,
// so that threads read the same places.
template <class State>
SW_HD void table_by_thread(State& s) {
    SW_ROLLED
    for (int base = 0; base < s.n; base += State::chunk) {
        double sum[State::chunk];
        SW_UNROLL
        for (int u = 0; u < State::chunk; ++u) sum[u] = s.c[base + u];
        if constexpr (State::shares) {
            s.each_not_zero(
                [&](int i) { subtract(sum, s.products.gram + i * s.products.stride + base, s.x[i]); });
        } else {
            SW_ROLLED
            for (int i = 0; i < s.n; ++i) subtract(sum, s.table + i * State::capacity + base, s.x[i]);
        }
        SW_UNROLL
        for (int u = 0; u < State::chunk; ++u) {
            const int j = base + u;
            if constexpr (State::penalized) sum[u] -= j < s.n ? s.nu * penalty_product(s, j) : 0.0;
            if (State::keeps_all || (s.in_factor & bit_of(j))) s.w[j] = sum[u];
            if constexpr (!State::summed) judge(s, j, j, sum[u]);
        }
    }
}

// The columns' norms as sweeps read them, with zeros beyond the last column.
template <class State>
SW_HD const double* norms(State& s) {
    if constexpr (State::keeps_sum) return s.products.sum->norm;
    if constexpr (!State::own_norms) return s.products.norm;
    if (!s.has_norms) {
        for (int j = 0; j < s.swept(); ++j) s.own_norm[j] = j < s.n ? s.norm(j, j) : 0.0;
        s.has_norms = true;
    }
    return s.own_norm;
}

// A column at a bound.
template <class State>
SW_HD void judge(State& s, int j, int t, double dual) {
    if constexpr (State::has_sweeps) return;  // all at once, later
    const double score = score_of(s, j, t, dual);
    if (score > s.top && s.is_at_bound(j)) {
        s.top = score;
        s.top_column = j;
    }
}

// The columns in the factor, whose duals are in w, and what rounding leaves.
template <class State>
SW_HD void judge_the_rest(State& s) {
    if constexpr (State::summed) settle_multiplier(s);
    s.top_column = s.lanes.place_of_most(s.top, s.top_column);
    double steepest = 0, sizes = 0;
    if constexpr (State::has_sweeps) {
        const auto judged =
            s.lanes.template judge<State::bounded>(s.w, s.inverse_norms(), s.x, norms(s), s.out_of_factor(),
                                                   s.at_upper, s.in_factor, s.swept(), s.scores);
        s.top = judged.top;
        steepest = judged.slope;
        sizes = judged.sizes;
    } else {
        s.each_column([&](int j, int t) {
            if (s.in_factor & bit_of(j)) steepest = max_of(steepest, absolute(s.w[j]) * s.inverse_norm(j, t));
            if (s.nonzero & bit_of(j)) sizes += absolute(s.x[j]) * s.norm(j, t);
        });
    }
    s.slope = s.lanes.most(steepest);
    s.size = s.b_norm + s.lanes.sum(sizes);
    s.slack = slack_of(s.job, s.b_norm, s.size);
}

template <class State>
SW_HD double score_of(const State& s, int j, int t, double dual) {
    const double inverse = s.inverse_norm(j, t);
    if constexpr (State::bounded)
        if (s.at_upper & bit_of(j)) return -dual * inverse;
    return dual * inverse;
}

// The column with the largest score.
template <class State>
SW_HD int find_top_column(const State& s) {
    if constexpr (State::has_sweeps) return s.lanes.place_of_score(s.top, s.scores, s.swept());
    return s.top_column;
}

// What a bound sum misses.
template <class State>
SW_HD void find_deficit(State& s) {
    double reached = 0;
    if (State::has_sweeps && !s.nonzero) {
        s.deficit = s.wanted;
        return;
    }
    if constexpr (State::keeps_sum)
        reached = inner(s, s.products.sum->coefficients, s.x);
    else
        s.each_column([&](int j, int) { reached += s.coefficient(j) * s.x[j]; });
    s.deficit = s.wanted - s.lanes.sum(reached);
}

// The multiplier mu of a bound sum makes w + mu s zero on the columns in the factor: -s'w / s's over
// them. Then the rest is judged.
template <class State>
SW_HD void settle_multiplier(State& s) {
    double along = 0, square = 0;
    find_deficit(s);
    if constexpr (State::keeps_inverses) {
        if (s.lanes.kept->outside[s.in_factor] > 0) {
            s.multiplier = inner(s, s.lanes.kept->of(s.in_factor).multiplier, s.w);
            return add_multiplier(s);
        }
    }
    if constexpr (State::keeps_sum) {
        const double* coefficients = s.products.sum->coefficients;
        along = s.lanes.inner_of_set(coefficients, s.w, s.in_factor, s.swept());
        square = s.lanes.inner_of_set(coefficients, coefficients, s.in_factor, s.swept());
    } else {
        s.each_column([&](int j, int) {
            const double coefficient = s.coefficient(j);
            if (!(s.in_factor & bit_of(j))) return;
            along += coefficient * s.w[j];
            square += coefficient * coefficient;
        });
    }
    along = s.lanes.sum(along);
    square = s.lanes.sum(square);
    s.multiplier = square > 0 ? -along / square : 0.0;
    add_multiplier(s);
}

template <class State>
SW_HD void add_multiplier(State& s) {
    if constexpr (State::keeps_sum) {
        if (!s.masked) return add_scaled(s.multiplier, s.products.sum->coefficients, s.w, s.swept());
    }
    s.each_column([&](int j, int t) {
        s.w[j] += in_multiplier(s, j);
        judge(s, j, t, s.w[j]);
    });
    s.lanes.sync();
}

template <class State>
SW_HD double in_multiplier(const State& s, int j) {
    return s.multiplier * (s.is_masked(j) ? 0.0 : s.coefficient(j));
}

// (L'L x)_j
template <class State>
SW_HD double penalty_product(const State& s, int j) {
    const Shared& shared = s.products.shared;
    if (!shared.penalty_gram) return shared.penalty_diagonal[j] * s.x[j];
    double sum = 0;
    s.each_not_zero([&](int i) { sum += shared.penalty_gram[i * shared.gram_stride + j] * s.x[i]; });
    return sum;
}

// |b - A x|^2 from tables without a penalty: b.b - x.(c + w), w without the multiplier of a sum. (Taken
// out of each, since what it takes of them all may be far larger than b.b.)
template <class State>
SW_HD void fit_from_table(State& s) {
    double inside = 0;
    if constexpr (State::summed)
        s.each_column([&](int j, int t) { inside += s.x[j] * (s.c[t] + (s.w[j] - in_multiplier(s, j))); });
    else if constexpr (State::has_sweeps)
        inside = inner(s, s.x, s.c) + inner(s, s.x, s.w);
    else
        s.each_column([&](int j, int t) { inside += s.x[j] * (s.c[t] + s.w[j]); });
    inside = s.lanes.sum(inside);
    s.squared_residual = s.squared_fit = s.squared_b - inside;
    // The table has the damping in it.
    if (!State::bounded && s.job.options.damping > 0) {
        double below = 0;
        s.each_column([&](int j, int) {
            const double damped = s.job.options.damping * s.scale(j) * s.x[j];
            below += damped * damped;
        });
        s.squared_fit -= s.lanes.sum(below);
    }
}

// Whether a fit from tables has its digits: also beside the multiplier of a sum, of which each dual has a
// part that is taken out again.
template <class State>
SW_HD bool has_large_fit(const State& s) {
    if (!is_large(s.squared_fit, s.size)) return false;
    if constexpr (State::summed) {
        double taken = 0;
        s.each_column([&](int j, int) { taken += absolute(in_multiplier(s, j) * s.x[j]); });
        return s.squared_fit > large_residual * s.lanes.sum(taken);
    }
    return true;
}

// Whether rounding may hide that a column should leave its bound: a dual is within it, and the residual
// is so small that a better one would tell. All of w is there.
template <class State>
SW_HD bool rounding_hides_a_dual(const State& s) {
    if (!s.out_of_factor()) return false;
    const double finest =
        max_of(s.job.options.tolerance * s.b_norm, s.job.options.rounding * square_root(s.squared_residual));
    if (!(finest < 0.01 * s.slack)) return false;
    const double rounded = double_epsilon * size_of_references(s);
    if (!(s.squared_residual > rounded * rounded)) return false;
    bool hidden = false;
    s.each_column(
        [&](int j, int t) { hidden = hidden || (s.is_at_bound(j) && score_of(s, j, t, s.w[j]) > -s.slack); });
    return s.lanes.any(hidden);
}

// What b - A x is rounded to at the least: |b| and what the columns at bounds take of it.
template <class State>
SW_HD double size_of_references(const State& s) {
    if constexpr (!State::bounded) return s.b_norm;
    double sum = 0;
    s.each_column([&](int j, int t) {
        if ((s.nonzero & ~s.in_factor) & bit_of(j)) sum += absolute(s.x[j]) * s.norm(j, t);
    });
    return s.b_norm + s.lanes.sum(sum);
}

// Over all columns, used by the SIMD (CPU) implementation; what is kept of them ends in zeros.
template <class State>
SW_HD double inner(const State& s, const double* a, const double* b) {
    return s.lanes.inner(a, b, s.swept());
}

}  // namespace small
}  // namespace lsq
SW_END
