// One turn of the quasi-Newton iteration on the GPU: one evaluation in, the next trial point out, in one
// launch. The grid (or, for small problems, each block) goes through the same sweeps and decisions as the
// host: src/core decides.
#include "cuda/deciding.cuh"
#include "cuda/sums.cuh"
#include "cuda/walk.cuh"

SW_BEGIN

// The scalars of the absorb sweep, behind its sums: five sums, then the largest, then the smallest.
struct AbsorbKinds {
    int first;
    __device__ Fold operator()(int j) const {
        return j == first + 5 ? Fold::most : j == first + 6 ? Fold::least : Fold::sum;
    }
};
// Those of the aim sweep beside the slope: one sum, two smallest.
struct AimKinds {
    __device__ Fold operator()(int j) const { return j == 0 ? Fold::sum : Fold::least; }
};

class Turn : Deciding {
public:
    __device__ Turn(const Engine& e, const Gang& gang, int64_t problem, int64_t slot, const Real* gradient,
                    double f)
        : Deciding(gang, e.states + problem),
          e(e),
          block(gang.block),
          v(vectors_of(e, problem)),
          gradient(gradient + problem * e.n),
          f(f),
          sums(gang, e.partials + slot * e.partial_stride, e.chunks, e.sums),
          spare(e.partials + (slot + 1) * e.partial_stride - e.sums),
          coefficients(e.coefficients + slot * 2 * capacity),
          walk_memory(e.walk + slot * e.walk_stride),
          products(e.small + problem * small_matrices_length(capacity)),
          matrices(small_matrices(small_history ? m.products : products, capacity)),
          w(scratch_views(small_history ? m.scratch : e.scratch + slot * scratch_length(capacity),
                          capacity)) {}

    __device__ void run() {
        load_state();
        if (m.state.action == Action::done) return;
        slope();
        while (m.state.action != Action::evaluate && m.state.action != Action::done) {
            switch (m.state.action) {
                case Action::absorb:
                    if (m.state.iterations == 0) {
                        absorb<Gather::start>();
                    } else {
                        absorb<Gather::pair>();
                    }
                    break;
#if SW_BOUNDED
                case Action::walk:
                    walk();
                    break;
                case Action::regather:
                    absorb<Gather::again>();
                    break;
#endif
                case Action::aim:
                    aim();
                    break;
                default:
                    step();
            }
        }
        if (m.state.action == Action::done) {
            each_chunk([&](int, const Chunk& c) {
                c.each_element([&](int64_t i) {
                    if (m.state.started) {
                        v.trial[i] = v.x[i];
                    } else {
                        // Not finite at the start: that point is all there is.
                        v.x[i] = v.trial[i];
                        v.g[i] = gradient[i];
                    }
                });
            });
        }
    }

private:
    const Engine& e;
    const Block& block;
    const Vectors v;
    const Real* gradient;
    const double f;
    const ChunkSums sums;
    double *spare, *coefficients, *walk_memory, *products;
    const SmallMatrices matrices;
    const Scratch w;

    template <class Work>
    __device__ void each_chunk(const Work& work) const {
        if (gang.only_decides()) return;
        for (int chunk = gang.first_chunk(); chunk < e.chunks; chunk += gang.workers()) {
            work(chunk, Chunk{int64_t(chunk) * span, int64_t(e.chunks) * span, e.n});
        }
    }

    // (Copies of members, here and below: in registers, not behind `this`.)
    __device__ __noinline__ void slope() {
        const ChunkSums sums = this->sums;
        const Vectors v = this->v;
        each_chunk([&](int chunk, const Chunk& c) {
            sums.put_careful(0, chunk, slope_chunk(v, gradient, c), m.exchange);
        });
        decide([&](bool real) {
            if (threadIdx.x < 32) {
                const double found = sums.take_careful(0);
                if (threadIdx.x == 0) decide_slope(m.state, m.options(), f, real ? found : 0.0);
            }
        });
    }

    template <Gather gather>
    __device__ __noinline__ void absorb() {
        const int rows = gather == Gather::again ? m.state.pairs : rows_to_absorb(m.state, m.options());
        const SumLayout layout = sum_layout(m.options(), rows);
        const int length = layout.length();
        const Vectors v = this->v;
        const ChunkSums sums = this->sums;
        constexpr bool again = gather == Gather::again;
        each_chunk([&](int chunk, const Chunk& c) {
            AbsorbScalars mine{0, 0, 0, 0, 0, double_infinity, 0};
            absorb_chunk<gather>(v, m.state, layout, gradient, c, m.absorb, m.exchange, mine,
                                 [&](int j, double value) { sums.put(j, chunk, value); });
            if (again) return;
            const double values[7] = {mine.movable_descent,
                                      mine.gradient_squared,
                                      mine.projected_squared,
                                      mine.x_squared,
                                      mine.held,
                                      mine.projected_gradient,
                                      mine.first_break};
            sums.put_folded(length, chunk, values, AbsorbKinds{0}, m.exchange);
        });
        constexpr bool shares_products = small_history && !again;
        const bool fits = length + 7 <= int(sizeof(m.sums) / sizeof(double));
        double* totals = fits ? m.sums : spare;
        const int count = again ? length : length + 7;
        decide_after(
            [&] {
                if (shares_products && gang.decides()) load_products();
                sums.gather(count, AbsorbKinds{length}, [&](int j, double value) { totals[j] = value; });
            },
            [&](bool real) {
                if (!real) {
                    if (!small_history) return;
                    if (shares_products) load_products();
                    // The sums of the turn before, put aside below.
                    if (fits) {
                        SW_ROLLED
                        for (int j = threadIdx.x; j < count; j += threads) totals[j] = __ldcg(spare + j);
                    }
                    __syncthreads();
                }
                const double* scalars = totals + length;
                const AbsorbScalars found =
                    again ? AbsorbScalars{} : AbsorbScalars{scalars[0], scalars[1], scalars[2], scalars[3],
                                                            scalars[5], scalars[6], scalars[4]};
                if (small_history) {
                    decide_absorbed(Square{}, again, found, layout, totals);
                } else {
                    decide_absorbed(block, again, found, layout, totals);
                }
                if (!real) return;
                if (small_history) {
                    SW_ROLLED
                    for (int i = threadIdx.x; i < shared_products; i += threads)
                        __stcg(products + i, m.products[i]);
                }
                publish_coefficients();
            });
        if (gang.only_decides() && fits) {
            SW_ROLLED
            for (int j = threadIdx.x; j < count; j += threads) __stcg(spare + j, totals[j]);
        }
    }

    __device__ void load_products() const {
        SW_ROLLED
        for (int i = threadIdx.x; i < shared_products; i += threads) m.products[i] = __ldcg(products + i);
    }

    template <class Team>
    __device__ void decide_absorbed(Team team, bool again, const AbsorbScalars& scalars,
                                    const SumLayout& layout, const double* sums) {
        if (again) {
            decide_regather(team, m.state, matrices, w, layout, sums);
        } else {
            decide_absorb(team, m.state, m.options(), matrices, w, scalars, layout, sums);
        }
    }

    __device__ void publish_coefficients() const {
        SW_ROLLED
        for (int j = threadIdx.x; j < 2 * m.state.pairs; j += threads)
            __stcg(coefficients + j, w.coefficients[j]);
    }

    __device__ __noinline__ void aim() {
        const int r = m.state.pairs;
        const Vectors v = this->v;
        const ChunkSums sums = this->sums;
        __syncthreads();
        SW_ROLLED
        for (int a = threadIdx.x; a < r; a += threads) {
            m.plan.offsets[a] = int64_t(slot_of(a, m.state.head, r, capacity)) * v.stride;
            m.plan.y[a] = __ldcg(coefficients + a);
            m.plan.s[a] = __ldcg(coefficients + r + a);
        }
        __syncthreads();
        each_chunk([&](int chunk, const Chunk& c) {
            AimScalars mine{0, 0, double_infinity, double_infinity};
            CarefulSum slope;
            aim_chunk(v, m.state, m.plan, c, slope, mine);
            sums.put_careful(0, chunk, slope, m.exchange);
            __syncthreads();
            const double values[3] = {mine.direction_squared, mine.step_limit, mine.truncation};
            sums.put_folded(2, chunk, values, AimKinds{}, m.exchange);
        });
        decide([&](bool real) {
            SW_ROLLED
            for (int k = block.row(); k < 4; k += warps) {
                const double found = k == 0 ? sums.take_careful(0) : sums.take_one(1 + k, AimKinds{}(k - 1));
                if (block.lane() == 0) m.scalars[k] = real ? found : k == 0 ? -1.0 : 1.0;
            }
            __syncthreads();
            if (threadIdx.x == 0) {
                decide_aim(m.state, m.options(),
                           AimScalars{m.scalars[0], m.scalars[1], m.scalars[2], m.scalars[3]});
            }
        });
    }

    __device__ __noinline__ void step() {
        each_chunk([&](int, const Chunk& c) { step_chunk(v, m.state.search.step, c); });
        decide([&](bool) {
            if (threadIdx.x == 0) m.state.action = Action::evaluate;
        });
    }

#if SW_BOUNDED
    __device__ __noinline__ void walk() {
        WalkState& shared = *reinterpret_cast<WalkState*>(walk_memory);
        const WalkLists lists = walk_lists(walk_memory, e.walk_length);
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
                each_chunk([&](int, const Chunk& c) { count_bins(v, shared, c); });
                together(
                    [&] { choose_bins(shared, e.walk_length, reinterpret_cast<uint32_t*>(m.exchange)); });
            }
            if (*(volatile int32_t*)&shared.tied) {
                each_chunk([&](int chunk, const Chunk& c) {
                    sum_ties(v, m.state, shared, block, c,
                             [&](int j, double value) { sums.put(j, chunk, value); });
                });
                sums.gather(size + 1, AllSums{}, [&](int j, double value) { lists.crossing[j] = value; });
                lead([&] {
                    cross_ties(shared, lists, size);
                    next_range(shared, range);
                });
            } else {
                each_chunk([&](int, const Chunk& c) { list_breaks(v, shared, lists, c); });
                together([&] {
                    sort_breaks(lists, int(shared.listed), m.walk.times, m.walk.variables);
                    cross_breaks(v, m.state, block, w.k, shared, lists, m.walk.times, m.walk.variables);
                    next_range(shared, range);
                });
            }
        }
        decide([&](bool) {
            if (threadIdx.x == 0) decide_walk(m.state, shared.held_time, shared.cauchy_time);
        });
    }

    // All variables of one breakpoint at once: L⁻¹ is linear, so one solve serves their sum.
    __device__ void cross_ties(WalkState& shared, const WalkLists& lists, int size) const {
        solve_lower(block, w.k, size, lists.crossing);
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

template <class T>
__device__ inline void copy_words(T* to, const T* from) {
    SW_ROLLED
    for (int i = threadIdx.x; i < int(sizeof(T) / 4); i += threads) {
        reinterpret_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
    }
}

SW_END

// f: the objective's values, float or double, one per problem.
extern "C" __global__ void __launch_bounds__(stepwell::threads, stepwell::lone_warp ? 16 : 2)
    stepwell_turn(const stepwell::Engine* engine, const Real* gradient, const void* f, int f_is_float) {
    using namespace stepwell;
    copy_words(&m.engine, engine);
    __syncthreads();
    const Engine& e = m.engine;
    copy_words(&m.options(), e.options);
    __syncthreads();
    const bool blocks = e.gangs_are_blocks;
    const Gang gang{Block{m.reduce}, blocks ? nullptr : e.barrier, blocks ? 0 : int(blockIdx.x),
                    blocks ? 1 : int(gridDim.x)};
    unsigned int running = 0;
    SW_ROLLED
    for (int64_t p = blocks ? blockIdx.x : 0; p < e.batch; p += blocks ? gridDim.x : 1) {
        const double value =
            f_is_float ? double(static_cast<const float*>(f)[p]) : static_cast<const double*>(f)[p];
        Turn turn(e, gang, p, blocks ? blockIdx.x : 0, gradient, value);
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
