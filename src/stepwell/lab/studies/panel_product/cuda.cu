// The panel product on its own: C = L Rᵀ for panels of eight long rows, as the absorb sweep takes it of its
// history, so that it can be measured against the vendor's library.
//
// Of eight rows and eight columns each lane loads 16 bytes of either panel, two instructions' worth. Blocks
// add their warps' sums in order, and the last block adds the blocks': the result does not depend on timing.
#include "cuda/common/tensor.cuh"

namespace {
constexpr int threads = SW_THREADS, warps = threads / 32;
}

// Rows start `stride` elements apart, an even number, on 16-byte boundaries. `partials` holds 64 numbers a
// block; `counter` is zero, and is left so.
extern "C" __global__ void __launch_bounds__(threads)
    stepwell_panel(const double* left, const double* right, int64_t length, int64_t stride, double* partials,
                   double* out, unsigned int* counter) {
    __shared__ double sums[warps * 64];
    __shared__ bool last;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const double* a = left + (lane >> 2) * stride + 2 * (lane & 3);
    const double* b = right + (lane >> 2) * stride + 2 * (lane & 3);
    double c[2] = {0, 0};
    const int64_t whole = length - length % 8, step = int64_t(gridDim.x) * warps * 8;
#pragma unroll 4
    for (int64_t at = (int64_t(blockIdx.x) * warps + warp) * 8; at < whole; at += step) {
        const double2 x = *reinterpret_cast<const double2*>(a + at);
        const double2 y = *reinterpret_cast<const double2*>(b + at);
        stepwell::multiply_add(c, x.x, y.x);
        stepwell::multiply_add(c, x.y, y.y);
    }
    if (whole < length && blockIdx.x == 0 && warp == 0) {
        const int column = 2 * (lane & 3), rest = int(length - whole);
        const double x0 = column < rest ? a[whole] : 0, x1 = column + 1 < rest ? a[whole + 1] : 0;
        const double y0 = column < rest ? b[whole] : 0, y1 = column + 1 < rest ? b[whole + 1] : 0;
        stepwell::multiply_add(c, x0, y0);
        stepwell::multiply_add(c, x1, y1);
    }
    sums[warp * 64 + (lane >> 2) * 8 + 2 * (lane & 3)] = c[0];
    sums[warp * 64 + (lane >> 2) * 8 + 2 * (lane & 3) + 1] = c[1];
    __syncthreads();
    if (threadIdx.x < 64) {
        double total = 0;
        for (int w = 0; w < warps; ++w) total += sums[w * 64 + threadIdx.x];
        __stcg((gridDim.x == 1 ? out : partials + int64_t(blockIdx.x) * 64) + threadIdx.x, total);
    }
    if (gridDim.x == 1) return;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(counter, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    // Four threads an element, each over every fourth block.
    const int element = threadIdx.x & 63, part = threadIdx.x >> 6;
    double total = 0;
#pragma unroll 8
    for (int block = part; block < int(gridDim.x); block += threads / 64)
        total += __ldcg(partials + int64_t(block) * 64 + element);
    sums[threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.x < 64)
        out[threadIdx.x] = (sums[threadIdx.x] + sums[64 + threadIdx.x]) +
                           (sums[128 + threadIdx.x] + sums[192 + threadIdx.x]);
    if (threadIdx.x == 0) *counter = 0;
}
