// The sums of the absorb sweep.
//
// Dot products of rows are taken by the double-precision tensor instruction mma.m8n8k4: of eight rows and
// four columns each lane holds one element, row lane/4, column lane%4, and that register serves as both
// operands of a Gram matrix. The order of columns does not matter to a sum, so each lane loads 16 bytes, two
// columns for two instructions (of a narrow history a warp four of each). The vectors s, y, √h g (masked) and
// the carried displacements ride along as a further block of eight rows.
#pragma once

#include "cuda/common/tensor.cuh"
#include "cuda/quasi_newton/staging.cuh"

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

    // Riding rows against each row block, then the Gram matrix by block rows, then S Sᵀ over all variables.
    template <class Work>
    __device__ void each_block(const Work& work) const {
#pragma unroll
        for (int b = 0; b < row_blocks; ++b) work(riding[b]);
        const auto each_of_gram = [&](const double (&sums)[strip_rows][row_blocks][2]) {
#pragma unroll
            for (int i = 0; i < strip_rows; ++i) {
#pragma unroll
                for (int j = 0; j < row_blocks; ++j) {
                    if (!whole_gram || j <= i) work(sums[i][j]);
                }
            }
        };
        each_of_gram(gram);
#if SW_WEIGHTS_VARY
        each_of_gram(whole);
#endif
    }
};

// Two left operands in one instruction where the sweep is bound by these and not by memory, and where the
// registers that it wants in a row are there: not with a history in double precision, nor with many row
// blocks.
constexpr bool in_pairs = sizeof(Kept) < 8 && row_blocks <= 3 && bounded && !SW_WEIGHTS_VARY;

// The same as multiply_rows below.
__device__ inline void multiply_pairs(const Two (&values)[row_blocks], Two riding, Two mask,
                                      StripSums& sums) {
    Two masked[row_blocks];
#pragma unroll
    for (int b = 0; b < row_blocks; ++b) masked[b] = {mask.a * values[b].a, mask.b * values[b].b};
#pragma unroll
    for (int j = 0; j < row_blocks; ++j) {
        multiply_add(sums.riding[j], sums.gram[j][j], riding.a, masked[j].a, values[j].a);
        multiply_add(sums.riding[j], sums.gram[j][j], riding.b, masked[j].b, values[j].b);
#pragma unroll
        for (int i = j + 1; i + 1 < row_blocks; i += 2) {
            multiply_add(sums.gram[i][j], sums.gram[i + 1][j], masked[i].a, masked[i + 1].a, values[j].a);
            multiply_add(sums.gram[i][j], sums.gram[i + 1][j], masked[i].b, masked[i + 1].b, values[j].b);
        }
        constexpr int last = row_blocks - 1;
        if ((last - j) % 2) {
            multiply_add(sums.gram[last][j], masked[last].a, values[j].a);
            multiply_add(sums.gram[last][j], masked[last].b, values[j].b);
        }
    }
}

// Sums of a strip from one step of eight columns: `values` of all row blocks at this lane's two columns, the
// riding row and the mask there.
__device__ inline void multiply_rows(const Two (&values)[row_blocks], Two riding, Two mask, int strip,
                                     StripSums& sums) {
    if constexpr (in_pairs) return multiply_pairs(values, riding, mask, sums);
    if (strip == 0) {
#pragma unroll
        for (int b = 0; b < row_blocks; ++b) {
            multiply_add(sums.riding[b], riding.a, values[b].a);
            multiply_add(sums.riding[b], riding.b, values[b].b);
        }
    }
    if (!(bounded || SW_WEIGHTS_VARY)) return;  // the Gram matrix follows from products kept
#pragma unroll
    for (int i = 0; i < strip_rows; ++i) {
        // A run-time strip must not index registers: pick the row block by comparison.
        Two left = values[whole_gram ? i : 0];
        if (!whole_gram) {
#pragma unroll
            for (int b = 1; b < row_blocks; ++b) {
                left.a = b == strip ? values[b].a : left.a;
                left.b = b == strip ? values[b].b : left.b;
            }
        }
#pragma unroll
        for (int j = 0; j < row_blocks; ++j) {
            if (whole_gram ? j <= i : j <= strip) {
                multiply_add(sums.gram[i][j], mask.a * left.a, values[j].a);
                multiply_add(sums.gram[i][j], mask.b * left.b, values[j].b);
#if SW_WEIGHTS_VARY
                multiply_add(sums.whole[i][j], left.a, values[j].a);
                multiply_add(sums.whole[i][j], left.b, values[j].b);
#endif
            }
        }
    }
}

// Steps whose rows are on their way at a time, where they come straight from memory to a warp that is alone:
// it has nobody to work while it waits.
constexpr int steps_at_once = lone_warp ? 4 : 1;

// What a lane reads of a row at a time, by twos. Narrow numbers stay as they are until they are used.
struct LanePair {
    Two value = {0, 0};
    __device__ void load(const Kept* p) { value = staged ? load_two(p) : load_two_kept(p); }
    __device__ Two two(int) const { return value; }
};
struct LanePack {
    PackOf<Kept> value = {};
    __device__ void load(const Kept* p) {
        *reinterpret_cast<WordsOf<Kept>*>(&value) = *reinterpret_cast<const WordsOf<Kept>*>(p);
    }
    __device__ Two two(int pair) const {
        return {double(widened(value.of[2 * pair])), double(widened(value.of[2 * pair + 1]))};
    }
};
using LaneRow = Choice<lane_columns == 2, LanePair, LanePack>::type;
static_assert(!any_begin || lane_columns == 2);

// `whole`: a full tile; else what lies beyond the end of the variables counts as zero.
template <bool whole>
__device__ inline void absorb_rows(const Vectors& v, const SumLayout& layout, int head, Index at, int count,
                                   const AbsorbTile& t, int strip, int stage, StripSums& sums) {
    const int lane = threadIdx.x & 31, r = layout.rows;
    const int place = first_column() + lane_columns * (lane & 3);  // this lane's first column
    // Staged rows lie side by side; others where the ring has them.
    const Kept* rows[staged ? 1 : row_blocks];
    if (staged) {
        rows[0] = staged_history(stage) + (lane >> 2) * pitch + place;
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
    constexpr int whole_steps = warp_columns / (4 * lane_columns);
    const int ends = by_warps ? min_of(first_column() + warp_columns, count) : count;
    const int steps = whole ? whole_steps : (ends - first_column() + column_step - 1) / column_step;
#pragma unroll(whole && !lone_warp ? whole_steps : 1)
    for (int begin = 0; begin < steps; begin += steps_at_once) {
        // All lanes take part in every instruction; those beyond the end contribute zeros. Rows are padded to
        // a multiple of four elements: an odd last column is read with its neighbours, then masked off.
        LaneRow loaded[steps_at_once][row_blocks];
        if (!t.needs(place + begin * column_step)) continue;  // the same for the whole warp
#pragma unroll
        for (int k = 0; k < steps_at_once; ++k) {
            const int offset = (begin + k) * column_step;
            const bool first = whole || place + offset < count;
#pragma unroll
            for (int b = 0; b < row_blocks; ++b) {
                if (staged) {
                    loaded[k][b].load(rows[0] + b * 8 * pitch + offset);
                } else {
                    const Kept* row = rows[staged ? 0 : b];
                    if (row && first) loaded[k][b].load(row + offset);
                }
            }
        }
        // Nothing above comes after it: else the compiler would wait for each step's loads before the next.
        if (steps_at_once > 1) __syncwarp();
#pragma unroll
        for (int k = 0; k < steps_at_once; ++k) {
            if (steps_at_once > 1 && begin + k >= steps) break;
#pragma unroll
            for (int pair = 0; pair < lane_columns / 2; ++pair) {
                const int offset = (begin + k) * column_step + 2 * pair, column = place + offset;
                const bool first = whole || column < count, second = whole || column + 1 < count;
                Two values[row_blocks];
#pragma unroll
                for (int b = 0; b < row_blocks; ++b) {
                    values[b] = loaded[k][b].two(pair);
                    if (!first) values[b].a = 0;
                    if (!second) values[b].b = 0;
                }
                if (weighted) {
                    const double ra = first ? t.root_of(column) : 1.0,
                                 rb = second ? t.root_of(column + 1) : 1.0;
#pragma unroll
                    for (int b = 0; b < row_blocks; ++b) {
                        const bool is_s = is_of_s(b * 8 + (lane >> 2));
                        values[b].a = is_s ? values[b].a / ra : values[b].a * ra;
                        values[b].b = is_s ? values[b].b / rb : values[b].b * rb;
                    }
                }
                Two ride = load_two(riding + offset), mask = load_two(masks + offset);
                if (!first) ride.a = mask.a = 0;
                if (!second) ride.b = mask.b = 0;
                multiply_rows(values, ride, mask, strip, sums);
            }
        }
    }
}

// Adds what this thread knows of yᵀy of the new pair, where its rows were not read, to the sums of its warp:
// they keep it in the lane that has the new row of Y in the block of riding rows.
__device__ inline void add_unread(StripSums& sums, int r, double yy) {
    for (int offset = 16; offset > 0; offset >>= 1) yy += __shfl_xor_sync(0xffffffffu, yy, offset);
    const int newest = r - 1;
    const bool mine = int(threadIdx.x & 31) == 4 * y_row + (newest & 7) / 2;
#pragma unroll
    for (int b = 0; b < row_blocks; ++b) {
        if (!mine || b != newest >> 3) continue;
        sums.riding[b][0] += newest & 1 ? 0.0 : yy;
        sums.riding[b][1] += newest & 1 ? yy : 0.0;
    }
}

// The 8 x 8 blocks of sums that a strip ends with.
constexpr int gram_blocks = whole_gram ? row_blocks * (row_blocks + 1) / 2 : row_blocks;
constexpr int strip_blocks = row_blocks + gram_blocks * (1 + SW_WEIGHTS_VARY);
// Blocks added up over the warps at a time. The history's stages are free then and hold them.
constexpr int blocks_at_once = staged || lone_warp ? max_blocks_at_once : 1;

// The place of the sum of a riding row with a row of the stack, and of two rows of the stack (the first
// masked); -1 if it is none of the sums of a chunk.
__device__ inline bool is_alive(const SumLayout& layout, int row) {
    return age_of(row) < layout.rows;
}
// Y by age, then S by age, of the pairs there are.
__device__ inline int stacked(const SumLayout& layout, int row) {
    return (is_of_s(row) ? layout.rows : 0) + age_of(row);
}
__device__ inline int place_of_riding(const SumLayout& layout, int rider, int row) {
    if (rider >= no_row || !is_alive(layout, row)) return -1;
    const int r = layout.rows, j = stacked(layout, row);
    const bool is_y = !is_of_s(row);
    return rider == moving_row ? layout.q() + j
           : rider == s_row    ? (is_y ? layout.new_sy() + j : layout.new_ss() + j - r)
           : rider == y_row    ? (is_y ? layout.new_yy() + j : layout.new_ys() + j - r)
                               : layout.carried() + j;
}
__device__ inline int place_of_gram(const SumLayout& layout, int left, int right) {
    if (left < right || !layout.gram || !is_alive(layout, left) || !is_alive(layout, right)) return -1;
    return layout.free_gram() + triangle(stacked(layout, left), stacked(layout, right));
}

// Which of the sums of a chunk an element of a block is; -1 if none.
struct StripPlaces {
    static constexpr int count = strip_blocks;

    __device__ static int of(const SumLayout& layout, int strip, int index, int row, int column) {
        if (index < row_blocks) return strip > 0 ? -1 : place_of_riding(layout, row, index * 8 + column);
        index -= row_blocks;
        const bool everywhere = index >= gram_blocks;
        if (everywhere) index -= gram_blocks;
        int left = strip, right = index;
        if (whole_gram) {
            for (left = 0; right > left; ++left) right -= left + 1;
        }
        left = 8 * left + row, right = 8 * right + column;
        const int place = place_of_gram(layout, left, right);
        if (!everywhere || place < 0) return place;
        const int r = layout.rows, a = stacked(layout, left) - r, b = stacked(layout, right) - r;
        return layout.all_ss && a >= 0 && b >= 0 ? layout.whole_ss() + triangle(a, b) : -1;
    }
};

// Adds the blocks of one group over the warps, in their order, to where the sums of the chunk are kept.
// `shared`: (warps, blocks_at_once, 64).
template <class Places>
__device__ __noinline__ void add_blocks(const SumLayout layout, int strip, int first, int count,
                                        const double* shared, double* to) {
    __syncthreads();
    SW_ROLLED
    for (int v = threadIdx.x; v < count * 64; v += threads) {
        const int place = Places::of(layout, strip, first + v / 64, v % 64 / 8, v % 8);
        if (place < 0) continue;
        double total = 0;
#pragma unroll
        for (int warp = 0; warp < warps; ++warp) total += shared[warp * blocks_at_once * 64 + v];
        __stcg(to + place, total);
    }
    __syncthreads();
}

// The same for a warp that is alone: what it has of a block is all there is. (Inlined: with the block known,
// little is left of the places.)
template <class Places>
__device__ inline void put_sums_of_block(const SumLayout& layout, int strip, int index, double first,
                                         double second, double* to) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        const int place = Places::of(layout, strip, index, lane >> 2, 2 * (lane & 3) + k);
        if (place >= 0) to[place] = 0.0 + (k ? second : first);
    }
}

// All blocks of sums of a thread's warp, by its `sums`.
template <class Places, class Sums>
__device__ inline void store_blocks(const SumLayout& layout, int strip, const Sums& sums, double* shared,
                                    double* to) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    __syncthreads();
    int index = 0;
    sums.each_block([&](const double (&c)[2]) {
        if constexpr (lone_warp) {
            put_sums_of_block<Places>(layout, strip, index++, c[0], c[1], to);
            return;
        }
        double* block = shared + (warp * blocks_at_once + index % blocks_at_once) * 64;
        *reinterpret_cast<double2*>(block + 2 * lane) = make_double2(c[0], c[1]);
        ++index;
        if (index % blocks_at_once == 0 || index == Places::count) {
            const int count = (index - 1) % blocks_at_once + 1;
            add_blocks<Places>(layout, strip, index - count, count, shared, to);
        }
    });
}

SW_END
