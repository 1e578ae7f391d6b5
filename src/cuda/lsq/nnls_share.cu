// What systems with one matrix share, prepared once. Compiled for a matrix of system_matrix.cuh.
#include "core/lsq/launch.hpp"
#include "cuda/lsq/sweeps.cuh"
#include "cuda/lsq/system_matrix.cuh"
#include "cuda/lsq/system_teams.cuh"

using namespace stepwell;
using namespace stepwell::lsq;

template <class T>
static __device__ T* writable(const T* p) {
    return const_cast<T*>(p);
}

// A pulse has an envelope of its own; a dense matrix has its columns' bounds.
template <class T>
static __device__ void trim(const SystemWarp&, const Dense<T>&, Envelope) {}
template <class T>
static __device__ void trim(const SystemWarp& team, const Convolution<T>& matrix, Envelope envelope) {
    matrix.trim(team, envelope);
}
template <class T>
static __device__ void trim(const SystemWarp& team, const Stacked<T>& matrix, Envelope envelope) {
    trim(team, matrix.top, envelope);
}

// Scale and norm of a column from its square in A, and where it is not zero, from where it is not in A; of a
// stacked matrix its square in L as well.
template <class T>
static __device__ void describe(const Launch& launch, const T& matrix, int j, double square, int& low,
                                int& high, double& scale, double& norm) {
    scale_column(matrix, j, square, launch.job.options.damping, scale, norm);
}
template <class T>
static __device__ void describe(const Launch& launch, const Stacked<T>& matrix, int j, double square,
                                int& low, int& high, double& scale, double& norm) {
    const Shared& shared = launch.shared;
    scale_stacked(matrix, j, square, scale, norm);
    writable(shared.top_norm)[j] = norm;
    writable(shared.penalty_diagonal)[j] = square_in_penalty(matrix, j, scale);
    // The product with A goes by where its own columns are not zero.
    if (matrix.pulse_length() == 0 && j < matrix.top.columns) {
        shared.envelope.low[j] = low;
        shared.envelope.high[j] = high;
    }
    if (matrix.rows_beneath() > 0) {
        low = 0;
        high = matrix.rows;
    }
}
template <class T>
static __device__ int rows_of_a(const T& matrix) {
    return matrix.rows;
}
template <class T>
static __device__ int rows_of_a(const Stacked<T>& matrix) {
    return matrix.top.rows;
}

// Of a matrix that all systems share: scale, norm and scaled copy of every column. A warp a column.
extern "C" __global__ void nnls_share_columns(const __grid_constant__ Launch launch) {
    const Matrix* kind = nullptr;
    const Matrix matrix = matrix_of(launch.job, launch.matrix, kind);
    const Shared& shared = launch.shared;
    const SystemWarp team;
    const int warps = (blockDim.x >> 5) * gridDim.x;
    if (blockIdx.x == 0 && threadIdx.x < 32) trim(team, matrix, shared.envelope);
    for (int j = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5); j < matrix.columns; j += warps) {
        double square = 0;
        int low = matrix.rows, high = 0;
        team.each(rows_of_a(matrix), [&](int i) {
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
        low = min_of(low, high);
        double scale, norm;
        describe(launch, matrix, j, square, low, high, scale, norm);
        double* column = writable(shared.columns) + j * shared.column_stride;
        team.each(static_cast<int>(shared.column_stride),
                  [&](int i) { column[i] = i < matrix.rows ? scale * matrix.entry(i, j) : 0.0; });
        if (team.rank() == 0) {
            writable(shared.scale)[j] = scale;
            if (shared.norm) {
                writable(shared.norm)[j] = norm;
                writable(shared.inverse_norm)[j] = norm > 0 ? 1.0 / norm : 0.0;
            }
            writable(shared.low)[j] = low;
            writable(shared.high)[j] = high;
        }
    }
}

// Products of all pairs of scaled columns within some rows, damping on the diagonal: tiles of 32 x 32, blocks
// of 32 x 8 threads.
extern "C" __global__ void nnls_share_gram(const __grid_constant__ Launch launch) {
    constexpr int tile = 32, height = 8;
    __shared__ double left[tile][tile + 1], right[tile][tile + 1];
    const Shared& shared = launch.shared;
    const int n = launch.job.columns + launch.job.constraints.slack;
    const int64_t stride = shared.column_stride, last = launch.last_row;
    const double* columns = shared.columns;
    const int row = blockIdx.y * tile, column = blockIdx.x * tile;
    double sums[tile / height] = {};
    for (int64_t start = launch.first_row; start < last; start += tile) {
        for (int t = threadIdx.y; t < tile; t += height) {
            const bool inside = start + threadIdx.x < last;
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
    double* gram = launch.products;
    for (int q = 0; q < tile / height; ++q) {
        const int i = row + threadIdx.y + q * height, j = column + threadIdx.x;
        if (i >= n || j >= shared.gram_stride) continue;
        const double below = i == j && j < n ? launch.job.options.damping * shared.scale[j] : 0.0;
        gram[i * shared.gram_stride + j] = (j < n ? sums[q] : 0.0) + below * below;
    }
}
