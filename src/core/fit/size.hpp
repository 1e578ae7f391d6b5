// How many parameters a fit has: known when the code is compiled (loops unroll, everything stays in
// registers), or when it runs, up to a capacity.
#pragma once

#include "core/common/config.hpp"

SW_BEGIN

template <int N>
struct Exactly {
    static constexpr int capacity = N;
    SW_HD constexpr operator int() const { return N; }
};

template <int N>
struct AtMost {
    static constexpr int capacity = N;
    int count;
    SW_HD constexpr operator int() const { return count; }
};

// Where entry (i, j), j <= i, of a packed lower triangle is.
SW_HD constexpr int at(int i, int j) {
    return i * (i + 1) / 2 + j;
}
SW_HD constexpr int either(int i, int j) {
    return i < j ? at(j, i) : at(i, j);
}

SW_END
