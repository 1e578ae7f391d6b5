// The sums of the absorb sweep.
//
// Dot products of rows are taken by the double-precision tensor instruction mma.m8n8k4: of eight rows and
// four columns each lane holds one element, row lane/4, column lane%4, and that register serves as both
// operands of a Gram matrix. The order of columns does not matter to a sum, so each lane loads 16 bytes: two
// columns, two instructions. The vectors s, y, √h g (masked) and the carried displacements ride along as a
// further block of eight rows.
#pragma once

#include "cuda/staging.cuh"
#include "cuda/tensor.cuh"

SW_BEGIN

// Sums of one strip of the Gram matrix: row block `strip` of the stacked [Y; S], and the riding rows, against
// all row blocks. Strips are one (all row blocks in registers) while they fit, else one row block each.
constexpr bool whole_gram = row_blocks <= 4;
constexpr int strip_rows = whole_gram ? row_blocks : 1;

__device__ inline int absorb_strips() {
    return whole_gram ? 1 : row_blocks;
}

struct StripSums {
    double gram[strip_rows][row_blocks][2];
    double riding[row_blocks][2];
#if SW_WEIGHTS_VARY
    double whole[strip_rows][row_blocks][2];  // S Sᵀ over all variables
#endif
};

// to[i][j] += left[i] values[j]ᵀ for the row blocks j <= i, two row blocks at a time.
template <class Blocks>
__device__ inline void multiply_triangle(const double (&left)[row_blocks], const double (&values)[row_blocks],
                                         Blocks& to) {
#pragma unroll
    for (int i = 0; i < row_blocks; i += 2) {
        const bool paired = i + 1 < row_blocks;
#pragma unroll
        for (int j = 0; j <= i; ++j) {
            if (paired) {
                multiply_add(to[i][j], to[i + 1][j], left[i], left[i + 1], values[j]);
            } else {
                multiply_add(to[i][j], left[i], values[j]);
            }
        }
        if (paired) multiply_add(to[i + 1][i + 1], left[i + 1], values[i + 1]);
    }
}

// Sums of a strip from one instruction's four columns: `values` of all row blocks at this lane's column, the
// riding row and the mask there.
__device__ inline void multiply_rows(const double (&values)[row_blocks], double riding, double mask,
                                     int strip, StripSums& sums) {
    if (strip == 0) {
#pragma unroll
        for (int b = 0; b < row_blocks; b += 2) {
            if (b + 1 < row_blocks) {
                multiply_add(sums.riding[b], sums.riding[b + 1], values[b], values[b + 1], riding);
            } else {
                multiply_add(sums.riding[b], values[b], riding);
            }
        }
    }
    if (!(bounded || SW_WEIGHTS_VARY)) return;  // the Gram matrix follows from products kept
    if constexpr (whole_gram) {
        double masked[row_blocks];
#pragma unroll
        for (int b = 0; b < row_blocks; ++b) masked[b] = mask * values[b];
        multiply_triangle(masked, values, sums.gram);
#if SW_WEIGHTS_VARY
        multiply_triangle(values, values, sums.whole);
#endif
    } else {
        // A run-time strip must not index registers: pick the row block by comparison.
        double left = values[0];
#pragma unroll
        for (int b = 1; b < row_blocks; ++b) left = b == strip ? values[b] : left;
#pragma unroll
        for (int j = 0; j < row_blocks; ++j) {
            if (j > strip) continue;
            multiply_add(sums.gram[0][j], mask * left, values[j]);
#if SW_WEIGHTS_VARY
            multiply_add(sums.whole[0][j], left, values[j]);
#endif
        }
    }
}

// `whole`: a full tile; else what lies beyond the end of the variables counts as zero.
template <bool whole>
__device__ inline void absorb_rows(const Vectors& v, const SumLayout& layout, int head, int64_t at, int count,
                                   const AbsorbTile& t, int strip, int stage, StripSums& sums) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, r = layout.rows;
    const int place = warp * columns_of_warp + 2 * (lane & 3);  // this lane's first column
    // Staged rows lie side by side; others where the ring has them.
    const Real* rows[staged ? 1 : row_blocks];
    if (staged) {
        rows[0] = stage_memory(stage) + (lane >> 2) * pitch + place;
    } else {
#pragma unroll
        for (int b = 0; b < row_blocks; ++b) {
            const int row = b * 8 + (lane >> 2), age = age_of(row);
            const int64_t slot = slot_of(age, head, r, slots);
            rows[staged ? 0 : b] =
                age < r ? (is_of_s(row) ? v.s : v.y) + slot * v.stride + at + place : nullptr;
        }
    }
    const double *riding = t.riders[min_of(lane >> 2, int(no_row))] + place, *masks = t.mask + place;
    constexpr int most = columns_of_warp / 8;
    const int steps = whole ? most : min_of(most, (count - warp * columns_of_warp + 7) / 8);
#pragma unroll(whole ? most : lone_warp ? 4 : 1)
    for (int step = 0; step < steps; ++step) {
        // All lanes take part in every instruction; those beyond the end contribute zeros. Rows are padded to
        // a multiple of four elements: an odd last column is read with its neighbour, then masked off.
        const int offset = step * 8, column = place + offset;
        const bool first = whole || column < count, second = whole || column + 1 < count;
        double a[row_blocks], b[row_blocks];  // two columns
#pragma unroll
        for (int k = 0; k < row_blocks; ++k) {
            Two found{0, 0};
            if (staged) {
                found = load_two(rows[0] + k * 8 * pitch + offset);
            } else if (const Real* row = rows[staged ? 0 : k]; row && first) {
                found = load_two(row + offset);
            }
            a[k] = first ? found.a : 0.0;
            b[k] = second ? found.b : 0.0;
        }
        if (weighted) {
            const double ra = first ? t.root[column] : 1.0, rb = second ? t.root[column + 1] : 1.0;
#pragma unroll
            for (int k = 0; k < row_blocks; ++k) {
                const bool is_s = is_of_s(k * 8 + (lane >> 2));
                a[k] = is_s ? a[k] / ra : a[k] * ra;
                b[k] = is_s ? b[k] / rb : b[k] * rb;
            }
        }
        Two ride = load_two(riding + offset), mask = load_two(masks + offset);
        if (!first) ride.a = mask.a = 0;
        if (!second) ride.b = mask.b = 0;
        multiply_rows(a, ride.a, mask.a, strip, sums);
        multiply_rows(b, ride.b, mask.b, strip, sums);
    }
}

// The 8 x 8 blocks of sums that a strip ends with: each row block against the riding rows, then the Gram
// matrix by block rows, then S Sᵀ over all variables where the weights vary.
constexpr int gram_blocks = whole_gram ? row_blocks * (row_blocks + 1) / 2 : row_blocks;
constexpr int strip_blocks = row_blocks + gram_blocks * (1 + SW_WEIGHTS_VARY);
// Blocks added up over the warps at a time. The history's stages are free then and hold them.
constexpr int blocks_at_once = staged || lone_warp ? 5 : 1;

// Which of the sums of a chunk an element of a block is; -1 if none.
__device__ inline int place_of_sum(const SumLayout& layout, int strip, int index, int row, int column) {
    const int r = layout.rows;
    // Its place among the sums of a row of a block: Y by age, then S by age, of the pairs there are.
    auto stacked = [&](int b, int k) { return (is_of_s(b * 8 + k) ? r : 0) + age_of(b * 8 + k); };
    auto alive = [&](int b, int k) { return age_of(b * 8 + k) < r; };
    if (index < row_blocks) {
        if (strip > 0 || column >= no_row || !alive(index, row)) return -1;
        const int j = stacked(index, row);
        const bool is_y = !is_of_s(index * 8 + row);
        return column == moving_row ? layout.q() + j
               : column == s_row    ? (is_y ? layout.new_sy() + j : layout.new_ss() + j - r)
               : column == y_row    ? (is_y ? layout.new_yy() + j : layout.new_ys() + j - r)
                                    : layout.carried() + j;
    }
    index -= row_blocks;
    const bool everywhere = index >= gram_blocks;
    if (everywhere) index -= gram_blocks;
    int left = strip, right = index;
    if (whole_gram) {
        for (left = 0; right > left; ++left) right -= left + 1;
    }
    if (left < right || !layout.gram || !alive(left, row) || !alive(right, column)) return -1;
    const int a = stacked(left, row), b = stacked(right, column);
    if (b > a) return -1;
    if (!everywhere) return layout.free_gram() + triangle(a, b);
    return layout.all_ss && a >= r && b >= r ? layout.whole_ss() + triangle(a - r, b - r) : -1;
}

// Adds the blocks of one group over the warps, in their order, to where the sums of the chunk are kept.
// `shared`: (warps, blocks_at_once, 64).
__device__ __noinline__ void add_blocks(const SumLayout layout, int strip, int first, int count,
                                        const double* shared, double* to) {
    __syncthreads();
    SW_ROLLED
    for (int v = threadIdx.x; v < count * 64; v += threads) {
        const int place = place_of_sum(layout, strip, first + v / 64, v % 64 / 8, v % 8);
        if (place < 0) continue;
        double total = 0;
#pragma unroll
        for (int warp = 0; warp < warps; ++warp) total += shared[warp * blocks_at_once * 64 + v];
        __stcg(to + place, total);
    }
    __syncthreads();
}

__device__ inline void store_strip(const SumLayout& layout, int strip, const StripSums& sums, double* shared,
                                   double* to) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    __syncthreads();
    int index = 0;
    auto put = [&](const double (&c)[2]) {
        double* block = shared + (warp * blocks_at_once + index % blocks_at_once) * 64;
        *reinterpret_cast<double2*>(block + 2 * lane) = make_double2(c[0], c[1]);
        ++index;
        if (index % blocks_at_once == 0 || index == strip_blocks) {
            const int count = (index - 1) % blocks_at_once + 1;
            add_blocks(layout, strip, index - count, count, shared, to);
        }
    };
#pragma unroll
    for (int b = 0; b < row_blocks; ++b) put(sums.riding[b]);
#pragma unroll
    for (int i = 0; i < strip_rows; ++i) {
#pragma unroll
        for (int j = 0; j < row_blocks; ++j) {
            if (!whole_gram || j <= i) put(sums.gram[i][j]);
        }
    }
#if SW_WEIGHTS_VARY
#pragma unroll
    for (int i = 0; i < strip_rows; ++i) {
#pragma unroll
        for (int j = 0; j < row_blocks; ++j) {
            if (!whole_gram || j <= i) put(sums.whole[i][j]);
        }
    }
#endif
}

SW_END
