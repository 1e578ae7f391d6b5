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
#if SW_WEIGHTED
    double root[tile];
#endif

    __device__ double root_of(int column) const {
#if SW_WEIGHTED
        return root[column];
#else
        return 1;
#endif
    }
};
constexpr int tile_buffers = staged ? 2 : 1;

// A warp goes over its columns of every tile by itself, and waits for no other: it forms them, has their rows
// brought and multiplies them. A thread forms every 32nd.
constexpr int warp_columns = tile / warps;
constexpr int thread_columns = (warp_columns + 31) / 32;
__device__ inline int first_column() {
    return int(threadIdx.x >> 5) * warp_columns;
}

// Which variables of a warp's columns need rows, a bit for each. Eight neighbours are read together, or not
// at all.
struct Needed {
    uint32_t bits[thread_columns] = {};

    // At a column of the warp.
    __device__ bool at(int column) const {
        if (!selective) return true;
        uint32_t word = bits[0];
#pragma unroll
        for (int k = 1; k < thread_columns; ++k) word = column >> 5 == k ? bits[k] : word;
        return word >> (column & 24) & 0xffu;
    }
};

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
__device__ inline Real* staged_inputs() {
    return reinterpret_cast<Real*>(dynamic_shared + 2 * stage_bytes);
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

// Copies the rows of the `older` oldest pairs at a warp's columns, 16 bytes a lane. `offsets` of the pairs by
// age. Rows are padded to whole 16 bytes, which may be read past the last.
struct RowCopies {
    const Kept *y, *s;
    const int64_t* offsets;
    int older;

    // `whole`: all columns lie before the end; else `count` of the tile's do.
    template <bool whole>
    __device__ void copy(int64_t at, int count, const Needed& needed, Kept* stage) const {
        constexpr int wide = 16 / sizeof(Kept), pieces = warp_columns / wide;
        constexpr int copies = staged ? (2 * capacity * pieces + 31) / 32 : 1;
#pragma unroll
        for (int k = 0; k < copies; ++k) {
            const int index = int(threadIdx.x & 31) + 32 * k, row = index / pieces;
            const int column = index % pieces * wide, place = first_column() + column;
            if (row >= 2 * older || !needed.at(column) || !(whole || place < count)) continue;
            const bool is_s = row >= older;
            const int age = is_s ? row - older : row;
            copy_kept<16>(StagePlace(stage + ((is_s ? capacity : 0) + age) * pitch + place),
                          (is_s ? s : y) + offsets[age] + at + place);
        }
    }
};

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
