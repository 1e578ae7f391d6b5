// The sweeps over the variables of one problem, on one chunk of them; every element goes through the
// functions of core/quasi_newton/variable.hpp.
#pragma once

#include "host/quasi_newton/sweep_absorb.hpp"
#include "host/quasi_newton/sweep_aim.hpp"
#include "host/quasi_newton/sweep_breaks.hpp"

SW_BEGIN

// g·d at the trial point; not finite if any element of g is not.
template <class T>
double slope_chunk(const ProblemVectors<T>& v, const T* gradient, int64_t begin, int64_t end) {
    CarefulSum total;
    for (int64_t at = begin; at < end; at += tile) {
        const int64_t stop = min_of(at + tile, end);
        Pack sums[4] = {splat(0), splat(0), splat(0), splat(0)};
        int64_t i = at;
        for (int k = 0; i + lanes <= stop; i += lanes, k = (k + 1) & 3) {
            sums[k] += load(gradient + i) * load(v.d + i);
        }
        double part = add_lanes((sums[0] + sums[2]) + (sums[1] + sums[3]));
        for (; i < stop; ++i) part += double(gradient[i]) * double(v.d[i]);
        total.add(part);
    }
    return total.value();
}

// A later trial of one line search.
template <class T>
void step_chunk(const ProblemVectors<T>& v, double step, int64_t begin, int64_t end) {
    if (v.lower) {
        for (int64_t i = begin; i < end; ++i) {
            v.trial[i] = move_within(v.x[i], step * double(v.d[i]), v.lower[i], v.upper[i]);
        }
    } else {
        for (int64_t i = begin; i < end; ++i) v.trial[i] = T(double(v.x[i]) + step * double(v.d[i]));
    }
}

SW_END
