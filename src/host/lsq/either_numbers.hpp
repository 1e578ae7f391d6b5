// The caller's numbers, float or double, told apart at run time: the host's solvers are compiled once for
// both, as NumbersOf<void>.
#pragma once

#include "core/lsq/numbers.hpp"

SW_BEGIN
namespace lsq {

template <>
struct NumbersOf<void> {
    bool rounds = false;  // they are floats

    NumbersOf() {}
    explicit NumbersOf(const Job& job) : rounds(job.single) {}

    double rounded(double value) const { return rounds ? double(float(value)) : value; }
    double read(const void* from, int64_t i) const {
        return rounds ? double(static_cast<const float*>(from)[i]) : static_cast<const double*>(from)[i];
    }
    void write(void* to, int64_t i, double value) const {
        if (rounds)
            static_cast<float*>(to)[i] = float(value);
        else
            static_cast<double*>(to)[i] = value;
    }
    const void* after(const void* from, int64_t i) const {
        return static_cast<const char*>(from) + i * (rounds ? sizeof(float) : sizeof(double));
    }
    void* after(void* from, int64_t i) const {
        return static_cast<char*>(from) + i * (rounds ? sizeof(float) : sizeof(double));
    }
    template <class Body>
    auto with(const void* values, const Body& body) const {
        return rounds ? body(static_cast<const float*>(values)) : body(static_cast<const double*>(values));
    }
    template <class Body>
    auto with(void* values, const Body& body) const {
        return rounds ? body(static_cast<float*>(values)) : body(static_cast<double*>(values));
    }
};
typedef NumbersOf<void> EitherNumbers;

}  // namespace lsq
SW_END
