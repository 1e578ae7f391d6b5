// The absorb sweep on one chunk: the accepted point, the new pair, and the first read of the history.
#pragma once

#include "cuda/quasi_newton/strip_sums.cuh"

SW_BEGIN

// What the sweep reads of one element.
struct AbsorbInput {
    Real g, x, g_before, d, lower, upper, weight;

    template <Gather gather>
    __device__ void load(const Vectors& v, int64_t i) {
        g = v.gradient[i];
        x = v.at[i];
        if (gather == Gather::pair) {
            g_before = v.g[i];
            d = v.d[i];
        }
        if (bounded) {
            lower = v.lower_of(i);
            upper = v.upper_of(i);
        }
        if (weighted) weight = v.weights[i];
    }

    // The same, staged: copies on their way to shared memory, and what has arrived there.
    template <Gather gather>
    __device__ static void fetch(const Vectors& v, int64_t i, Real* to, int pitch) {
        // All addresses first: they are kept in shared memory.
        const Real* const from[] = {v.gradient + i, v.at + i, v.g + i, v.d + i, v.lower + i, v.upper + i};
        const Real* const weight = v.weights + i;
        copy_element(to, from[0]);
        copy_element(to + pitch, from[1]);
        if (gather == Gather::pair) {
            copy_element(to + 2 * pitch, from[2]);
            copy_element(to + 3 * pitch, from[3]);
        }
        if (lower_step) copy_element(to + 4 * pitch, from[4]);
        if (upper_step) copy_element(to + upper_row * pitch, from[5]);
        if (weighted) copy_element(to + weight_row * pitch, weight);
    }
    __device__ void take(const Real* from, int pitch, const BoundNumbers& numbers) {
        g = from[0], x = from[pitch], g_before = from[2 * pitch], d = from[3 * pitch];
        lower = lower_step ? from[4 * pitch] : numbers.lower;
        upper = upper_step ? from[upper_row * pitch] : numbers.upper;
        if (weighted) weight = from[weight_row * pitch];
    }
};

// What the sweep adds up besides the products of rows; with a new pair, the slope g·d as well.
struct AbsorbShare {
    AbsorbTotals scalars;
    int held = 0;  // for the scalar of that name: a register less
    CarefulSum slope;
    double unread_yy = 0;  // yᵀy of the new pair where no rows are read
};

// A new pair at one element, as it is kept; whether rows of the history count there, and y² with its weight.
struct PairElement {
    Kept s, y;
    bool needed;
    double yy;
};

// The point of one element; with a new pair, its ring rows, which it returns. The pair is s = length · d and
// y times the scale.
template <Gather gather>
__device__ inline PairElement absorb_element(const Vectors& v, int head, double length, double scale,
                                             double carry_time, const AbsorbInput& in, int64_t i,
                                             AbsorbTile& t, int at, AbsorbShare& totals) {
    AbsorbTotals& sums = totals.scalars;
    const double g = in.g, x = in.x;
    const double h = weighted ? double(in.weight) : 1.0;
    const double root = weighted ? sqrt(h) : 1.0;
    PairElement pair{};
    double s = 0, y = 0;
    if (gather == Gather::pair) {
        const double change = g - double(in.g_before);
        pair.s = narrowed_to<Kept>(length * double(in.d));
        pair.y = narrowed_to<Kept>(narrowed ? scale * change : change);
        const int64_t row = int64_t(head) * v.stride + i;
        v.s[row] = pair.s;
        v.y[row] = pair.y;
        s = weighted ? double(widened(pair.s)) / root : double(widened(pair.s));
        y = double(widened(pair.y)) * root;
        add_product(totals.slope, g, double(in.d));
    }
    double mask = 1, carried = 0;
    if (bounded) {
        const double lower = in.lower, upper = in.upper;
        if (gather == Gather::again) {
            const Standing one = classify_variable<true>(x, g, h * g, lower, upper, carry_time);
            mask = one.mask;
            carried = one.carried / root;
        } else {
            // As classify_variable<false>(), without a division but where it may bring the first break.
            const bool held = is_held(x, g, lower, upper);
            mask = held ? 0 : 1;
            totals.held += held;
            if (!held && may_break_before(sums.first_break, x, h * g, lower, upper))
                sums.first_break = min_of(sums.first_break, breakpoint(x, h * g, lower, upper));
            const double projected = projected_gradient(x, g, lower, upper);
            sums.projected_squared += projected * projected;
            sums.projected_gradient = max_of(sums.projected_gradient, absolute(projected));
        }
    } else {
        sums.projected_squared += g * g;
        sums.projected_gradient = max_of(sums.projected_gradient, absolute(g));
    }
    const double moving = mask * root * g;
    sums.movable_descent += moving * moving;
    sums.gradient_squared += g * g;
    sums.x_squared += x * x;
    t.riders[s_row][at] = s;
    t.riders[y_row][at] = y;
    t.riders[moving_row][at] = moving;
    t.riders[carried_row][at] = carried;
    t.mask[at] = mask;
#if SW_WEIGHTED
    t.root[at] = root;
#endif
    pair.needed = mask != 0 || s != 0 || carried != 0;
    pair.yy = y * y;
    return pair;
}

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
          scale(pair_scale(narrowed, -state.search.slope0 * state.search.step)),
          length(scale * state.search.step),
          numbers(v) {}

    // Tile after tile, whose rows are read where they lie.
    __device__ void run_direct() const {
#pragma unroll 1
        for (int64_t at = c.last_tile(); at >= c.begin; at = c.tile_before(at)) {
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
        auto fetch_rows = [&](int64_t at, int stage) {
            const AbsorbTile& t = tiles[stage % tile_buffers];
            if (at + tile <= c.n) {
                if (at >= c.begin) copies.copy<true>(at, tile, t, staged_history(stage));
            } else {
                copies.copy<false>(at, int(c.n - at), t, staged_history(stage));
            }
            commit_copies();
        };
        int64_t at = -1, coming = c.last_tile();  // none, and the first
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
    const double carry_time, scale, length;
    const BoundNumbers numbers;

    // The one so many after it, in the order of the sweep.
    __device__ int64_t tile_after(int64_t at, int count) const {
#pragma unroll
        for (int k = 0; k < count; ++k) at = c.tile_before(at);
        return at;
    }

    __device__ void fetch_inputs(int64_t at, int which) const {
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
    __device__ void form(int64_t at, int stage, int inputs = 0) const {
        AbsorbTile& t = tiles[stage % tile_buffers];
        const int count = int(min_of(int64_t(tile), c.n - at));
        // Not staged: all of them on their way before the first is used.
        AbsorbInput loaded[thread_columns];
        if (!staged) {
#pragma unroll
            for (int k = 0; k < thread_columns; ++k) {
                if (column_of(k) < count) loaded[k].template load<gather>(v, at + column_of(k));
            }
        }
#pragma unroll
        for (int k = 0; k < thread_columns; ++k) {
            const int i = column_of(k);
            PairElement pair{};
            if (i < count) {
                AbsorbInput input;
                if (staged) {
                    input.take(staged_inputs(inputs) + i, pitch, numbers);
                } else {
                    input = loaded[k];
                }
                pair =
                    absorb_element<gather>(v, newest, length, scale, carry_time, input, at + i, t, i, totals);
                if (staged && gather == Gather::pair) {
                    staged_history(stage)[(r - 1) * pitch + i] = pair.y;
                    staged_history(stage)[(capacity + r - 1) * pitch + i] = pair.s;
                }
            }
            if constexpr (selective) {
                const unsigned int needed = __ballot_sync(0xffffffffu, pair.needed);
                if ((threadIdx.x & 31) == 0 && i < tile) t.needed[i >> 5] = needed;
                if (!(needed >> (threadIdx.x & 24) & 0xffu)) totals.unread_yy += pair.yy;
            }
        }
    }

    __device__ void multiply(int64_t at, int stage) const {
        if (r == 0) return;
        const AbsorbTile& t = tiles[stage % tile_buffers];
        const int count = int(min_of(int64_t(tile), c.n - at));
        if (staged && count == tile) {
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
                                    const Chunk& c, AbsorbTile (&tiles)[tile_buffers], int64_t* offsets,
                                    double* shared, AbsorbShare& totals, double* to) {
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
        store_strip(layout, strip, sums, shared, to);
        if (!layout.gram) return;
    }
}

SW_END
