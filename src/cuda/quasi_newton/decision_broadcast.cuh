// Who decides, and how the others learn of it. Member 0 of a thread group runs the decisions of src/core on
// its copy of the state; every block has one.
#pragma once

#include "cuda/quasi_newton/shared_memory.cuh"

SW_BEGIN

// Variables of a problem whose decisions are warmed up (run once on old numbers); tests do so with smaller
// ones.
#if !defined(SW_WARMED_UP_FROM)
#define SW_WARMED_UP_FROM 100000
#endif
constexpr int64_t warmed_up_from = SW_WARMED_UP_FROM;

class DecisionBroadcast {
protected:
    __device__ DecisionBroadcast(const ThreadGroup& thread_group, State* state, double* coefficients)
        : thread_group(thread_group), shared_coefficients(coefficients), global_state(state) {}

    ThreadGroup thread_group;
    double* shared_coefficients;  // in global memory: from member 0 to the others

    // Takes over what member 0 decided, now or in an earlier turn. Between two syncs.
    __device__ static __noinline__ void load_state(const State* state) {
        arriving(state).put(reinterpret_cast<uint32_t*>(&m.state));
    }

    // Runs a decision on member 0 and shows its outcome to all: once `await` has brought all members here,
    // member 0 has `take` put their totals where the decision finds them. In between nothing is decided and
    // all is known: here an exchange with other devices would stand, where `real`. A member that does nothing
    // but decide runs it once before, while it waits, to have its instructions warm: what the sweeps read
    // drives them from the cache, and fetching them anew takes longer than the decision. The code is the
    // same, the numbers need only lead it the usual way, and the state is restored. Short sweeps do not leave
    // the time for it, nor make it worth while.
    template <class Await, class Take, class Decide>
    __device__ void decide_after(const Await& await, const Take& take, const Decide& decision) const {
        SW_ROLLED
        for (int round = warms_up() ? 0 : 1; round < 2; ++round) {
            const bool real = lone_warp || round > 0;
            if (real) {
                await();
            } else {
                copy_state(m.kept_state(), reinterpret_cast<const uint32_t*>(&m.state));
            }
            if (thread_group.decides()) {
                take(real);
                __syncthreads();
                decision(real);
                __syncthreads();
            }
            if (!real) copy_state(reinterpret_cast<uint32_t*>(&m.state), m.kept_state());
        }
        share_state();
    }

    // (Problems of a lone warp are never long enough.)
    __device__ bool warms_up() const {
        return !lone_warp && thread_group.only_decides() && m.engine.n >= warmed_up_from;
    }

    // From member 0 to the others. A turn that ends with a trial point needs them no more.
    __device__ __noinline__ void share_state() const {
        if (thread_group.decides()) {
            const bool over = m.state.action == Action::evaluate;
            if (over) thread_group.release(true);
            const uint32_t* from = reinterpret_cast<const uint32_t*>(&m.state);
            uint32_t* to = reinterpret_cast<uint32_t*>(global_state);
            SW_ROLLED
            for (int i = threadIdx.x; i < int(sizeof(State) / 4); i += threads) __stcg(to + i, from[i]);
            if (!over) thread_group.release();
        } else if (turn_is_over) {
            if (threadIdx.x == 0) m.state.action = Action::evaluate;
        } else {
            // With the state, whether there are new ones or not: in one go.
            SW_ROLLED
            for (int j = threadIdx.x; j < 2 * capacity; j += threads)
                m.received_coefficients()[j] = __ldcg(shared_coefficients + j);
            load_state(global_state);
        }
        __syncthreads();
    }

    // The same for totals that are taken once all members have arrived.
    template <class Take, class Decide>
    __device__ void decide(const Take& take, const Decide& decision) const {
        decide_after([&] { thread_group.gather(); }, take, decision);
    }

    // The same for a rare decision, which is not warmed up; it takes its totals itself, first of all.
    template <class Decide>
    __device__ void decide_once(const Decide& decision) const {
        thread_group.gather();
        if (thread_group.decides()) {
            decision();
            __syncthreads();
        }
        share_state();
    }

    __device__ static __noinline__ void copy_state(uint32_t* to, const uint32_t* from) {
        SW_ROLLED
        for (int i = threadIdx.x; i < int(sizeof(State) / 4); i += threads) to[i] = from[i];
        __syncthreads();
    }

private:
    State* global_state;
};

SW_END
