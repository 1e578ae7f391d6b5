// Convolutions of doubles, compiled once per instruction set.
#include "host/nnls/solve_batch.hpp"

SW_BEGIN
namespace nnls {

void solve_pulses_double(const HostJob& host) {
    solve_either<double, Convolution<double>>(host);
}

}  // namespace nnls
SW_END
