// What fits by a compiled model on a CUDA device cannot do without: the evaluations alone, a thread a
// problem. Compiled as cuda/fit/fit_model.cu is; benchmarks/fits_gpu.py times it.
#include "cuda/fit/fit_model.cu"

extern "C" __global__ void __launch_bounds__(SW_THREADS, SW_BLOCKS)
    fit_evaluations(const Scalar* x, const Scalar* y, const Scalar* start, int64_t problems, int64_t points,
                    int64_t times, double* sums) {
#if SW_STAGED
    SW_SHARED_MEMORY
    Scalar* staged = reinterpret_cast<Scalar*>(memory) + (threadIdx.x / 32) * points * 32 + threadIdx.x % 32;
#endif
    FitModelJob job{};
    job.points = int32_t(points);
    for (int64_t problem = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; problem < problems;
         problem += int64_t(gridDim.x) * blockDim.x) {
        FitArrays arrays = {x, y + problem * points, nullptr, 1};
#if SW_STAGED
        for (int i = 0; i < points; ++i) staged[i * 32] = arrays.y[i];
        arrays.y = staged;
        arrays.step = 32;
#endif
        double at_point[SW_PARAMETERS], total = 0;
#pragma unroll
        for (int j = 0; j < SW_PARAMETERS; ++j) at_point[j] = start[problem * SW_PARAMETERS + j];
#pragma unroll 1
        for (int64_t k = 0; k < times; ++k) {
            double cost, g[SW_PARAMETERS], H[packed_size];
            evaluate(job, arrays, at_point, cost, g, H);
            total += cost;
            // (The next point waits for these numbers, so that no evaluation can be left out.)
#pragma unroll
            for (int j = 0; j < SW_PARAMETERS; ++j) at_point[j] += 1e-30 * g[j];
#pragma unroll
            for (int i = 0; i < packed_size; ++i) total += H[i];
        }
        sums[problem] = total;
    }
}
