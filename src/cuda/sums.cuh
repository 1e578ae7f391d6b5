// Sums over all variables of a problem: every chunk leaves its own in global memory, and they are added up in
// a fixed order, whoever adds them and whenever the chunks finish.
#pragma once

#include "cuda/problem.cuh"

SW_BEGIN

// How the chunks of one sum are put together.
enum class Fold { sum, most, least };

__device__ inline double folded(Fold fold, double a, double b) {
    return fold == Fold::sum ? a + b : fold == Fold::most ? max_of(a, b) : min_of(a, b);
}

// Of number k, from two bits for each: 1 the largest counts, 2 the smallest.
__device__ inline Fold kind_among(unsigned int extrema, int k) {
    const unsigned int bits = extrema >> (2 * k) & 3;
    return bits == 1 ? Fold::most : bits == 2 ? Fold::least : Fold::sum;
}

// What each thread has found besides products of rows: numbers to be folded, and a careful sum behind them.
constexpr int most_numbers = 7;
struct Numbers {
    double value[most_numbers];
    int count;             // of them used
    unsigned int extrema;  // see kind_among
    CarefulSum careful;

    __device__ Fold kind(int k) const { return kind_among(extrema, k); }
};

struct AllSums {
    __device__ Fold operator()(int) const { return Fold::sum; }
};

class ChunkSums {
public:
    __device__ ChunkSums(const Gang& gang, double* memory, int chunks, int row)
        : gang(gang), memory(memory), chunks(chunks), row(row) {}

    // Where sum j of a chunk is kept.
    __device__ double* place(int j, int chunk) const { return memory + int64_t(chunk) * row + j; }
    __device__ void put(int j, int chunk, double value) const { __stcg(place(j, chunk), value); }

    // Folds numbers of every thread over the block, into the sums `first`, ... of a chunk. `exchange`: shared
    // memory for (most_numbers + 2) * warps numbers.
    __device__ void put_folded(int first, int chunk, const Numbers& mine, double* exchange) const {
        const double (&v)[most_numbers] = mine.value;
        fold_block(place(first, chunk), exchange, mine.count, mine.extrema, mine.careful.sum,
                   mine.careful.lost, v[0], v[1], v[2], v[3], v[4], v[5], v[6]);
    }

    // A careful sum over all chunks, by one warp: the first lane's total counts, whose order is fixed.
    __device__ double take_careful(int first) const {
        return careful_total(place(first, 0), row, chunks, gang.block.lane());
    }

    // Sum `j` over all chunks, by one warp: lanes over chunks in a fixed tree. Every lane gets the total.
    __device__ double take_one(int j, Fold fold) const {
        return warp_total(place(j, 0), row, chunks, gang.block.lane(), fold);
    }

    // Many sums: waits for all chunks, adds them up by groups, and hands the totals to put(j, total); also()
    // runs beside that. Member 0 alone goes on, the others wait for the gang's release.
    template <class Kind, class Put, class Also>
    __device__ void gather(int count, const Kind& kind, const Put& put, const Also& also) const {
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
        also();
        __syncthreads();
    }

private:
    static constexpr int at_once = 9;  // loads on their way before the first is used
    Gang gang;
    double* memory;
    int chunks, row;

    __device__ static CarefulSum across_lanes(const CarefulSum& mine, int offset) {
        CarefulSum other;
        other.sum = __shfl_xor_sync(0xffffffffu, mine.sum, offset);
        other.lost = __shfl_xor_sync(0xffffffffu, mine.lost, offset);
        return other;
    }

    __device__ double fold_group(int j, int group, Fold fold) const {
        const int first = group * group_size;
        return fold_rows(place(j, first), row, min_of(group_size, chunks - first), fold);
    }

    // Each of the following is called from several places, rather than fetched for each.
    // (Numbers one by one: in registers.)
    static __device__ __noinline__ void fold_block(double* to, double* exchange, int count,
                                                   unsigned int extrema, double sum, double lost, double v0,
                                                   double v1, double v2, double v3, double v4, double v5,
                                                   double v6) {
        Numbers mine{{v0, v1, v2, v3, v4, v5, v6}, count, extrema, {sum, lost}};
        SW_ROLLED
        for (int offset = 16; offset > 0; offset >>= 1) {
            mine.careful.add(across_lanes(mine.careful, offset));
#pragma unroll
            for (int k = 0; k < most_numbers; ++k)
                mine.value[k] =
                    folded(mine.kind(k), mine.value[k], __shfl_xor_sync(0xffffffffu, mine.value[k], offset));
        }
        __syncthreads();
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        double *sums = exchange + most_numbers * warps, *losses = sums + warps;
        if (lane == 0) {
#pragma unroll
            for (int k = 0; k < most_numbers; ++k) exchange[k * warps + warp] = mine.value[k];
            sums[warp] = mine.careful.sum;
            losses[warp] = mine.careful.lost;
        }
        __syncthreads();
        if (threadIdx.x < mine.count) {
            const Fold fold = mine.kind(threadIdx.x);
            double total = exchange[threadIdx.x * warps];
#pragma unroll
            for (int w = 1; w < warps; ++w) total = folded(fold, total, exchange[threadIdx.x * warps + w]);
            __stcg(to + threadIdx.x, total);
        }
        if (warp == warps - 1) {
            CarefulSum total;
            if (lane < warps) {
                total.sum = sums[lane];
                total.lost = losses[lane];
            }
            SW_ROLLED
            for (int offset = warps / 2; offset > 0; offset >>= 1) total.add(across_lanes(total, offset));
            if (lane == 0) {
                __stcg(to + mine.count, total.sum);
                __stcg(to + mine.count + 1, total.lost);
            }
        }
        __syncthreads();
    }

    static __device__ __noinline__ double careful_total(const double* from, int row, int chunks, int lane) {
        CarefulSum total;
        SW_ROLLED
        for (int c = lane; c < chunks; c += 32 * at_once) {
            double sum[at_once], lost[at_once];
#pragma unroll
            for (int k = 0; k < at_once; ++k) {
                const bool there = c + 32 * k < chunks;
                sum[k] = there ? __ldcg(from + int64_t(c + 32 * k) * row) : 0.0;
                lost[k] = there ? __ldcg(from + int64_t(c + 32 * k) * row + 1) : 0.0;
            }
#pragma unroll
            for (int k = 0; k < at_once; ++k) {
                total.add(sum[k]);
                total.lost += lost[k];
            }
        }
        SW_ROLLED
        for (int offset = 16; offset > 0; offset >>= 1) total.add(across_lanes(total, offset));
        return total.value();
    }

    static __device__ __noinline__ double warp_total(const double* from, int row, int chunks, int lane,
                                                     Fold fold) {
        const double neutral = fold == Fold::least ? double_infinity : 0.0;
        double total = neutral;
        SW_ROLLED
        for (int c = lane; c < chunks; c += 32 * at_once) {
            double parts[at_once];
#pragma unroll
            for (int k = 0; k < at_once; ++k)
                parts[k] = c + 32 * k < chunks ? __ldcg(from + int64_t(c + 32 * k) * row) : neutral;
#pragma unroll
            for (int k = 0; k < at_once; ++k) total = folded(fold, total, parts[k]);
        }
        SW_ROLLED
        for (int offset = 16; offset > 0; offset >>= 1)
            total = folded(fold, total, __shfl_xor_sync(0xffffffffu, total, offset));
        return total;
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
