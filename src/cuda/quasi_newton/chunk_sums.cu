// One sum a chunk, a block each: threads take every so many elements from where the chunk begins, so that the
// sum does not depend on where that is.
#include "core/common/config.hpp"

extern "C" __global__ void __launch_bounds__(SW_THREADS)
    stepwell_chunk_sums(const double* values, int64_t n, int64_t length, int64_t before, double* sums) {
    constexpr int at_once = 4;  // loads on their way before the first is used
    __shared__ double parts[SW_THREADS];
    const int64_t from = int64_t(blockIdx.x) * length - before;
    const int64_t begin = from < 0 ? 0 : from, end = from + length < n ? from + length : n;
    double sum[at_once] = {};
    for (int64_t i = begin + threadIdx.x; i < end; i += at_once * SW_THREADS) {
#pragma unroll
        for (int k = 0; k < at_once; ++k) {
            const int64_t at = i + k * SW_THREADS;
            if (at < end) sum[k] += values[at];
        }
    }
    parts[threadIdx.x] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    __syncthreads();
    for (int half = SW_THREADS / 2; half > 0; half /= 2) {
        if (int(threadIdx.x) < half) parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = parts[0];
}
