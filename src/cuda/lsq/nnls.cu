// NNLS on a CUDA device: the solver of src/core/lsq with a warp, a thread block or a cluster of blocks as
// its team. Systems come from a queue, so one slow system holds nobody up. Compiled for a matrix of
// system_matrix.cuh, and with
//   SW_BY_WARP  1: a warp is a team; 0: a block is
//   SW_BLOCKS   more than 1: so many blocks are
//   SW_THREADS  threads of a block
#include "core/lsq/launch.hpp"
#include "cuda/lsq/sweeps.cuh"
#include "cuda/lsq/system_matrix.cuh"
#if SW_BLOCKS > 1
#include "cuda/lsq/system_cluster.cuh"
#else
#include "cuda/lsq/system_teams.cuh"
#endif

using namespace stepwell;
using namespace stepwell::lsq;

// A team's turn at the queue: the first member draws, all learn.
#if SW_BY_WARP
static __device__ int64_t draw(const SystemWarp& team, unsigned long long* queue) {
    unsigned long long ticket = 0;
    if (team.rank() == 0) ticket = atomicAdd(queue, 1ull);
    return static_cast<int64_t>(__shfl_sync(0xffffffffu, ticket, 0));
}
#elif SW_BLOCKS > 1
static __device__ int64_t draw(const SystemCluster<SW_THREADS, SW_BLOCKS>& team, unsigned long long* queue) {
    unsigned long long ticket = 0;
    if (team.rank() == 0) ticket = atomicAdd(queue, 1ull);
    return static_cast<int64_t>(team.max(static_cast<double>(ticket)));
}
#else
static __device__ int64_t draw(const SystemBlock<SW_THREADS>& team, unsigned long long* queue) {
    __shared__ unsigned long long ticket;
    team.sync();
    if (team.rank() == 0) ticket = atomicAdd(queue, 1ull);
    team.sync();
    return static_cast<int64_t>(ticket);
}
#endif

#if SW_BLOCKS > 1
#define SW_CLUSTER __cluster_dims__(SW_BLOCKS, 1, 1)
#else
#define SW_CLUSTER
#endif

extern "C" __global__ void SW_CLUSTER __launch_bounds__(SW_THREADS, 512 / SW_THREADS)
    nnls_solve(const __grid_constant__ Launch launch) {
    extern __shared__ __align__(64) char fast[];
#if SW_BY_WARP
    constexpr int max_teams = SW_THREADS / 32;
    const SystemWarp team;
    const int in_block = threadIdx.x >> 5;
    const bool arranges = team.rank() == 0;
#else
    constexpr int max_teams = 1;
#if SW_BLOCKS > 1
    const SystemCluster<SW_THREADS, SW_BLOCKS> team;
#else
    const SystemBlock<SW_THREADS> team;
#endif
    const int in_block = 0;
    const bool arranges = threadIdx.x == 0;  // each block has a task of its own, all alike
#endif
    // Raw memory: shared variables have no constructors.
    __shared__ __align__(16) char tasks[max_teams * sizeof(Task<Matrix>)];
    Task<Matrix>& task = reinterpret_cast<Task<Matrix>*>(tasks)[in_block];
    const Job& job = launch.job;
    const Matrix* kind = nullptr;
    const int64_t number = static_cast<int64_t>(blockIdx.x) / SW_BLOCKS * max_teams + in_block;
    if (arranges) {
        task.arrange(job.options,
                     extent_of(job, matrix_of(job, 0, kind), team.size(), launch.shared.columns == nullptr),
                     launch.shared,
                     Arena{fast + in_block * launch.fast_bytes, launch.fast_bytes,
                           launch.slow + number * launch.slow_bytes});
    }
    // Where systems form chains, a team draws a whole chain. The first of a team is its own; the queue, if
    // there are more than teams, has the rest.
    const int64_t piece = job.options.chain ? nnls_chain_length : 1;
    const int64_t systems = launch.list ? static_cast<int64_t>(*launch.handed) : job.systems;
    const int64_t teams = static_cast<int64_t>(gridDim.x) / SW_BLOCKS * max_teams;
    const auto queue = reinterpret_cast<unsigned long long*>(launch.queue);
    for (int64_t first = number * piece; first < systems;
         first = queue ? (teams + draw(team, queue)) * piece : systems) {
        for (int64_t next = first; next < min_of(first + piece, systems); ++next) {
            const int64_t system = launch.list ? launch.list[next] : next;
            if (arranges) {
                const int64_t index = matrix_number(job, system);
                task.take(matrix_of(job, index, kind));
                if (launch.dictionary) task.share(launch.dictionary[index]);
            }
            team.sync();
            solve_system<NumbersOf<SW_SCALAR>>(team, job, system, task);
            team.sync();
        }
    }
}
