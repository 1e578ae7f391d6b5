// The sweeps of the exact Cauchy point (core/quasi_newton/cauchy_walk.hpp) on one chunk, and what one block
// does to the list before it is decided on.
#pragma once

#include "cuda/quasi_newton/problem.cuh"

SW_BEGIN

__device__ inline double descent_of(const Vectors& v, int64_t i) {
    return weighted ? double(v.weights[i]) * double(v.gradient[i]) : double(v.gradient[i]);
}

// The number of the breakpoint of a variable that may move.
__device__ inline uint64_t break_number(const Vectors& v, int64_t i) {
    return number_of_time(
        classify_variable<false>(v.at[i], v.gradient[i], descent_of(v, i), v.lower_of(i), v.upper_of(i), 0.0)
            .time);
}

// What variable i takes with it when it stops; number j of the row of a list.
__device__ __noinline__ double crossing_of(const Vectors& v, const State& s, int64_t i, int j) {
    const int pairs = s.pairs;
    const double g = v.gradient[i], descent = descent_of(v, i);
    if (j == 2 * pairs) return g * descent;
    const int age = j < pairs ? j : j - pairs;
    const int64_t row = int64_t(slot_of(age, s.head, pairs, slots)) * v.stride + i;
    return j < pairs ? crossing_of_y(widened(v.y[row]), descent)
                     : crossing_of_s(widened(v.s[row]), g, s.gamma);
}

// Breakpoints in (above, high] with their rows, in any order; no more once there are too many.
__device__ __noinline__ void list_chunk(const Vectors& v, const State& s, const DeviceWalk& walk,
                                        const Chunk& c) {
    const uint64_t above = s.walk.above, high = s.walk.high;
    const int width = 2 * s.pairs + 1;
    c.each_element([&](int64_t i) {
        const uint64_t time = break_number(v, i);
        if (time <= above || time > high) return;
        if (*(volatile uint32_t*)walk.listed > uint32_t(walk.list.length)) return;
        const uint32_t record = atomicAdd(walk.listed, 1u);
        if (record >= uint32_t(walk.list.length)) return;
        walk.list.breaks[record] = make_break(time, i, int(record));
        SW_ROLLED
        for (int j = 0; j < width; ++j) walk.list.rows[int64_t(record) * width + j] = crossing_of(v, s, i, j);
    });
}

// How many of (above, high] lie in each bin.
__device__ __noinline__ void count_chunk(const Vectors& v, const State& s, uint32_t* bins, const Chunk& c) {
    const uint64_t above = s.walk.above, high = s.walk.high;
    const int shift = s.walk.shift;
    c.each_element([&](int64_t i) {
        const uint64_t time = break_number(v, i);
        if (time > above && time <= high) atomicAdd(bins + ((time - above - 1) >> shift), 1u);
    });
}

// The sum of the rows of all variables whose breakpoint is `high`; put(j, sum) takes them.
template <class Put>
__device__ inline void ties_chunk(const Vectors& v, const State& s, const Block& block, const Chunk& c,
                                  const Put& put) {
    SW_ROLLED
    for (int j = 0; j <= 2 * s.pairs; ++j) {
        double sum = 0;
        c.each_element([&](int64_t i) {
            if (break_number(v, i) == s.walk.high) sum += crossing_of(v, s, i, j);
        });
        sum = block.sum(sum);
        if (threadIdx.x == 0) put(j, sum);
    }
}

// Bitonic sort of a list in shared memory. Member 0, all threads.
__device__ __noinline__ void sort_breaks(const Break* from, int count, Break* sorted) {
    int size = 1;
    while (size < count) size *= 2;
    for (int i = threadIdx.x; i < size; i += threads) {
        sorted[i] = i < count ? from[i] : Break{no_break, 0};
    }
    __syncthreads();
    for (int span = 2; span <= size; span *= 2) {
        for (int gap = span / 2; gap > 0; gap /= 2) {
            for (int i = threadIdx.x; i < size; i += threads) {
                const int j = i ^ gap;
                if (j < i) continue;
                const Break a = sorted[i], b = sorted[j];
                if (b.before(a) == ((i & span) == 0)) sorted[i] = b, sorted[j] = a;
            }
            __syncthreads();
        }
    }
}

SW_END
