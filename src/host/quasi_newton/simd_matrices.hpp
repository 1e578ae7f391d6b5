// The LDLᵀ of core/quasi_newton/small_matrix.hpp for one CPU thread: the same operations on the same numbers,
// on rows padded to whole packs, so that short rows cost no scalar loops.
#pragma once

#include <cstring>

#include "core/common/simd.hpp"
#include "core/common/team.hpp"
#include "core/quasi_newton/small_matrix.hpp"

SW_BEGIN

struct SimdMatrices : PlainMatrices {
    template <class Team>
    static bool factor_ldlt(Team& team, double* a, int size, int negative) {
        constexpr int max_size = 64;
        if (size > max_size) return PlainMatrices::factor_ldlt(team, a, size, negative);
        alignas(64) double rows[max_size * max_size], scaled[max_size];
        const int stride = (size + lanes - 1) / lanes * lanes;
        // Each row from the pack of its diagonal on. What a pack has left of the diagonal or beyond the end
        // is zeros or leftovers of whole packs: finite, and never looked at.
        for (int k = 0; k < size; ++k) {
            double* row = rows + k * stride;
            store(row + k / lanes * lanes, splat(0));
            store(row + stride - lanes, splat(0));
            std::memcpy(row + k, a + k * size + k, sizeof(double) * (size - k));
        }
        for (int k = 0; k < size; ++k) {
            const double* column = rows + k * stride;
            const double pivot = column[k];
            if (!(k < negative ? pivot < 0 : pivot > 0) || !is_finite(pivot)) return false;
            const double inverse = 1 / pivot;
            const int from = (k + 1) / lanes * lanes;
            for (int i = from; i < stride; i += lanes) store(scaled + i, load(column + i) * inverse);
            for (int j = k + 1; j < size; ++j) {
                if (column[j] == 0) continue;  // K begins with a diagonal block
                const Pack factor = splat(column[j]);
                double* row = rows + j * stride;
                for (int i = j / lanes * lanes; i < stride; i += lanes)
                    store(row + i, load(row + i) - load(scaled + i) * factor);
            }
            double* out = a + k * size;
            out[k] = inverse;
            if (k + 1 < size) std::memcpy(out + k + 1, scaled + k + 1, sizeof(double) * (size - k - 1));
        }
        return true;
    }
};

// One CPU thread that takes decisions.
struct DecidingThread : Lone {
    using Matrices = SimdMatrices;
};

SW_END
