// NNLS on a CUDA device: the solver of src/core/nnls with a thread block, or a warp, as its team. Systems
// come from a queue, so one slow system holds nobody up. Compiled with
//   SW_SCALAR   float or double
//   SW_KIND     Dense or Convolution
//   SW_BY_WARP  1: a warp is a team; 0: a block is
//   SW_THREADS  most threads of a block
#include "core/nnls/job.hpp"
#include "cuda/system_teams.cuh"

using namespace stepwell;
using namespace stepwell::nnls;

typedef SW_SCALAR Scalar;
typedef SW_KIND<Scalar> Matrix;

// A launch's arguments, in device memory. The host fills it with the same layout (stepwell/leastsq/cuda.py).
struct Launch {
    int64_t systems;
    int64_t a, a_stride, row_stride;
    int64_t b, b_stride;
    int64_t warm_values, warm_marks, warm_stride;
    int64_t x, dual, active, residual, violation;
    int64_t counts, costs;
    int64_t queue;
    int64_t slow, slow_bytes, fast_bytes;  // of one team
    int64_t scale, norm, inverse_norm, columns, low, high, gram, column_stride, gram_stride;
    double tolerance, damping;
    int64_t rows, unknowns, pulse_length, pulse_origin;
    int64_t most_solves, update, guarded, chain;
};

template <class T>
static __device__ T* at(int64_t address) {
    return reinterpret_cast<T*>(address);
}

static __device__ Job job_of(const Launch& launch) {
    Job job{};
    job.systems = launch.systems;
    job.rows = static_cast<int32_t>(launch.rows);
    job.columns = static_cast<int32_t>(launch.unknowns);
    job.a = at<const void>(launch.a);
    job.a_stride = launch.a_stride;
    job.row_stride = launch.row_stride;
    job.pulse_length = static_cast<int32_t>(launch.pulse_length);
    job.pulse_origin = static_cast<int32_t>(launch.pulse_origin);
    job.b = at<const void>(launch.b);
    job.b_stride = launch.b_stride;
    job.options.tolerance = launch.tolerance;
    job.options.damping = launch.damping;
    job.options.most_solves = static_cast<int32_t>(launch.most_solves);
    job.options.update = static_cast<int32_t>(launch.update);
    job.options.guarded = static_cast<int32_t>(launch.guarded);
    job.warm_values = at<const void>(launch.warm_values);
    job.warm_marks = at<const uint8_t>(launch.warm_marks);
    job.warm_stride = launch.warm_stride;
    job.chain = launch.chain != 0;
    job.x = at<void>(launch.x);
    job.dual = at<void>(launch.dual);
    job.active = at<uint8_t>(launch.active);
    job.residual = at<double>(launch.residual);
    job.violation = at<double>(launch.violation);
    int32_t* counts = at<int32_t>(launch.counts);
    job.status = counts;
    job.insertions = counts + launch.systems;
    job.removals = counts + 2 * launch.systems;
    job.solves = counts + 3 * launch.systems;
    job.passes = counts + 4 * launch.systems;
    job.escalated = counts + 5 * launch.systems;
    job.costs = at<int64_t>(launch.costs);
    return job;
}

static __device__ Shared shared_of(const Launch& launch) {
    Shared shared;
    shared.scale = at<const double>(launch.scale);
    shared.norm = at<const double>(launch.norm);
    shared.inverse_norm = at<const double>(launch.inverse_norm);
    shared.columns = at<const double>(launch.columns);
    shared.low = at<const int32_t>(launch.low);
    shared.high = at<const int32_t>(launch.high);
    shared.gram = at<const double>(launch.gram);
    shared.envelope = {at<int32_t>(launch.low), at<int32_t>(launch.high)};
    shared.column_stride = launch.column_stride;
    shared.gram_stride = launch.gram_stride;
    return shared;
}

// A team's number, and its turn at the queue: the first member draws, all learn.
#if SW_BY_WARP
static __device__ int64_t draw(const SystemWarp& team, unsigned long long* queue) {
    unsigned long long ticket = 0;
    if (team.rank() == 0) ticket = atomicAdd(queue, 1ull);
    return static_cast<int64_t>(__shfl_sync(0xffffffffu, ticket, 0));
}
#else
static __device__ int64_t draw(const SystemBlock& team, unsigned long long* queue) {
    __shared__ unsigned long long ticket;
    team.sync();
    if (team.rank() == 0) ticket = atomicAdd(queue, 1ull);
    team.sync();
    return static_cast<int64_t>(ticket);
}
#endif

extern "C" __global__ void __launch_bounds__(SW_THREADS, 512 / SW_THREADS)
    nnls_solve(const Launch* arguments) {
    extern __shared__ __align__(64) char fast[];
    const Launch launch = *arguments;
#if SW_BY_WARP
    const SystemWarp team;
    const int in_block = threadIdx.x >> 5, teams_in_block = blockDim.x >> 5;
#else
    __shared__ BlockRoom room;
    const SystemBlock team(room);
    const int in_block = 0, teams_in_block = 1;
#endif
    const int64_t number = static_cast<int64_t>(blockIdx.x) * teams_in_block + in_block;
    const Job job = job_of(launch);
    const Shared shared = shared_of(launch);
    const Matrix* kind = nullptr;
    const Extent extent = extent_of(job, matrix_of(job, 0, kind), team.size(), shared.columns == nullptr);
    Arena arena{fast + in_block * launch.fast_bytes, launch.fast_bytes,
                at<char>(launch.slow) + number * launch.slow_bytes};
    Workspace workspace;
    workspace.carve(extent, arena);
    unsigned long long* queue = at<unsigned long long>(launch.queue);
    // Where systems form chains, a team draws a whole chain.
    const int64_t piece = job.chain ? chain_length : 1;
    for (;;) {
        const int64_t first = draw(team, queue) * piece;
        if (first >= job.systems) return;
        for (int64_t system = first; system < min_of(first + piece, job.systems); ++system) {
            solve_system<Scalar>(team, job, system, matrix_of(job, system, kind), extent, shared, workspace);
            team.sync();
        }
    }
}

// Of a matrix that all systems share: scale, norm and scaled copy of every column. A warp a column.
extern "C" __global__ void nnls_share_columns(const Launch* arguments) {
    const Launch launch = *arguments;
    const Job job = job_of(launch);
    const Matrix* kind = nullptr;
    const Matrix matrix = matrix_of(job, 0, kind);
    const SystemWarp team;
    const int warps = (blockDim.x >> 5) * gridDim.x;
    for (int j = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5); j < matrix.columns; j += warps) {
        double square = 0;
        int low = matrix.rows, high = 0;
        team.each(matrix.rows, [&](int i) {
            const double a = matrix.entry(i, j);
            square += a * a;
            if (a != 0) {
                low = min_of(low, i);
                high = i + 1;
            }
        });
        square = team.sum(square);
        for (int mask = 16; mask > 0; mask >>= 1) {
            low = min_of(low, __shfl_xor_sync(0xffffffffu, low, mask));
            high = max_of(high, __shfl_xor_sync(0xffffffffu, high, mask));
        }
        double scale, norm;
        scale_column(matrix, j, square, launch.damping, scale, norm);
        double* column = at<double>(launch.columns) + j * launch.column_stride;
        team.each(static_cast<int>(launch.column_stride),
                  [&](int i) { column[i] = i < matrix.rows ? scale * matrix.entry(i, j) : 0.0; });
        if (team.rank() == 0) {
            at<double>(launch.scale)[j] = scale;
            at<double>(launch.norm)[j] = norm;
            at<double>(launch.inverse_norm)[j] = norm > 0 ? 1.0 / norm : 0.0;
            at<int32_t>(launch.low)[j] = min_of(low, high);
            at<int32_t>(launch.high)[j] = high;
        }
    }
}

// Products of all pairs of scaled columns, damping on the diagonal: tiles of 32 x 32, blocks of 32 x 8
// threads.
extern "C" __global__ void nnls_share_gram(const Launch* arguments) {
    constexpr int tile = 32, height = 8;
    __shared__ double left[tile][tile + 1], right[tile][tile + 1];
    const Launch launch = *arguments;
    const int n = static_cast<int>(launch.unknowns);
    const int64_t stride = launch.column_stride;
    const double* columns = at<const double>(launch.columns);
    const int row = blockIdx.y * tile, column = blockIdx.x * tile;
    double sums[tile / height] = {};
    for (int64_t start = 0; start < stride; start += tile) {
        for (int t = threadIdx.y; t < tile; t += height) {
            const bool inside = start + threadIdx.x < stride;
            left[t][threadIdx.x] =
                inside && row + t < n ? columns[(row + t) * stride + start + threadIdx.x] : 0.0;
            right[t][threadIdx.x] =
                inside && column + t < n ? columns[(column + t) * stride + start + threadIdx.x] : 0.0;
        }
        __syncthreads();
        for (int i = 0; i < tile; ++i) {
            const double r = right[threadIdx.x][i];
            for (int q = 0; q < tile / height; ++q) sums[q] += left[threadIdx.y + q * height][i] * r;
        }
        __syncthreads();
    }
    double* gram = at<double>(launch.gram);
    for (int q = 0; q < tile / height; ++q) {
        const int i = row + threadIdx.y + q * height, j = column + threadIdx.x;
        if (i >= n || j >= launch.gram_stride) continue;
        const double below = i == j ? launch.damping * at<double>(launch.scale)[j] : 0.0;
        gram[i * launch.gram_stride + j] = (j < n ? sums[q] : 0.0) + below * below;
    }
}
