// The LDLᵀ of core/quasi_newton/small_matrix.hpp for one CPU thread: the same operations on the same numbers,
// but column k is first put in a row of its own, so that the inner loops run over contiguous memory.
#pragma once

#include "core/quasi_newton/small_matrix.hpp"
#include "core/team.hpp"
#include "host/chunks.hpp"

SW_BEGIN

inline bool factor_ldlt(Lone&, double* a, int size, int negative) {
    double column[2 * max_capacity];
    for (int k = 0; k < size; ++k) {
        const double pivot = a[k * size + k];
        if (!(k < negative ? pivot < 0 : pivot > 0) || !is_finite(pivot)) return false;
        const double inverse = 1 / pivot;
        for (int i = k + 1; i < size; ++i) column[i] = a[i * size + k];
        for (int i = k + 1; i < size; ++i) {
            const double l = column[i] * inverse;
            double* row = a + int64_t(i) * size;
            for (int j = k + 1; j <= i; ++j) row[j] -= l * column[j];
            row[k] = l;
        }
        a[k * size + k] = inverse;
    }
    return true;
}

SW_END
