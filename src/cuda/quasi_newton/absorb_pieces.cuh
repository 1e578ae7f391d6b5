// The absorb sweep where x is in float32 and few pairs in bfloat16: each warp goes over pieces of the
// variables by itself. A lane forms two neighbouring variables of a piece; of the rows of the history it
// takes 16 bytes at a time, straight into registers, in the places that the tensor instruction has them.
// While the rows of one piece are on their way, the next one is formed.
//
// Products of bfloat16 are exact; the instruction adds up those of a few pieces in single precision, which
// then go to sums in double precision. The new pair rides along behind the rows of the history; the gradient
// and the carried displacements are taken in three parts each, which bfloat16 holds exactly.
#pragma once

#include "cuda/quasi_newton/absorb_element.cuh"
#include "cuda/quasi_newton/strip_sums.cuh"

SW_BEGIN

constexpr int piece = piece_length;
constexpr int pieces_at_once = 4;  // whose sums are in single precision
constexpr int load_columns = 8;    // of a row that one load takes, for four lanes that share it
constexpr int loads = piece / (4 * load_columns);

// The stack: rows of Y, then of S, then the new pair once more, unmasked.
constexpr int pair_begin = 2 * capacity % 8 ? 2 * capacity : (2 * capacity + 7) / 8 * 8;
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
        const int left = 8 * b.left + (b.transposed ? column : row);
        const int right = 8 * b.right + (b.transposed ? row : column);
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
                const int left = 8 * b.left + (b.transposed ? column : row);
                const int right = 8 * b.right + (b.transposed ? row : column);
                if (left == pair_begin + 1 && right == r - 1) both[k] += yy;
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

template <Gather gather>
class PieceWork {
public:
    __device__ PieceWork(const Vectors& v, const State& state, const SumLayout& layout, int head,
                         double carry_time, const Chunk& c, AbsorbPieces& memory, PieceSums& sums,
                         AbsorbShare& totals)
        : v(v),
          c(c),
          memory(memory),
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
            const Kept* from = nullptr;
            if (at < 2 * capacity && age < r)
                from = (is_of_s(at) ? v.s : v.y) + int64_t(slot_of(age, head, r, slots)) * v.stride;
            if (gather == Gather::pair && r > 0 && at == pair_begin) from = v.s + newest;
            if (gather == Gather::pair && r > 0 && at == pair_begin + 1) from = v.y + newest;
            rows[b] = from ? reinterpret_cast<const Bfloat16*>(from) + load_columns * (lane & 3) : nullptr;
        }
        unmasked = 8 * last_block + row >= pair_begin ? ~0u : 0u;
    }

    // From the last piece to the first.
    __device__ void run() {
        int place = last_place();
        int64_t coming_at = fetch(place);
        RowPart parts[piece_blocks][loads];
        PieceMasks masks;
        int which = 0, added = 0;
        bool under_way = false;
#pragma unroll 1
        while (true) {
            const bool more = place >= 0;
            const int64_t at = coming_at;
            const int count = int(min_of(int64_t(piece), c.n - at));
            PieceMasks coming;
            __syncwarp();  // what rode along with the piece before the last is done with
            if (more) {
                coming = form(at, count, which);
                place -= warps;
                coming_at = fetch(place);
            }
            __syncwarp();
            if (under_way) multiply(parts, masks, which ^ 1);
            if (!more) return;
            masks = coming;
            if (r > 0) load(at, count, masks, parts);
            under_way = r > 0;
            which ^= 1;
            if (++added % pieces_at_once == 0) sums.flush();
        }
    }

private:
    const Vectors& v;
    const Chunk& c;
    AbsorbPieces& memory;
    PieceSums& sums;
    AbsorbShare& totals;
    const int64_t newest;
    const int r;
    const double carry_time;
    const PairFactors factors;
    const BoundNumbers numbers;
    const Bfloat16* rows[piece_blocks];  // this lane's columns of them; null: none
    uint32_t unmasked;                   // of the last block

    // Pieces of a chunk are dealt out to the warps: this one's last.
    __device__ int last_place() const {
        constexpr int in_span = span / piece;
        const int64_t last = (c.n - 1 - c.begin) / c.stride;
        const int left = int(c.n - (c.begin + last * c.stride));
        const int all = int(last) * in_span + min_of((left + piece - 1) / piece, in_span);
        const int warp = threadIdx.x >> 5;
        return all > warp ? (all - 1 - warp) / warps * warps + warp : -1;
    }

    // Vectors of the next piece, a lane's own columns, on their way through shared memory; returns where it
    // begins.
    __device__ Real* inputs() const {
        return reinterpret_cast<Real*>(dynamic_shared) +
               int(threadIdx.x >> 5) * (weight_row + weighted) * piece + 2 * int(threadIdx.x & 31);
    }
    __device__ int64_t fetch(int place) const {
        const int64_t at = place >= 0 ? c.element<piece>(place) : 0;
        begin_copies();
        if (place >= 0)
            AbsorbInput::fetch_two<gather>(v, at + 2 * int(threadIdx.x & 31), c.n, inputs(), piece);
        commit_copies();
        return at;
    }

    __device__ PieceMasks form(int64_t at, int count, int which) {
        const int column = 2 * int(threadIdx.x & 31);
        await_copies<0>();
        FormedElement formed[2];
        PieceMasks found;
        bool needed = false;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
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
        put_parts(0, which, float(formed[0].moving), float(formed[1].moving));
        if (gather == Gather::again)
            put_parts(parts_of_float, which, float(formed[0].carried), float(formed[1].carried));
        // Lanes whose columns are loaded together.
        if (selective && !(found.wanted >> (threadIdx.x & 28) & 15)) {
#pragma unroll
            for (const FormedElement& one : formed) totals.unread_yy += one.own_y() * one.own_y();
        }
        return found;
    }

    __device__ void put_pair(int64_t at, int count, const FormedElement (&formed)[2]) const {
        Kept *s = v.s + newest + at, *y = v.y + newest + at;
        if (!any_begin && count >= 2) {
            put_two(s, formed[0].s, formed[1].s);
            put_two(y, formed[0].y, formed[1].y);
            return;
        }
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            if (k < count) s[k] = formed[k].s, y[k] = formed[k].y;
        }
    }
    // Two neighbouring elements of a row in one store.
    __device__ static void put_two(Bfloat16* to, Bfloat16 first, Bfloat16 second) {
        *reinterpret_cast<uint32_t*>(to) = first.bits | uint32_t(second.bits) << 16;
    }
    template <class Element>
    __device__ static void put_two(Element* to, Element first, Element second) {
        to[0] = first, to[1] = second;
    }
    // Each part is what bfloat16 can hold of the rest, cut off: three of them are a float.
    __device__ void put_parts(int row, int which, float first, float second) const {
#pragma unroll
        for (int k = 0; k < parts_of_float; ++k) {
            const uint32_t low = __builtin_bit_cast(uint32_t, first) & 0xffff0000u;
            const uint32_t high = __builtin_bit_cast(uint32_t, second) & 0xffff0000u;
            memory.riding[threadIdx.x >> 5][which][row + k][threadIdx.x & 31] = low >> 16 | high;
            first -= __builtin_bit_cast(float, low);
            second -= __builtin_bit_cast(float, high);
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
                             int which) {
        const int lane = threadIdx.x & 31, row = lane >> 2;
        const int rides = gather == Gather::again ? parts_row : parts_of_float;
        const uint32_t* riding = row < rides ? memory.riding[threadIdx.x >> 5][which][row] : memory.zeros;
#pragma unroll
        for (int k = 0; k < loads; ++k) {
            if (!masks.wants_any(k)) continue;
            RowPart along;
            along.load_shared(riding + 16 * k + 4 * (lane & 3));
            sums.multiply(parts, along, masks, k, unmasked);
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
    PieceSums sums;
    __syncthreads();  // shared memory is free
    SW_ROLLED
    for (int i = threadIdx.x; i < piece / 2; i += threads) memory.zeros[i] = 0;
    sums.clear();
    __syncthreads();
    PieceWork<gather>(v, state, layout, head, carry_time, c, memory, sums, totals).run();
    if (layout.rows == 0) return;
    sums.flush();
    store_blocks<PiecePlaces>(layout, 0, sums.totals(layout.rows, selective ? totals.unread_yy : 0.0), shared,
                              to);
}

SW_END
