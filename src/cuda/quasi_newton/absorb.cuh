// The absorb sweep on one chunk: the accepted point, the new pair, and the first read of the history. Here
// for the whole block, or for its warps with their columns of a tile; absorb_pieces.cuh has the other way.
#pragma once

#include "cuda/quasi_newton/absorb_element.cuh"
#include "cuda/quasi_newton/strip_sums.cuh"

SW_BEGIN

// What the sweep knows while it goes over one strip of a chunk.
template <Gather gather>
class AbsorbStrip {
public:
    __device__ AbsorbStrip(const Vectors& v, const State& state, const SumLayout& layout, int head,
                           double carry_time, const Chunk& c, AbsorbTile (&tiles)[tile_buffers], int strip,
                           StripSums& sums, AbsorbShare& totals)
        : v(v),
          layout(layout),
          c(c),
          tiles(tiles),
          sums(sums),
          totals(totals),
          newest(state.head),
          r(layout.rows),
          head(head),
          strip(strip),
          carry_time(carry_time),
          factors(state),
          numbers(v) {}

    // Tile after tile, whose rows are read where they lie.
    __device__ void run_direct() const {
#pragma unroll 1
        for (Index at = c.last_tile(); at >= c.begin; at = c.tile_before(at)) {
            sync_columns();  // the tile's buffer is free
            form(at, 0);
            sync_columns();
            multiply(at, 0);
        }
    }

    // The same with inputs and rows on their way through shared memory. While the rows of one tile are
    // multiplied, those that the coming one needs are under way, and the inputs of the ones after it.
    __device__ void run_staged(const int64_t* offsets) const {
        const RowCopies copies(v, r, gather == Gather::pair ? r - 1 : r, head, offsets);
        auto fetch_rows = [&](Index at, int stage) {
            const AbsorbTile& t = tiles[stage % tile_buffers];
            if (at + tile <= c.n) {
                if (at >= c.begin) copies.copy<true>(at, tile, t, staged_history(stage));
            } else {
                copies.copy<false>(at, int(c.n - at), t, staged_history(stage));
            }
            commit_copies();
        };
        Index at = -1, coming = c.last_tile();  // none, and the first
#pragma unroll
        for (int k = 0; k < inputs_ahead; ++k) {
            fetch_inputs(tile_after(coming, k), k);
            commit_copies();  // rows of none
        }
        // Groups of copies are closed two for each tile, so many after those that are waited for.
        constexpr int after_inputs = 2 * inputs_ahead - 1;
        int stage = 0, inputs = 0;  // that of the coming one
#pragma unroll 1
        while (true) {
            sync_columns();  // the other stage and buffer are free
            const bool more = coming >= c.begin;
            if (!selective) fetch_rows(coming, stage ^ 1);
            await_copies<after_inputs>();  // a thread sees its own copies
            if (more) form(coming, stage ^ 1, inputs);
            fetch_inputs(more ? tile_after(coming, inputs_ahead) : -1, inputs);
            await_copies<selective ? 1 : 3>();  // the rows of this tile
            sync_columns();
            if (selective) fetch_rows(coming, stage ^ 1);
            if (at >= 0) multiply(at, stage);
            if (!more) return;
            at = coming;
            coming = c.tile_before(coming);
            stage ^= 1;
            inputs = inputs == inputs_ahead - 1 ? 0 : inputs + 1;
        }
    }

private:
    const Vectors& v;
    const SumLayout& layout;
    const Chunk& c;
    AbsorbTile (&tiles)[tile_buffers];
    StripSums& sums;
    AbsorbShare& totals;
    const int newest, r, head, strip;
    const double carry_time;
    const PairFactors factors;
    const BoundNumbers numbers;

    // The one so many after it, in the order of the sweep.
    __device__ Index tile_after(Index at, int count) const {
#pragma unroll
        for (int k = 0; k < count; ++k) at = c.tile_before(at);
        return at;
    }

    __device__ void fetch_inputs(Index at, int which) const {
        begin_copies();
        if (at >= c.begin) {
#pragma unroll
            for (int k = 0; k < thread_columns; ++k) {
                const int place = column_of(k);
                if (place < tile && at + place < c.n)
                    AbsorbInput::fetch<gather>(v, at + place, staged_inputs(which) + place, pitch);
            }
        }
        commit_copies();
    }

    // The elements of a tile. The newest pair is put among the staged rows as it is formed.
    __device__ void form(Index at, int stage, int inputs = 0) const {
        AbsorbTile& t = tiles[stage % tile_buffers];
        const int count = int(min_of(Index(tile), c.n - at));
        // Not staged: all of them on their way before the first is used.
        AbsorbInput loaded[thread_columns];
        if (!staged) {
#pragma unroll
            for (int k = 0; k < thread_columns; ++k) {
                const int i = column_of(k);
                loaded[k].template load<gather>(v, numbers, at + (i < count ? i : 0));
            }
            if (lone_warp) __syncwarp();  // (see absorb_rows)
        }
#pragma unroll
        for (int k = 0; k < thread_columns; ++k) {
            const int i = column_of(k);
            bool needed = false;
            double yy = 0;
            if (i < count) {
                AbsorbInput input;
                if (staged) {
                    input.take(staged_inputs(inputs) + i, pitch, numbers);
                } else {
                    input = loaded[k];
                }
                const FormedElement one = form_element<gather>(factors, carry_time, input, totals);
                t.put(i, one);
                needed = one.needed();
                yy = one.own_y() * one.own_y();
                if (gather == Gather::pair) {
                    const int64_t place = int64_t(newest) * v.stride + at + i;
                    v.s[place] = one.s;
                    v.y[place] = one.y;
                    if (staged) {
                        staged_history(stage)[(r - 1) * pitch + i] = one.y;
                        staged_history(stage)[(capacity + r - 1) * pitch + i] = one.s;
                    }
                }
            }
            if constexpr (selective) {
                const unsigned int all = __ballot_sync(0xffffffffu, needed);
                if ((threadIdx.x & 31) == 0 && i < tile) t.needed[i >> 5] = all;
                if (!(all >> (threadIdx.x & 24) & 0xffu)) totals.unread_yy += yy;
            }
        }
    }

    __device__ void multiply(Index at, int stage) const {
        if (r == 0) return;
        const AbsorbTile& t = tiles[stage % tile_buffers];
        const int count = int(min_of(Index(tile), c.n - at));
        if ((staged || lone_warp) && count == tile) {
            absorb_rows<true>(v, layout, head, at, count, t, strip, stage, sums);
        } else {
            absorb_rows<false>(v, layout, head, at, count, t, strip, stage, sums);
        }
    }
};

// `offsets`: shared memory for those of the pairs.
template <Gather gather>
__device__ inline void absorb_strip(const Vectors& v, const State& state, const SumLayout& layout, int head,
                                    double carry_time, const Chunk& c, AbsorbTile (&tiles)[tile_buffers],
                                    int64_t* offsets, int strip, StripSums& sums, AbsorbShare& totals) {
    __syncthreads();  // shared memory is free
    clear_unused(tiles, layout.rows);
    if constexpr (staged) {
        SW_ROLLED
        for (int a = threadIdx.x; a < layout.rows; a += threads)
            offsets[a] = int64_t(slot_of(a, head, layout.rows, slots)) * v.stride;
    }
    __syncthreads();
    const AbsorbStrip<gather> work(v, state, layout, head, carry_time, c, tiles, strip, sums, totals);
    if constexpr (staged) {
        work.run_staged(offsets);
    } else {
        work.run_direct();
    }
}

// The whole chunk; its sums go to `to`.
template <Gather gather>
__device__ inline void absorb_chunk(const Vectors& v, const State& state, const SumLayout& layout,
                                    const Chunk& c, AbsorbTiles& memory, int64_t* offsets, double* shared,
                                    AbsorbShare& totals, double* to) {
    AbsorbTile(&tiles)[tile_buffers] = memory.tiles;
    const int r = layout.rows, head = gather == Gather::pair ? state.head + 1 : state.head;
    const double carry_time = gather == Gather::again ? state.carry_time : -1.0;
    for (int strip = 0; strip < absorb_strips(); ++strip) {
        StripSums sums = {};
        if (strip == 0) {
            absorb_strip<gather>(v, state, layout, head, carry_time, c, tiles, offsets, strip, sums, totals);
            if (selective && r > 0) add_unread(sums, r, totals.unread_yy);
        } else {
            // A later strip goes over the same elements again: the pair is there already, nobody is carried
            // anew.
            AbsorbShare unused;
            absorb_strip<Gather::again>(v, state, layout, head, carry_time, c, tiles, offsets, strip, sums,
                                        unused);
        }
        if (r == 0) return;
        store_blocks<StripPlaces>(layout, strip, sums, shared, to);
        if (!layout.gram) return;
    }
}

SW_END
