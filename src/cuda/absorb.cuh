// The absorb sweep on one chunk: first read of the history.
//
// Dot products of rows are taken by the double-precision tensor instruction mma.m8n8k4: of eight rows and
// four columns each lane holds one element, row lane/4, column lane%4, and that register serves as both
// operands of a Gram matrix. The order of columns does not matter to a sum, so each lane loads 16 bytes: two
// columns, two instructions. The vectors s, y, √h g (masked) and the carried displacements ride along as a
// further block of eight rows.
#pragma once

#include "cuda/problem.cuh"
#include "cuda/tensor.cuh"

SW_BEGIN

enum class Gather { start, pair, again };

// Rows of a tile in shared memory lie this far apart: those that a quarter warp reads together start in
// different banks.
constexpr int pitch = tile + 8;

// Rows that ride along with the history; the rest of their block of eight are `no_row`, zeros.
enum Rider { moving_row, s_row, y_row, carried_row, no_row };

// Shared memory of the sweep.
struct AbsorbTile {
    alignas(16) double riders[no_row + 1][pitch];  // read by twos, as is the mask
    double mask[tile];
    double root[weighted ? tile : 1];
};

// History rows of a tile in shared memory: Y by age in the first 8 * halves rows, S in the next.
constexpr int stage_rows = 16 * halves;
// Vectors of the tile, staged like rows: g, x, g before, d; lower, upper; weight.
constexpr int input_rows = 4 + (bounded ? 2 : 0) + (weighted ? 1 : 0);
constexpr int weight_row = bounded ? 6 : 4;
constexpr int stage_length = (stage_rows + input_rows) * pitch;
extern __shared__ __align__(16) unsigned char dynamic_shared[];

__device__ inline Real* stage_memory(int stage) {
    return reinterpret_cast<Real*>(dynamic_shared) + stage * stage_length;
}

// 16 bytes from global to shared memory, without passing through registers.
__device__ inline void copy_async(Real* to, const Real* from) {
#if __CUDA_ARCH__ >= 800
    const unsigned int address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
#else
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
#endif
}

// Closes a group of copies; waits until all but the latest group have arrived.
__device__ inline void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
__device__ inline void await_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

// One element from global to shared memory.
__device__ inline void copy_element(Real* to, const Real* from) {
#if __CUDA_ARCH__ >= 800
    const unsigned int address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(sizeof(Real))
                 : "memory");
#else
    *to = *from;
#endif
}

// Copies the rows of the `older` oldest of r pairs, a warp a row: which rows a warp takes is settled once a
// chunk. Rows are padded to a multiple of four elements, so that whole 16 bytes may be read past the last.
class RowCopies {
public:
    __device__ RowCopies(const Vectors& v, int r, int older, int head) {
#pragma unroll
        for (int k = 0; k < each; ++k) {
            const int row = (threadIdx.x >> 5) + k * warps, lane = threadIdx.x & 31;
            const bool is_s = row >= older;
            const int age = is_s ? row - older : row;
            const int64_t slot = slot_of(age, head, r, capacity);
            from[k] = row < 2 * older ? (is_s ? v.s : v.y) + slot * v.stride + lane * wide : nullptr;
            to[k] = ((is_s ? 8 * halves : 0) + age) * pitch + lane * wide;
        }
    }

    __device__ void whole(int64_t at, Real* stage) const {
#pragma unroll
        for (int k = 0; k < each; ++k) {
            if (!from[k]) continue;
            const Real* row = from[k] + at;
#pragma unroll
            for (int c = 0; c < tile; c += 32 * wide) copy_async(stage + to[k] + c, row + c);
        }
    }
    __device__ void part(int64_t at, int count, Real* stage) const {
#pragma unroll 1
        for (int c = 0; c + int(threadIdx.x & 31) * wide < count; c += 32 * wide) {
#pragma unroll
            for (int k = 0; k < each; ++k) {
                if (from[k]) copy_async(stage + to[k] + c, from[k] + at + c);
            }
        }
    }

private:
    static constexpr int wide = 16 / sizeof(Real);
    static constexpr int each = staged ? (2 * capacity + warps - 1) / warps : 1;
    const Real* from[each];
    int to[each];
};

// What the sweep reads of one element.
struct AbsorbInput {
    Real g, x, g_before, d, lower, upper, weight;

    template <Gather gather>
    __device__ void load(const Vectors& v, const Real* gradient, int64_t i) {
        g = gather == Gather::again ? v.g[i] : gradient[i];
        x = gather == Gather::again ? v.x[i] : v.trial[i];
        if (gather == Gather::pair) {
            g_before = v.g[i];
            d = v.d[i];
        }
        if (bounded) {
            lower = v.lower[i];
            upper = v.upper[i];
        }
        if (weighted) weight = v.weights[i];
    }

    // The same, staged: copies on their way to shared memory, and what has arrived there.
    template <Gather gather>
    __device__ static void fetch(const Vectors& v, const Real* gradient, int64_t i, Real* to, int pitch) {
        copy_element(to, (gather == Gather::again ? v.g : gradient) + i);
        copy_element(to + pitch, (gather == Gather::again ? v.x : v.trial) + i);
        if (gather == Gather::pair) {
            copy_element(to + 2 * pitch, v.g + i);
            copy_element(to + 3 * pitch, v.d + i);
        }
        if (bounded) {
            copy_element(to + 4 * pitch, v.lower + i);
            copy_element(to + 5 * pitch, v.upper + i);
        }
        if (weighted) copy_element(to + weight_row * pitch, v.weights + i);
    }
    __device__ void take(const Real* from, int pitch) {
        g = from[0], x = from[pitch], g_before = from[2 * pitch], d = from[3 * pitch];
        if (bounded) lower = from[4 * pitch], upper = from[5 * pitch];
        if (weighted) weight = from[weight_row * pitch];
    }
};

// The accepted point of one element; with a new pair, its ring rows.
template <Gather gather>
__device__ inline void absorb_element(const Vectors& v, int head, double length, double held_time,
                                      const AbsorbInput& in, int64_t i, AbsorbTile& t, int at,
                                      AbsorbScalars& sums) {
    const double g = in.g, x = in.x;
    const double h = weighted ? double(in.weight) : 1.0;
    const double root = weighted ? sqrt(h) : 1.0;
    double s = 0, y = 0;
    if (gather == Gather::pair) {
        const Real step = Real(length * double(in.d));
        const Real change = Real(g - double(in.g_before));
        const int64_t row = int64_t(head) * v.stride + i;
        v.s[row] = step;
        v.y[row] = change;
        s = weighted ? double(step) / root : double(step);
        y = double(change) * root;
    }
    if (gather != Gather::again) {
        v.x[i] = in.x;
        v.g[i] = in.g;
    }
    double mask = 1, carried = 0;
    if (bounded) {
        const double lower = in.lower, upper = in.upper;
        const bool movable = !is_held(x, g, lower, upper);
        const double time = movable ? breakpoint(x, h * g, lower, upper) : double_infinity;
        mask = movable ? 1.0 : 0.0;
        if (gather == Gather::again) {
            if (time <= held_time) {
                carried = (bound_ahead(g, lower, upper) - x) / root;
                mask = 0;
            }
        } else {
            const double projected = projected_gradient(x, g, lower, upper);
            sums.held += 1 - mask;
            sums.first_break = min_of(sums.first_break, time);
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
    if (weighted) t.root[at] = root;
}

// Sums of one strip of the Gram matrix: row block `strip` of the stacked [Y; S], and the riding rows, against
// all row blocks. Strips are one (all row blocks in registers) while they fit, else one row block each.
constexpr int row_blocks = 2 * halves;
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

// Sums of a strip from one step of eight columns: `values` of all row blocks at this lane's two columns, the
// riding row and the mask there.
__device__ inline void multiply_rows(const Two (&values)[row_blocks], Two riding, Two mask, int strip,
                                     StripSums& sums) {
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

// `whole`: a full tile; else what lies beyond the end of the variables counts as zero.
template <bool whole>
__device__ inline void absorb_rows(const Vectors& v, const SumLayout& layout, int head, int64_t at, int count,
                                   const AbsorbTile& t, int strip, int stage, StripSums& sums) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, r = layout.rows;
    const int place = warp * 8 + 2 * (lane & 3);  // this lane's first column
    // Staged rows lie side by side; others where the ring has them.
    const Real* rows[staged ? 1 : row_blocks];
    if (staged) {
        rows[0] = stage_memory(stage) + (lane >> 2) * pitch + place;
    } else {
#pragma unroll
        for (int b = 0; b < row_blocks; ++b) {
            const int age = (b % halves) * 8 + (lane >> 2);
            const int64_t slot = slot_of(age, head, r, capacity);
            rows[staged ? 0 : b] =
                age < r ? (b < halves ? v.y : v.s) + slot * v.stride + at + place : nullptr;
        }
    }
    const double *riding = t.riders[min_of(lane >> 2, int(no_row))] + place, *masks = t.mask + place;
    const int steps = whole ? tile / (warps * 8) : (count - warp * 8 + warps * 8 - 1) / (warps * 8);
#pragma unroll(whole ? tile / (warps * 8) : lone_warp ? 4 : 1)
    for (int step = 0; step < steps; ++step) {
        // All lanes take part in every instruction; those beyond the end contribute zeros. Rows are padded to
        // a multiple of four elements: an odd last column is read with its neighbour, then masked off.
        const int offset = step * warps * 8, column = place + offset;
        const bool first = whole || column < count, second = whole || column + 1 < count;
        Two values[row_blocks];
#pragma unroll
        for (int b = 0; b < row_blocks; ++b) {
            if (staged) {
                values[b] = load_two(rows[0] + b * 8 * pitch + offset);
            } else {
                const Real* row = rows[staged ? 0 : b];
                values[b] = row && first ? load_two(row + offset) : Two{0, 0};
            }
            if (!first) values[b].a = 0;
            if (!second) values[b].b = 0;
        }
        if (weighted) {
            const double ra = first ? t.root[column] : 1.0, rb = second ? t.root[column + 1] : 1.0;
#pragma unroll
            for (int b = 0; b < row_blocks; ++b) {
                values[b].a = b >= halves ? values[b].a / ra : values[b].a * ra;
                values[b].b = b >= halves ? values[b].b / rb : values[b].b * rb;
            }
        }
        Two ride = load_two(riding + offset), mask = load_two(masks + offset);
        if (!first) ride.a = mask.a = 0;
        if (!second) ride.b = mask.b = 0;
        multiply_rows(values, ride, mask, strip, sums);
    }
}

// The 8 x 8 blocks of sums that a strip ends with: riding rows against each row block, then the Gram matrix
// by block rows, then S Sᵀ over all variables where the weights vary.
constexpr int gram_blocks = whole_gram ? row_blocks * (row_blocks + 1) / 2 : row_blocks;
constexpr int strip_blocks = row_blocks + gram_blocks * (1 + SW_WEIGHTS_VARY);
// Blocks added up over the warps at a time. The history's stages are free then and hold them.
constexpr int blocks_at_once = staged || lone_warp ? 5 : 1;

// Which of the sums of a chunk an element of a block is; -1 if none.
__device__ inline int place_of_sum(const SumLayout& layout, int strip, int index, int row, int column) {
    const int r = layout.rows;
    // Stacked index of a row: Y by age, then S by age.
    auto stacked = [&](int b, int k) { return b < halves ? b * 8 + k : r + (b - halves) * 8 + k; };
    auto alive = [&](int b, int k) { return (b < halves ? b : b - halves) * 8 + k < r; };
    if (index < row_blocks) {
        if (strip > 0 || row >= no_row || !alive(index, column)) return -1;
        const int j = stacked(index, column);
        const bool is_y = index < halves;
        return row == moving_row ? layout.q() + j
               : row == s_row    ? (is_y ? layout.new_sy() + j : layout.new_ss() + j - r)
               : row == y_row    ? (is_y ? layout.new_yy() + j : layout.new_ys() + j - r)
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
    return layout.all_ss && left >= halves && right >= halves ? layout.whole_ss() + triangle(a - r, b - r)
                                                              : -1;
}

// Adds the blocks of one group over the warps, in their order. `shared`: (warps, blocks_at_once, 64).
template <class Partial>
__device__ __noinline__ void add_blocks(const SumLayout& layout, int strip, int first, int count,
                                        const double* shared, const Partial& partial) {
    __syncthreads();
    SW_ROLLED
    for (int v = threadIdx.x; v < count * 64; v += threads) {
        const int place = place_of_sum(layout, strip, first + v / 64, v % 64 / 8, v % 8);
        if (place < 0) continue;
        double total = 0;
#pragma unroll
        for (int warp = 0; warp < warps; ++warp) total += shared[warp * blocks_at_once * 64 + v];
        partial(place, total);
    }
    __syncthreads();
}

template <class Partial>
__device__ inline void store_strip(const SumLayout& layout, int strip, const StripSums& sums,
                                   double* exchange, const Partial& partial) {
    double* shared = staged ? reinterpret_cast<double*>(dynamic_shared) : exchange;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    __syncthreads();
    int index = 0;
    auto put = [&](const double (&c)[2]) {
        double* block = shared + (warp * blocks_at_once + index % blocks_at_once) * 64;
        *reinterpret_cast<double2*>(block + 2 * lane) = make_double2(c[0], c[1]);
        ++index;
        if (index % blocks_at_once == 0 || index == strip_blocks) {
            const int count = (index - 1) % blocks_at_once + 1;
            add_blocks(layout, strip, index - count, count, shared, partial);
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

// Rows of the stages that no pair fills, and the riders that do not exist, are zeros for the whole chunk.
__device__ inline void clear_unused(AbsorbTile& t, int r) {
    SW_ROLLED
    for (int i = threadIdx.x; i < tile; i += threads) t.riders[no_row][i] = 0;
    if constexpr (staged) {
        const int spare = 8 * halves - r;  // in Y and in S, in both stages
#pragma unroll 1
        for (int k = threadIdx.x >> 5; k < 4 * spare; k += warps) {
            const int row = (k & 1) * 8 * halves + r + (k >> 2);
            Real* unused = stage_memory((k >> 1) & 1) + row * pitch;
#pragma unroll 1
            for (int i = threadIdx.x & 31; i < tile; i += 32) unused[i] = 0;
        }
    }
}

// One strip of a chunk: goes over its tiles, the inputs and rows of the next tile on their way while the rows
// of this one are multiplied. The newest pair is put among the staged rows as it is formed.
template <Gather gather>
__device__ inline void absorb_strip(const Vectors& v, const State& state, const SumLayout& layout, int head,
                                    const Real* gradient, double held_time, const Chunk& c, AbsorbTile& t,
                                    int strip, StripSums& sums, AbsorbScalars& scalars) {
    constexpr int each = (tile + threads - 1) / threads;
    const int newest = state.head, r = layout.rows, older = gather == Gather::pair ? r - 1 : r;
    const double step = state.step;
    const RowCopies copies(v, r, older, head);
    clear_unused(t, r);
    auto fetch = [&](int64_t at, int stage) {
        if (staged && at >= c.begin) {
            Real* inputs = stage_memory(stage) + stage_rows * pitch;
#pragma unroll
            for (int k = 0; k < each; ++k) {
                const int place = threadIdx.x + k * threads;
                if (place < tile && at + place < c.n) {
                    AbsorbInput::fetch<gather>(v, gradient, at + place, inputs + place, pitch);
                }
            }
            if (at + tile <= c.n) {
                copies.whole(at, stage_memory(stage));
            } else {
                copies.part(at, int(c.n - at), stage_memory(stage));
            }
        }
        commit_copies();
    };
    fetch(c.last_tile(), 0);
    int stage = 0;
#pragma unroll 1
    for (int64_t at = c.last_tile(), following; at >= c.begin; at = following, stage ^= 1) {
        const int count = int(min_of(int64_t(tile), c.n - at));
        following = c.tile_before(at);
        __syncthreads();  // the other stage and the tile buffers are free
        fetch(following, stage ^ 1);
        await_copies();  // a thread sees its own copies: its inputs
#pragma unroll
        for (int k = 0; k < each; ++k) {
            const int i = threadIdx.x + k * threads;
            if (i < count) {
                AbsorbInput input;
                if (staged) {
                    input.take(stage_memory(stage) + stage_rows * pitch + i, pitch);
                } else {
                    input.template load<gather>(v, gradient, at + i);
                }
                absorb_element<gather>(v, newest, step, held_time, input, at + i, t, i, scalars);
                if (staged && gather == Gather::pair) {
                    // As stored: without the weights, which rows get when they are read.
                    const double root = weighted ? t.root[i] : 1.0;
                    const double y = t.riders[y_row][i], s = t.riders[s_row][i];
                    stage_memory(stage)[(r - 1) * pitch + i] = Real(weighted ? y / root : y);
                    stage_memory(stage)[(8 * halves + r - 1) * pitch + i] = Real(weighted ? s * root : s);
                }
            }
        }
        __syncthreads();
        if (r == 0) continue;
        if (staged && count == tile) {
            absorb_rows<true>(v, layout, head, at, count, t, strip, stage, sums);
        } else {
            absorb_rows<false>(v, layout, head, at, count, t, strip, stage, sums);
        }
    }
}

// The whole chunk. `partial(j, value)` takes sum j of the chunk.
template <Gather gather, class Partial>
__device__ inline void absorb_chunk(const Vectors& v, const State& state, const SumLayout& layout,
                                    const Real* gradient, const Chunk& c, AbsorbTile& t, double* shared,
                                    AbsorbScalars& scalars, const Partial& partial) {
    const int r = layout.rows, head = gather == Gather::pair ? state.head + 1 : state.head;
    const double held_time = gather == Gather::again ? state.held_time : -1.0;
    for (int strip = 0; strip < absorb_strips(); ++strip) {
        StripSums sums = {};
        if (strip == 0) {
            absorb_strip<gather>(v, state, layout, head, gradient, held_time, c, t, strip, sums, scalars);
        } else {
            // A later strip goes over the same elements again: the point is taken already, nobody is carried
            // anew.
            AbsorbScalars unused{};
            absorb_strip<Gather::again>(v, state, layout, head, gradient, held_time, c, t, strip, sums,
                                        unused);
        }
        if (r == 0) return;
        store_strip(layout, strip, sums, shared, partial);
        if (!layout.gram) return;
    }
}

SW_END
