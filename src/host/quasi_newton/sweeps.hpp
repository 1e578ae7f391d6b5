// The sweeps over the variables of one problem, on one chunk of them; every element goes through the
// functions of core/quasi_newton/variable.hpp.
#pragma once

#include <type_traits>

#include "host/quasi_newton/sweep_absorb.hpp"
#include "host/quasi_newton/sweep_aim.hpp"
#include "host/quasi_newton/sweep_breaks.hpp"

SW_BEGIN

// g·d at the trial point; not finite if any element of g is not.
template <class T>
double slope_chunk(const HostVectors<T>& v, const T* gradient, int64_t begin, int64_t end) {
    CarefulSum total;
    for (int64_t at = begin; at < end; at += tile) {
        const int64_t stop = min_of(at + tile, end);
        const int packs = int(stop - at) / lanes;
        double part = sum_products(gradient + at, v.d + at, packs);
        for (int64_t i = at + packs * lanes; i < stop; ++i) part += double(gradient[i]) * double(v.d[i]);
        total.add(part);
    }
    return total.value();
}

// A later trial of one line search.
template <class T>
void step_chunk(const HostVectors<T>& v, double step, int64_t begin, int64_t end) {
    const auto move = [&](auto lower_step, auto upper_step) {
        for (int64_t i = begin; i < end; ++i) {
            v.trial[i] = move_within(v.x[i], step * double(v.d[i]), v.lower[i * lower_step.value],
                                     v.upper[i * upper_step.value]);
        }
    };
    using Number = std::integral_constant<int, 0>;
    using Array = std::integral_constant<int, 1>;
    if (v.lower) {
        if (v.lower_step) {
            v.upper_step ? move(Array{}, Array{}) : move(Array{}, Number{});
        } else {
            v.upper_step ? move(Number{}, Array{}) : move(Number{}, Number{});
        }
    } else {
        for (int64_t i = begin; i < end; ++i) v.trial[i] = T(double(v.x[i]) + step * double(v.d[i]));
    }
}

SW_END
