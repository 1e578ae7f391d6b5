// The aim sweep (second read of the history), the slope sweep and the step sweep on one chunk.
#pragma once

#include "cuda/quasi_newton/staging.cuh"

SW_BEGIN

__device__ inline CarefulSum slope_chunk(const Vectors& v, const Chunk& c) {
    constexpr int at_once = 8;  // loads on their way before the first is used
    CarefulSum sum;
#pragma unroll 1
    for (int place = threadIdx.x; !c.ends<1>(place); place += at_once * threads) {
        Real g[at_once], d[at_once];
#pragma unroll
        for (int k = 0; k < at_once; ++k) {
            const Index i = c.element<1>(place + k * threads);
            g[k] = i < c.n ? __ldcg(v.gradient + i) : Real(0);
            d[k] = i < c.n ? __ldcg(v.d + i) : Real(0);
        }
#pragma unroll
        for (int k = 0; k < at_once; ++k) add_product(sum, g[k], d[k]);
    }
    return sum;
}

__device__ inline void step_chunk(const Vectors& v, double step, const Chunk& c) {
    c.each_element([&](int64_t i) {
        const double move = step * double(v.d[i]);
        v.trial[i] =
            bounded ? move_within(v.x[i], move, v.lower_of(i), v.upper_of(i)) : Real(double(v.x[i]) + move);
    });
}

using HistoryPack = PackOf<Kept>;

// What is needed of the history is known by the inputs of a pack, which are therefore read before: into
// registers a pack before; or through shared memory, where registers are short or the way is: with a narrow
// history two packs before, else one.
enum class Ahead { none, registers, one_pack, two_packs };
constexpr Ahead ahead = !bounded || !staged ? Ahead::none
                        : !packs_staged     ? Ahead::one_pack
                        : narrowed          ? Ahead::two_packs
                                            : Ahead::registers;
constexpr bool ahead_shared = ahead == Ahead::one_pack || ahead == Ahead::two_packs;

// What the sweep reads of a pack besides the history.
struct AimInput {
    static constexpr int rows = weight_row - 2 + weighted;
    Pack x = {}, g = {}, lower = {}, upper = {}, weight = {};

    __device__ AimInput(const Vectors& v, const BoundNumbers& numbers, Index i, int count) {
        x = v.some(v.at + i, count);
        g = v.some(v.gradient + i, count);
        if (bounded) {
            lower = lower_step ? v.some(v.lower + i, count) : all_of(numbers.lower);
            upper = upper_step ? v.some(v.upper + i, count) : all_of(numbers.upper);
        }
        if (weighted) weight = v.some(v.weights + i, count);
    }

    // Whether the history counts: not where all variables are held.
    __device__ bool moves(int count) const {
        if (!bounded) return true;
        bool found = false;
#pragma unroll
        for (int k = 0; k < pack_length; ++k) {
            const bool held =
                is_held(double(x.of[k]), double(g.of[k]), double(lower.of[k]), double(upper.of[k]));
            found |= k < count && !held;
        }
        return found;
    }

    // The same on its way through shared memory, where a thread has a place of its own, or two.
    __device__ static void fetch(const Vectors& v, Index i, int count, int which) {
        begin_copies();
        const bool whole = v.in_packs && count == pack_length;
        const auto copy = [&](int row, const Real* from) {
            Real* to = place(which, row)->of;
            if (whole) {
                copy_async<sizeof(Pack)>(StagePlace(to), from + i);
                return;
            }
#pragma unroll
            for (int k = 0; k < pack_length; ++k) {
                if (k < count) copy_element(to + k, from + i + k);
            }
        };
        copy(0, v.at);
        copy(1, v.gradient);
        if (lower_step) copy(2, v.lower);
        if (upper_step) copy(upper_row - 2, v.upper);
        if (weighted) copy(weight_row - 2, v.weights);
        commit_copies();
    }
    // What has arrived there.
    __device__ void take(const BoundNumbers& numbers, int which) {
        x = *place(which, 0);
        g = *place(which, 1);
        lower = lower_step ? *place(which, 2) : all_of(numbers.lower);
        upper = upper_step ? *place(which, upper_row - 2) : all_of(numbers.upper);
        if (weighted) weight = *place(which, weight_row - 2);
    }

private:
    static constexpr int begin = packs_staged ? 2 * capacity * threads * int(sizeof(HistoryPack)) : 0;
    static_assert(!ahead_shared ||
                  begin + (packs_staged ? 2 : 1) * rows * threads * int(sizeof(Pack)) <= staged_bytes);

    __device__ static Pack* place(int which, int row) {
        return reinterpret_cast<Pack*>(dynamic_shared + begin) + (which * rows + row) * threads + threadIdx.x;
    }
    __device__ static Pack all_of(Real value) {
        Pack found;
#pragma unroll
        for (int k = 0; k < pack_length; ++k) found.of[k] = value;
        return found;
    }
};

// Element k of a pack; adds what the decision needs.
__device__ inline Aimed aim_element(const State& state, const AimInput& in, int k, double toward_y,
                                    double toward_s, CarefulSum& slope, AimTotals& sums) {
    const double x = in.x.of[k], g = in.g.of[k];
    const double h = weighted ? double(in.weight.of[k]) : 1.0;
    const double descent = h * g;
    double step = -state.gamma * h * (g + toward_y) - toward_s;
    double goal = x + step;
    const double lower = in.lower.of[k], upper = in.upper.of[k];
    if (bounded) {
        const AimRule rule = aim_rule(state);
        if (rule.confine == Confine::measure) {
            sums.truncation =
                min_of(sums.truncation, feasible_fraction(rule, x, g, descent, goal, lower, upper));
            return {};
        }
        const Aimed aimed = aim_variable(rule, x, g, descent, goal, step, lower, upper);
        goal = aimed.goal;
        step = aimed.step;
    }
    step = double(Real(step));  // as stored
    if (bounded) sums.step_limit = min_of(sums.step_limit, feasible_multiple<double>(x, step, lower, upper));
    add_product(slope, g, step);
    sums.direction_squared += step * step;
    return {goal, step};
}

// How the rows of the history are combined, in shared memory: where they lie in the ring, and the
// coefficients of y and s, in order of age; behind the last pair there is the first again, times zero.
struct AimPlan {
    int64_t offsets[capacity];
    double y[capacity], s[capacity];
};

// Σ coefficient · row at the elements of a pack.
struct Combined {
    double y[pack_length] = {}, s[pack_length] = {};
};
__device__ inline void add_multiple(double (&sum)[pack_length], double coefficient, const HistoryPack& row) {
#pragma unroll
    for (int k = 0; k < pack_length; ++k) sum[k] += coefficient * double(widened(row.of[k]));
}

// A thread's packs straight from global memory: up to ten pairs are all on their way before the first is
// used.
class DirectPacks {
public:
    __device__ DirectPacks(const Vectors& v, const AimPlan& plan, int r, Index) : v(v), plan(plan), r(r) {}

    __device__ void begin(Index, bool) const {}
    template <class Next>
    __device__ void take(Index i, bool needed, Index, const Next&, Combined& toward) const {
        if (!needed) return;
        constexpr int group = capacity <= 10 ? capacity : 8;
        int a = 0;
#pragma unroll 1
        for (; a + group <= r; a += group) {
            HistoryPack y[group], s[group];
#pragma unroll
            for (int k = 0; k < group; ++k) {
                y[k] = stream_pack(v.y + plan.offsets[a + k] + i);
                s[k] = stream_pack(v.s + plan.offsets[a + k] + i);
            }
#pragma unroll
            for (int k = 0; k < group; ++k) {
                add_multiple(toward.y, plan.y[a + k], y[k]);
                add_multiple(toward.s, plan.s[a + k], s[k]);
            }
        }
#pragma unroll 1
        for (; a < r; ++a) {
            const HistoryPack y = stream_pack(v.y + plan.offsets[a] + i);
            const HistoryPack s = stream_pack(v.s + plan.offsets[a] + i);
            add_multiple(toward.y, plan.y[a], y);
            add_multiple(toward.s, plan.s[a], s);
        }
    }

private:
    const Vectors& v;
    const AimPlan& plan;
    const int r;
};

// Packs on their way through shared memory: those of Y and those of S take turns, so that one half of the
// next pack is fetched while the other half of this one is worked on. A thread fetches what it uses itself,
// and waits for nobody. Where all variables of a pack are held, nothing is fetched.
class StagedPacks {
public:
    // `end` of the chunk: beyond it nothing is fetched, which would still be on its way when the memory has
    // other uses.
    __device__ StagedPacks(const Vectors& v, const AimPlan& plan, int r, Index end)
        : v(v),
          plan(plan),
          end(r > 0 ? end : 0),
          mine(reinterpret_cast<HistoryPack*>(dynamic_shared) + threadIdx.x) {}

    // Before the first pack.
    __device__ void begin(Index i, bool needed) const {
        fetch(i, needed, 0);
        fetch(i, needed, capacity);
    }
    // Takes the pack at i; the one at `following` is begun, if next() says that it is needed.
    template <class Next>
    __device__ void take(Index, bool needed, Index following, const Next& next, Combined& toward) const {
        add_rows(toward.y, plan.y, needed, 0);
        const bool needs = next();
        fetch(following, needs, 0);
        add_rows(toward.s, plan.s, needed, capacity);
        fetch(following, needs, capacity);
    }

private:
    const Vectors& v;
    const AimPlan& plan;
    const Index end;
    HistoryPack* const mine;  // the next one of this thread is a block's further

    // One half: `first` is 0 for Y, and the number of rows before them for S.
    __device__ void fetch(Index i, bool needed, int first) const {
        begin_copies();
        if (i < end && needed) {
            const Kept* from = (first ? v.s : v.y) + i;
            StagePlace to(mine);
            to.settle();
#pragma unroll
            for (int a = 0; a < capacity; ++a)
                copy_kept<sizeof(HistoryPack)>(to.after((first + a) * threads * int(sizeof(HistoryPack))),
                                               from + plan.offsets[a]);
        }
        commit_copies();
    }
    __device__ void add_rows(double (&sum)[pack_length], const double* coefficients, bool needed,
                             int first) const {
        await_copies<ahead == Ahead::two_packs ? 2 : 1>();  // the other half, and inputs
        if (end == 0 || !needed) return;
#pragma unroll
        for (int a = 0; a < capacity; ++a) add_multiple(sum, coefficients[a], mine[(first + a) * threads]);
    }
};

using Packs = Choice<packs_staged, StagedPacks, DirectPacks>::type;

// The point that the sweep aims from becomes the accepted one.
__device__ inline void aim_chunk(const Vectors& v, const State& state, const AimPlan& plan, const Chunk& c,
                                 CarefulSum& slope, AimTotals& sums) {
    const BoundNumbers numbers(v);
    const Packs packs(v, plan, state.pairs, c.n);
    // Of the elements of a pack: how many there are, none beyond the end.
    const auto count_at = [&](Index i) { return int(clamp_to(c.n - i, Index(0), Index(pack_length))); };
    int place = threadIdx.x;
    Index i = c.element<pack_length>(place), following;
    AimInput in(v, numbers, i, ahead == Ahead::registers ? count_at(i) : 0);
    bool needed = true;
    if (ahead_shared) AimInput::fetch(v, i, count_at(i), 0);
    if (ahead == Ahead::two_packs) {
        following = c.element<pack_length>(place + threads);
        AimInput::fetch(v, following, count_at(following), 1);
        await_copies<1>();
        in.take(numbers, 0);
    }
    if (ahead == Ahead::registers || ahead == Ahead::two_packs) needed = in.moves(count_at(i));
    packs.begin(i, needed);
    int which = 0;
#pragma unroll 1
    for (; !c.ends<pack_length>(place); i = following) {
        place += threads;
        following = c.element<pack_length>(place);
        if (i >= c.n) continue;
        const int count = count_at(i), coming = count_at(following);
        AimInput next(v, numbers, ahead == Ahead::registers ? following : i,
                      ahead == Ahead::registers ? coming
                      : ahead == Ahead::none    ? count
                                                : 0);
        if (ahead == Ahead::none) in = next;
        if (ahead == Ahead::one_pack) {
            await_copies<0>();
            in.take(numbers, 0);
            AimInput::fetch(v, following, coming, 0);
            needed = in.moves(count);
        }
        if (ahead == Ahead::two_packs) {
            in.take(numbers, which);
            const Index after = c.element<pack_length>(place + threads);
            AimInput::fetch(v, after, count_at(after), which);
            which ^= 1;
        }
        bool needs = true;
        const auto next_moves = [&] {
            if (ahead == Ahead::two_packs) next.take(numbers, which);
            return needs = next.moves(coming);
        };
        Combined toward;
        packs.take(i, needed, following, next_moves, toward);
        if (v.at_trial()) {
            v.put(v.x + i, in.x, count);
            v.put(v.g + i, in.g, count);
        }
        Pack goal, step;
#pragma unroll
        for (int k = 0; k < pack_length; ++k) {
            if (k < count) {
                const Aimed aim = aim_element(state, in, k, toward.y[k], toward.s[k], slope, sums);
                goal.of[k] = Real(aim.goal);
                step.of[k] = Real(aim.step);
            }
        }
        if (state.confine != Confine::measure) {
            v.put(v.trial + i, goal, count);
            v.put(v.d + i, step, count);
        }
        if (ahead == Ahead::registers) in = next;
        if (packs_staged) needed = needs;
    }
}

SW_END
