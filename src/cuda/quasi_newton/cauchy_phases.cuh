// The exact Cauchy point by a whole thread group, without the host: the three actions of
// core/quasi_newton/cauchy_walk.hpp.
#pragma once

#include "cuda/quasi_newton/cauchy_sweeps.cuh"
#include "cuda/quasi_newton/decision_broadcast.cuh"
#include "cuda/quasi_newton/sums.cuh"

SW_BEGIN

// What the phases of a turn share, and the walk among them.
class CauchyPhases : protected DecisionBroadcast {
public:
    static constexpr bool walks = bounded;

    __device__ Action action() const { return m.state.action; }

#if SW_BOUNDED
    __device__ __noinline__ void list_breaks() {
        DeviceWalk walk = walk_memory();
        walk.list.length = next_length();
        each_chunk([&](int, const Chunk& c) { list_chunk(m.vectors, m.state, walk, c); });
        decide_once([&] {
            const uint32_t listed = *(volatile uint32_t*)walk.listed;
            const int count = listed <= uint32_t(walk.list.length) ? int(listed) : 0;
            const Break* sorted = sort_breaks(walk.list.breaks, count, m.breaks);
            decide_list(thread_group.block, m.state, w, walk.list, sorted, listed);
            go_on();
        });
    }

    __device__ __noinline__ void count_breaks() {
        const DeviceWalk walk = walk_memory();
        each_chunk([&](int, const Chunk& c) { count_chunk(m.vectors, m.state, walk.bins, c); });
        decide_once([&] {
            uint32_t* bins = reinterpret_cast<uint32_t*>(m.exchange);
            for (int b = threadIdx.x; b < walk_bins; b += threads) bins[b] = walk.bins[b];
            __syncthreads();
            if (threadIdx.x == 0) {
                walk.counted->keep(m.state);
                decide_count(m.state, bins, next_length());
            }
            __syncthreads();
            clear_walk();
        });
    }

    __device__ __noinline__ void sum_ties() {
        const int count = 2 * m.state.pairs + 1;
        double* totals = walk_memory().list.running;
        each_chunk([&](int chunk, const Chunk& c) {
            ties_chunk(m.vectors, m.state, thread_group.block, c,
                       [&](int j, double value) { sums.put(j, chunk, value); });
        });
        sums.add_up(count, AllSums{});
        sums.await_all();
        if (thread_group.decides()) {
            sums.take(count, AllSums{}, [&](int j, double value) { totals[j] = value; });
            __syncthreads();
            decide_ties(thread_group.block, m.state, w, totals);
            go_on();
        }
        share_state();
    }
#endif

protected:
    __device__ CauchyPhases(const ThreadGroup& thread_group, State* state, double* coefficients,
                            const ChunkSums& sums, const Scratch& scratch, double* memory)
        : DecisionBroadcast(thread_group, state, coefficients), sums(sums), w(scratch), memory(memory) {}

    ChunkSums sums;
    Scratch w;

    template <class Work>
    __device__ void each_chunk(const Work& work) const {
        if (thread_group.only_decides()) return;
        const int chunks = m.engine.chunks;
        for (int chunk = thread_group.first_chunk(); chunk < chunks; chunk += thread_group.workers()) {
            work(chunk, Chunk{Index(chunk) * span, Index(chunks) * span, Index(m.engine.n)});
        }
    }

    // Before others learn that breakpoints are to be listed or counted next; `begins`: of a new walk. Member
    // 0, all threads.
    __device__ void clear_walk(bool begins = false) const {
        if (!bounded) return;
        const bool lists = m.state.action == Action::list_breaks;
        if (!lists && m.state.action != Action::count_breaks) return;
        const DeviceWalk walk = walk_memory();
        if (lists) {
            if (threadIdx.x == 0) *walk.listed = 0;
            if (threadIdx.x == 0 && begins) walk.counted->forget();
        } else {
            for (int b = threadIdx.x; b < walk_bins; b += threads) walk.bins[b] = 0;
        }
        __syncthreads();
    }

private:
    double* memory;

    __device__ DeviceWalk walk_memory() const { return device_walk(memory, capacity, m.engine.walk_length); }
    __device__ static __noinline__ int next_length() {
        return list_length(m.state.walk, m.engine.walk_length);
    }

    // After crossings: what comes next, as far as the counts tell. Member 0, all threads.
    __device__ __noinline__ void go_on() const {
        const DeviceWalk walk = walk_memory();
        uint32_t* bins = reinterpret_cast<uint32_t*>(m.exchange);
        const int next = walk.counted->next_bin(m.state);
        for (int b = next + int(threadIdx.x); b < walk_bins; b += threads) bins[b - next] = walk.bins[b];
        __syncthreads();
        if (threadIdx.x == 0) walk.counted->select(m.state, bins, next_length());
        __syncthreads();
        clear_walk();
    }
};

SW_END
