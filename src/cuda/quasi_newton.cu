// One turn of the quasi-Newton iteration on the GPU: one evaluation in, the next trial point out, in one launch. The
// grid (or, for small problems, each block) goes through the same sweeps and decisions as the host: src/core decides.
#include "cuda/absorb.cuh"
#include "cuda/aim.cuh"
#include "cuda/walk.cuh"

SW_BEGIN

constexpr int64_t shared_scratch = 12 * capacity * capacity + 8 * capacity;
constexpr bool scratch_is_shared = shared_scratch <= 1400;

struct SharedMemory {
    union {
        AbsorbTile absorb;
        struct {
            uint64_t times[longest_walk];
            int64_t variables[longest_walk];
        } walk;
        double blocks[warps * 64];
    };
    double reduce[33];
    double exchange[warps * 64];
    double coefficients[2 * capacity];
    int64_t offsets[capacity];
    double scratch[scratch_is_shared ? shared_scratch : 1];
    State state;
    Engine engine;
    Options options;
    AbsorbScalars absorb_scalars;
    AimScalars aim_scalars;
};

class Turn {
   public:
    __device__ Turn(const Engine& e, SharedMemory& m, const Gang& gang, int64_t problem, int64_t slot,
                    const Real* gradient, double f)
        : e(e), m(m), gang(gang), block(gang.block), v(vectors_of(e, problem)), p(problem),
          gradient(gradient + problem * e.n), f(f), partials(e.partials + slot * e.partial_stride),
          coefficients(e.coefficients + slot * 2 * capacity),
          walk_memory(e.walk + slot * e.walk_stride),
          matrices(small_matrices(e.small + problem * small_matrices_length(capacity), capacity)),
          w(scratch_views(scratch_is_shared ? m.scratch : e.scratch + slot * scratch_length(capacity), capacity)) {}

    __device__ void run() {
        load_state();
        if (m.state.action == Action::done) return;
        slope();
        while (m.state.action != Action::evaluate && m.state.action != Action::done) {
            switch (m.state.action) {
                case Action::absorb: absorb(m.state.iterations == 0 ? Gather::start : Gather::pair); break;
                case Action::walk: walk(); break;
                case Action::regather: absorb(Gather::again); break;
                case Action::aim: aim(); break;
                default: step();
            }
        }
        if (m.state.action == Action::done) {
            each_chunk([&](int, int64_t begin, int64_t end) {
                for (int64_t i = begin + threadIdx.x; i < end; i += threads) v.trial[i] = v.x[i];
            });
        }
    }

   private:
    const Engine& e;
    SharedMemory& m;
    const Gang& gang;
    const Block& block;
    const Vectors v;
    const int64_t p;
    const Real* gradient;
    const double f;
    double *partials, *coefficients, *walk_memory;
    const SmallMatrices matrices;
    const Scratch w;

    template <class Work>
    __device__ void each_chunk(const Work& work) const {
        for (int chunk = gang.member; chunk < e.chunks; chunk += gang.members) {
            const int64_t begin = chunk * e.chunk_length;
            work(chunk, begin, min_of(begin + e.chunk_length, e.n));
        }
    }

    // Every block keeps a copy of the state; member 0 changes it.
    __device__ void load_state() const {
        __syncthreads();
        const uint32_t* from = reinterpret_cast<const uint32_t*>(e.states + p);
        uint32_t* to = reinterpret_cast<uint32_t*>(&m.state);
        for (int i = threadIdx.x; i < int(sizeof(State) / 4); i += threads) to[i] = __ldcg(from + i);
        __syncthreads();
    }

    // Runs a decision on member 0 once all members are here, and shows its outcome to all.
    template <class Decide>
    __device__ void decide(const Decide& decision) const {
        gang.gather();
        if (gang.decides()) {
            decision();
            __syncthreads();
            const uint32_t* from = reinterpret_cast<const uint32_t*>(&m.state);
            uint32_t* to = reinterpret_cast<uint32_t*>(e.states + p);
            for (int i = threadIdx.x; i < int(sizeof(State) / 4); i += threads) __stcg(to + i, from[i]);
            gang.release();
        } else {
            load_state();
        }
        __syncthreads();
    }

    // Sum `j` of a chunk; chunks of one sum lie side by side, so that adding them up reads along memory.
    __device__ double* partial(int64_t j, int chunk) const { return partials + j * e.chunks + chunk; }

    // Adds the chunks of sums 0 .. count - 1: one warp a sum, lanes over chunks, in a fixed tree. Into chunk 0's place.
    template <class Put>
    __device__ void add_chunks(int64_t count, const Put& put) const {
        for (int64_t j = block.row(); j < count; j += block.rows()) {
            double sum = 0;
            for (int c = block.lane(); c < e.chunks; c += 32) sum += __ldcg(partial(j, c));
            for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
            if (block.lane() == 0) put(j, sum);
        }
        __syncthreads();
    }
    __device__ double add_sum(int64_t j) const {
        double sum = 0;
        for (int c = threadIdx.x; c < e.chunks; c += threads) sum += __ldcg(partial(j, c));
        return block.sum(sum);
    }
    __device__ double add_least(int64_t j) const {
        double low = double_infinity;
        for (int c = threadIdx.x; c < e.chunks; c += threads) low = min_of(low, __ldcg(partial(j, c)));
        return block.least(low);
    }
    __device__ double add_most(int64_t j) const {
        double top = 0;
        for (int c = threadIdx.x; c < e.chunks; c += threads) top = max_of(top, __ldcg(partial(j, c)));
        return block.most(top);
    }
    __device__ void put_sum(int64_t j, int chunk, double value) const {
        if (threadIdx.x == 0) __stcg(partial(j, chunk), value);
    }

    __device__ void slope() {
        each_chunk([&](int chunk, int64_t begin, int64_t end) {
            put_sum(0, chunk, block.sum(slope_chunk(v, gradient, begin, end)));
        });
        decide([&] {
            const double total = add_sum(0);
            if (threadIdx.x == 0) decide_slope(m.state, m.options, f, total);
        });
    }

    __device__ __noinline__ void absorb(Gather gather) {
        const int rows = gather == Gather::again ? m.state.pairs : rows_to_absorb(m.state, m.options);
        const SumLayout layout = sum_layout(m.options, rows);
        const int64_t length = layout.length();
        each_chunk([&](int chunk, int64_t begin, int64_t end) {
            AbsorbScalars mine{0, 0, 0, 0, 0, double_infinity, 0};
            absorb_chunk(v, m.state, layout, gather, gradient, begin, end, m.absorb, m.exchange, mine,
                         [&](int64_t j, double value) { __stcg(partial(j, chunk), value); });
            if (gather == Gather::again) return;
            put_sum(length, chunk, block.sum(mine.movable_descent));
            put_sum(length + 1, chunk, block.sum(mine.gradient_squared));
            put_sum(length + 2, chunk, block.sum(mine.projected_squared));
            put_sum(length + 3, chunk, block.sum(mine.x_squared));
            put_sum(length + 4, chunk, block.sum(mine.held));
            put_sum(length + 5, chunk, block.most(mine.projected_gradient));
            put_sum(length + 6, chunk, block.least(mine.first_break));
        });
        decide([&] {
            // The sums of the chunks, added, take the place of the first chunk of an untransposed array.
            double* sums = partials + (length + 7) * e.chunks;
            add_chunks(length, [&](int64_t j, double value) { sums[j] = value; });
            if (gather == Gather::again) {
                decide_regather(block, m.state, matrices, w, layout, sums);
            } else {
                const double descent = add_sum(length), squared = add_sum(length + 1), projected = add_sum(length + 2);
                const double points = add_sum(length + 3), held = add_sum(length + 4);
                const double top = add_most(length + 5), first = add_least(length + 6);
                if (threadIdx.x == 0) m.absorb_scalars = AbsorbScalars{descent, squared, projected, points, top, first, held};
                __syncthreads();
                decide_absorb(block, m.state, m.options, matrices, w, m.absorb_scalars, layout, sums);
            }
            publish_coefficients();
        });
    }

    __device__ void publish_coefficients() const {
        __syncthreads();
        for (int j = threadIdx.x; j < 2 * m.state.pairs; j += threads) __stcg(coefficients + j, w.coefficients[j]);
        __syncthreads();
    }

    __device__ __noinline__ void aim() {
        const int r = m.state.pairs;
        __syncthreads();
        for (int j = threadIdx.x; j < 2 * r; j += threads) m.coefficients[j] = __ldcg(coefficients + j);
        for (int a = threadIdx.x; a < r; a += threads) {
            m.offsets[a] = int64_t(slot_of(a, m.state.head, r, capacity)) * v.stride;
        }
        __syncthreads();
        each_chunk([&](int chunk, int64_t begin, int64_t end) {
            AimScalars mine{0, 0, double_infinity, double_infinity};
            aim_chunk(v, m.state, m.coefficients, m.offsets, begin, end, mine);
            put_sum(0, chunk, block.sum(mine.slope));
            put_sum(1, chunk, block.sum(mine.direction_squared));
            put_sum(2, chunk, block.least(mine.step_limit));
            put_sum(3, chunk, block.least(mine.truncation));
        });
        decide([&] {
            const double slope = add_sum(0), squared = add_sum(1), limit = add_least(2), truncation = add_least(3);
            if (threadIdx.x == 0) decide_aim(m.state, m.options, AimScalars{slope, squared, limit, truncation});
        });
    }

    __device__ __noinline__ void step() {
        each_chunk([&](int, int64_t begin, int64_t end) { step_chunk(v, m.state.search.step, begin, end); });
        decide([&] {
            if (threadIdx.x == 0) m.state.action = Action::evaluate;
        });
    }

    __device__ __noinline__ void walk() {
        WalkState& shared = *reinterpret_cast<WalkState*>(walk_memory);
        const WalkLists lists = walk_lists(walk_memory, e.walk_length);
        const int size = 2 * m.state.pairs;
        double range = 0;  // member 0's
        auto together = [&](auto&& action) {
            gang.gather();
            if (gang.decides()) {
                action();
                gang.release();
            }
            __syncthreads();
        };
        together([&] {
            const PathSlope slope = path_slope(m.state.movable_descent, m.state.gamma, w.work, w.carried, w.k, size);
            range = 2 * max_of(m.state.first_break, -slope.offset / slope.curvature);
            if (!(range > 0)) range = double_infinity;
            for (int c = threadIdx.x; c < size; c += threads) {
                shared.q[c] = w.work[c];
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
                each_chunk([&](int, int64_t begin, int64_t end) { count_bins(v, shared, begin, end); });
                together([&] { choose_bins(shared, e.walk_length, reinterpret_cast<uint32_t*>(m.exchange)); });
            }
            if (*(volatile int32_t*)&shared.tied) {
                each_chunk([&](int chunk, int64_t begin, int64_t end) {
                    sum_ties(v, m.state, shared, block, begin, end, [&](int j, double value) {
                        __stcg(partial(j, chunk), value);
                    });
                });
                together([&] {
                    cross_ties(shared, lists, size);
                    next_range(shared, range);
                });
            } else {
                each_chunk([&](int, int64_t begin, int64_t end) { list_breaks(v, shared, lists, begin, end); });
                together([&] {
                    sort_breaks(lists, int(shared.listed), m.walk.times, m.walk.variables);
                    cross_breaks(v, m.state, block, w.k, shared, lists, m.walk.times, m.walk.variables);
                    next_range(shared, range);
                });
            }
        }
        decide([&] {
            if (threadIdx.x == 0) decide_walk(m.state, shared.held_time, shared.cauchy_time);
        });
    }

    // All variables of one breakpoint at once: L⁻¹ is linear, so one solve serves their sum.
    __device__ void cross_ties(WalkState& shared, const WalkLists& lists, int size) const {
        add_chunks(size + 1, [&](int64_t j, double value) { lists.crossing[j] = value; });
        solve_lower(block, w.k, size, lists.crossing);
        const double time = time_of(shared.high - 1);
        // The minimiser may lie before the ties.
        const PathSlope before = path_slope(shared.moving, m.state.gamma, shared.q, shared.r, w.k, size);
        double t = 0;
        const bool settled = settles(before, shared.from, time, t);
        __syncthreads();
        if (!settled) {
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
};

SW_END

template <class T>
__device__ inline void copy_words(T* to, const T* from) {
    for (int i = threadIdx.x; i < int(sizeof(T) / 4); i += blockDim.x) {
        reinterpret_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
    }
}

// f: the objective's values, float or double, one per problem.
extern "C" __global__ void __launch_bounds__(256, 2) stepwell_turn(const stepwell::Engine* engine, const Real* gradient,
                                                                   const void* f, int f_is_float) {
    using namespace stepwell;
    __shared__ SharedMemory m;
    copy_words(&m.engine, engine);
    __syncthreads();
    const Engine& e = m.engine;
    copy_words(&m.options, e.options);
    __syncthreads();
    const bool blocks = e.gangs_are_blocks;
    const Gang gang{Block{m.reduce}, blocks ? nullptr : e.barrier, blocks ? 0 : int(blockIdx.x),
                    blocks ? 1 : int(gridDim.x)};
    unsigned int running = 0;
    for (int64_t p = blocks ? blockIdx.x : 0; p < e.batch; p += blocks ? gridDim.x : 1) {
        const double value = f_is_float ? double(static_cast<const float*>(f)[p]) : static_cast<const double*>(f)[p];
        Turn turn(e, m, gang, p, blocks ? blockIdx.x : 0, gradient, value);
        turn.run();
        running += m.state.action != Action::done;
        if (p == 0 && gang.decides()) copy_words(e.report, &m.state);
        __syncthreads();
    }
    // The last block to finish tells the host how many problems still run, and that this turn is over.
    if (gang.decides() && threadIdx.x == 0) {
        __threadfence_system();
        atomicAdd(e.counter, running);
        __threadfence();
        const unsigned int last = blocks ? gridDim.x - 1 : 0;
        if (atomicAdd(e.counter + 1, 1u) == last) {
            const unsigned int total = atomicAdd(e.counter, 0u);
            e.counter[0] = e.counter[1] = 0;
            *(volatile unsigned int*)e.running = total;
            __threadfence_system();
        }
    }
}
