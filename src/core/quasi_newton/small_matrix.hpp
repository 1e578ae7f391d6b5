// LDLᵀ without pivoting for the small symmetric quasi-definite matrices of the compact representation:
// `negative` leading pivots are negative, the rest positive, whatever the symmetric permutation (Vanderbei
// 1995). Row-major, upper triangle: row k holds column k of L, so that every inner loop runs along memory,
// for a CPU's vectors and for the banks of a GPU's shared memory alike. Team code: every member calls, all
// see the result.
//
// A team may bring its own: a member type Matrices, with the functions of PlainMatrices that it replaces and,
// by inheritance, the others.
#pragma once

#include "core/common/config.hpp"

SW_BEGIN

// A matrix to factor, and a vector to take through L⁻¹ on the way.
struct Factoring {
    double *a, *x;
};

struct BothFactored {
    bool first, second;
    double form;  // xᵀ A⁻¹ x of the first
};

template <class Team>
SW_HD bool factor_ldlt(Team& team, double* a, int size, int negative);
template <class Team>
SW_HD void solve_lower(Team& team, const double* a, int size, double* x);

struct PlainMatrices {
    // put(row is of S, its age, column is of S, its age) for the upper triangle of a matrix of all pairs [Y,
    // S].
    template <class Team, class Put>
    static SW_HD void each_entry(Team& team, int pairs, const Put& put) {
        SW_ROLLED
        for (int a = team.row(); a < 2 * pairs; a += team.rows()) {
            const bool a_is_s = a >= pairs;
            SW_ROLLED
            for (int b = team.lane(); b < 2 * pairs; b += team.lanes()) {
                if (b < a) continue;
                const bool b_is_s = b >= pairs;
                put(a_is_s, a_is_s ? a - pairs : a, b_is_s, b_is_s ? b - pairs : b);
            }
        }
    }

    // Overwrites the upper triangle with Lᵀ (unit diagonal implied) and D⁻¹ on the diagonal. False if a pivot
    // has the wrong sign, is zero or not finite: rounding has destroyed the matrix.
    template <class Team>
    static SW_HD_CALLED bool factor_ldlt(Team& team, double* a, int size, int negative) {
        SW_ROLLED
        for (int k = 0; k < size; ++k) {
            const double* column = a + k * size;
            const double pivot = column[k];
            if (!(k < negative ? pivot < 0 : pivot > 0) || !is_finite(pivot)) return false;
            const double inverse = 1 / pivot;
            SW_ROLLED
            for (int j = k + 1 + team.row(); j < size; j += team.rows()) {
                SW_ROLLED
                for (int i = j + team.lane(); i < size; i += team.lanes())
                    a[j * size + i] -= column[i] * inverse * column[j];
            }
            team.sync();
        }
        // D Lᵀ until here: one barrier a pivot.
        SW_ROLLED
        for (int k = team.row(); k < size; k += team.rows()) {
            const double inverse = 1 / a[k * size + k];
            SW_ROLLED
            for (int i = k + 1 + team.lane(); i < size; i += team.lanes()) a[k * size + i] *= inverse;
        }
        team.sync();
        SW_ROLLED
        for (int k = team.rank(); k < size; k += team.size()) a[k * size + k] = 1 / a[k * size + k];
        team.sync();
        return true;
    }

    // x <- L⁻¹ x.
    template <class Team>
    static SW_HD_CALLED void solve_lower(Team& team, const double* a, int size, double* x) {
        SW_ROLLED
        for (int k = 0; k < size; ++k) {
            SW_ROLLED
            for (int i = k + 1 + team.rank(); i < size; i += team.size()) x[i] -= a[k * size + i] * x[k];
            team.sync();
        }
    }

    // x <- L⁻ᵀ D⁻¹ x.
    template <class Team>
    static SW_HD_CALLED void solve_upper(Team& team, const double* a, int size, double* x) {
        SW_ROLLED
        for (int i = team.rank(); i < size; i += team.size()) x[i] *= a[i * size + i];
        team.sync();
        SW_ROLLED
        for (int k = size - 1; k > 0; --k) {
            SW_ROLLED
            for (int i = team.rank(); i < k; i += team.size()) x[i] -= a[i * size + k] * x[k];
            team.sync();
        }
    }

    // Factors, and takes the vector through L⁻¹.
    template <class Team>
    static SW_HD_CALLED bool factor_with(Team& team, const Factoring& one, int size, int negative) {
        if (!stepwell::factor_ldlt(team, one.a, size, negative)) return false;
        stepwell::solve_lower(team, one.a, size, one.x);
        return true;
    }

    // Two at once, for teams to which a second chain of pivots beside the first costs nothing; the first may
    // have no matrix. Beside them one member runs `beside`.
    template <class Team, class Beside>
    static SW_HD BothFactored factor_both(Team& team, const Factoring& first, const Factoring& second,
                                          int size, int negative, const Beside& beside) {
        if (team.rank() == 0) beside();
        team.sync();
        BothFactored found{true, true, 0};
        if (first.a) found.first = factor_with(team, first, size, negative);
        if (first.a && found.first) {
            SW_FOUR_AT_A_TIME
            for (int i = 0; i < size; ++i) found.form += first.x[i] * first.a[i * size + i] * first.x[i];
        }
        found.second = factor_with(team, second, size, negative);
        return found;
    }
};

// The functions of a team.
template <class Team>
struct MatricesOf {
    using type = PlainMatrices;
};
template <class Team>
    requires requires { typename Team::Matrices; }
struct MatricesOf<Team> {
    using type = typename Team::Matrices;
};

template <class Team, class Put>
SW_HD void each_entry(Team& team, int pairs, const Put& put) {
    MatricesOf<Team>::type::each_entry(team, pairs, put);
}
template <class Team>
SW_HD bool factor_ldlt(Team& team, double* a, int size, int negative) {
    return MatricesOf<Team>::type::factor_ldlt(team, a, size, negative);
}
template <class Team>
SW_HD void solve_lower(Team& team, const double* a, int size, double* x) {
    MatricesOf<Team>::type::solve_lower(team, a, size, x);
}
template <class Team>
SW_HD void solve_upper(Team& team, const double* a, int size, double* x) {
    MatricesOf<Team>::type::solve_upper(team, a, size, x);
}
template <class Team>
SW_HD bool factor_with(Team& team, const Factoring& one, int size, int negative) {
    return MatricesOf<Team>::type::factor_with(team, one, size, negative);
}
template <class Team, class Beside>
SW_HD BothFactored factor_both(Team& team, const Factoring& first, const Factoring& second, int size,
                               int negative, const Beside& beside) {
    return MatricesOf<Team>::type::factor_both(team, first, second, size, negative, beside);
}

// x <- (L D Lᵀ)⁻¹ x.
template <class Team>
SW_HD void solve_ldlt(Team& team, const double* a, int size, double* x) {
    solve_lower(team, a, size, x);
    solve_upper(team, a, size, x);
}

// x <- L⁻¹ x by one member alone.
SW_HD void substitute_lower(const double* a, int size, double* x) {
    SW_ROLLED
    for (int k = 0; k < size; ++k) {
        SW_ROLLED
        for (int i = k + 1; i < size; ++i) x[i] -= a[k * size + i] * x[k];
    }
}

SW_END
