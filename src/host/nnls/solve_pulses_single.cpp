// Convolutions of floats, compiled once per instruction set.
#include "host/nnls/solve_batch.hpp"

SW_BEGIN
namespace nnls {

void solve_pulses_single(const HostJob& host) {
    solve_either<float, Convolution<float>>(host);
}

}  // namespace nnls
SW_END
