// Products of rows in the absorb sweep over pieces (absorb_pieces.cuh): where a lane has what of the rows,
// the blocks of sums that the tensor instruction makes of them, and which of a chunk's sums these are.
//
// Products of bfloat16 are exact; the instruction adds up those of a few pieces in single precision, which
// then go to sums in double precision, in shared memory. The new pair rides along behind the rows of the
// history; the gradient and the carried displacements are taken in three parts each, which bfloat16 holds
// exactly.
#pragma once

#include "cuda/quasi_newton/strip_sums.cuh"

SW_BEGIN

constexpr int piece = piece_length;
constexpr int pieces_at_once = 4;  // whose sums are in single precision
constexpr int load_columns = 8;    // of a row that one load takes, for four lanes that share it
constexpr int loads = piece / (4 * load_columns);

// The stack: rows of Y, then of S, then the new pair once more, unmasked.
constexpr int pair_begin = 2 * capacity;
constexpr int piece_blocks = (pair_begin + 2 + 7) / 8, last_block = piece_blocks - 1;
static_assert(!in_pieces || piece_blocks <= 3);

// Vectors that ride along in parts, of a warp's piece and of the one after it, in shared memory: the gradient
// where it is free to move, the carried displacements, and zeros.
constexpr int parts_of_float = 3, parts_row = 2 * parts_of_float;
struct AbsorbPieces {
    alignas(16) uint32_t riding[warps][2][parts_row][piece / 2];
    alignas(16) uint32_t zeros[piece / 2];
};

// Blocks of sums: products of row blocks of the stack, of which `left` is masked, and behind those products
// of the parts with each block.
constexpr int stack_products = bounded ? piece_blocks * (piece_blocks + 1) / 2 : piece_blocks;
struct PieceBlock {
    int left, right;
    bool transposed;  // the rows of `left` are the columns

    // The rows of the stack whose product an element is.
    __device__ int left_of(int row, int column) const { return 8 * left + (transposed ? column : row); }
    __device__ int right_of(int row, int column) const { return 8 * right + (transposed ? row : column); }
};
struct PiecePlaces {
    static constexpr int count = stack_products + piece_blocks;
    static_assert(!in_pieces || 2 * count <= piece_sums);

    // As PieceSums::multiply() makes them.
    __device__ static PieceBlock block(int index) {
        if (!bounded) return {last_block, index, true};
        const unsigned int left = piece_blocks == 3 ? 0x221020 : 0x110;
        const unsigned int right = piece_blocks == 3 ? 0x211100 : 0x100;
        return {int(left >> 4 * index & 15), int(right >> 4 * index & 15), piece_blocks == 3 && index >= 4};
    }
    __device__ static int of(const SumLayout& layout, int, int index, int row, int column) {
        if (index >= stack_products) {  // parts have been added up in the columns of the first of them
            const int rider = column == 0 ? moving_row : column == parts_of_float ? carried_row : no_row;
            return place_of_riding(layout, rider, 8 * (index - stack_products) + row);
        }
        const PieceBlock b = block(index);
        const int left = b.left_of(row, column), right = b.right_of(row, column);
        const int rider = left == pair_begin ? s_row : left == pair_begin + 1 ? y_row : no_row;
        if (left >= pair_begin) return place_of_riding(layout, rider, right);
        // Off the diagonal a block is there once, whichever of its rows come first.
        return b.left < b.right ? place_of_gram(layout, right, left) : place_of_gram(layout, left, right);
    }
};

// 16 bytes of a row: eight columns.
struct RowPart {
    uint32_t words[4] = {};

    __device__ void load(const Bfloat16* from) {
        if constexpr (any_begin) {
#pragma unroll
            for (int k = 0; k < load_columns; ++k) words[k / 2] |= uint32_t(from[k].bits) << 16 * (k % 2);
        } else {
            const uint4 found = __ldcg(reinterpret_cast<const uint4*>(from));
            words[0] = found.x, words[1] = found.y, words[2] = found.z, words[3] = found.w;
        }
    }
    __device__ void load_shared(const uint32_t* from) {
        const uint4 found = *reinterpret_cast<const uint4*>(from);
        words[0] = found.x, words[1] = found.y, words[2] = found.z, words[3] = found.w;
    }
    // All but the first so many columns become zeros.
    __device__ void keep(int count) {
#pragma unroll
        for (int k = 0; k < load_columns; ++k) {
            if (k >= count) words[k / 2] &= k % 2 ? 0x0000ffffu : 0xffff0000u;
        }
    }
};

// What a warp knows of a piece that is formed: bits of its lanes.
struct PieceMasks {
    unsigned int free[2];  // for each column of a lane
    unsigned int wanted;   // rows are read for one of its columns

    // Of the lanes that form the columns which this lane loads.
    __device__ static int place(int load) { return 16 * load + 4 * int(threadIdx.x & 3); }
    __device__ bool wants(int load) const { return wanted >> place(load) & 15; }
    __device__ bool wants_any(int load) const { return wanted >> 16 * load & 0xffff; }
    // Two columns of bfloat16.
    __device__ uint32_t of_word(int load, int word) const {
        const unsigned int bit = 1u << (place(load) + word);
        return (free[0] & bit ? 0xffffu : 0u) | (free[1] & bit ? 0xffff0000u : 0u);
    }
};

struct PieceTotals {
    double of[PiecePlaces::count][2];

    template <class Work>
    __device__ void each_block(const Work& work) const {
#pragma unroll
        for (int b = 0; b < PiecePlaces::count; ++b) work(of[b]);
    }
};

class PieceSums {
public:
    // One load of all rows: 32 columns. `unmasked`: what the mask of the last block is not to cut.
    __device__ void multiply(const RowPart (&parts)[piece_blocks][loads], const RowPart& riding,
                             const PieceMasks& masks, int load, uint32_t unmasked) {
        using Words = uint32_t[2];
        const Words none = {};
#pragma unroll
        for (int k = 0; k < 4; k += 2) {
            float unused[2] = {};
            Words value[piece_blocks], masked[piece_blocks];
            const Words rides = {riding.words[k], riding.words[k + 1]};
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const uint32_t mask = bounded ? masks.of_word(load, k + i) : ~0u;
#pragma unroll
                for (int b = 0; b < piece_blocks; ++b) {
                    value[b][i] = parts[b][load].words[k + i];
                    masked[b][i] = value[b][i] & (b == last_block ? mask | unmasked : mask);
                }
            }
            const Words& last = masked[last_block];
            if constexpr (!bounded) {
                products_with(0, value, last);
            } else if constexpr (piece_blocks == 3) {
                multiply_add(of[0], of[1], masked[0], last, value[0]);
                multiply_add(of[2], of[3], masked[0], masked[1], value[1]);
                multiply_add(of[4], of[5], value[1], value[2], last);
            } else if constexpr (piece_blocks == 2) {
                multiply_add(of[0], of[1], masked[0], last, value[0]);
                multiply_add(of[2], unused, last, none, value[1]);
            } else {
                multiply_add(of[0], unused, last, none, value[0]);
            }
            products_with(stack_products, value, rides);
        }
    }

    // To the sums in double precision.
    __device__ void flush() {
#pragma unroll
        for (int b = 0; b < PiecePlaces::count; ++b) {
            double2* sum = doubles(b);
            const double2 before = *sum;
            *sum = make_double2(before.x + double(of[b][0]), before.y + double(of[b][1]));
            of[b][0] = of[b][1] = 0;
        }
    }
    __device__ void clear() {
#pragma unroll
        for (int b = 0; b < PiecePlaces::count; ++b) *doubles(b) = make_double2(0.0, 0.0);
    }

    // After the last flush; in registers, since what the doubles are in has other uses then. See add_unread()
    // of strips for `yy`.
    __device__ PieceTotals totals(int r, double yy) const {
        for (int offset = 16; offset > 0; offset >>= 1) yy += __shfl_xor_sync(0xffffffffu, yy, offset);
        const int lane = threadIdx.x & 31, row = lane >> 2;
        PieceTotals found;
#pragma unroll
        for (int index = 0; index < PiecePlaces::count; ++index) {
            const double2 sum = *doubles(index);
            double (&both)[2] = found.of[index];
            both[0] = sum.x, both[1] = sum.y;
            if (index >= stack_products) {
                // Parts in columns 0 to 2 and 3 to 5: of two lanes each.
                const double next = __shfl_sync(0xffffffffu, sum.x, (lane + 1) & 31);
                const double after = __shfl_sync(0xffffffffu, sum.y, (lane + 1) & 31);
                both[0] = sum.x + sum.y + next, both[1] = sum.y + next + after;
                continue;
            }
            const PieceBlock b = PiecePlaces::block(index);
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                const int column = 2 * (lane & 3) + k;
                if (b.left_of(row, column) == pair_begin + 1 && b.right_of(row, column) == r - 1)
                    both[k] += yy;
            }
        }
        return found;
    }

private:
    float of[PiecePlaces::count][2] = {};

    __device__ static double2* doubles(int block) {
        constexpr int begin = warps * (weight_row + weighted) * piece * int(sizeof(Real));
        return reinterpret_cast<double2*>(dynamic_shared + begin) + block * threads + threadIdx.x;
    }
    // All blocks of the stack with one more, which has the columns of the sums.
    __device__ void products_with(int first, const uint32_t (&value)[piece_blocks][2],
                                  const uint32_t (&with)[2]) {
        const uint32_t none[2] = {};
        float unused[2] = {};
#pragma unroll
        for (int b = 0; b + 1 < piece_blocks; b += 2)
            multiply_add(of[first + b], of[first + b + 1], value[b], value[b + 1], with);
        if constexpr (piece_blocks % 2)
            multiply_add(of[first + last_block], unused, value[last_block], none, with);
    }
};

SW_END
