// Tofts' model of contrast agent in tissue: a convolution with the concentration in the blood,
//   C(t) = Ktrans ∫ cp(τ) exp(-kep (t - τ)) dτ + vp cp(t),
// exact for a concentration that is linear between its samples. Variables: t and cp(t), in the order of time.
// Parameters: Ktrans, kep, and vp where the flag is set.
#pragma once

#include "core/fit/models/numbers.hpp"
#include "core/fit/models/shape.hpp"

SW_BEGIN
namespace fit {

template <class T, class Shape>
struct Tofts {
    static constexpr int variables = 2;
    const Shape& shape;
    T transfer, rate, plasma, integral, slope, time, before;

    SW_HD static int parameters(const Shape& shape) { return 2 + shape.flag; }

    SW_HD Tofts(const Shape& shape, const T* p)
        : shape(shape),
          transfer(p[0]),
          rate(p[1]),
          plasma(shape.flag ? p[2] : number<T>(0)),
          integral(number<T>(0)),
          slope(number<T>(0)),
          time(number<T>(0)),
          before(number<T>(0)) {}

    // From sample to sample, with z = kep Δ: the integral decays by e^-z and gains
    // Δ (c_before (p1 - p2) + c_now p2), p1 = (1 - e^-z) / z, p2 = (1 - p1) / z.
    SW_HD void row(const T* x, int i, T& value, T* J) {
        if (i > 0) {
            const T step = x[0] - time, z = rate * step, e = exponential(-z);
            const T one = number<T>(1), inverse = one / where_small(z, 0.25, one, z);
            // Near z = 0 the series of p2 = Σ (-z)^k / (k + 2)! and of its slope.
            T series = number<T>(0), steeper = number<T>(0);
            for (int k = 9; k >= 1; --k) {
                series = number<T>(inverse_factorial(k + 2)) - z * series;
                steeper = number<T>(-k * inverse_factorial(k + 2)) - z * steeper;
            }
            series = number<T>(0.5) - z * series;
            const T wide1 = (one - e) * inverse, wide2 = (one - wide1) * inverse;
            const T p2 = where_small(z, 0.25, series, wide2);
            const T p1 = one - z * p2;
            const T wide_slope1 = (e - wide1) * inverse;
            const T slope2 = where_small(z, 0.25, steeper, -(wide_slope1 + wide2) * inverse);
            const T slope1 = -(p2 + z * slope2);
            const T gained = before * (p1 - p2) + x[1] * p2;
            const T gained_slope = before * (slope1 - slope2) + x[1] * slope2;
            slope = e * (slope - step * integral) + step * step * gained_slope;
            integral = e * integral + step * gained;
        }
        time = x[0];
        before = x[1];
        J[0] = integral;
        J[1] = transfer * slope;
        if (shape.flag) J[2] = x[1];
        value = transfer * integral + plasma * x[1];
    }

    SW_HD static constexpr double inverse_factorial(int n) {
        double product = 1;
        for (int k = 2; k <= n; ++k) product *= k;
        return 1 / product;
    }
};

}  // namespace fit
SW_END
