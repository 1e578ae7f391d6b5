// Compiled once per instruction set: the small dense work of block conjugate gradients.
#include "host/krylov/pivoted_cholesky.hpp"

#include <memory>
#include <vector>

#include "host/krylov/independent.hpp"

namespace stepwell {
namespace SW_ISA {
namespace {

int combine(const double* gram, int k, double cut, double* mix) {
    // Longer, so as to begin at a cache line: a pack must not straddle two.
    std::vector<double> work(workspace_doubles(k) + lanes);
    std::vector<int> order(k);
    void* aligned = work.data();
    std::size_t left = work.size() * sizeof(double);
    std::align(lanes * sizeof(double), workspace_doubles(k) * sizeof(double), aligned, left);
    return independent_combinations(gram, k, cut, mix, static_cast<double*>(aligned), order.data());
}

}  // namespace

extern const GramKernels gram_kernels;
const GramKernels gram_kernels{combine};

}  // namespace SW_ISA
}  // namespace stepwell
