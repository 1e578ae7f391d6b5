// Dot products of rows of a tile, accumulated lane by lane: the arithmetic of the absorb sweep. The history
// is read once, by gather_rows; the Gram matrix is then formed from copies that the first-level cache holds.
#pragma once

#include "core/common/simd.hpp"

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

// R rows read once: acc += products with C columns and, given a mask, copies of the rows with the mask
// applied.
template <int R, int C, bool masked, class T>
inline void gather_span(const T* const* rows, const double* const* columns, const double* mask,
                        double* const* copies, int from, int packs, Pack (&sums)[R][C]) {
    Pack acc[R][C];
    for (int i = 0; i < R; ++i)
        for (int j = 0; j < C; ++j) acc[i][j] = sums[i][j];
    for (int k = 0; k < packs; ++k) {
        const int at = from + k * lanes;
        Pack column[C];
        for (int j = 0; j < C; ++j) column[j] = load(columns[j] + at);
        const Pack kept = masked ? load(mask + at) : splat(0);
        for (int i = 0; i < R; ++i) {
            const Pack row = load(rows[i] + k * lanes);
            prefetch(rows[i] + k * lanes +
                     tile);  // a row comes in pieces of one tile: too short for the hardware
            for (int j = 0; j < C; ++j) acc[i][j] += row * column[j];
            if (masked) store(copies[i] + at, row * kept);
        }
    }
    for (int i = 0; i < R; ++i)
        for (int j = 0; j < C; ++j) sums[i][j] = acc[i][j];
}

template <int R, int C, bool masked, class T>
inline void gather_block(const T* const* rows, const double* const* columns, const double* mask,
                         double* const* copies, int count, Pack* const* sums) {
    Pack acc[R][C];
    for (int i = 0; i < R; ++i)
        for (int j = 0; j < C; ++j) acc[i][j] = splat(0);
    const int packs = count / lanes, rest = count % lanes;
    gather_span<R, C, masked>(rows, columns, mask, copies, 0, packs, acc);
    if (rest > 0) {
        T padded[R][lanes] = {};
        const T* tails[R];
        for (int i = 0; i < R; ++i) {
            std::memcpy(padded[i], rows[i] + packs * lanes, sizeof(T) * rest);
            tails[i] = padded[i];
        }
        gather_span<R, C, masked>(tails, columns, mask, copies, packs * lanes, 1, acc);
    }
    for (int i = 0; i < R; ++i)
        for (int j = 0; j < C; ++j) sums[i][j] += acc[i][j];
}

// sums[i * stride + j] += row i · column j over a tile of `count` elements; with a mask, also masked copies
// into consecutive tile rows. Columns, mask and copies are padded to whole packs.
template <int C, bool masked, class T>
inline void gather_rows(const T* const* rows, int row_count, const double* const* columns, const double* mask,
                        double* copies, int count, Pack* sums, int stride) {
    for (int i = 0; i < row_count; i += 4) {
        double* copy[4];
        Pack* out[4];
        for (int a = 0; a < 4; ++a)
            copy[a] = copies + int64_t(i + a) * tile, out[a] = sums + (i + a) * stride;
        switch (min_of(4, row_count - i)) {
            case 4:
                gather_block<4, C, masked>(rows + i, columns, mask, copy, count, out);
                break;
            case 3:
                gather_block<3, C, masked>(rows + i, columns, mask, copy, count, out);
                break;
            case 2:
                gather_block<2, C, masked>(rows + i, columns, mask, copy, count, out);
                break;
            default:
                gather_block<1, C, masked>(rows + i, columns, mask, copy, count, out);
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
