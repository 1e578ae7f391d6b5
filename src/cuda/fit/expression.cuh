// A model whose row was written by stepwell/fit/models/expression.py: statements over p and x.
#pragma once

#include "core/fit/models/numbers.hpp"

namespace stepwell {
namespace fit {

#if defined(SW_ROW)

template <class T, class Shape>
struct Expression {
    T p[SW_PARAMETERS];

    __device__ Expression(const Shape&, const T* given) {
#pragma unroll
        for (int j = 0; j < SW_PARAMETERS; ++j) p[j] = given[j];
    }

    __device__ void row(const T* x, int, T& value, T* J) {
        typedef T Number;
        SW_ROW
    }
};

#endif

}  // namespace fit
}  // namespace stepwell
