// One turn of the quasi-Newton iteration on the GPU: one evaluation in, the next trial point out, in one
// launch. The grid (or, for small problems, each block) goes through the same sweeps and decisions as the
// host: src/core decides.
#include "cuda/quasi_newton/turn.cuh"

SW_BEGIN

// A multiprocessor from Hopper on has 228 KiB, of which each block takes one besides its own. A sweep that is
// alone on it is 5 % slower. (Not so with a diagonal: there is more of it to stage.)
constexpr int for_two_blocks = (228 << 10) / 2 - (1 << 10);
constexpr int flags_and_factors = 96;  // the few variables that lie beside these two
constexpr int own_and_staged = int(sizeof(SharedMemory) + sizeof(Turn)) + staged_bytes + flags_and_factors;
static_assert(staged_bytes == SW_STAGED_BYTES, "the loader asks for other shared memory");
static_assert(!staged || weighted || own_and_staged <= for_two_blocks, "leave memory for a second block");

// Problems beyond the first of each block go to whoever is free: some have ended, others take longer. For a
// whole block, between two syncs.
__device__ inline int64_t next_problem(unsigned int* taken) {
    __shared__ unsigned int next;
    __syncthreads();
    if (threadIdx.x == 0) next = atomicAdd(taken, 1u);
    __syncthreads();
    return int64_t(gridDim.x) + next;
}

SW_END

// f: the objective's values, float or double, one per problem. What each block begins with is loaded at once;
// the places of the states therefore come as an argument as well.
extern "C" __global__ void __launch_bounds__(stepwell::threads, stepwell::lone_warp ? 16 : 2)
    stepwell_turn(const stepwell::Engine* engine, stepwell::State* states, int groups_are_blocks,
                  const Real* gradient, const void* f, int f_is_float, int part) {
    using namespace stepwell;
    const bool blocks = groups_are_blocks;
    const auto value_of = [&](int64_t p) {
        return f_is_float ? double(static_cast<const float*>(f)[p]) : static_cast<const double*>(f)[p];
    };
    int64_t p = blocks ? blockIdx.x : 0;
    double value = threadIdx.x == 0 ? value_of(p) : 0.0;
    {
        const auto state = arriving(states + p);
        const auto memory = arriving(engine);
        const auto options = arriving(reinterpret_cast<const Options*>(engine + 1));
        state.put(reinterpret_cast<uint32_t*>(&m.state));
        memory.put(reinterpret_cast<uint32_t*>(&m.engine));
        options.put(reinterpret_cast<uint32_t*>(m.option_bytes));
    }
    __syncthreads();
    const Engine& e = m.engine;
    const ThreadGroup thread_group{Block{m.reduce}, blocks ? nullptr : e.barrier,
                                   blocks ? 0 : int(blockIdx.x), blocks ? 1 : int(gridDim.x)};
    thread_group.start();
    __shared__ __align__(16) unsigned char turn_memory[sizeof(Turn)];  // takes no constructor
    Turn& turn = *reinterpret_cast<Turn*>(turn_memory);
    unsigned int running = 0;
    while (true) {
        if (threadIdx.x == 0) {
            m.vectors = vectors_at(e, p, gradient);
            turn = Turn(e, thread_group, p, blocks ? blockIdx.x : 0, value);
        }
        __syncthreads();
        turn.run(TurnPart(part));
        running += m.state.action != Action::done;
        if (p == 0 && thread_group.decides()) copy_words(e.report, &m.state);
        p = blocks ? next_problem(e.counter + 2) : p + 1;
        if (p >= e.batch) break;
        if (threadIdx.x == 0) value = value_of(p);
        Turn::load_state(states + p);
    }
    // The host is told how many problems still run: by the block that decided, or by the last to finish.
    if (!thread_group.decides() || threadIdx.x != 0) return;
    if (blocks) {
        atomicAdd(e.counter, running);
        if (signal::count_up(e.counter + 1) != gridDim.x - 1) return;
        running = atomicExch(e.counter, 0u);
        e.counter[1] = e.counter[2] = 0;
    }
    *(volatile unsigned int*)e.running = running;
}
