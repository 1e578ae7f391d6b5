// LDLᵀ without pivoting for the small symmetric quasi-definite matrices of the compact representation:
// `negative` leading pivots are negative, the rest positive, whatever the symmetric permutation (Vanderbei
// 1995). Row-major, lower triangle. Team code: every member calls, all see the result.
#pragma once

#include "core/config.hpp"

SW_BEGIN

// Overwrites the lower triangle with L (unit diagonal implied) and D⁻¹ on the diagonal. False if a pivot has
// the wrong sign, is zero or not finite: rounding has destroyed the matrix.
template <class Team>
SW_HD_CALLED bool factor_ldlt(Team& team, double* a, int size, int negative) {
    for (int k = 0; k < size; ++k) {
        const double pivot = a[k * size + k];
        if (!(k < negative ? pivot < 0 : pivot > 0) || !is_finite(pivot)) return false;
        const double inverse = 1 / pivot;
        for (int i = k + 1 + team.row(); i < size; i += team.rows()) {
            const double l = a[i * size + k] * inverse;
            for (int j = k + 1 + team.lane(); j <= i; j += team.lanes())
                a[i * size + j] -= l * a[j * size + k];
        }
        team.sync();
        for (int i = k + 1 + team.rank(); i < size; i += team.size()) a[i * size + k] *= inverse;
        if (team.rank() == 0) a[k * size + k] = inverse;
        team.sync();
    }
    return true;
}

// x <- L⁻¹ x.
template <class Team>
SW_HD_CALLED void solve_lower(Team& team, const double* l, int size, double* x) {
    for (int k = 0; k < size; ++k) {
        for (int i = k + 1 + team.rank(); i < size; i += team.size()) x[i] -= l[i * size + k] * x[k];
        team.sync();
    }
}

// x <- (L D Lᵀ)⁻¹ x.
template <class Team>
SW_HD_CALLED void solve_ldlt(Team& team, const double* l, int size, double* x) {
    solve_lower(team, l, size, x);
    for (int i = team.rank(); i < size; i += team.size()) x[i] *= l[i * size + i];
    team.sync();
    for (int k = size - 1; k > 0; --k) {
        for (int i = team.rank(); i < k; i += team.size()) x[i] -= l[k * size + i] * x[k];
        team.sync();
    }
}

SW_END
