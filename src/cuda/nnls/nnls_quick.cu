// Small systems on a CUDA device: some lanes of a warp are a quick team (core/nnls/types.hpp), so that very
// many systems are at work at once. What they hand over is listed for nnls_solve. Compiled with
//   SW_SCALAR   float or double
//   SW_GENERAL  1: bounds, sums, penalties and the like; 0: x >= 0
//   SW_OWN      1: each system has a matrix of its own, with a table of its products; 0: they share one, or
//   give
//               normal equations
//   SW_LANES    lanes of a team: 1, 8, 16 or 32
//   SW_LOCAL    bytes of local memory of a team of one lane, which all its lanes read side by side
//   SW_THREADS  threads of a block
//   SW_BLOCKS   blocks of a multiprocessor that registers have to be there for
#include "core/nnls/job.hpp"
#include "core/nnls/launch.hpp"
#include "cuda/nnls/lane_team.cuh"

using namespace stepwell;
using namespace stepwell::nnls;

typedef SW_SCALAR Scalar;
#if SW_OWN
typedef Tabled<Scalar> Top;
#else
typedef Dense<Scalar> Top;
#endif
#if SW_GENERAL
typedef Stacked<Top> Matrix;
#else
typedef Top Matrix;
#endif
typedef LaneTeam<SW_LANES> Team;

extern "C" __global__ void __launch_bounds__(SW_THREADS, SW_BLOCKS)
    nnls_quick(const __grid_constant__ Launch launch) {
    constexpr int in_block = SW_THREADS / SW_LANES;
    const Team team;
    const int own = threadIdx.x / SW_LANES;
#if SW_LANES == 1
    __align__(64) char fast_here[SW_LOCAL];
    Task<Matrix> task;
#else
    extern __shared__ __align__(64) char fast[];
    char* fast_here = fast + own * launch.fast_bytes;
    // Raw memory: shared variables have no constructors.
    __shared__ __align__(16) char tasks[in_block * sizeof(Task<Matrix>)];
    Task<Matrix>& task = reinterpret_cast<Task<Matrix>*>(tasks)[own];
#endif
    const Job& job = launch.job;
    const Matrix* kind = nullptr;
    const int64_t number = static_cast<int64_t>(blockIdx.x) * in_block + own;
    if (team.rank() == 0)
        task.arrange(
            job.options,
            extent_of(job, matrix_of(job, 0, kind), team.size(), launch.shared.columns == nullptr, true),
            launch.shared, Arena{fast_here, launch.fast_bytes, launch.slow + number * launch.slow_bytes});
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
        if (!solved && team.rank() == 0)
            launch.list[atomicAdd(reinterpret_cast<unsigned long long*>(launch.handed), 1ull)] = system;
        team.sync();
    }
}

#if SW_OWN

// c += f' g of two fragments of four rows and eight columns each. A lane has row lane % 4 of column lane / 4,
// and of the products those of column lane / 4 of f with two of g, from 2 (lane % 4) on.
static __device__ void add_products(double (&c)[2], double f, double g) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(c[0]), "+d"(c[1])
        : "d"(f), "d"(g));
}

// The table of each system (core/nnls/tabled.hpp): A and b are read once, a warp a system, four rows at a
// time.
extern "C" __global__ void __launch_bounds__(SW_THREADS)
    nnls_form_tables(const __grid_constant__ Launch launch) {
    const Job& job = launch.job;
    const int n = job.columns, m = job.rows, lane = threadIdx.x & 31, row = lane & 3, column = lane >> 2;
    const int64_t warps = static_cast<int64_t>(gridDim.x) * (SW_THREADS / 32);
    constexpr int ahead = 8;
    for (int64_t system = static_cast<int64_t>(blockIdx.x) * (SW_THREADS / 32) + (threadIdx.x >> 5);
         system < job.systems; system += warps) {
        const Scalar* a = static_cast<const Scalar*>(job.a) + system * job.a_stride;
        const Scalar* b = static_cast<const Scalar*>(job.b) + system * job.b_stride;
        double c[3][2] = {};
        // The column after the last of A is b.
        const int64_t step = job.row_stride;
        const Scalar* first = column < n ? a + column : b;
        const Scalar* second = column + 8 < n ? a + column + 8 : b;
        const int64_t first_step = column < n ? step : 1, second_step = column + 8 < n ? step : 1;
        const bool has_first = column <= n, has_second = column + 8 <= n;
        for (int i = row; i - row < m; i += 4 * ahead) {
            Scalar f[ahead], g[ahead];
#pragma unroll
            for (int u = 0; u < ahead; ++u) {
                const int at = i + 4 * u;
                f[u] = has_first && at < m ? first[at * first_step] : Scalar(0);
                g[u] = has_second && at < m ? second[at * second_step] : Scalar(0);
            }
#pragma unroll
            for (int u = 0; u < ahead; ++u) {
                add_products(c[0], f[u], f[u]);
                add_products(c[1], f[u], g[u]);
                add_products(c[2], g[u], g[u]);
            }
        }
        double* table = const_cast<double*>(job.tables) + system * table_length(n);
#pragma unroll
        for (int tile = 0; tile < 3; ++tile)
#pragma unroll
            for (int q = 0; q < 2; ++q) {
                const int i = column + (tile == 2 ? 8 : 0), j = 2 * row + q + (tile == 0 ? 0 : 8);
                if (i < n && j < n) {
                    table[i * n + j] = c[tile][q];
                    if (tile == 1) table[j * n + i] = c[tile][q];
                } else if (i <= n && j == n) {
                    table[n * n + i] = c[tile][q];
                }
            }
    }
}

#endif
