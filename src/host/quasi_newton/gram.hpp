// Dot products of rows of a tile: the arithmetic of the absorb sweep. The history is read once, by
// gather_rows; the Gram matrix is then formed from copies that the first-level cache holds. Each tile is
// summed from zero, in one register a product, and then added: a sum of sums loses far less to rounding than
// one long sum, and a product has the same bits whichever function formed it.
#pragma once

#include "host/quasi_newton/tiles.hpp"

SW_BEGIN

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int most_columns = 4;  // 4 x 4 sums in 32 registers
constexpr int most_rows(int) {
    return 4;
}
#else
constexpr int most_columns = 3;  // 4 x 3 sums in 16 registers, or 2 x 4
constexpr int most_rows(int columns) {
    return columns <= 3 ? 4 : 2;
}
#endif

// R x C dot products over a tile at once, R + C loads for R C products.
template <int R, int C>
inline void dot_block(const double* const* rows, const double* const* columns, int packs,
                      double* const* sums) {
    Lanes acc[R][C] = {};
    for (int at = 0; at < packs * lanes; at += slice_lanes) {
        Lanes a[R];
        for (int i = 0; i < R; ++i) a[i] = load_slice(rows[i] + at);
        for (int j = 0; j < C; ++j) {
            const Lanes b = load_slice(columns[j] + at);
            for (int i = 0; i < R; ++i) acc[i][j] += a[i] * b;
        }
    }
    for (int i = 0; i < R; ++i)
        for (int j = 0; j < C; ++j) sums[i][j] = sum_of_lanes(acc[i][j]);
}

// The same of four rows with themselves, but for what is above the diagonal: 4 loads for 10 products.
inline void dot_triangle(const double* const* rows, int packs, double* const* sums) {
    Lanes acc[4][4] = {};
    for (int at = 0; at < packs * lanes; at += slice_lanes) {
        Lanes a[4];
        for (int i = 0; i < 4; ++i) a[i] = load_slice(rows[i] + at);
        for (int i = 0; i < 4; ++i)
            for (int j = 0; j <= i; ++j) acc[i][j] += a[i] * a[j];
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j <= i; ++j) sums[i][j] = sum_of_lanes(acc[i][j]);
}

template <int R>
inline void dot_columns(const double* const* rows, const double* const* columns, int count, int packs,
                        double* const* sums) {
    switch (count) {  // at most most_columns
        case 4:
            dot_block<R, most_columns>(rows, columns, packs, sums);
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
                     int packs, double* const* sums) {
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

// R rows of a tile read once: sums of their products with C columns over the picked packs and, given a mask,
// copies of these with the mask applied, without gaps. The last pack may not be whole: rows have `count`
// elements. Behind them lie the places of as many rows that are to be asked for.
template <int R, int C, bool masked, class T>
inline void gather_block(const T* const* rows, const double* const* columns, const double* mask,
                         double* const* copies, int count, const Picks& picks, double* const* sums) {
    // Copies of the places, which a store might change for all that the compiler knows.
    const T *row[R], *next[R];
    const double* column[C];
    double* copy[R];
    for (int i = 0; i < R; ++i)
        row[i] = rows[i], next[i] = rows[R + i], copy[i] = masked ? copies[i] : nullptr;
    for (int j = 0; j < C; ++j) column[j] = columns[j];
    const int whole = count / lanes * lanes;
    const bool has_rest = picks.ends_with(whole / lanes);
    T padded[R][lanes] = {};
    if (has_rest) {
        for (int i = 0; i < R; ++i)
            std::memcpy(padded[i], rows[i] + whole, sizeof(T) * size_t(count - whole));
    }
    Lanes acc[R][C] = {};
    int64_t copied = 0;
    const auto add = [&](const auto& from, int64_t at, int64_t k) {
        Lanes value[R][slices_at_once];
        for (int i = 0; i < R; ++i) load_slices(from[i] + at, value[i]);
        SW_UNROLLED
        for (int slice = 0; slice < slices_at_once; ++slice, k += slice_lanes) {
            Lanes factor[C];
            for (int j = 0; j < C; ++j) factor[j] = load_slice(column[j] + k);
            const Lanes kept = masked ? load_slice(mask + k) : Lanes{};
            for (int i = 0; i < R; ++i) {
                for (int j = 0; j < C; ++j) acc[i][j] += value[i][slice] * factor[j];
                if (masked) register_at(copy[i] + copied) = value[i][slice] * kept;
            }
            if (masked) copied += slice_lanes;
        }
    };
    for (int p = 0; p < picks.count; ++p) {
        const int64_t end = min_of(picks.runs[p].end * lanes, whole);
        // Not pack by pack: GCC would move sums from register to register between the parts of one.
        for (int64_t k = picks.runs[p].begin * lanes; k < end; k += lanes_at_once) {
            // What is picked of the next rows: pieces too short for the hardware to foresee. Some of the rows
            // with every part of a pack.
            constexpr int parts = lanes / lanes_at_once;
            const unsigned part = unsigned(k) / lanes_at_once % parts;
            for (unsigned i = 0; i < R; i += parts)
                if (R % parts == 0 || i + part < R) prefetch(next[i + part] + k);
            add(row, k, k);
        }
    }
    if (has_rest) {
        for (int at = 0; at < lanes; at += lanes_at_once) add(padded, at, whole + at);
    }
    for (int i = 0; i < R; ++i)
        for (int j = 0; j < C; ++j) sums[i][j] = sum_of_lanes(acc[i][j]);
}

// sums[i * stride + j] = row i · column j over the picked packs of a tile of `count` elements; with a mask,
// also masked copies of them into consecutive tile rows. Columns and mask are padded to whole packs.
template <int C, bool masked, class T>
inline void gather_rows(const T* const* rows, int row_count, const double* const* columns, const double* mask,
                        double* copies, int count, const Picks& picks, double* sums, int stride) {
    constexpr int most = most_rows(C);
    for (int i = 0; i < row_count; i += most) {
        double *copy[4], *out[4];
        for (int a = 0; a < most; ++a)
            copy[a] = copies + int64_t(i + a) * tile, out[a] = sums + (i + a) * stride;
        switch (min_of(most, row_count - i)) {
            case 4:
                gather_block<most == 4 ? 4 : 1, C, masked>(rows + i, columns, mask, copy, count, picks, out);
                break;
            case 3:
                gather_block<most == 4 ? 3 : 1, C, masked>(rows + i, columns, mask, copy, count, picks, out);
                break;
            case 2:
                gather_block<2, C, masked>(rows + i, columns, mask, copy, count, picks, out);
                break;
            default:
                gather_block<1, C, masked>(rows + i, columns, mask, copy, count, picks, out);
        }
    }
}

// Lower triangle of tile · tileᵀ in a full square of sums. Above the diagonal there is something or other.
inline void form_gram(const double* rows, int row_count, int stride, int packs, double* sums) {
    for (int i = 0; i < row_count; i += 4) {
        const int r = min_of(4, row_count - i), end = min_of(i + 4, row_count);
        const double* left[4];
        for (int a = 0; a < r; ++a) left[a] = rows + int64_t(i + a) * stride;
        for (int j = 0; j < end; j += most_columns) {
            const int c = min_of(most_columns, end - j);
            const double* right[4];
            double* out[4];
            for (int b = 0; b < c; ++b) right[b] = rows + int64_t(j + b) * stride;
            for (int a = 0; a < r; ++a) out[a] = sums + int64_t(i + a) * row_count + j;
            if (i == j && r == 4 && c == 4) {
                dot_triangle(left, packs, out);
            } else {
                dot_rows(left, r, right, c, packs, out);
            }
        }
    }
}

SW_END
