// Dot products of rows of a tile, accumulated lane by lane: the arithmetic of the absorb sweep.
#pragma once

#include "host/vectors.hpp"

SW_BEGIN

// Four by four dot products at once: 16 accumulators for 8 loads keeps the multipliers busy.
template <int R, int C>
inline void dot_block(const double* const* rows, const double* const* columns, int packs, Pack* const* sums) {
    // Each tile is summed from zero and then added: a sum of sums loses far less to rounding than one long
    // sum.
    Pack acc[R][C];
    for (int i = 0; i < R; ++i)
        for (int j = 0; j < C; ++j) acc[i][j] = splat(0);
    for (int k = 0; k < packs; ++k) {
        Pack a[R];
        for (int i = 0; i < R; ++i) a[i] = load(rows[i] + k * lanes);
        for (int j = 0; j < C; ++j) {
            const Pack b = load(columns[j] + k * lanes);
            for (int i = 0; i < R; ++i) acc[i][j] += a[i] * b;
        }
    }
    for (int i = 0; i < R; ++i)
        for (int j = 0; j < C; ++j) sums[i][j] += acc[i][j];
}

template <int R>
inline void dot_columns(const double* const* rows, const double* const* columns, int count, int packs,
                        Pack* const* sums) {
    switch (count) {
        case 4:
            dot_block<R, 4>(rows, columns, packs, sums);
            break;
        case 3:
            dot_block<R, 3>(rows, columns, packs, sums);
            break;
        case 2:
            dot_block<R, 2>(rows, columns, packs, sums);
            break;
        default:
            dot_block<R, 1>(rows, columns, packs, sums);
    }
}

inline void dot_rows(const double* const* rows, int row_count, const double* const* columns, int column_count,
                     int packs, Pack* const* sums) {
    switch (row_count) {
        case 4:
            dot_columns<4>(rows, columns, column_count, packs, sums);
            break;
        case 3:
            dot_columns<3>(rows, columns, column_count, packs, sums);
            break;
        case 2:
            dot_columns<2>(rows, columns, column_count, packs, sums);
            break;
        default:
            dot_columns<1>(rows, columns, column_count, packs, sums);
    }
}

// sums[i * columns + j] += tile row i · column j.
inline void add_products(const double* rows, int row_count, int stride, const double* const* columns,
                         int column_count, int packs, Pack* sums) {
    for (int i = 0; i < row_count; i += 4) {
        const int r = min_of(4, row_count - i);
        const double* left[4];
        Pack* out[4];
        for (int a = 0; a < r; ++a)
            left[a] = rows + int64_t(i + a) * stride, out[a] = sums + (i + a) * column_count;
        for (int j = 0; j < column_count; j += 4) {
            dot_rows(left, r, columns + j, min_of(4, column_count - j), packs, out);
            for (int a = 0; a < r; ++a) out[a] += 4;
        }
    }
}

// Lower triangle of tile · tileᵀ, stored as a full square of accumulators so that blocks need no special
// cases.
inline void add_gram(const double* rows, int row_count, int stride, int packs, Pack* sums) {
    for (int i = 0; i < row_count; i += 4) {
        const int r = min_of(4, row_count - i);
        const double* left[4];
        for (int a = 0; a < r; ++a) left[a] = rows + int64_t(i + a) * stride;
        for (int j = 0; j <= i; j += 4) {
            const int c = min_of(4, row_count - j);
            const double* right[4];
            Pack* out[4];
            for (int b = 0; b < c; ++b) right[b] = rows + int64_t(j + b) * stride;
            for (int a = 0; a < r; ++a) out[a] = sums + int64_t(i + a) * row_count + j;
            dot_rows(left, r, right, c, packs, out);
        }
    }
}

SW_END
