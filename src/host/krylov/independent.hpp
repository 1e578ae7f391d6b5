// Independent combinations of columns, from their Gram matrix alone. LAPACK's dpstrf and dtrtri do the same
// to the same accuracy, but take 5 to 30 times as long up to 32 columns (docs/performance.md).
#pragma once

#include <cstddef>

#include "core/common/simd.hpp"

SW_BEGIN

// Rows of the workspace are padded to whole packs.
inline int padded(int k) {
    return (k + lanes - 1) / lanes * lanes;
}

inline std::size_t workspace_doubles(int k) {
    const std::size_t width = padded(k);
    return 2 * width * width + 3 * width;
}

// How many registers a strip takes: with eight lanes whatever the instruction set, the compiler would keep
// sums in memory.
constexpr int strip_lanes = register_lanes<double>, strip_registers = register_bytes == 64 ? 6 : 12;

// y -= Σ_m factors[m] rows[m], the rows `stride` apart; the strip of y stays in registers while all rows
// pass.
template <int registers>
void subtract_strip(double* y, const double* factors, const double* rows, int stride, int count) {
    Register<double>* out = &register_at(y);
    Register<double> sums[registers];
    for (int l = 0; l < registers; ++l) sums[l] = out[l];
    for (int m = 0; m < count; ++m) {
        const Register<double>* row = &register_at(rows + m * stride);
        const double factor = factors[m];
#pragma GCC unroll 16
        for (int l = 0; l < registers; ++l) sums[l] -= factor * row[l];
    }
    for (int l = 0; l < registers; ++l) out[l] = sums[l];
}

// n is a multiple of the lanes of a pack.
inline void subtract_rows(double* y, const double* factors, const double* rows, int stride, int count,
                          int n) {
    constexpr int strip = strip_registers * strip_lanes;
    int i = 0;
    for (; i + strip <= n; i += strip)
        subtract_strip<strip_registers>(y + i, factors, rows + i, stride, count);
    for (; i < n; i += lanes) subtract_strip<lanes / strip_lanes>(y + i, factors, rows + i, stride, count);
}

// Cholesky with diagonal pivoting of the Gram matrix G (k x k, row-major, of which row p is read when p is
// the pivot) of the normalised columns, ended at the first pivot that is not above `cut`. With the pivots'
// rows U of the factor, G ≈ UᵀU on the columns taken, and mix = U⁻¹ on their rows gives mixᵀ G mix = I.
//
// mix (k x k, row-major): its first `rank` columns are the combinations; rows of columns left out are zero.
// work: workspace_doubles(k), from a cache line on; order: k integers. Returns the rank, or -1 where G is not
// finite.
inline int independent_combinations(const double* gram, int k, double cut, double* mix, double* work,
                                    int* order) {
    const int width = padded(k);
    double *factor = work, *inverse = factor + width * width, *scale = inverse + width * width;
    double *left = scale + width, *gathered = left + width;
    Pack doubt{};
    int i = 0;
    for (; i + lanes <= k * k; i += lanes) doubt += load(gram + i) - load(gram + i);  // NaN unless finite
    for (; i < k * k; ++i) doubt[0] += gram[i] - gram[i];
    if (!(add_lanes(doubt) == 0)) return -1;
    for (int i = 0; i < width; ++i) {
        const double square = i < k ? gram[i * k + i] : 0.0;
        scale[i] = square > 0 ? 1 / square_root(square) : 0.0;
        left[i] = square > 0 ? 1.0 : -1.0;
    }
    int rank = 0;
    for (; rank < k; ++rank) {
        double max_pivot = cut;
        for (int i = 0; i < width; ++i) max_pivot = max_of(max_pivot, left[i]);
        int pivot = 0;
        while (pivot < k && left[pivot] != max_pivot) ++pivot;
        if (!(max_pivot > cut)) break;
        double* row = factor + rank * width;
        for (int i = 0; i < width; ++i) row[i] = i < k ? gram[pivot * k + i] * scale[i] * scale[pivot] : 0.0;
        for (int m = 0; m < rank; ++m) gathered[m] = factor[m * width + pivot];
        subtract_rows(row, gathered, factor, width, rank, width);
        const double root = square_root(max_pivot), reciprocal = 1 / root;
        for (int i = 0; i < width; ++i) {
            row[i] = left[i] < 0 ? 0.0 : row[i] * reciprocal;  // zero for columns taken before
            left[i] -= row[i] * row[i];
        }
        row[pivot] = root;
        left[pivot] = -1;
        for (int i = 0; i < width; ++i) left[i] = left[i] < 0 ? -1.0 : left[i];
        order[rank] = pivot;
    }
    for (int i = 0; i < k * k; ++i) mix[i] = 0;
    for (int r = rank - 1; r >= 0; --r) {  // U⁻¹ from its last row up
        double* row = inverse + r * width;
        const double* upper = factor + r * width;
        for (int c = 0; c < width; ++c) row[c] = c == r ? 1.0 : 0.0;
        for (int s = r + 1; s < rank; ++s) gathered[s] = upper[order[s]];
        const int first = r / lanes * lanes;  // what lies before is zero
        subtract_rows(row + first, gathered + r + 1, inverse + (r + 1) * width + first, width, rank - r - 1,
                      width - first);
        const double reciprocal = 1 / upper[order[r]], factor_of_column = scale[order[r]];
        double* out = mix + order[r] * k;
        for (int c = 0; c < rank; ++c) {
            row[c] *= reciprocal;
            out[c] = row[c] * factor_of_column;
        }
    }
    return rank;
}

SW_END
