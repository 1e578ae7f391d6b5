// Dense matrices of doubles, compiled once per instruction set.
#include "host/nnls/solve_batch.hpp"

SW_BEGIN
namespace nnls {

void solve_dense_double(const HostJob& host) {
    solve_either<double, Dense<double>>(host);
}

}  // namespace nnls
SW_END
