// The LDLᵀ of core/quasi_newton/small_matrix.hpp for one CPU thread: the same operations on the same numbers,
// a register at a time. Four pivots are taken at once to the rows below them, two rows at a time, so that
// what is loaded is used more than once.
#pragma once

#include "core/common/simd.hpp"
#include "core/common/team.hpp"
#include "core/quasi_newton/small_matrix.hpp"

SW_BEGIN

struct SimdMatrices : PlainMatrices {
    // Block by block: what kind of entry it is, is known before the loop.
    template <class Team, class Put>
    static void each_entry(Team&, int pairs, const Put& put) {
        for (int a = 0; a < pairs; ++a) {
            for (int b = a; b < pairs; ++b) put(false, a, false, b);
            for (int b = 0; b < pairs; ++b) put(false, a, true, b);
        }
        for (int a = 0; a < pairs; ++a)
            for (int b = a; b < pairs; ++b) put(true, a, true, b);
    }

    template <class Team>
    static bool factor_ldlt(Team& team, double* a, int size, int negative) {
        constexpr int max_size = 64;
        if (size > max_size) return PlainMatrices::factor_ldlt(team, a, size, negative);
        alignas(64) double memory[max_size * max_size], scaled[pivots * max_size];
        const int stride = (size + width - 1) / width * width;
        // Each row from the register of its diagonal on. What a register has left of the diagonal or beyond
        // the end is never looked at.
        for (int k = 0; k < size; ++k) {
            copy_from(k / width * width, size, a + k * size, memory + k * stride);
        }
        for (int first = 0; first < size; first += pivots) {
            const int last = min_of(first + pivots, size);
            for (int k = first; k < last; ++k) {
                const double* column = memory + k * stride;
                double* multiples = scaled + (k - first) * max_size;
                const double pivot = column[k];
                if (!(k < negative ? pivot < 0 : pivot > 0) || !is_finite(pivot)) return false;
                const double inverse = 1 / pivot;
                for (int i = (k + 1) / width * width; i < stride; i += width)
                    register_at(multiples + i) = register_at(column + i) * inverse;
                for (int j = k + 1; j < last; ++j) subtract<1, 1>(memory, k, j, stride, multiples, max_size);
                copy_from((k + 1) / width * width, size, multiples, a + k * size);
                a[k * size + k] = inverse;
            }
            int j = last;
            for (; j + 2 <= size; j += 2) subtract<pivots, 2>(memory, first, j, stride, scaled, max_size);
            if (j < size) subtract<pivots, 1>(memory, first, j, stride, scaled, max_size);
        }
        return true;
    }

private:
    typedef Register<double> Vector;
    static constexpr int width = register_lanes<double>;
    static constexpr int pivots = 4;

    // The elements of a row from `begin` on.
    static void copy_from(int begin, int size, const double* from, double* to) {
        int i = begin;
        for (; i + width <= size; i += width) register_at(to + i) = register_at(from + i);
        for (; i < size; ++i) to[i] = from[i];
    }

    // Takes P pivots, from k on, to R rows from j on; `scaled` are the pivots' rows over their pivots.
    template <int P, int R>
    static void subtract(double* memory, int k, int j, int stride, const double* scaled, int scaled_stride) {
        double factor[R][P];
        bool none = true;  // K begins with a diagonal block
        for (int r = 0; r < R; ++r)
            for (int p = 0; p < P; ++p) {
                factor[r][p] = memory[(k + p) * stride + j + r];
                none &= factor[r][p] == 0;
            }
        if (none) return;
        double* row = memory + j * stride;
        for (int i = j / width * width; i < stride; i += width) {
            Vector multiple[P];
            for (int p = 0; p < P; ++p) multiple[p] = register_at(scaled + p * scaled_stride + i);
            for (int r = 0; r < R; ++r) {
                Vector value = register_at(row + r * stride + i);
                for (int p = 0; p < P; ++p) value -= multiple[p] * factor[r][p];
                register_at(row + r * stride + i) = value;
            }
        }
    }
};

// One CPU thread that takes decisions.
struct DecidingThread : Lone {
    using Matrices = SimdMatrices;
};

SW_END
