// Sums over all variables of a problem: every chunk leaves its own in global memory, and they are added up in
// a fixed order, whoever adds them and whenever the chunks finish.
#pragma once

#include "core/careful_sum.hpp"
#include "cuda/problem.cuh"

SW_BEGIN

// How the chunks of one sum are put together.
enum class Fold { sum, most, least };

__device__ inline double folded(Fold fold, double a, double b) {
    return fold == Fold::sum ? a + b : fold == Fold::most ? max_of(a, b) : min_of(a, b);
}

struct AllSums {
    __device__ Fold operator()(int) const { return Fold::sum; }
};

class ChunkSums {
public:
    __device__ ChunkSums(const Gang& gang, double* memory, int chunks, int row)
        : gang(gang), memory(memory), chunks(chunks), row(row) {}

    __device__ void put(int j, int chunk, double value) const { __stcg(place(j, chunk), value); }

    // Folds `count` values of every thread over the block, value k into sum first + k of a chunk.
    // `exchange`: shared memory for count * warps numbers.
    template <int count, class Kind>
    __device__ void put_folded(int first, int chunk, const double (&values)[count], const Kind& kind,
                               double* exchange) const {
        double mine[count];
#pragma unroll
        for (int k = 0; k < count; ++k) mine[k] = values[k];
        SW_ROLLED
        for (int offset = 16; offset > 0; offset >>= 1) {
#pragma unroll
            for (int k = 0; k < count; ++k)
                mine[k] = folded(kind(k), mine[k], __shfl_xor_sync(0xffffffffu, mine[k], offset));
        }
        __syncthreads();
        if (gang.block.lane() == 0) {
#pragma unroll
            for (int k = 0; k < count; ++k) exchange[k * warps + gang.block.row()] = mine[k];
        }
        __syncthreads();
        if (threadIdx.x < count) {
            double total = exchange[threadIdx.x * warps];
#pragma unroll
            for (int w = 1; w < warps; ++w)
                total = folded(kind(threadIdx.x), total, exchange[threadIdx.x * warps + w]);
            put(first + threadIdx.x, chunk, total);
        }
        __syncthreads();
    }

    // One careful sum, into the sums `first` and `first + 1` of a chunk.
    __device__ void put_careful(int first, int chunk, CarefulSum mine, double* exchange) const {
        fold_lanes(mine, 32);
        __syncthreads();
        if (gang.block.lane() == 0) {
            exchange[gang.block.row()] = mine.sum;
            exchange[warps + gang.block.row()] = mine.lost;
        }
        __syncthreads();
        if (threadIdx.x >= 32) return;
        if (threadIdx.x < warps) {
            mine.sum = exchange[threadIdx.x];
            mine.lost = exchange[warps + threadIdx.x];
        }
        fold_lanes(mine, warps);
        if (threadIdx.x == 0) {
            put(first, chunk, mine.sum);
            put(first + 1, chunk, mine.lost);
        }
    }

    // A careful sum over all chunks, by one warp: the first lane's total counts, whose order is fixed.
    __device__ double take_careful(int first) const {
        CarefulSum total;
        SW_ROLLED
        for (int c = gang.block.lane(); c < chunks; c += 32 * at_once) {
            double sum[at_once], lost[at_once];
#pragma unroll
            for (int k = 0; k < at_once; ++k) {
                const bool there = c + 32 * k < chunks;
                sum[k] = there ? __ldcg(place(first, c + 32 * k)) : 0.0;
                lost[k] = there ? __ldcg(place(first + 1, c + 32 * k)) : 0.0;
            }
#pragma unroll
            for (int k = 0; k < at_once; ++k) {
                total.add(sum[k]);
                total.lost += lost[k];
            }
        }
        fold_lanes(total, 32);
        return total.value();
    }

    // Sum `j` over all chunks, by one warp: lanes over chunks in a fixed tree. Every lane gets the total.
    __device__ double take_one(int j, Fold fold) const {
        const double neutral = fold == Fold::least ? double_infinity : 0.0;
        double total = neutral;
        SW_ROLLED
        for (int c = gang.block.lane(); c < chunks; c += 32 * at_once) {
            double parts[at_once];
#pragma unroll
            for (int k = 0; k < at_once; ++k)
                parts[k] = c + 32 * k < chunks ? __ldcg(place(j, c + 32 * k)) : neutral;
#pragma unroll
            for (int k = 0; k < at_once; ++k) total = folded(fold, total, parts[k]);
        }
        SW_ROLLED
        for (int offset = 16; offset > 0; offset >>= 1)
            total = folded(fold, total, __shfl_xor_sync(0xffffffffu, total, offset));
        return total;
    }

    // Many sums: waits for all chunks, adds them up by groups, and hands the totals to put(j, total). Member
    // 0 alone goes on, the others wait for the gang's release.
    template <class Kind, class Put>
    __device__ void gather(int count, const Kind& kind, const Put& put) const {
        gang.gather_groups([&](int group) {
            SW_ROLLED
            for (int j = threadIdx.x; j < count; j += threads)
                __stcg(place(j, chunks + group), fold_group(j, group, kind(j)));
        });
        if (!gang.decides()) return;
        const int groups = (chunks + group_size - 1) / group_size;
        SW_ROLLED
        for (int j = threadIdx.x; j < count; j += threads) {
            const Fold fold = kind(j);
            double total;
            if (gang.barrier) {
                total = fold_rows(place(j, chunks), row, groups, fold);
            } else {
                total = fold_group(j, 0, fold);
                SW_ROLLED
                for (int group = 1; group < groups; ++group)
                    total = folded(fold, total, fold_group(j, group, fold));
            }
            put(j, total);
        }
        __syncthreads();
    }

private:
    static constexpr int at_once = 9;  // loads on their way before the first is used
    Gang gang;
    double* memory;
    int chunks, row;

    __device__ double* place(int j, int chunk) const { return memory + int64_t(chunk) * row + j; }

    __device__ static void fold_lanes(CarefulSum& mine, int lanes) {
        SW_ROLLED
        for (int offset = lanes / 2; offset > 0; offset >>= 1) {
            CarefulSum other;
            other.sum = __shfl_xor_sync(0xffffffffu, mine.sum, offset);
            other.lost = __shfl_xor_sync(0xffffffffu, mine.lost, offset);
            mine.add(other);
        }
    }

    __device__ double fold_group(int j, int group, Fold fold) const {
        const int first = group * group_size;
        return fold_rows(place(j, first), row, min_of(group_size, chunks - first), fold);
    }

    // Adds up (or the like) one number of each of so many rows, in their order.
    __device__ static __noinline__ double fold_rows(const double* from, int row, int count, Fold fold) {
        const double neutral = fold == Fold::least ? double_infinity : 0.0;
        double total = neutral;
        SW_ROLLED
        for (; count > 0; count -= group_size, from += group_size * row) {
            double parts[group_size];
#pragma unroll
            for (int k = 0; k < group_size; ++k) parts[k] = k < count ? __ldcg(from + k * row) : neutral;
            if (fold == Fold::sum) {
#pragma unroll
                for (int k = 0; k < group_size; ++k) total += parts[k];
            } else {
#pragma unroll
                for (int k = 0; k < group_size; ++k) total = folded(fold, total, parts[k]);
            }
        }
        return total;
    }
};

SW_END
