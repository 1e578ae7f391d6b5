// The absorb sweep where x is in float32 and few pairs in bfloat16: each warp goes over pieces of the
// variables by itself. A lane forms two neighbouring variables of a piece; of the rows of the history it
// takes 16 bytes at a time, straight into registers, in the places that the tensor instruction has them.
// While the rows of one piece are on their way, the next one is formed.
#pragma once

#include "cuda/quasi_newton/absorb_element.cuh"
#include "cuda/quasi_newton/piece_sums.cuh"

SW_BEGIN

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
