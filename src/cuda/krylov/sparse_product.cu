// Sparse matrix times a block of columns (row-major) on a CUDA device.
//
// Rows of A go in groups of eight. A group has a slot for every column that any of its rows touches, four
// slots to a step, with eight values each (zero where a row has no entry): neighbouring rows of a projection
// matrix share most of their columns, so that a row of X, once loaded, serves two or three entries. In double
// precision a step is one 8 x 4 tile of A, multiplied by the tensor instruction; in single precision, for
// which there is no exact one, each lane keeps eight sums per column.
//
// A block takes one group and a panel of columns; its warps take the steps in turn, so that many loads are
// under way at once, and their sums are added in the order of the warps: the result does not depend on the
// width. Compiled with
//   SW_SCALAR   float or double
//   SW_GROUP_ROWS, SW_STEP_SLOTS, SW_WARPS_IN_BLOCK, SW_TILE_COLUMNS, SW_MAX_TILES
//               the sizes that operators/cuda_sparse.py arranges the matrix and launches by
#include "cuda/common/tensor.cuh"

using namespace stepwell;

typedef SW_SCALAR Scalar;

constexpr int group_rows = SW_GROUP_ROWS, step_slots = SW_STEP_SLOTS, warps_in_block = SW_WARPS_IN_BLOCK;
constexpr bool by_tiles = sizeof(Scalar) == 8;
// Columns of one tile: of the tensor instruction, or one for each lane.
constexpr int tile_columns = SW_TILE_COLUMNS, max_tiles = SW_MAX_TILES;
static_assert(group_rows == 8 && step_slots == 4 && tile_columns == (by_tiles ? 8 : 32),
              "the lanes of a warp");
// Sums that a lane keeps for one tile.
constexpr int lane_sums = by_tiles ? 2 : group_rows;

struct Product {
    const int64_t* starts;  // per group, its first step
    const int32_t* slots;   // per slot, its column
    const Scalar*
        values;  // per step 32: row by row (8 x 4) in double, slot by slot (4 x 8) in single precision
    const Scalar* x;
    Scalar* y;
    int64_t rows, width;
};

template <int tiles>
static __device__ void take_steps(const Product& job, int64_t step, int64_t end, int64_t first, int lane,
                                  double (&sums)[tiles][2]) {
    const int row = lane >> 2, part = lane & 3;
    bool inside[tiles];
#pragma unroll
    for (int t = 0; t < tiles; ++t) inside[t] = first + t * tile_columns + row < job.width;
    // The next step's tile and columns are on their way while this one is multiplied.
    double a = step < end ? __ldcs(job.values + step * 32 + lane) : 0.0;
    int32_t column = step < end ? job.slots[step * step_slots + part] : 0;
    while (step < end) {
        const Scalar* from = job.x + column * job.width + first + row;
        double b[tiles];
#pragma unroll
        for (int t = 0; t < tiles; ++t) b[t] = inside[t] ? from[t * tile_columns] : 0.0;
        const double held = a;
        step += warps_in_block;
        if (step < end) {
            a = __ldcs(job.values + step * 32 + lane);
            column = job.slots[step * step_slots + part];
        }
#pragma unroll
        for (int t = 0; t < tiles; ++t) multiply_add(sums[t], held, b[t]);
    }
}

template <int tiles>
static __device__ void take_steps(const Product& job, int64_t step, int64_t end, int64_t first, int lane,
                                  float (&sums)[tiles][group_rows]) {
    bool inside[tiles];
#pragma unroll
    for (int t = 0; t < tiles; ++t) inside[t] = first + t * tile_columns + lane < job.width;
    for (; step < end; step += warps_in_block) {
        const int4 columns = *reinterpret_cast<const int4*>(job.slots + step * step_slots);
        const int32_t column[step_slots] = {columns.x, columns.y, columns.z, columns.w};
        float b[step_slots][tiles];
#pragma unroll
        for (int part = 0; part < step_slots; ++part)
#pragma unroll
            for (int t = 0; t < tiles; ++t)
                b[part][t] =
                    inside[t] ? job.x[column[part] * job.width + first + t * tile_columns + lane] : 0.0f;
        const float4* values = reinterpret_cast<const float4*>(job.values + step * 32);
#pragma unroll
        for (int part = 0; part < step_slots; ++part) {
            const float4 low = values[2 * part], high = values[2 * part + 1];
            const float a[group_rows] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
            for (int t = 0; t < tiles; ++t)
#pragma unroll
                for (int r = 0; r < group_rows; ++r) sums[t][r] += a[r] * b[part][t];
        }
    }
}

template <int tiles>
static __device__ void multiply(const Product& job, int64_t panels) {
    __shared__ Scalar others[warps_in_block - 1][tiles * lane_sums][32];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int64_t group = blockIdx.x / panels, first = blockIdx.x % panels * tiles * tile_columns;
    Scalar sums[tiles][lane_sums] = {};
    take_steps<tiles>(job, job.starts[group] + warp, job.starts[group + 1], first, lane, sums);
    if (warp > 0) {
#pragma unroll
        for (int t = 0; t < tiles; ++t)
#pragma unroll
            for (int i = 0; i < lane_sums; ++i) others[warp - 1][t * lane_sums + i][lane] = sums[t][i];
    }
    __syncthreads();
    if (warp > 0) return;
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
        for (int i = 0; i < lane_sums; ++i) {
            Scalar sum = sums[t][i];
            for (int w = 1; w < warps_in_block; ++w) sum += others[w - 1][t * lane_sums + i][lane];
            const int64_t row = group * group_rows + (by_tiles ? lane >> 2 : i);
            const int64_t column = first + t * tile_columns + (by_tiles ? 2 * (lane & 3) + i : lane);
            if (row < job.rows && column < job.width) job.y[row * job.width + column] = sum;
        }
}

// One entry point per number of tiles in a panel.
#define SW_ENTRY(tiles)                                                                                 \
    extern "C" __global__ void __launch_bounds__(32 * warps_in_block)                                   \
        spmm_##tiles(int64_t starts, int64_t slots, int64_t values, int64_t x, int64_t y, int64_t rows, \
                     int64_t width, int64_t panels) {                                                   \
        if constexpr (tiles <= max_tiles)                                                               \
            multiply<tiles>(                                                                            \
                {reinterpret_cast<const int64_t*>(starts), reinterpret_cast<const int32_t*>(slots),     \
                 reinterpret_cast<const Scalar*>(values), reinterpret_cast<const Scalar*>(x),           \
                 reinterpret_cast<Scalar*>(y), rows, width},                                            \
                panels);                                                                                \
    }

SW_ENTRY(1)
SW_ENTRY(2)
SW_ENTRY(3)
SW_ENTRY(4)
SW_ENTRY(5)
SW_ENTRY(6)
SW_ENTRY(7)
SW_ENTRY(8)
