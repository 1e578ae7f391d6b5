// The walk along the projected gradient path by a whole gang: the Cauchy point without a host.
#pragma once

#include "cuda/quasi_newton/deciding.cuh"
#include "cuda/quasi_newton/sums.cuh"
#include "cuda/quasi_newton/walk.cuh"

SW_BEGIN

// What the phases of a turn share, and the walk among them.
class Walking : protected Deciding {
protected:
    __device__ Walking(const Gang& gang, State* state, double* coefficients, const ChunkSums& sums,
                       const Scratch& scratch, double* memory)
        : Deciding(gang, state, coefficients), sums(sums), w(scratch), walk_memory(memory) {}

    ChunkSums sums;
    Scratch w;

    template <class Work>
    __device__ void each_chunk(const Work& work) const {
        if (gang.only_decides()) return;
        const int chunks = m.engine.chunks;
        for (int chunk = gang.first_chunk(); chunk < chunks; chunk += gang.workers()) {
            work(chunk, Chunk{int64_t(chunk) * span, int64_t(chunks) * span, m.engine.n});
        }
    }

#if SW_BOUNDED
    __device__ __noinline__ void walk() {
        WalkState& shared = *reinterpret_cast<WalkState*>(walk_memory);
        const WalkLists lists = walk_lists(walk_memory, m.engine.walk_length);
        const int size = 2 * m.state.pairs;
        double range = 0;  // member 0's
        together([&] {
            const PathSlope slope =
                path_slope(m.state.movable_descent, m.state.gamma, w.path, w.carried, w.k, size);
            range = 2 * max_of(m.state.first_break, -slope.offset / slope.curvature);
            if (!(range > 0)) range = double_infinity;
            SW_ROLLED
            for (int c = threadIdx.x; c < size; c += threads) {
                shared.q[c] = w.path[c];
                shared.r[c] = w.carried[c];
            }
            if (threadIdx.x == 0) {
                shared.above = 0;
                shared.settled = shared.ranges = 0;
                shared.moving = m.state.movable_descent;
                shared.from = 0;
                shared.held_time = -1;
            }
            start_selection(shared, range);
        });
        while (!*(volatile int32_t*)&shared.settled) {
            while (*(volatile int32_t*)&shared.selecting) {
                each_chunk([&](int, const Chunk& c) { count_bins(m.vectors, shared, c); });
                together([&] {
                    choose_bins(shared, m.engine.walk_length, reinterpret_cast<uint32_t*>(m.exchange));
                });
            }
            if (*(volatile int32_t*)&shared.tied) {
                each_chunk([&](int chunk, const Chunk& c) {
                    sum_ties(m.vectors, m.state, shared, gang.block, c,
                             [&](int j, double value) { sums.put(j, chunk, value); });
                });
                sums.add_up(size + 1, AllSums{});
                sums.collect(
                    size + 1, AllSums{}, [&](int j, double value) { lists.crossing[j] = value; }, [] {});
                lead([&] {
                    cross_ties(shared, lists, size);
                    next_range(shared, range);
                });
            } else {
                each_chunk([&](int, const Chunk& c) { list_breaks(m.vectors, shared, lists, c); });
                together([&] {
                    sort_breaks(lists, int(shared.listed), m.walk.times, m.walk.variables);
                    cross_breaks(m.vectors, m.state, gang.block, w.k, shared, lists, m.walk.times,
                                 m.walk.variables);
                    next_range(shared, range);
                });
            }
        }
        decide([&](bool) {
            if (threadIdx.x == 0) decide_walk(m.state, shared.held_time, shared.cauchy_time);
        });
    }
#endif

private:
    double* walk_memory;

#if SW_BOUNDED
    // All variables of one breakpoint at once: L⁻¹ is linear, so one solve serves their sum.
    __device__ void cross_ties(WalkState& shared, const WalkLists& lists, int size) const {
        solve_lower(gang.block, w.k, size, lists.crossing);
        const double time = time_of(shared.high - 1);
        // The minimiser may lie before the ties.
        const PathSlope before = path_slope(shared.moving, m.state.gamma, shared.q, shared.r, w.k, size);
        double t = 0;
        const bool settled = settles(before, shared.from, time, t);
        __syncthreads();
        if (!settled) {
            SW_ROLLED
            for (int c = threadIdx.x; c < size; c += threads) {
                shared.q[c] -= lists.crossing[c];
                shared.r[c] -= time * lists.crossing[c];
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            if (settled) {
                shared.settled = 1;
                shared.cauchy_time = t;
            } else {
                shared.moving = max_of(0.0, shared.moving - lists.crossing[size]);
                shared.from = shared.held_time = time;
                if (path_ends(shared.moving, m.state.movable_descent)) {
                    shared.settled = 1;
                    shared.cauchy_time = time;
                }
            }
            shared.above = shared.high;
        }
        __syncthreads();
    }

    // If the walk goes on: the rest of the range, or the next range, eight times as far.
    __device__ void next_range(WalkState& shared, double& range) const {
        __syncthreads();
        const bool settled = shared.settled;
        const uint64_t above = shared.above;
        if (settled) return;
        if (is_finite(range) ? above > bits_of(range) : above > bits_of(1.7976931348623157e308)) {
            if (!is_finite(range)) {
                // No breakpoint is left: the last segment is unbounded.
                const PathSlope slope =
                    path_slope(shared.moving, m.state.gamma, shared.q, shared.r, w.k, 2 * m.state.pairs);
                __syncthreads();
                if (threadIdx.x == 0) {
                    settles(slope, shared.from, double_infinity, shared.cauchy_time);
                    shared.settled = 1;
                }
                __syncthreads();
                return;
            }
            range = shared.ranges < 8 && range < 1e300 ? 8 * range : double_infinity;
            __syncthreads();
            if (threadIdx.x == 0) ++shared.ranges;
        }
        start_selection(shared, range);
    }
#endif
};

SW_END
