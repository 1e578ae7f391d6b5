// The kind of numbers that x is returned in. A kernel is compiled for one of them; the host's solver is
// compiled once for both, and asks: all its numbers but those given and returned are double.
#pragma once

#include "core/common/config.hpp"

SW_BEGIN
namespace lsq {

#if defined(__CUDACC__)
template <class Scalar>
struct Rounding {
    static constexpr bool rounds = sizeof(Scalar) < sizeof(double);
    SW_HD double operator()(double value) const { return double(Scalar(value)); }
};

template <class Scalar>
SW_HD Rounding<Scalar> rounding_to() {
    return {};
}
#else
struct Rounding {
    bool rounds = false;
    double operator()(double value) const { return rounds ? double(float(value)) : value; }
};

template <class Scalar>
Rounding rounding_to() {
    return {sizeof(Scalar) < sizeof(double)};
}
#endif

template <class Scalar>
using RoundingTo = decltype(rounding_to<Scalar>());

}  // namespace lsq
SW_END
