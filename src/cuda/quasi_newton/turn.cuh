// One turn of the quasi-Newton iteration by a thread group: the phases, sweep by sweep and decision by
// decision.
#pragma once

#include "cuda/quasi_newton/cauchy_phases.cuh"
#include "cuda/quasi_newton/numbers.cuh"

SW_BEGIN

// One object for all threads of a block, in shared memory: it would be in their local memory otherwise, which
// the sweeps drive from the caches.
class Turn : public CauchyPhases {
public:
    using DecisionBroadcast::load_state;

    __device__ Turn(const Engine& e, const ThreadGroup& thread_group, int64_t problem, int64_t slot, double f)
        : CauchyPhases(thread_group, e.states + problem, e.coefficients + slot * 2 * capacity,
                       chunk_sums(e, thread_group, slot),
                       small_history ? m.scratch()
                                     : scratch_views(e.scratch + slot * scratch_length(capacity), capacity),
                       e.walk + slot * e.walk_stride),
          f(f),
          spare(e.partials + (slot + 1) * e.partial_stride - e.sums),
          products(e.small + problem * small_matrices_length(slots)),
          matrices(small_matrices(small_history ? m.products : products, slots)) {
        // Loads of it whose numbers nobody uses have to go somewhere.
        if (small_history && !keeps_yy) matrices.yy = m.products;
    }

    // With the state loaded. Only a diagonal that varies is asked for between two parts of a turn.
    __device__ void run(TurnPart part) {
        if (m.state.action == Action::done) return;
        if (SW_WEIGHTS_VARY && part == TurnPart::finish && m.state.action == Action::evaluate) return;
        // A state saved between two phases has been judged.
        if (m.state.action == Action::evaluate) {
            if (expects_acceptance(m.state) && !(SW_WEIGHTS_VARY && part == TurnPart::begin)) {
                absorb_by<Gather::pair>(true);
            } else {
                slope();
            }
        }
        if (SW_WEIGHTS_VARY && part == TurnPart::begin && m.state.action == Action::absorb) return;
        const bool start = m.state.evaluations == 1;
        if (!m.state.accepted && !start) stay();
        run_actions(*this);
        if (m.state.action == Action::done) {
            const Vectors& v = m.vectors;
            each_chunk([&](int, const Chunk& c) {
                c.each_element([&](int64_t i) {
                    if (v.at_trial()) {
                        v.x[i] = v.at[i];
                        v.g[i] = v.gradient[i];
                    } else {
                        v.trial[i] = v.x[i];
                    }
                });
            });
        }
    }

    __device__ void absorb() {
        if (m.state.iterations == 0) {
            absorb_by<Gather::start>(false);
        } else {
            absorb_by<Gather::pair>(false);
        }
    }
    __device__ void regather() { absorb_by<Gather::again>(false); }
    __device__ void aim() {
        aim_sweep();
        conclude_aim();
    }
    __device__ __noinline__ void step() {
        each_chunk([&](int, const Chunk& c) { step_chunk(m.vectors, m.state.search.step, c); });
        decide([](bool) {},
               [&](bool) {
                   if (threadIdx.x == 0) m.state.action = Action::evaluate;
               });
    }

private:
    double f;
    double *spare, *products;
    SmallMatrices matrices;

    // A warp that has a problem of one chunk to itself finds its sums where decisions look for them.
    __device__ static ChunkSums chunk_sums(const Engine& e, const ThreadGroup& thread_group, int64_t slot) {
        const bool here = lone_warp && !thread_group.barrier && e.chunks == 1;
        return ChunkSums(thread_group, here ? m.sums : e.partials + slot * e.partial_stride, e.chunks, e.sums,
                         here);
    }

    // The sweeps work at the accepted point: the trial point was refused, or has become it.
    __device__ void stay() {
        if (threadIdx.x == 0) {
            m.vectors.at = m.vectors.x;
            m.vectors.gradient = m.vectors.g;
        }
        __syncthreads();
    }

    // (Copies, here and below: in registers. The absorb sweep has none to spare.)
    __device__ __noinline__ void slope() {
        const ChunkSums sums = this->sums;
        const Vectors v = m.vectors;
        each_chunk([&](int chunk, const Chunk& c) {
            sums.put_folded(0, chunk, Numbers{{}, 0, 0, slope_chunk(v, c)}, m.free_memory());
        });
        decide(
            [&](bool real) {
                if (threadIdx.x >= 32) return;
                const double found = sums.take_careful(0);
                if (threadIdx.x == 0) m.totals[0] = real ? found : 0.0;
            },
            [&](bool) {
                if (threadIdx.x == 0) judge(m.totals[0]);
            });
    }

    // One thread's.
    __device__ __noinline__ void judge(double slope) const { decide_slope(m.state, m.options(), f, slope); }

    // `judging`: the trial point is yet to be accepted. What the sweep leaves then counts only if it is.
    template <Gather gather>
    __device__ void absorb_by(bool judging) {
        if (lone_warp && gather != Gather::again && thread_group.decides()) fetch_products();
        absorb_sweep<gather>();
        conclude_absorb(gather, judging);
    }

    __device__ static SumLayout absorb_layout(Gather gather) {
        return sum_layout(m.options(), rows_to_gather(gather, m.state, m.options()));
    }
    // The sums of the sweep, and the numbers behind them.
    __device__ static int absorb_count(Gather gather, const SumLayout& layout) {
        return layout.length() + (gather == Gather::again ? 0 : AbsorbTotals::count);
    }

    template <Gather gather>
    __device__ __noinline__ void absorb_sweep() {
        const SumLayout layout = absorb_layout(gather);
        const int length = layout.length();
        constexpr bool again = gather == Gather::again;
        each_chunk([&](int chunk, const Chunk& c) {
            AbsorbShare totals;
            absorb_chunk<gather>(m.vectors, m.state, layout, c, m.absorb, m.plan.offsets, m.free_memory(),
                                 totals, sums.place(0, chunk));
            if (again) return;
            sums.put_folded(length, chunk, numbers_of(totals), m.free_memory());
        });
        sums.add_up(absorb_count(gather, layout), AbsorbKinds{length});
    }

    __device__ __noinline__ void conclude_absorb(Gather gather, bool judging) {
        const SumLayout layout = absorb_layout(gather);
        const int length = layout.length(), count = absorb_count(gather, layout);
        const bool again = gather == Gather::again, shares_products = small_history && !again;
        const bool fits = length + chunk_numbers <= int(sizeof(m.sums) / sizeof(double));
        double* totals = fits ? m.sums : spare;
        decide_after(
            [&] {
                if (shares_products && thread_group.decides()) load_products();
                sums.await_all();
            },
            [&](bool real) {
                if (real) {
                    // (Products of rows that are here already are as they should be.)
                    sums.take(
                        count, AbsorbKinds{length}, [&](int j, double value) { totals[j] = value; },
                        sums.are_here() ? length : 0);
                    if (!judging || thread_group.block.row() != warps - 1) return;
                    const double slope = sums.take_careful(length + AbsorbTotals::count);
                    if (thread_group.block.lane() == 0) m.totals[0] = slope;
                } else if (small_history) {
                    if (shares_products) load_products();
                    // The sums of the turn before, put aside below.
                    SW_ROLLED
                    for (int j = threadIdx.x; j < count; j += threads) totals[j] = __ldcg(spare + j);
                    if (threadIdx.x == 0) m.totals[0] = 0;
                }
            },
            [&](bool real) {
                if (!real && !small_history) return;
                if (judging) {
                    if (threadIdx.x == 0) judge(m.totals[0]);
                    __syncthreads();
                    if (m.state.action != Action::absorb) return;
                }
                const AbsorbTotals found = again ? AbsorbTotals{} : AbsorbTotals::of(totals + length);
                if constexpr (small_history) {
                    decide_absorbed(Square{}, again, found, layout, totals);
                } else {
                    decide_absorbed(thread_group.block, again, found, layout, totals);
                }
                if (!real) return;
                if (small_history) {
                    SW_ROLLED
                    for (int i = threadIdx.x; i < shared_products; i += threads)
                        __stcg(products + i, m.products[i]);
                }
                if (thread_group.barrier) publish_coefficients();
                clear_walk(true);
            });
        if (small_history && thread_group.only_decides()) {
            SW_ROLLED
            for (int j = threadIdx.x; j < count; j += threads) __stcg(spare + j, totals[j]);
        }
    }

    __device__ void load_products() const {
        if (lone_warp) {
            await_copies<0>();
            return;
        }
        SW_ROLLED
        for (int i = threadIdx.x; i < shared_products; i += threads) m.products[i] = __ldcg(products + i);
    }
    // One warp has them brought while it sweeps.
    __device__ void fetch_products() const {
        begin_copies();
#pragma unroll
        for (int k = 0; k < (int(shared_products) + threads - 1) / threads; ++k) {
            const int i = int(threadIdx.x) + k * threads;
            if (i < shared_products) copy_async<sizeof(double)>(StagePlace(m.products + i), products + i);
        }
        commit_copies();
    }

    template <class Team>
    __device__ void decide_absorbed(Team team, bool again, const AbsorbTotals& scalars,
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
            __stcg(shared_coefficients + j, w.coefficients[j]);
    }

    // (Part of the kernel: as a function of its own it would have fewer registers for its loads.)
    __device__ void aim_sweep() {
        // (A warp that is alone has its registers for the rows of the history.)
        const typename Choice<lone_warp, const Vectors&, Vectors>::type v = m.vectors;
        const typename Choice<lone_warp, const ChunkSums&, ChunkSums>::type sums = this->sums;
        const double* coefficients = thread_group.decides() ? w.coefficients : m.received_coefficients();
        __syncthreads();
        make_plan(m.plan, m.state, v.stride, coefficients);
        __syncthreads();
        each_chunk([&](int chunk, const Chunk& c) {
            AimTotals mine;
            CarefulSum slope;
            aim_chunk(v, m.state, m.plan, c, slope, mine);
            sums.put_folded(0, chunk, numbers_of(mine, slope), m.free_memory());
        });
    }

    __device__ __noinline__ void conclude_aim() {
        const ChunkSums sums = this->sums;
        decide(
            [&](bool real) {
                SW_ROLLED
                for (int k = thread_group.block.row(); k < 4; k += warps) {
                    const double found =
                        k == 0 ? sums.take_careful(3) : sums.take_one(k - 1, k == 1 ? Fold::sum : Fold::min);
                    if (thread_group.block.lane() == 0) m.totals[k] = real ? found : k == 0 ? -1.0 : 1.0;
                }
            },
            [&](bool) {
                if (threadIdx.x == 0) decide_aim(m.state, m.options(), AimTotals::of(m.totals));
            });
        stay();
    }
};

SW_END
