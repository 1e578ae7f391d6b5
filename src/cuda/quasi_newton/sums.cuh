// Sums over all variables of a problem: every chunk leaves its own in global memory, and they are added up in
// a fixed order, whoever adds them and whenever the chunks finish.
#pragma once

#include "cuda/quasi_newton/problem.cuh"

SW_BEGIN

// How the chunks of one sum are put together.
enum class Fold { sum, max, min };

__device__ inline double folded(Fold fold, double a, double b) {
    return fold == Fold::sum ? a + b : fold == Fold::max ? max_of(a, b) : min_of(a, b);
}

// Of number k, from two bits for each: 1 the largest counts, 2 the smallest.
__device__ inline Fold kind_among(unsigned int extrema, int k) {
    const unsigned int bits = extrema >> (2 * k) & 3;
    return bits == 1 ? Fold::max : bits == 2 ? Fold::min : Fold::sum;
}

// What each thread has found besides products of rows: numbers to be folded, and a careful sum behind them.
constexpr int fold_length = fold_length_of(threads);
constexpr int fold_pitch = fold_length / chunk_numbers;
struct Numbers {
    double value[max_numbers];
    int count;             // of them used
    unsigned int extrema;  // see kind_among
    CarefulSum careful;
};

struct AllSums {
    __device__ Fold operator()(int) const { return Fold::sum; }
};

// Sums may lie in shared memory where a warp has a problem to itself (see Turn).
__device__ inline void put_sum(double* to, double value) {
    if constexpr (lone_warp) {
        *to = value;
    } else {
        __stcg(to, value);
    }
}

// Groups of chunks that member 0 adds up itself; tests leave it fewer.
#if !defined(SW_GROUPS_FOR_ONE)
#define SW_GROUPS_FOR_ONE 3
#endif
constexpr int groups_for_one = SW_GROUPS_FOR_ONE;

class ChunkSums {
public:
    // `here`: one chunk and no other block, its sums in shared memory.
    __device__ ChunkSums(const ThreadGroup& thread_group, double* memory, int chunks, int row,
                         bool here = false)
        : thread_group(thread_group), memory(memory), chunks(chunks), row(row), here(here) {}

    __device__ bool are_here() const { return lone_warp && here; }

    // Where sum j of a chunk is kept.
    __device__ double* place(int j, int chunk) const { return memory + int64_t(chunk) * row + j; }
    __device__ void put(int j, int chunk, double value) const { put_sum(place(j, chunk), value); }

    // Folds numbers of every thread over the block, into the sums `first`, ... of a chunk. `exchange`: shared
    // memory for fold_length numbers.
    __device__ void put_folded(int first, int chunk, const Numbers& mine, double* exchange) const {
        const double (&v)[max_numbers] = mine.value;
        fold_block(place(first, chunk), exchange, mine.count, mine.extrema, mine.careful.sum,
                   mine.careful.lost, v[0], v[1], v[2], v[3], v[4], v[5], v[6]);
    }

    // A careful sum over all chunks, by one warp: the first lane's total counts, whose order is fixed.
    __device__ double take_careful(int first) const {
        if (are_here()) {
            CarefulSum total;
            total.add(CarefulSum{memory[first], memory[first + 1]});
            return total.value();
        }
        return careful_total(place(first, 0), row, chunks, thread_group.block.lane());
    }

    // Sum `j` over all chunks, by one warp: lanes over chunks in a fixed tree. Every lane gets the total.
    __device__ double take_one(int j, Fold fold) const {
        if (are_here()) return folded(fold, neutral_of(fold), memory[j]);
        return warp_total(place(j, 0), row, chunks, thread_group.block.lane(), fold);
    }

    // Many sums, once a member has put those of its chunks: the last of each group of chunks adds up the
    // group's. Of few groups member 0 does it itself, sooner than it would hear of their sums.
    template <class Kind>
    __device__ void add_up(int count, const Kind& kind) const {
        if (!by_groups()) return thread_group.arrive();
        thread_group.arrive_in_group([&](int group) {
            SW_ROLLED
            for (int j = threadIdx.x; j < count; j += threads)
                __stcg(place(j, chunks + group), fold_group(j, group, kind(j)));
        });
    }

    // Waits for all members, and then member 0 alone goes on, the others wait for the thread group's release.
    __device__ void await_all() const { thread_group.await(by_groups() ? groups() : thread_group.workers()); }

    // Member 0 hands the totals from `first` on to put(j, total).
    template <class Kind, class Put>
    __device__ void take(int count, const Kind& kind, const Put& put, int first = 0) const {
        const int groups = this->groups();
        SW_ROLLED
        for (int j = first + int(threadIdx.x); j < count; j += threads) {
            const Fold fold = kind(j);
            double total;
            if (are_here()) {
                total = take_one(j, fold);
            } else if (by_groups()) {
                total = fold_rows(place(j, chunks), row, groups, fold);
            } else {
                total = fold_group(j, 0, fold);
                SW_ROLLED
                for (int group = 1; group < groups; ++group)
                    total = folded(fold, total, fold_group(j, group, fold));
            }
            put(j, total);
        }
    }

private:
    static constexpr int at_once = 9;  // loads on their way before the first is used
    ThreadGroup thread_group;
    double* memory;
    int chunks, row;
    bool here;

    __device__ static double neutral_of(Fold fold) { return fold == Fold::min ? double_infinity : 0.0; }
    __device__ int groups() const { return (chunks + group_size - 1) / group_size; }
    __device__ bool by_groups() const { return thread_group.barrier && chunks > groups_for_one * group_size; }

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
        const double values[] = {v0, v1, v2, v3, v4, v5, v6, sum, lost};
        __syncthreads();
#pragma unroll
        for (int k = 0; k < max_numbers + 2; ++k) exchange[k * fold_pitch + threadIdx.x] = values[k];
        __syncthreads();
        // An eighth of the block for each number; the last has the careful sum.
        constexpr int parts = max_numbers + 1, lanes = threads / parts;
        const int k = threadIdx.x / lanes, lane = threadIdx.x % lanes;
        const bool careful = k == max_numbers;
        const Fold fold = kind_among(extrema, k);
        const double* from = exchange + k * fold_pitch + lane;
        double part[parts];
#pragma unroll
        for (int i = 0; i < parts; ++i) part[i] = from[i * lanes];
        CarefulSum total;
        total.sum = part[0];
        if (careful) {
            total.lost = from[fold_pitch];
#pragma unroll
            for (int i = 1; i < parts; ++i) total.add(CarefulSum{part[i], from[fold_pitch + i * lanes]});
        } else if (fold == Fold::sum) {
#pragma unroll
            for (int i = 1; i < parts; ++i) total.sum += part[i];
        } else {
#pragma unroll
            for (int i = 1; i < parts; ++i) total.sum = folded(fold, total.sum, part[i]);
        }
        SW_ROLLED
        for (int offset = lanes / 2; offset > 0; offset >>= 1) {
            const CarefulSum other = across_lanes(total, offset);
            if (careful) {
                total.add(other);
            } else {
                total.sum = folded(fold, total.sum, other.sum);
            }
        }
        if (lane == 0 && careful) {
            put_sum(to + count, total.sum);
            put_sum(to + count + 1, total.lost);
        } else if (lane == 0 && k < count) {
            put_sum(to + k, total.sum);
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
        const double neutral = neutral_of(fold);
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
        const double neutral = neutral_of(fold);
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
