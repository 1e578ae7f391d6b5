// What models ask of a number: a scalar of a device thread here, lanes of problems in lanes.hpp.
#pragma once

#include "core/common/config.hpp"

// Before a loop over small arrays that a device is to keep in registers; with SW_LOOPS, which compiles
// sooner, in memory.
#if defined(__CUDACC__) && defined(SW_LOOPS)
#define SW_UNROLL _Pragma("unroll 1")
#elif defined(__CUDACC__)
#define SW_UNROLL _Pragma("unroll")
#else
#define SW_UNROLL
#endif

SW_BEGIN
namespace fit {

SW_HD double exponential(double x) {
#if defined(__CUDACC__)
    return exp(x);
#else
    return std::exp(x);
#endif
}

SW_HD float exponential(float x) {
#if defined(__CUDACC__)
    return expf(x);
#else
    return std::exp(x);
#endif
}

template <class T>
SW_HD T where_small(T a, double limit, T b, T c) {
    return a < T(limit) && a > T(-limit) ? b : c;
}

// Decisions about one problem, or about problems side by side (lanes.hpp): `Where` says for which something
// holds.
template <class R>
struct DecisionsOf {
    typedef bool Where;
    typedef int32_t Count;
};

template <class T>
SW_HD T choose(bool where, T a, T b) {
    return where ? a : b;
}
SW_HD int32_t choose(bool where, int32_t a, int b) {
    return where ? a : b;
}
SW_HD bool any(bool where) {
    return where;
}
SW_HD bool is_true(bool where) {
    return where;
}
SW_HD double root_of(double value) {
    return square_root(value);
}
SW_HD double inverse_root_of(double value) {
    return inverse_root(value);
}
SW_HD double size_of(double value) {
    return absolute(value);
}
SW_HD double smaller_of(double a, double b) {
    return b < a ? b : a;
}
SW_HD double larger_of(double a, double b) {
    return a < b ? b : a;
}
SW_HD double as_single(double value) {
    return double(float(value));
}

// A constant in a number's type: a double in a float's expression would make all of it double on a device.
template <class T>
SW_HD T number(double value) {
    return T(value);
}

}  // namespace fit
SW_END
