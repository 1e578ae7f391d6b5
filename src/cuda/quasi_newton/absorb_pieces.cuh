// The absorb sweep with a narrow history of few pairs: each warp goes over pieces of the variables by itself.
// A lane forms one or two neighbouring variables of a piece; of the rows of the history it takes 16 bytes at a
// time, straight into registers, in the places that the tensor instruction has them. While the rows of one
// piece are on their way, the next one is formed.
//
// Rows that ride along fill the last block of the stack: of the three blocks that ten pairs and four riders
// take, the products of all with all are then three instructions for four columns.
#pragma once

#include "cuda/quasi_newton/absorb_element.cuh"
#include "cuda/quasi_newton/strip_sums.cuh"

SW_BEGIN

constexpr int piece = piece_length(sizeof(Kept));
constexpr int lane_columns = piece / 32 > 0 ? piece / 32 : 1;
constexpr int load_columns = 16 / sizeof(Kept);         // of a row that one load takes
constexpr int loads = piece / (4 * load_columns);       // by the four lanes that share a row
constexpr int lanes_in_load = load_columns / lane_columns;  // that form the columns of one load
static_assert(!in_pieces || (lanes_in_load == 4 && loads == 2));

// The stack: rows of Y, then of S, then the riders, in one block.
constexpr int rider_begin = 2 * capacity % 8 <= 4 ? 2 * capacity : (2 * capacity + 7) / 8 * 8;
constexpr int piece_blocks = (rider_begin + no_row + 7) / 8, last_block = piece_blocks - 1;
static_assert(!in_pieces || piece_blocks <= 3);

// Riders that are no rows of the history, of a warp's piece and of the one after it, in shared memory.
struct AbsorbPieces {
    struct Riders {
        alignas(16) double moving[piece], carried[piece];
    };
    Riders riders[warps][2];
    alignas(16) double zeros[piece];
};

// Products of blocks: `left` is masked, and has the riders. Transposed: its rows are the columns.
struct PieceBlock {
    int left, right;
    bool transposed;
};
struct PiecePlaces {
    static constexpr int count = bounded ? piece_blocks * (piece_blocks + 1) / 2 : piece_blocks;

    // As PieceSums::add() makes them.
    __device__ static PieceBlock block(int index) {
        if (!bounded) return {last_block, index, true};
        const unsigned int left = piece_blocks == 3 ? 0x221020 : 0x110, right = piece_blocks == 3 ? 0x211100 : 0x100;
        return {int(left >> 4 * index & 15), int(right >> 4 * index & 15), piece_blocks == 3 && index >= 4};
    }
    __device__ static int of(const SumLayout& layout, int, int index, int row, int column) {
        const PieceBlock b = block(index);
        const int left = 8 * b.left + (b.transposed ? column : row);
        const int right = 8 * b.right + (b.transposed ? row : column);
        if (left >= rider_begin) return place_of_riding(layout, left - rider_begin, right);
        // Off the diagonal a block is there once, whichever of its rows come first.
        if (b.left < b.right) return place_of_gram(layout, right, left);
        return place_of_gram(layout, left, right);
    }
};

struct PieceSums {
    double of[PiecePlaces::count][2];

    template <class Work>
    __device__ void each_block(const Work& work) const {
#pragma unroll
        for (int b = 0; b < PiecePlaces::count; ++b) work(of[b]);
    }

    // Four columns, one for each lane of a row: its values in all blocks, those masked, and the last block with
    // its riders.
    __device__ void add(const double (&value)[piece_blocks], double mask, double last) {
        if constexpr (!bounded) {
#pragma unroll
            for (int b = 0; b + 1 < piece_blocks; b += 2)
                multiply_add(of[b], of[b + 1], value[b], value[b + 1], last);
            if constexpr (piece_blocks % 2) multiply_add(of[last_block], value[last_block], last);
        } else if constexpr (piece_blocks == 3) {
            const double first = mask * value[0], second = mask * value[1];
            multiply_add(of[0], of[1], first, last, value[0]);
            multiply_add(of[2], of[3], first, second, value[1]);
            multiply_add(of[4], of[5], value[1], value[2], last);
        } else if constexpr (piece_blocks == 2) {
            multiply_add(of[0], of[1], mask * value[0], last, value[0]);
            multiply_add(of[2], last, value[1]);
        } else {
            multiply_add(of[0], last, value[0]);
        }
    }

    // See add_unread() of strips.
    __device__ void add_unread(int r, double yy) {
        for (int offset = 16; offset > 0; offset >>= 1) yy += __shfl_xor_sync(0xffffffffu, yy, offset);
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int index = 0; index < PiecePlaces::count; ++index) {
            const PieceBlock b = PiecePlaces::block(index);
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                const int row = lane >> 2, column = 2 * (lane & 3) + k;
                const int left = 8 * b.left + (b.transposed ? column : row);
                const int right = 8 * b.right + (b.transposed ? row : column);
                if (left == rider_begin + y_row && right == r - 1) of[index][k] += yy;
            }
        }
    }
};

// 16 bytes of a row.
struct RowPart {
    uint32_t words[4] = {};

    __device__ void load(const Kept* from) {
        if constexpr (any_begin) {
            constexpr int in_word = 4 / sizeof(Kept) > 0 ? 4 / sizeof(Kept) : 1;
#pragma unroll
            for (int k = 0; k < load_columns; ++k)
                words[k / in_word] |= bits_of(from[k]) << 32 / in_word * (k % in_word);
        } else {
            const uint4 found = __ldcg(reinterpret_cast<const uint4*>(from));
            words[0] = found.x, words[1] = found.y, words[2] = found.z, words[3] = found.w;
        }
    }
    __device__ double value(int k) const {
        if constexpr (sizeof(Kept) == 2) {
            const uint32_t word = words[k / 2];
            return double(__builtin_bit_cast(float, k % 2 ? word & 0xffff0000u : word << 16));
        } else {
            return double(__builtin_bit_cast(float, words[k % 4]));
        }
    }
    __device__ static uint32_t bits_of(Bfloat16 value) { return value.bits; }
    __device__ static uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
    // All but the first so many columns become zeros.
    __device__ void keep(int count) {
#pragma unroll
        for (int k = 0; k < load_columns; ++k) {
            if (k < count) continue;
            if constexpr (sizeof(Kept) == 2) {
                words[k / 2] &= k % 2 ? 0x0000ffffu : 0xffff0000u;
            } else {
                words[k % 4] = 0;
            }
        }
    }
};

// Two neighbouring elements of a row in one store.
__device__ inline void put_two(Bfloat16* to, Bfloat16 first, Bfloat16 second) {
    *reinterpret_cast<uint32_t*>(to) = first.bits | uint32_t(second.bits) << 16;
}
template <class Element>
__device__ inline void put_two(Element* to, Element first, Element second) {
    to[0] = first, to[1] = second;
}

// What a warp knows of a piece that is formed: bits of its lanes.
struct PieceMasks {
    unsigned int free[lane_columns];  // for each column of a lane
    unsigned int wanted;              // rows are read for one of its columns

    // Of the lanes that form the columns which this lane loads.
    __device__ static int place(int load) { return 16 * load + 4 * int(threadIdx.x & 3); }
    __device__ bool wants(int load) const { return wanted >> place(load) & 15; }
    __device__ bool wants_any(int load) const { return wanted >> 16 * load & 0xffff; }
    __device__ bool is_free(int load, int column) const {
        return free[column % lane_columns] >> (place(load) + column / lane_columns) & 1;
    }
};

template <Gather gather>
class PieceWork {
public:
    __device__ PieceWork(const Vectors& v, const State& state, const SumLayout& layout, int head,
                         double carry_time, const Chunk& c, AbsorbPieces& memory, PieceSums& sums,
                         AbsorbShare& totals)
        : v(v),
          c(c),
          mine(memory.riders[threadIdx.x >> 5]),
          zeros(memory.zeros),
          sums(sums),
          totals(totals),
          newest(int64_t(state.head) * v.stride),
          r(layout.rows),
          carry_time(carry_time),
          factors(state),
          numbers(v) {
        const int lane = threadIdx.x & 31, row = lane >> 2;
#pragma unroll
        for (int b = 0; b < piece_blocks; ++b) {
            const int at = 8 * b + row, age = age_of(at);
            rows[b] = nullptr;
            if (at < 2 * capacity && age < r)
                rows[b] = (is_of_s(at) ? v.s : v.y) + int64_t(slot_of(age, head, r, slots)) * v.stride;
            if (gather == Gather::pair && r > 0 && at == rider_begin + s_row) rows[b] = v.s + newest;
            if (gather == Gather::pair && r > 0 && at == rider_begin + y_row) rows[b] = v.y + newest;
            if (rows[b]) rows[b] += load_columns * (lane & 3);
        }
        rider = 8 * last_block + row - rider_begin;
    }

    // From the last piece to the first.
    __device__ void run() {
        int place = last_place();
        fetch(place);
        RowPart parts[piece_blocks][loads];
        PieceMasks masks;
        int which = 0;
        bool under_way = false;
#pragma unroll 1
        while (true) {
            const bool more = place >= 0;
            PieceMasks coming;
            int64_t at = 0;
            int count = 0;
            __syncwarp();  // the riders of the piece before the last are free
            if (more) {
                at = c.element<piece>(place);
                count = int(min_of(int64_t(piece), c.n - at));
                coming = form(at, count, mine[which]);
                place -= warps;
                fetch(place);
            }
            __syncwarp();
            if (under_way) multiply(parts, masks, mine[which ^ 1]);
            if (!more) return;
            masks = coming;
            if (r > 0) load(at, count, masks, parts);
            under_way = r > 0;
            which ^= 1;
        }
    }

private:
    using Riders = AbsorbPieces::Riders;
    const Vectors& v;
    const Chunk& c;
    Riders (&mine)[2];
    const double* zeros;
    PieceSums& sums;
    AbsorbShare& totals;
    const int64_t newest;
    const int r;
    const double carry_time;
    const PairFactors factors;
    const BoundNumbers numbers;
    const Kept* rows[piece_blocks];  // this lane's columns of them; null: none
    int rider;                       // this lane's row of the last block; negative: one of the history

    // Pieces of a chunk are dealt out to the warps: this one's last.
    __device__ int last_place() const {
        constexpr int in_span = span / piece > 0 ? span / piece : 1;
        const int64_t last = (c.n - 1 - c.begin) / c.stride;
        const int left = int(c.n - (c.begin + last * c.stride));
        const int all = int(last) * in_span + min_of((left + piece - 1) / piece, in_span);
        const int warp = threadIdx.x >> 5;
        return all > warp ? (all - 1 - warp) / warps * warps + warp : -1;
    }

    // Vectors of the next piece, a lane's own columns, on their way through shared memory.
    __device__ Real* inputs() const {
        return reinterpret_cast<Real*>(dynamic_shared) +
               int(threadIdx.x >> 5) * (weight_row + weighted) * piece + lane_columns * int(threadIdx.x & 31);
    }
    __device__ void fetch(int place) const {
        begin_copies();
        if (place >= 0) {
            const int64_t first = c.element<piece>(place) + lane_columns * int(threadIdx.x & 31);
            AbsorbInput::fetch_some<gather, lane_columns>(v, first, c.n, inputs(), piece);
        }
        commit_copies();
    }

    __device__ PieceMasks form(int64_t at, int count, Riders& riders) {
        const int column = lane_columns * int(threadIdx.x & 31);
        await_copies<0>();
        FormedElement formed[lane_columns];
        PieceMasks found;
        bool needed = false;
#pragma unroll
        for (int k = 0; k < lane_columns; ++k) {
            FormedElement& one = formed[k];
            one.free = false;
            if (column + k < count) {
                AbsorbInput input;
                input.take(inputs() + k, piece, numbers);
                one = form_element<gather>(factors, carry_time, input, totals);
            }
            found.free[k] = __ballot_sync(0xffffffffu, one.free);
            needed |= one.needed();
        }
        found.wanted = selective ? __ballot_sync(0xffffffffu, needed) : 0xffffffffu;
        if (gather == Gather::pair) put_pair(at + column, count - column, formed);
        if (lane_columns == 2) {
            *reinterpret_cast<double2*>(riders.moving + column) =
                make_double2(formed[0].moving, formed[lane_columns - 1].moving);
        } else {
            riders.moving[column] = formed[0].moving;
        }
#pragma unroll
        for (int k = 0; k < lane_columns; ++k) {
            if (gather == Gather::again) riders.carried[column + k] = formed[k].carried;
        }
        // Lanes whose columns are loaded together.
        if (selective && !(found.wanted >> (threadIdx.x & 28) & 15)) {
#pragma unroll
            for (int k = 0; k < lane_columns; ++k) totals.unread_yy += formed[k].own_y() * formed[k].own_y();
        }
        return found;
    }

    __device__ void put_pair(int64_t at, int count, const FormedElement (&formed)[lane_columns]) const {
        Kept *s = v.s + newest + at, *y = v.y + newest + at;
        if constexpr (lane_columns == 2 && !any_begin) {
            if (count >= 2) {
                put_two(s, formed[0].s, formed[1].s);
                put_two(y, formed[0].y, formed[1].y);
                return;
            }
        }
#pragma unroll
        for (int k = 0; k < lane_columns; ++k) {
            if (k < count) s[k] = formed[k].s, y[k] = formed[k].y;
        }
    }

    // All rows at the columns of this lane. (The new pair was just written by this warp.)
    __device__ void load(int64_t at, int count, const PieceMasks& masks,
                         RowPart (&parts)[piece_blocks][loads]) const {
#pragma unroll
        for (int k = 0; k < loads; ++k) {
            const int first = 4 * load_columns * k, own = first + load_columns * int(threadIdx.x & 3);
            const bool wanted = masks.wants(k) && own < count;
#pragma unroll
            for (int b = 0; b < piece_blocks; ++b) {
                parts[b][k] = RowPart();
                if (wanted && rows[b]) parts[b][k].load(rows[b] + at + first);
            }
            if (count < piece) {
#pragma unroll
                for (int b = 0; b < piece_blocks; ++b) parts[b][k].keep(count - own);
            }
        }
    }

    __device__ void multiply(const RowPart (&parts)[piece_blocks][loads], const PieceMasks& masks,
                             const Riders& riders) {
        const bool unmasked = rider == s_row || rider == y_row;
        const double* riding = rider == moving_row                                 ? riders.moving
                               : rider == carried_row && gather == Gather::again ? riders.carried
                                                                                 : zeros;
#pragma unroll
        for (int k = 0; k < loads; ++k) {
            if (!masks.wants_any(k)) continue;
            const int own = 4 * load_columns * k + load_columns * int(threadIdx.x & 3);
#pragma unroll
            for (int i = 0; i < load_columns; i += 2) {
                const Two along = load_two(riding + own + i);
#pragma unroll
                for (int j = i; j < i + 2; ++j) {
                    double value[piece_blocks];
#pragma unroll
                    for (int b = 0; b < piece_blocks; ++b) value[b] = parts[b][k].value(j);
                    const bool is_free = masks.is_free(k, j);
                    const double mask = is_free ? 1.0 : 0.0, own_mask = is_free || unmasked ? 1.0 : 0.0;
                    sums.add(value, mask, fma(own_mask, value[last_block], j == i ? along.a : along.b));
                }
            }
        }
    }
};

// The whole chunk; its sums go to `to`.
template <Gather gather>
__device__ inline void absorb_chunk(const Vectors& v, const State& state, const SumLayout& layout,
                                    const Chunk& c, AbsorbPieces& memory, int64_t*, double* shared,
                                    AbsorbShare& totals, double* to) {
    const int head = gather == Gather::pair ? state.head + 1 : state.head;
    const double carry_time = gather == Gather::again ? state.carry_time : -1.0;
    __syncthreads();  // shared memory is free
    SW_ROLLED
    for (int i = threadIdx.x; i < piece; i += threads) memory.zeros[i] = 0;
    __syncthreads();
    PieceSums sums = {};
    PieceWork<gather>(v, state, layout, head, carry_time, c, memory, sums, totals).run();
    if (layout.rows == 0) return;
    if (selective) sums.add_unread(layout.rows, totals.unread_yy);
    store_blocks<PiecePlaces>(layout, 0, sums, shared, to);
}

SW_END
