// The aim sweep (second read of the history), the slope sweep and the step sweep on one chunk.
#pragma once

#include "cuda/problem.cuh"

SW_BEGIN

__device__ inline double slope_chunk(const Vectors& v, const Real* gradient, const Chunk& c) {
    double sum = 0;
    c.each_element([&](int64_t i) { sum += double(gradient[i]) * double(v.d[i]); });
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
        x = v.x[i];
        g = v.g[i];
        if (bounded) {
            lower = v.lower[i];
            upper = v.upper[i];
        }
        if (weighted) weight = v.weights[i];
    }
};

// Where one variable aims: the step, the trial point, and what the decision needs.
__device__ inline void aim_element(const Vectors& v, const State& state, const AimInput& in, int64_t i,
                                   double toward_y, double toward_s, AimScalars& sums) {
    const double x = in.x, g = in.g;
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
    sums.slope += g * step;
    sums.direction_squared += step * step;
}

// coefficients: [for y; for s] in order of age, in shared memory; offsets: of the ring rows.
__device__ inline void aim_chunk(const Vectors& v, const State& state, const double* coefficients,
                                 const int64_t* offsets, const Chunk& c, AimScalars& sums) {
    const int r = state.pairs;
    for (int64_t at = c.begin; at < c.n; at += c.stride) {
        const int64_t i = at + 2 * threadIdx.x;
        if (i >= c.n) break;
        AimInput first{}, second{};
        first.load(v, i);
        if (i + 1 < c.n) second.load(v, i + 1);
        double ya = 0, yb = 0, sa = 0, sb = 0;
#pragma unroll 8
        for (int a = 0; a < r; ++a) {
            const Two y = load_two(v.y + offsets[a] + i);
            const Two s = load_two(v.s + offsets[a] + i);
            ya += coefficients[a] * y.a;
            yb += coefficients[a] * y.b;
            sa += coefficients[r + a] * s.a;
            sb += coefficients[r + a] * s.b;
        }
        aim_element(v, state, first, i, ya, sa, sums);
        if (i + 1 < c.n) aim_element(v, state, second, i + 1, yb, sb, sums);
    }
}

SW_END
