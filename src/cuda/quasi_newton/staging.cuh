// History rows and vectors on their way through shared memory: the next tile's rows, and the vectors of the
// one after it, arrive while this one is worked on.
#pragma once

#include "cuda/quasi_newton/problem.cuh"

SW_BEGIN

// Rows of a tile in shared memory lie this far apart: those that a quarter warp reads together start in
// different banks.
constexpr int pitch = pitch_of(capacity, sizeof(Kept), threads);

// Rows that ride along with the history; the rest of their block of eight are `no_row`, zeros.
enum Rider { moving_row, s_row, y_row, carried_row, no_row };

// What the sweep forms of a tile, in shared memory. Where rows are staged, that of the next tile is formed
// before the rows of this one are multiplied: what it needs of them is then known.
struct AbsorbTile {
    alignas(16) double riders[no_row + 1][pitch];  // read by twos, as is the mask
    double mask[tile];
    uint32_t needed[tile / 32];  // a bit for each variable whose rows count
#if SW_WEIGHTED
    double root[tile];
#endif

    // Whether rows are read at this variable: eight neighbours are read together, or not at all.
    __device__ bool needs(int column) const {
        return !selective || (needed[column >> 5] >> (column & 24) & 0xffu);
    }
    template <class Formed>
    __device__ void put(int column, const Formed& one) {
        riders[s_row][column] = one.own_s();
        riders[y_row][column] = one.own_y();
        riders[moving_row][column] = one.moving;
        riders[carried_row][column] = one.carried;
        mask[column] = one.free ? 1.0 : 0.0;
#if SW_WEIGHTED
        root[column] = one.root;
#endif
    }
    __device__ double root_of(int column) const {
#if SW_WEIGHTED
        return root[column];
#else
        return 1;
#endif
    }
};
constexpr int tile_buffers = staged ? 2 : 1;
struct AbsorbTiles {
    AbsorbTile tiles[tile_buffers];
};

// With a narrow history each warp goes over its columns of every tile by itself and waits for no other: it
// forms them, has their rows brought and multiplies them. Rows in double precision are brought for the whole
// block: long pieces of memory count for more there than waiting.
constexpr bool by_warps = sizeof(Kept) < 8 || lone_warp;
constexpr int warp_columns = tile / warps;
constexpr int thread_columns = (tile + threads - 1) / threads;
static_assert(!by_warps || warp_columns % 32 == 0);

// The k-th column of a tile that this thread forms.
__device__ inline int column_of(int k) {
    return by_warps ? int(threadIdx.x >> 5) * warp_columns + int(threadIdx.x & 31) + 32 * k
                    : int(threadIdx.x) + threads * k;
}
// Four lanes share the columns of a row that a warp reads at a time, so many each: the first ones, and how
// far the next are.
constexpr int lane_columns = lone_warp ? pack_length : 2;
__device__ inline int first_column() {
    return int(threadIdx.x >> 5) * (by_warps ? warp_columns : 8);
}
constexpr int column_step = (by_warps ? 1 : warps) * 4 * lane_columns;

// Between those who share columns.
__device__ inline void sync_columns() {
    if constexpr (by_warps) {
        __syncwarp();
    } else {
        __syncthreads();
    }
}

// History rows of a tile in shared memory, stacked.
constexpr int stage_rows = 8 * row_blocks;

// Of a row of the stack: whether it is one of S, and its age; that of rows behind the last is beyond any
// pair's.
__device__ inline bool is_of_s(int row) {
    return row >= capacity;
}
__device__ inline int age_of(int row) {
    return row < capacity ? row : row - capacity;
}
// Vectors of the tile, staged like rows: g, x, g before, d; lower, upper, but for numbers; weight.
constexpr int upper_row = 4 + lower_step, weight_row = 4 + bound_rows;
constexpr int stage_bytes = stage_bytes_of(capacity, sizeof(Kept), threads);
constexpr int staged_bytes =
    staged_bytes_of(capacity, sizeof(Real), sizeof(Kept), bound_rows, weighted, threads);
#if defined(__CUDA_ARCH__)
extern __shared__ __align__(128) unsigned char dynamic_shared[];
#else
__shared__ __align__(128) unsigned char dynamic_shared[staged_bytes + 16];
#endif

__device__ inline Kept* staged_history(int stage) {
    return reinterpret_cast<Kept*>(dynamic_shared + stage * stage_bytes);
}
constexpr int inputs_ahead = inputs_ahead_of(sizeof(Kept));
__device__ inline Real* staged_inputs(int which) {
    return reinterpret_cast<Real*>(dynamic_shared + 2 * stage_bytes) +
           which * (weight_row + weighted) * pitch;
}

// A place in shared memory, as copies take it.
class StagePlace {
public:
#if __CUDA_ARCH__ >= 800
    __device__ explicit StagePlace(const void* to) : at(unsigned(__cvta_generic_to_shared(to))) {}
    __device__ StagePlace after(int bytes) const { return StagePlace(at + unsigned(bytes)); }
    // The compiler is kept from finding all places after this one beforehand: it would have to put them
    // aside.
    __device__ void settle() { asm volatile("" : "+r"(at)); }
    unsigned int at;

private:
    __device__ explicit StagePlace(unsigned int at) : at(at) {}
#else
    __device__ explicit StagePlace(void* to) : at(static_cast<unsigned char*>(to)) {}
    __device__ StagePlace after(int bytes) const { return StagePlace(at + bytes); }
    __device__ void settle() {}
    unsigned char* at;
#endif
};

// 4, 8 or 16 bytes from global to shared memory, without passing through registers. What closes a group of
// copies orders them among other accesses.
template <int bytes, class Element>
__device__ inline void copy_async(StagePlace to, const Element* from) {
#if __CUDA_ARCH__ >= 800
    if constexpr (bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to.at), "l"(from));
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to.at), "l"(from), "n"(bytes));
    }
#else
    for (int k = 0; k < bytes / int(sizeof(Element)); ++k) reinterpret_cast<Element*>(to.at)[k] = from[k];
#endif
}
__device__ inline void copy_element(Real* to, const Real* from) {
    copy_async<sizeof(Real)>(StagePlace(to), from);
}

// One number of two bytes: too short for a copy of its own.
__device__ inline void copy_short(StagePlace to, const Bfloat16* from) {
#if __CUDA_ARCH__ >= 800
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to.at), "h"(from->bits) : "memory");
#else
    *reinterpret_cast<Bfloat16*>(to.at) = *from;
#endif
}
// So many bytes of neighbouring elements of a row of the history.
template <int bytes, class Element>
__device__ inline void copy_kept(StagePlace to, const Element* from) {
    if constexpr (any_begin) {
#pragma unroll
        for (int k = 0; k < bytes / int(sizeof(Element)); ++k) {
            if constexpr (sizeof(Element) == sizeof(Bfloat16)) {
                copy_short(to.after(2 * k), from + k);
            } else {
                copy_async<sizeof(Element)>(to.after(k * int(sizeof(Element))), from + k);
            }
        }
    } else {
        copy_async<bytes>(to, from);
    }
}

// What was read from a place before a copy to it is begun stays before it.
__device__ inline void begin_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("" ::: "memory");
#endif
}
// Closes a group of copies; waits until all but the latest `pending` groups have arrived.
__device__ inline void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int pending>
__device__ inline void await_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#endif
}

// Copies the rows of the `older` oldest of r pairs, 16 bytes a lane. Rows are padded to whole 16 bytes, which
// may be read past the last. `whole`: all columns lie before the end; else `count` of the tile's do.
// `offsets` of the pairs by age, in shared memory. For one warp: all rows at its columns.
class WarpCopies {
public:
    __device__ WarpCopies(const Vectors& v, int, int older, int, const int64_t* offsets)
        : y(v.y), s(v.s), offsets(offsets), older(older) {}

    template <bool whole>
    __device__ void copy(int64_t at, int count, const AbsorbTile& t, Kept* stage) const {
        constexpr int wide = 16 / sizeof(Kept), pieces = warp_columns / wide;
        constexpr int copies = staged ? (2 * capacity * pieces + 31) / 32 : 1;
#pragma unroll
        for (int k = 0; k < copies; ++k) {
            const int index = int(threadIdx.x & 31) + 32 * k, row = index / pieces;
            const int column = first_column() + index % pieces * wide;
            if (row >= 2 * older || !t.needs(column) || !(whole || column < count)) continue;
            const bool is_s = row >= older;
            const int age = is_s ? row - older : row;
            copy_kept<16>(StagePlace(stage + ((is_s ? capacity : 0) + age) * pitch + column),
                          (is_s ? s : y) + offsets[age] + at + column);
        }
    }

private:
    const Kept *y, *s;
    const int64_t* offsets;
    int older;
};

// The same for a block, a warp a row: which rows a warp takes is settled once a chunk.
class BlockCopies {
public:
    __device__ BlockCopies(const Vectors& v, int r, int older, int head, const int64_t*) {
#pragma unroll
        for (int k = 0; k < each; ++k) {
            const int row = (threadIdx.x >> 5) + k * warps, lane = threadIdx.x & 31;
            const bool is_s = row >= older;
            const int age = is_s ? row - older : row;
            const int64_t slot = slot_of(age, head, r, slots);
            from[k] = row < 2 * older ? (is_s ? v.s : v.y) + slot * v.stride + lane * wide : nullptr;
            to[k] = ((is_s ? capacity : 0) + age) * pitch + lane * wide;
        }
    }

    template <bool whole>
    __device__ void copy(int64_t at, int count, const AbsorbTile& t, Kept* stage) const {
        const int first = int(threadIdx.x & 31) * wide;
        if constexpr (!whole) {
#pragma unroll 1
            for (int c = 0; c + first < count; c += 32 * wide) {
                if (!t.needs(c + first)) continue;
#pragma unroll
                for (int k = 0; k < each; ++k) {
                    if (from[k]) copy_kept<16>(StagePlace(stage + to[k] + c), from[k] + at + c);
                }
            }
            return;
        }
        if (32 * wide > tile && first >= tile) return;
        bool needed[pieces];
#pragma unroll
        for (int c = 0; c < pieces; ++c) needed[c] = t.needs(first + c * 32 * wide);
#pragma unroll
        for (int k = 0; k < each; ++k) {
            if (!from[k]) continue;
            const Kept* row = from[k] + at;
#pragma unroll
            for (int c = 0; c < pieces; ++c) {
                if (needed[c]) copy_kept<16>(StagePlace(stage + to[k] + c * 32 * wide), row + c * 32 * wide);
            }
        }
    }

private:
    static constexpr int wide = 16 / sizeof(Kept), pieces = (tile + 32 * wide - 1) / (32 * wide);
    static constexpr int each = staged ? (2 * capacity + warps - 1) / warps : 1;
    const Kept* from[each];
    int to[each];
};

using RowCopies = Choice<by_warps, WarpCopies, BlockCopies>::type;

// Rows of the stages that no pair fills, and the riders that do not exist, are zeros for the whole chunk.
__device__ inline void clear_unused(AbsorbTile (&tiles)[tile_buffers], int r) {
    SW_ROLLED
    for (int i = threadIdx.x; i < tile; i += threads) {
        for (AbsorbTile& t : tiles) t.riders[no_row][i] = 0;
    }
    if constexpr (staged) {
#pragma unroll 1
        for (int k = threadIdx.x >> 5; k < 2 * stage_rows; k += warps) {
            const int row = k >> 1;
            if (age_of(row) < r) continue;
            Kept* unused = staged_history(k & 1) + row * pitch;
#pragma unroll 1
            for (int i = threadIdx.x & 31; i < tile; i += 32) unused[i] = Kept{};
        }
    }
}

SW_END
