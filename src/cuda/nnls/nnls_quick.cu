// Small systems on a CUDA device: some lanes of a warp are a quick team (core/nnls/types.hpp), so that very many
// systems are at work at once. What they hand over is listed for nnls_solve. Compiled with
//   SW_SCALAR   float or double
//   SW_GENERAL  1: bounds, sums, penalties and the like; 0: x >= 0
//   SW_LANES    lanes of a team: 4, 8, 16 or 32
//   SW_THREADS  threads of a block
//   SW_BLOCKS   blocks of a multiprocessor that registers have to be there for
#include "core/nnls/job.hpp"
#include "core/nnls/launch.hpp"
#include "cuda/nnls/lane_team.cuh"

using namespace stepwell;
using namespace stepwell::nnls;

typedef SW_SCALAR Scalar;
#if SW_GENERAL
typedef Stacked<Dense<Scalar>> Matrix;
#else
typedef Dense<Scalar> Matrix;
#endif
typedef LaneTeam<SW_LANES> Team;

extern "C" __global__ void __launch_bounds__(SW_THREADS, SW_BLOCKS)
    nnls_quick(const __grid_constant__ Launch launch) {
    extern __shared__ __align__(64) char fast[];
    constexpr int in_block = SW_THREADS / SW_LANES;
    // Raw memory: shared variables have no constructors.
    __shared__ __align__(16) char tasks[in_block * sizeof(Task<Matrix>)];
    const Team team;
    const int own = threadIdx.x / SW_LANES;
    Task<Matrix>& task = reinterpret_cast<Task<Matrix>*>(tasks)[own];
    const Job& job = launch.job;
    const Matrix* kind = nullptr;
    const int64_t number = static_cast<int64_t>(blockIdx.x) * in_block + own;
    if (team.rank() == 0)
        task.arrange(job.options,
                     extent_of(job, matrix_of(job, 0, kind), team.size(), launch.shared.columns == nullptr, true),
                     launch.shared,
                     Arena{fast + own * launch.fast_bytes, launch.fast_bytes,
                           launch.slow + number * launch.slow_bytes});
    // The first system of a team is its own; the queue has the rest.
    const int64_t teams = static_cast<int64_t>(gridDim.x) * in_block;
    for (int64_t system = number; system < job.systems; system = teams + team.draw(launch.queue)) {
        if (team.rank() == 0) {
            const int64_t index = matrix_number(job, system);
            task.take(matrix_of(job, index, kind));
            if (launch.dictionary) task.share(launch.dictionary[index]);
        }
        team.sync();
        const bool solved = solve_system<Scalar>(team, job, system, task);
        if (!solved && team.rank() == 0) launch.list[atomicAdd(reinterpret_cast<unsigned long long*>(launch.handed), 1ull)] = system;
        team.sync();
    }
}
