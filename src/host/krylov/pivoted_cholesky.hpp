// Independent combinations of columns from their Gram matrix (independent.hpp), for the best
// instruction set.
#pragma once

#include "core/common/config.hpp"  // declares the inline namespace of this instruction set
#include "host/common/dispatch.hpp"

namespace stepwell {

struct GramKernels {
    // mix (k x k, row-major) from gram; returns the rank, or -1 where gram is not finite.
    int (*combine)(const double* gram, int k, double cut, double* mix);
};

SW_FOR_EACH_ISA(extern const GramKernels gram_kernels;)

}  // namespace stepwell
