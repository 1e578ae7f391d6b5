// Sparse matrix times a block of columns (row-major) on a CUDA device.
//
// Rows of A go in groups of eight. A group has a slot for every column that any of its rows touches, four
// slots to a step, with eight values each (zero where a row has no entry): neighbouring rows of a projection
// matrix share most of their columns, so that a row of X, once loaded, serves two or three entries. In double
// precision a step is one 8 x 4 tile of A, multiplied by the tensor instruction; in single precision, for
// which there is no exact one, each lane keeps eight sums per column.
//
// A warp takes one group and a panel of columns: the sums are taken in the order of the slots, whatever the
// width, and never meet another warp's. Compiled with
//   SW_SCALAR   float or double
#include "cuda/tensor.cuh"

using namespace stepwell;

typedef SW_SCALAR Scalar;

constexpr int group_rows = 8, step_slots = 4, most_warps = 16;
constexpr bool by_tiles = sizeof(Scalar) == 8;
// Columns of one tile: of the tensor instruction, or one for each lane.
constexpr int tile_columns = by_tiles ? 8 : 32;
constexpr int most_tiles = by_tiles ? 16 : 4;

struct Product {
    const int64_t* starts;  // per group, its first step
    const int32_t* slots;   // per slot, its column
    const Scalar*
        values;  // per step 32: row-major (8 x 4) in double, slot by slot (4 x 8) in single precision
    const Scalar* x;
    Scalar* y;
    int64_t rows, width;
};

template <int tiles>
static __device__ void group_times_panel(const Product& job, int64_t group, int64_t first, int lane) {
    const int64_t end = job.starts[group + 1];
    if constexpr (by_tiles) {
        const int row = lane >> 2, part = lane & 3;
        double sums[tiles][2] = {};
        bool inside[tiles];
        for (int t = 0; t < tiles; ++t) inside[t] = first + t * 8 + row < job.width;
        int64_t step = job.starts[group];
        // The next step's tile and columns are on their way while this one is multiplied.
        double a = step < end ? __ldcs(job.values + step * 32 + lane) : 0.0;
        int32_t column = step < end ? job.slots[step * step_slots + part] : 0;
        while (step < end) {
            const Scalar* from = job.x + column * job.width + first + row;
            double b[tiles];
#pragma unroll
            for (int t = 0; t < tiles; ++t) b[t] = inside[t] ? from[t * 8] : 0.0;
            const double held = a;
            if (++step < end) {
                a = __ldcs(job.values + step * 32 + lane);
                column = job.slots[step * step_slots + part];
            }
#pragma unroll
            for (int t = 0; t < tiles; ++t) multiply_add(sums[t], held, b[t]);
        }
        const int64_t out = group * group_rows + row;
        if (out >= job.rows) return;
        for (int t = 0; t < tiles; ++t)
            for (int i = 0; i < 2; ++i) {
                const int64_t at = first + t * 8 + 2 * part + i;
                if (at < job.width) job.y[out * job.width + at] = sums[t][i];
            }
    } else {
        float sums[group_rows][tiles] = {};
        for (int64_t slot = job.starts[group] * step_slots; slot < end * step_slots; ++slot) {
            const Scalar* from = job.x + job.slots[slot] * job.width + first + lane;
            float a[group_rows], b[tiles];
            *reinterpret_cast<float4*>(a) = *reinterpret_cast<const float4*>(job.values + slot * group_rows);
            *reinterpret_cast<float4*>(a + 4) =
                *reinterpret_cast<const float4*>(job.values + slot * group_rows + 4);
#pragma unroll
            for (int t = 0; t < tiles; ++t) b[t] = first + t * 32 + lane < job.width ? from[t * 32] : 0.0f;
#pragma unroll
            for (int r = 0; r < group_rows; ++r)
                for (int t = 0; t < tiles; ++t) sums[r][t] += a[r] * b[t];
        }
        for (int r = 0; r < group_rows; ++r)
            for (int t = 0; t < tiles; ++t) {
                const int64_t out = group * group_rows + r, at = first + t * 32 + lane;
                if (out < job.rows && at < job.width) job.y[out * job.width + at] = sums[r][t];
            }
    }
}

template <int tiles>
static __device__ void multiply(const Product& job, int64_t groups, int64_t panels) {
    const int64_t item = blockIdx.x * int64_t(blockDim.x >> 5) + (threadIdx.x >> 5);
    if (item >= groups * panels) return;
    group_times_panel<tiles>(job, item / panels, item % panels * tiles * tile_columns, threadIdx.x & 31);
}

// One entry point per number of tiles in a panel; panels of a group are neighbours in one block.
#define SW_ENTRY(tiles)                                                                                 \
    extern "C" __global__ void __launch_bounds__(32 * most_warps)                                       \
        spmm_##tiles(int64_t starts, int64_t slots, int64_t values, int64_t x, int64_t y, int64_t rows, \
                     int64_t width, int64_t groups, int64_t panels) {                                   \
        const Product job{reinterpret_cast<const int64_t*>(starts),                                     \
                          reinterpret_cast<const int32_t*>(slots),                                      \
                          reinterpret_cast<const Scalar*>(values),                                      \
                          reinterpret_cast<const Scalar*>(x),                                           \
                          reinterpret_cast<Scalar*>(y),                                                 \
                          rows,                                                                         \
                          width};                                                                       \
        if constexpr (tiles <= most_tiles) multiply<tiles>(job, groups, panels);                        \
    }

SW_ENTRY(1)
SW_ENTRY(2)
SW_ENTRY(3)
SW_ENTRY(4)
SW_ENTRY(5)
SW_ENTRY(6)
SW_ENTRY(7)
SW_ENTRY(8)
SW_ENTRY(9)
SW_ENTRY(10)
SW_ENTRY(11)
SW_ENTRY(12)
SW_ENTRY(13)
SW_ENTRY(14)
SW_ENTRY(15)
SW_ENTRY(16)
