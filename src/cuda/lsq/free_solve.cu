// The solve that derivatives of least squares need, a block a system (core/lsq/free_solve.hpp). Compiled
// with
//   SW_SCALAR   float or double
//   SW_THREADS  threads of a block
#include "cuda/lsq/free_solve.cuh"
#include "cuda/lsq/system_teams.cuh"

using namespace stepwell;
using namespace stepwell::lsq;

// Of systems whose solve has kept its factor.
extern "C" __global__ void __launch_bounds__(SW_THREADS)
    nnls_kept_solve(const __grid_constant__ KeptLaunch launch) {
    const SystemBlock<SW_THREADS> team;
    double* scratch = launch.slow + static_cast<int64_t>(blockIdx.x) * (2 * launch.columns + SW_THREADS);
    for (int64_t side = blockIdx.x; side < launch.systems * launch.right_sides; side += gridDim.x) {
        solve_with_kept<SW_SCALAR>(team, launch, side, scratch);
        team.sync();
    }
}

extern "C" __global__ void __launch_bounds__(SW_THREADS)
    nnls_free_solve(const __grid_constant__ FreeLaunch launch) {
    extern __shared__ __align__(64) char fast[];
    const SystemBlock<SW_THREADS> team;
    for (int64_t system = blockIdx.x; system < launch.systems; system += gridDim.x) {
        FreeSolve<SW_SCALAR, SystemBlock<SW_THREADS>> solve(team, launch, system);
        solve.run(Arena{fast, launch.fast_bytes, launch.slow + blockIdx.x * launch.slow_bytes});
        team.sync();
    }
}
