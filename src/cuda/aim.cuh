// The aim sweep (second read of the history), the slope sweep and the step sweep on one chunk.
#pragma once

#include "cuda/problem.cuh"

SW_BEGIN

__device__ inline CarefulSum slope_chunk(const Vectors& v, const Chunk& c) {
    constexpr int at_once = 8;  // loads on their way before the first is used
    CarefulSum sum;
#pragma unroll 1
    for (int place = threadIdx.x; !c.ends<1>(place); place += at_once * threads) {
        Real g[at_once], d[at_once];
#pragma unroll
        for (int k = 0; k < at_once; ++k) {
            const int64_t i = c.element<1>(place + k * threads);
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
            bounded ? move_within(v.x[i], move, v.lower[i], v.upper[i]) : Real(double(v.x[i]) + move);
    });
}

// What the sweep reads of one element besides the history.
struct AimInput {
    Real x, g, lower, upper, weight;

    __device__ void load(const Vectors& v, int64_t i) {
        x = __ldcg(v.at + i);
        g = __ldcg(v.gradient + i);
        if (bounded) {
            lower = __ldcg(v.lower + i);
            upper = __ldcg(v.upper + i);
        }
        if (weighted) weight = __ldcg(v.weights + i);
    }
};

// Where one variable aims: the step, the trial point, and what the decision needs. The point it aims from
// becomes the accepted one.
__device__ inline void aim_element(const Vectors& v, const State& state, const AimInput& in, int64_t i,
                                   double toward_y, double toward_s, CarefulSum& slope, AimScalars& sums) {
    const double x = in.x, g = in.g;
    if (v.at_trial()) {
        v.x[i] = in.x;
        v.g[i] = in.g;
    }
    const double h = weighted ? double(in.weight) : 1.0;
    const double descent = h * g;
    double step = -state.gamma * h * (g + toward_y) - toward_s;
    double goal = x + step;
    const double lower = in.lower, upper = in.upper;
    if (bounded) {
        const bool held = is_held(x, g, lower, upper);
        const bool goes =
            !held && state.held_time >= 0 && breakpoint(x, descent, lower, upper) <= state.held_time;
        if (state.confine != Confine::project) {
            const double cauchy = clamp_to(x - state.cauchy_time * descent, lower, upper);
            if (state.confine == Confine::measure) {
                const double reach = feasible_multiple(cauchy, goal - cauchy, lower, upper);
                if (!held && !goes) sums.truncation = min_of(sums.truncation, reach);
                return;
            }
            goal = cauchy + state.truncation * (goal - cauchy);
            step = goal - x;
        }
        const Aimed aimed = aim_within(x, goal, step, held, lower, upper);
        goal = goes ? bound_ahead(descent, lower, upper) : aimed.place;
        step = goes ? goal - x : aimed.step;
    }
    const Real stored = Real(step);
    v.trial[i] = Real(goal);
    v.d[i] = stored;
    step = double(stored);
    if (bounded) sums.step_limit = min_of(sums.step_limit, feasible_multiple(x, step, lower, upper));
    add_product(slope, g, step);
    sums.direction_squared += step * step;
}

// How the rows of the history are combined, in shared memory: where they lie in the ring, and the
// coefficients of y and s, in order of age.
struct AimPlan {
    int64_t offsets[capacity];
    double y[capacity], s[capacity];
};

// Σ coefficient · row at two neighbouring elements: y.a, y.b, s.a, s.b. Up to ten pairs are all on their way
// before the first is used.
__device__ inline void combine_rows(const Vectors& v, const AimPlan& plan, int r, int64_t i, Two& y, Two& s) {
    constexpr int group = capacity <= 10 ? capacity : 8;
    int a = 0;
#pragma unroll 1
    for (; a + group <= r; a += group) {
        Two ys[group], ss[group];
#pragma unroll
        for (int k = 0; k < group; ++k) {
            ys[k] = stream_two(v.y + plan.offsets[a + k] + i);
            ss[k] = stream_two(v.s + plan.offsets[a + k] + i);
        }
#pragma unroll
        for (int k = 0; k < group; ++k) {
            y.a += plan.y[a + k] * ys[k].a;
            y.b += plan.y[a + k] * ys[k].b;
            s.a += plan.s[a + k] * ss[k].a;
            s.b += plan.s[a + k] * ss[k].b;
        }
    }
#pragma unroll 1
    for (; a < r; ++a) {
        const Two ya = stream_two(v.y + plan.offsets[a] + i), sa = stream_two(v.s + plan.offsets[a] + i);
        y.a += plan.y[a] * ya.a;
        y.b += plan.y[a] * ya.b;
        s.a += plan.s[a] * sa.a;
        s.b += plan.s[a] * sa.b;
    }
}

__device__ inline void aim_chunk(const Vectors& v, const State& state, const AimPlan& plan, const Chunk& c,
                                 CarefulSum& slope, AimScalars& sums) {
    const int r = state.pairs;
    c.each_element<2>([&](int64_t i) {
        AimInput in[2] = {};
        in[0].load(v, i);
        if (i + 1 < c.n) in[1].load(v, i + 1);
        Two y{0, 0}, s{0, 0};
        combine_rows(v, plan, r, i, y, s);
        aim_element(v, state, in[0], i, y.a, s.a, slope, sums);
        if (i + 1 < c.n) aim_element(v, state, in[1], i + 1, y.b, s.b, slope, sums);
    });
}

SW_END
