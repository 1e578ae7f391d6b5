// Independent combinations of columns from their Gram matrix (independent.hpp), for the best
// instruction set.
#pragma once

#include "core/config.hpp"  // declares the inline namespace of this instruction set

namespace stepwell {

struct GramKernels {
    // mix (k x k, row-major) from gram; returns the rank, or -1 where gram is not finite.
    int (*combine)(const double* gram, int k, double cut, double* mix);
};

namespace baseline {
extern const GramKernels gram_kernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const GramKernels gram_kernels;
}
namespace avx512 {
extern const GramKernels gram_kernels;
}
#endif

}  // namespace stepwell
