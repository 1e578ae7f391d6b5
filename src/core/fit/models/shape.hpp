// How large a model is: how many terms it has, whether it has the optional last parameter, and the grid that
// its points form. Known when a device kernel is compiled, and when a call is made on the host.
#pragma once

#include "core/fit/size.hpp"

SW_BEGIN
namespace fit {

// Count, Flag and Across are Exactly<...> or AtMost<...> (core/fit/size.hpp).
template <class Count, class Flag, class Across>
struct Shape {
    typedef Count Terms;
    typedef Across Side;
    Count count;
    Flag flag;
    Across across;  // points of a row, where they form a grid; else 0
};

// The most terms, or points along a side of a grid, that a host call may have.
constexpr int most_terms = 32;

}  // namespace fit
SW_END
