// Models of decays: sums of exponentials, and two compartments of diffusion (IVIM).
#pragma once

#include "core/fit/models/numbers.hpp"
#include "core/fit/models/shape.hpp"

SW_BEGIN
namespace fit {

// Σ a_k exp(-rate_k x) + c. Parameters: a_1.., rate_1.., c where the flag is set.
template <class T, class Shape>
struct Exponentials {
    static constexpr int variables = 1;
    const Shape& shape;
    T amplitude[Shape::Terms::capacity], rate[Shape::Terms::capacity], constant;

    SW_HD static int parameters(const Shape& shape) { return 2 * shape.count + shape.flag; }

    SW_HD Exponentials(const Shape& shape, const T* p) : shape(shape), constant(number<T>(0)) {
        for (int k = 0; k < shape.count; ++k) {
            amplitude[k] = p[k];
            rate[k] = -p[shape.count + k];
        }
        if (shape.flag) constant = p[2 * shape.count];
    }

    SW_HD void row(const T* x, int, T& value, T* J) {
        T sum = constant;
        for (int k = 0; k < shape.count; ++k) {
            const T e = exponential(rate[k] * x[0]), term = amplitude[k] * e;
            sum = sum + term;
            J[k] = e;
            J[shape.count + k] = -x[0] * term;
        }
        if (shape.flag) J[2 * shape.count] = number<T>(1);
        value = sum;
    }
};

// S0 (f exp(-b D*) + (1 - f) exp(-b D)). Parameters: S0, f, D*, D.
template <class T, class Shape>
struct Ivim {
    static constexpr int variables = 1;
    T signal, fraction, rest, fast, slow;

    SW_HD static int parameters(const Shape&) { return 4; }

    SW_HD Ivim(const Shape&, const T* p)
        : signal(p[0]), fraction(p[1]), rest(number<T>(1) - p[1]), fast(-p[2]), slow(-p[3]) {}

    SW_HD void row(const T* x, int, T& value, T* J) {
        const T e = exponential(fast * x[0]), f = exponential(slow * x[0]);
        const T moving = fraction * e, still = rest * f;
        J[0] = moving + still;
        J[1] = signal * (e - f);
        J[2] = -(x[0] * (signal * moving));
        J[3] = -(x[0] * (signal * still));
        value = signal * J[0];
    }
};

}  // namespace fit
SW_END
