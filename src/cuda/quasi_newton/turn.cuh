// One turn of the quasi-Newton iteration by a gang: the phases, sweep by sweep and decision by decision.
#pragma once

#include "cuda/quasi_newton/walking.cuh"

SW_BEGIN

// The scalars of the absorb sweep, behind its sums: five sums, then the largest, then the smallest.
constexpr unsigned int absorb_extrema = 1u << 10 | 2u << 12;
struct AbsorbKinds {
    int first;
    __device__ Fold operator()(int j) const {
        return j < first ? Fold::sum : kind_among(absorb_extrema, j - first);
    }
};
// Those of the aim sweep, before the slope: one sum, two smallest.
constexpr unsigned int aim_extrema = 2u << 2 | 2u << 4;

// One object for all threads of a block, in shared memory: it would be in their local memory otherwise, which
// the sweeps drive from the caches.
class Turn : Walking {
public:
    using Deciding::load_state;

    __device__ Turn(const Engine& e, const Gang& gang, int64_t problem, int64_t slot, double f)
        : Walking(gang, e.states + problem, e.coefficients + slot * 2 * capacity,
                  ChunkSums(gang, e.partials + slot * e.partial_stride, e.chunks, e.sums),
                  scratch_views(small_history ? m.scratch : e.scratch + slot * scratch_length(capacity),
                                capacity),
                  e.walk + slot * e.walk_stride),
          f(f),
          spare(e.partials + (slot + 1) * e.partial_stride - e.sums),
          products(e.small + problem * small_matrices_length(slots)),
          matrices(small_matrices(small_history ? m.products : products, slots)) {}

    // With the state loaded.
    __device__ void run() {
        if (m.state.action == Action::done) return;
        // A state saved between two phases has been judged.
        if (m.state.action == Action::evaluate) {
            if (expects_acceptance(m.state)) {
                absorb<Gather::pair>(true);
            } else {
                slope();
            }
        }
        const bool start = m.state.evaluations == 1;
        if (!m.state.accepted && !start) stay();
        while (m.state.action != Action::evaluate && m.state.action != Action::done) {
            switch (m.state.action) {
                case Action::absorb:
                    if (m.state.iterations == 0) {
                        absorb<Gather::start>(false);
                    } else {
                        absorb<Gather::pair>(false);
                    }
                    break;
#if SW_BOUNDED
                case Action::walk:
                    walk();
                    break;
                case Action::regather:
                    absorb<Gather::again>(false);
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

private:
    double f;
    double *spare, *products;
    SmallMatrices matrices;

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
        decide([&](bool real) {
            if (threadIdx.x < 32) {
                const double found = sums.take_careful(0);
                if (threadIdx.x == 0) judge(real ? found : 0.0);
            }
        });
    }

    // One thread's.
    __device__ __noinline__ void judge(double slope) const { decide_slope(m.state, m.options(), f, slope); }

    // `judging`: the trial point is yet to be accepted. What the sweep leaves then counts only if it is.
    template <Gather gather>
    __device__ void absorb(bool judging) {
        absorb_sweep<gather>();
        conclude_absorb<gather>(judging);
    }

    template <Gather gather>
    __device__ static SumLayout absorb_layout() {
        return sum_layout(m.options(), rows_to_gather(gather, m.state, m.options()));
    }
    // The sums of the sweep, and the numbers behind them.
    template <Gather gather>
    __device__ static int absorb_count(const SumLayout& layout) {
        return layout.length() + (gather == Gather::again ? 0 : 7);
    }

    template <Gather gather>
    __device__ __noinline__ void absorb_sweep() {
        const SumLayout layout = absorb_layout<gather>();
        const int length = layout.length();
        constexpr bool again = gather == Gather::again;
        each_chunk([&](int chunk, const Chunk& c) {
            AbsorbTotals totals;
            absorb_chunk<gather>(m.vectors, m.state, layout, c, m.absorb, m.free_memory(), totals,
                                 sums.place(0, chunk));
            if (again) return;
            const AbsorbScalars& mine = totals.scalars;
            const Numbers numbers{
                {mine.movable_descent, mine.gradient_squared, mine.projected_squared, mine.x_squared,
                 double(totals.held), mine.projected_gradient, mine.first_break},
                7,
                absorb_extrema,
                totals.slope};
            sums.put_folded(length, chunk, numbers, m.free_memory());
        });
        sums.add_up(absorb_count<gather>(layout), AbsorbKinds{length});
    }

    template <Gather gather>
    __device__ __noinline__ void conclude_absorb(bool judging) {
        const SumLayout layout = absorb_layout<gather>();
        const int length = layout.length(), count = absorb_count<gather>(layout);
        constexpr bool again = gather == Gather::again, shares_products = small_history && !again;
        const bool fits = length + 7 <= int(sizeof(m.sums) / sizeof(double));
        double* totals = fits ? m.sums : spare;
        decide_after(
            [&] {
                if (shares_products && gang.decides()) load_products();
                sums.collect(
                    count, AbsorbKinds{length}, [&](int j, double value) { totals[j] = value; },
                    [&] {
                        if (!judging || gang.block.row() != warps - 1) return;
                        const double slope = sums.take_careful(length + 7);
                        if (gang.block.lane() == 0) m.scalars[0] = slope;
                    });
            },
            [&](bool real) {
                if (!real) {
                    if (!small_history) return;
                    if (shares_products) load_products();
                    // The sums of the turn before, put aside below.
                    SW_ROLLED
                    for (int j = threadIdx.x; j < count; j += threads) totals[j] = __ldcg(spare + j);
                    __syncthreads();
                }
                if (judging) {
                    if (threadIdx.x == 0) judge(real ? m.scalars[0] : 0.0);
                    __syncthreads();
                    if (m.state.action != Action::absorb) return;
                }
                const double* scalars = totals + length;
                const AbsorbScalars found =
                    again ? AbsorbScalars{} : AbsorbScalars{scalars[0], scalars[1], scalars[2], scalars[3],
                                                            scalars[5], scalars[6], scalars[4]};
                if constexpr (small_history) {
                    decide_absorbed(Square{}, again, found, layout, totals);
                } else {
                    decide_absorbed(gang.block, again, found, layout, totals);
                }
                if (!real) return;
                if (small_history) {
                    SW_ROLLED
                    for (int i = threadIdx.x; i < shared_products; i += threads)
                        __stcg(products + i, m.products[i]);
                }
                if (gang.barrier) publish_coefficients();
            });
        if (small_history && gang.only_decides()) {
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
            __stcg(shared_coefficients + j, w.coefficients[j]);
    }

    __device__ void aim() {
        aim_sweep();
        conclude_aim();
    }

    // (Part of the kernel: as a function of its own it would have fewer registers for its loads.)
    __device__ void aim_sweep() {
        const int r = m.state.pairs;
        const Vectors v = m.vectors;
        const ChunkSums sums = this->sums;
        const double* coefficients = gang.decides() ? w.coefficients : m.received_coefficients();
        __syncthreads();
        SW_ROLLED
        for (int a = threadIdx.x; a < capacity; a += threads) {
            m.plan.offsets[a] = int64_t(slot_of(a < r ? a : 0, m.state.head, r, slots)) * v.stride;
            m.plan.y[a] = a < r ? coefficients[a] : 0.0;
            m.plan.s[a] = a < r ? coefficients[r + a] : 0.0;
        }
        __syncthreads();
        each_chunk([&](int chunk, const Chunk& c) {
            AimScalars mine{0, 0, double_infinity, double_infinity};
            CarefulSum slope;
            aim_chunk(v, m.state, m.plan, c, slope, mine);
            const Numbers numbers{
                {mine.direction_squared, mine.step_limit, mine.truncation}, 3, aim_extrema, slope};
            sums.put_folded(0, chunk, numbers, m.free_memory());
        });
    }

    __device__ __noinline__ void conclude_aim() {
        const ChunkSums sums = this->sums;
        decide([&](bool real) {
            SW_ROLLED
            for (int k = gang.block.row(); k < 4; k += warps) {
                const double found =
                    k == 0 ? sums.take_careful(3) : sums.take_one(k - 1, k == 1 ? Fold::sum : Fold::least);
                if (gang.block.lane() == 0) m.scalars[k] = real ? found : k == 0 ? -1.0 : 1.0;
            }
            __syncthreads();
            if (threadIdx.x == 0) {
                decide_aim(m.state, m.options(),
                           AimScalars{m.scalars[0], m.scalars[1], m.scalars[2], m.scalars[3]});
            }
        });
        stay();
    }

    __device__ __noinline__ void step() {
        each_chunk([&](int, const Chunk& c) { step_chunk(m.vectors, m.state.search.step, c); });
        decide([&](bool) {
            if (threadIdx.x == 0) m.state.action = Action::evaluate;
        });
    }
};

SW_END
