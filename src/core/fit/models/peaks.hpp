// Models of peaks along a line: sums of Gaussians, Lorentzians and pseudo-Voigt profiles, and one Gaussian on
// a polynomial.
#pragma once

#include "core/fit/models/numbers.hpp"
#include "core/fit/models/shape.hpp"

SW_BEGIN
namespace fit {

// Σ a_k P((x - centre_k) / width_k) + c. Parameters: a_1.., centre_1.., width_1.., c where the flag is set.
// Profile::at(z, P, P') gives a peak of height one and its slope.
template <class T, class Shape, class Profile>
struct Peaks {
    static constexpr int variables = 1;
    const Shape& shape;
    T height[Shape::Terms::capacity], centre[Shape::Terms::capacity], narrow[Shape::Terms::capacity],
        constant;

    SW_HD static int parameters(const Shape& shape) { return 3 * shape.count + shape.flag; }

    SW_HD Peaks(const Shape& shape, const T* p) : shape(shape), constant(number<T>(0)) {
        for (int k = 0; k < shape.count; ++k) {
            height[k] = p[k];
            centre[k] = p[shape.count + k];
            narrow[k] = number<T>(1) / p[2 * shape.count + k];
        }
        if (shape.flag) constant = p[3 * shape.count];
    }

    SW_HD void row(const T* x, int, T& value, T* J) {
        T sum = constant;
        for (int k = 0; k < shape.count; ++k) {
            const T z = (x[0] - centre[k]) * narrow[k];
            T profile, slope;
            Profile::at(z, profile, slope);
            sum = sum + height[k] * profile;
            J[k] = profile;
            const T moved = -(height[k] * slope * narrow[k]);
            J[shape.count + k] = moved;
            J[2 * shape.count + k] = moved * z;
        }
        if (shape.flag) J[3 * shape.count] = number<T>(1);
        value = sum;
    }
};

struct GaussianProfile {
    template <class T>
    SW_HD static void at(T z, T& profile, T& slope) {
        profile = exponential(number<T>(-0.5) * (z * z));
        slope = -(z * profile);
    }
};

struct LorentzianProfile {
    template <class T>
    SW_HD static void at(T z, T& profile, T& slope) {
        profile = number<T>(1) / (number<T>(1) + z * z);
        slope = number<T>(-2) * z * (profile * profile);
    }
};

template <class T, class Shape>
using Gaussians = Peaks<T, Shape, GaussianProfile>;
template <class T, class Shape>
using Lorentzians = Peaks<T, Shape, LorentzianProfile>;

// Σ a_k (share_k L + (1 - share_k) G) + c with a Lorentzian and a Gaussian of one full width at half maximum.
// Parameters: a_1.., centre_1.., width_1.., share_1.., c where the flag is set.
template <class T, class Shape>
struct PseudoVoigts {
    static constexpr int variables = 1;
    const Shape& shape;
    T height[Shape::Terms::capacity], centre[Shape::Terms::capacity], narrow[Shape::Terms::capacity],
        share[Shape::Terms::capacity], constant;

    SW_HD static int parameters(const Shape& shape) { return 4 * shape.count + shape.flag; }

    SW_HD PseudoVoigts(const Shape& shape, const T* p) : shape(shape), constant(number<T>(0)) {
        for (int k = 0; k < shape.count; ++k) {
            height[k] = p[k];
            centre[k] = p[shape.count + k];
            narrow[k] = number<T>(1) / p[2 * shape.count + k];
            share[k] = p[3 * shape.count + k];
        }
        if (shape.flag) constant = p[4 * shape.count];
    }

    SW_HD void row(const T* x, int, T& value, T* J) {
        T sum = constant;
        for (int k = 0; k < shape.count; ++k) {
            const T z = (x[0] - centre[k]) * narrow[k], square = z * z;
            const T lorentzian = number<T>(1) / (number<T>(1) + number<T>(4) * square);
            const T gaussian = exponential(number<T>(-2.772588722239781) * square);  // 4 ln 2
            const T profile = gaussian + share[k] * (lorentzian - gaussian);
            // d profile / dz = -8 z (share L² + (1 - share) ln 2 G)
            const T slope = number<T>(-8) * z *
                            (share[k] * (lorentzian * lorentzian) +
                             number<T>(0.6931471805599453) * ((number<T>(1) - share[k]) * gaussian));
            const T moved = -(height[k] * slope * narrow[k]);
            sum = sum + height[k] * profile;
            J[k] = profile;
            J[shape.count + k] = moved;
            J[2 * shape.count + k] = moved * z;
            J[3 * shape.count + k] = height[k] * (lorentzian - gaussian);
        }
        if (shape.flag) J[4 * shape.count] = number<T>(1);
        value = sum;
    }
};

// A Gaussian on c_0 + c_1 x + .. + c_d x^d. Parameters: a, centre, width, c_0.., `count` of them.
template <class T, class Shape>
struct PolynomialPeak {
    static constexpr int variables = 1;
    const Shape& shape;
    T height, centre, narrow, coefficient[Shape::Terms::capacity];

    SW_HD static int parameters(const Shape& shape) { return 3 + shape.count; }

    SW_HD PolynomialPeak(const Shape& shape, const T* p)
        : shape(shape), height(p[0]), centre(p[1]), narrow(number<T>(1) / p[2]) {
        for (int k = 0; k < shape.count; ++k) coefficient[k] = p[3 + k];
    }

    SW_HD void row(const T* x, int, T& value, T* J) {
        const T z = (x[0] - centre) * narrow;
        T profile, slope;
        GaussianProfile::at(z, profile, slope);
        J[0] = profile;
        J[1] = -(height * slope * narrow);
        J[2] = J[1] * z;
        T sum = height * profile, power = number<T>(1);
        for (int k = 0; k < shape.count; ++k) {
            J[3 + k] = power;
            sum = sum + coefficient[k] * power;
            power = power * x[0];
        }
        value = sum;
    }
};

}  // namespace fit
SW_END
