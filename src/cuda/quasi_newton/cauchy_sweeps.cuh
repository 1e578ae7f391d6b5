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

// Brings pairs of breakpoints into order: of each `width` neighbours the halves, element by element, the
// second read backwards if `mirrored`. What would lie beyond the end counts as last of all, and is where it
// belongs.
__device__ __noinline__ void order_pairs(Break* breaks, int count, int width, bool mirrored) {
    const int half = width / 2;
    SW_ROLLED
    for (int k = threadIdx.x;; k += threads) {
        const int i = 2 * k - (k & (half - 1));
        if (i >= count) break;
        const int j = mirrored ? i ^ (width - 1) : i + half;
        if (j >= count) continue;
        const Break a = breaks[i], b = breaks[j];
        if (b.before(a)) breaks[i] = b, breaks[j] = a;
    }
    __syncthreads();
}

// Merges neighbours by halves, from those of `width` on as long as they are wider than `least`.
__device__ __noinline__ void merge_pairs(Break* breaks, int count, int width, int least) {
    SW_ROLLED
    for (; width > least; width /= 2) order_pairs(breaks, count, width, false);
}

// Bitonic sort of a list, with mirrored halves, so that no length has to be filled up to a power of two: in
// `shared` memory piece by piece, and between pieces where the list lies. Returns where it is then: few
// breakpoints in shared memory. Member 0, all threads.
__device__ __noinline__ const Break* sort_breaks(Break* breaks, int count, Break* shared) {
    constexpr int piece = sorted_at_once(threads);
    SW_ROLLED
    for (int width = piece;; width *= 2) {
        if (width > piece) {
            order_pairs(breaks, count, width, true);
            merge_pairs(breaks, count, width / 2, piece);
        }
        SW_ROLLED
        for (int begin = 0; begin < count; begin += piece) {
            const int length = min_of(piece, count - begin);
            SW_ROLLED
            for (int i = threadIdx.x; i < length; i += threads) shared[i] = breaks[begin + i];
            __syncthreads();
            if (width > piece) merge_pairs(shared, length, piece, 1);
            SW_ROLLED
            for (int part = 2; width == piece && part < 2 * length; part *= 2) {
                order_pairs(shared, length, part, true);
                merge_pairs(shared, length, part / 2, 1);
            }
            if (count <= piece) return shared;
            SW_ROLLED
            for (int i = threadIdx.x; i < length; i += threads) breaks[begin + i] = shared[i];
            __syncthreads();
        }
        if (width >= count) return breaks;
    }
}

SW_END
