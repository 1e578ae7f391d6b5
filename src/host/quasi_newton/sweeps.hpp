// The sweeps over the variables of one problem, on one chunk of them; every element goes through the
// functions of core/quasi_newton/variable.hpp.
#pragma once

#include <type_traits>

#include "host/quasi_newton/sweep_absorb.hpp"
#include "host/quasi_newton/sweep_aim.hpp"
#include "host/quasi_newton/sweep_breaks.hpp"

SW_BEGIN

// g·d at the trial point; not finite if any element of g is not.
inline double slope_chunk(const HostVectors& v, HostVector gradient, int64_t begin, int64_t end) {
    return gradient.with([&](const auto* g) {
        const decltype(g) d = v.d.as<std::remove_cvref_t<decltype(*g)>>();
        double memory[TileSums::most_levels];
        TileSums sums(memory, 1);
        for (int64_t at = begin; at < end; at += tile) {
            const int64_t stop = min_of(at + tile, end);
            const int packs = int(stop - at) / lanes;
            double part = sum_products(g + at, d + at, packs);
            for (int64_t i = at + packs * lanes; i < stop; ++i) part += double(g[i]) * double(d[i]);
            *sums.row() = part;
            sums.add();
        }
        return *sums.total();
    });
}

template <class T>
void step_chunk_of(const HostVectors& v, double step, int64_t begin, int64_t end) {
    T* const trial = v.trial.as<T>();
    const T *const x = v.x.as<T>(), *const d = v.d.as<T>();
    const T *const lower = v.lower.as<T>(), *const upper = v.upper.as<T>();
    const auto move = [&](auto lower_step, auto upper_step) {
        for (int64_t i = begin; i < end; ++i) {
            trial[i] = move_within(x[i], step * double(d[i]), lower[i * lower_step.value],
                                   upper[i * upper_step.value]);
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
        for (int64_t i = begin; i < end; ++i) trial[i] = T(double(x[i]) + step * double(d[i]));
    }
}

// A later trial of one line search.
inline void step_chunk(const HostVectors& v, double step, int64_t begin, int64_t end) {
    v.single ? step_chunk_of<float>(v, step, begin, end) : step_chunk_of<double>(v, step, begin, end);
}

SW_END
