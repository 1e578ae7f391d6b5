// Numbers that the caller gave or gets: float or double. All others are double.
#pragma once

#include "core/lsq/types.hpp"

SW_BEGIN
namespace lsq {

// A kernel of a device is compiled for one of the two. (The host's solver is compiled once for both, and asks
// which: host/lsq/either_numbers.hpp has the same functions.)
template <class Number>
struct NumbersOf {
    typedef Number Scalar;
    static constexpr bool rounds = sizeof(Scalar) < sizeof(double);

    SW_HD NumbersOf() {}
    SW_HD explicit NumbersOf(const Job&) {}

    SW_HD double rounded(double value) const { return double(Scalar(value)); }
    SW_HD double read(const void* from, int64_t i) const {
        return double(static_cast<const Scalar*>(from)[i]);
    }
    SW_HD void write(void* to, int64_t i, double value) const { static_cast<Scalar*>(to)[i] = Scalar(value); }
    // The numbers from the i-th on.
    SW_HD const void* after(const void* from, int64_t i) const {
        return static_cast<const Scalar*>(from) + i;
    }
    SW_HD void* after(void* from, int64_t i) const { return static_cast<Scalar*>(from) + i; }
    // Calls body with a pointer of their type.
    template <class Body>
    SW_HD auto with(const void* values, const Body& body) const {
        return body(static_cast<const Scalar*>(values));
    }
    template <class Body>
    SW_HD auto with(void* values, const Body& body) const {
        return body(static_cast<Scalar*>(values));
    }
};

}  // namespace lsq
SW_END
