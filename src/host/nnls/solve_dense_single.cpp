// Dense matrices of floats, compiled once per instruction set.
#include "host/nnls/solve_batch.hpp"

SW_BEGIN
namespace nnls {

void solve_dense_single(const HostJob& host) {
    solve_either<float, Dense<float>>(host);
}

}  // namespace nnls
SW_END
