// The exact Cauchy point on the host: breakpoints popped in order from a heap, each crossing folded into the
// slope of the model (core/quasi_newton/cauchy.hpp). Breakpoints are collected only as far as they may
// matter: first up to twice the minimiser of the first segment, then in ranges eight times as long.
//
// The heap lies in the buffers of the direction and the trial point, which are free at this moment: no memory
// of its own, whatever the number of breakpoints.
#pragma once

#include <type_traits>

#include "core/common/team.hpp"
#include "core/quasi_newton/cauchy.hpp"
#include "core/quasi_newton/variable.hpp"
#include "host/quasi_newton/chunks.hpp"
#include "host/quasi_newton/workspace.hpp"

SW_BEGIN

// Minimum heap over (time, index), kept in two arrays.
template <class T>
class BreakpointHeap {
public:
    using Index = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

    BreakpointHeap(T* times, T* indices) : times(times), indices(reinterpret_cast<unsigned char*>(indices)) {}

    int64_t count = 0;

    void put(int64_t position, T time, int64_t variable) {
        times[position] = time;
        const Index index = Index(variable);
        std::memcpy(indices + position * sizeof(Index), &index, sizeof(Index));
    }
    int64_t variable(int64_t position) const {
        Index index;
        std::memcpy(&index, indices + position * sizeof(Index), sizeof(Index));
        return int64_t(index);
    }
    T time(int64_t position) const { return times[position]; }

    void move(int64_t from, int64_t to) { put(to, times[from], variable(from)); }

    void arrange() {
        for (int64_t i = count / 2 - 1; i >= 0; --i) sink(i);
    }

    int64_t pop() {
        const int64_t first = variable(0);
        move(--count, 0);
        sink(0);
        return first;
    }

private:
    T* times;
    unsigned char* indices;

    void sink(int64_t i) {
        const T time = times[i];
        const int64_t held = variable(i);
        for (int64_t child = 2 * i + 1; child < count; child = 2 * i + 1) {
            if (child + 1 < count && times[child + 1] < times[child]) ++child;
            if (!(times[child] < time)) break;
            move(child, i);
            i = child;
        }
        put(i, time, held);
    }
};

template <class T>
class CauchyWalk {
public:
    CauchyWalk(const Vectors<T>& v, const State& state, const Options& options, const Scratch& scratch)
        : v(v), state(state), options(options), w(scratch), heap(v.d, v.trial) {}

    // Finds the Cauchy point. scratch.path holds L⁻¹ q and scratch.carried zeros, as decide_absorb left them.
    void run(const Chunks& chunks, double& held_time, double& cauchy_time) {
        const int size = 2 * state.pairs;
        double moving = state.movable_descent, from = 0, collected = 0;
        PathSlope slope = path_slope(moving, state.gamma, w.path, w.carried, w.k, size);
        double range = 2 * max_of(state.first_break, -slope.offset / slope.curvature);
        if (!(range > 0)) range = double_infinity;
        for (;;) {
            collect(chunks, collected, range);
            while (heap.count > 0) {
                const double next = time_of(heap.variable(0));
                if (settles(slope, from, next, cauchy_time)) return finish(from, held_time);
                // Ties share one breakpoint: cross them together.
                do moving = max_of(0.0, moving - cross(heap.pop(), next));
                while (heap.count > 0 && time_of(heap.variable(0)) <= next);
                from = next;
                if (path_ends(moving, state.movable_descent)) {
                    cauchy_time = from;
                    return finish(from, held_time);
                }
                slope = path_slope(moving, state.gamma, w.path, w.carried, w.k, size);
            }
            if (settles(slope, from, range, cauchy_time)) return finish(from, held_time);
            from = max_of(from, collected);
            collected = range;
            range = range < 1e300 ? 8 * range : double_infinity;
            if (++ranges > 8) range = double_infinity;
        }
    }

private:
    const Vectors<T>& v;
    const State& state;
    const Options& options;
    const Scratch& w;
    BreakpointHeap<T> heap;
    int ranges = 0;
    double last_crossed = -1;

    void finish(double /*from*/, double& held_time) const { held_time = last_crossed; }

    double descent_of(int64_t i) const {
        return v.weights ? double(v.weights[i]) * double(v.g[i]) : double(v.g[i]);
    }
    double time_of(int64_t i) const { return breakpoint(v.x[i], descent_of(i), v.lower[i], v.upper[i]); }

    // Breakpoints in (above, up_to] into the heap.
    void collect(const Chunks& chunks, double above, double up_to) {
        int64_t counts[Chunks::most];
        const bool first = ranges == 0;
        chunks.each([&](int chunk, int64_t begin, int64_t end, int) {
            int64_t at = begin;
            for (int64_t i = begin; i < end; ++i) {
                const double t = time_of(i);
                const bool inside = (first ? t >= above : t > above) && t <= up_to && is_finite(t);
                if (inside && !is_held(v.x[i], v.g[i], v.lower[i], v.upper[i])) heap.put(at++, T(t), i);
            }
            counts[chunk] = at - begin;
        });
        heap.count = 0;
        for (int chunk = 0; chunk < chunks.count; ++chunk) {
            const int64_t begin = chunks.begin(chunk);
            for (int64_t i = 0; i < counts[chunk]; ++i) heap.move(begin + i, heap.count++);
        }
        heap.arrange();
    }

    // Variable i stops at time t: takes its part out of the sums. Returns its h g².
    double cross(int64_t i, double t) {
        const int r = state.pairs, size = 2 * r;
        double u[2 * max_capacity];
        const double g = v.g[i], descent = descent_of(i);
        for (int a = 0; a < r; ++a) {
            const int64_t row = int64_t(slot_of(a, state.head, r, options.capacity)) * v.n + i;
            u[a] = double(v.y[row]) * descent;
            u[r + a] = double(v.s[row]) * g / state.gamma;
        }
        Lone lone;
        solve_lower(lone, w.k, size, u);
        for (int k = 0; k < size; ++k) {
            w.path[k] -= u[k];
            w.carried[k] -= t * u[k];
        }
        last_crossed = t;
        return g * descent;
    }
};

SW_END
