// What is kept of fits that have ended, and the kernel that judges them and writes their answers: problems
// side by side, whatever order they ended in. Wants SW_PARAMETERS.
#pragma once

#include "core/fit/models/answer.hpp"
#include "core/fit/side_by_side/one.hpp"

using namespace stepwell;
using namespace stepwell::fit;

typedef Exactly<SW_PARAMETERS> Size;
typedef SideState<double, SW_PARAMETERS> State;

// Columns of an end: reals and whole numbers, problems side by side; how many points count is one of these.
constexpr int packed_size = SW_PARAMETERS * (SW_PARAMETERS + 1) / 2;
constexpr int end_reals = 3 * SW_PARAMETERS + packed_size + 2, end_counts = 5;

struct Columns {
    int64_t problems;
    double* reals;
    int32_t* counts;

    __device__ double& real(int at, int64_t problem) const { return reals[at * problems + problem]; }
    __device__ int32_t& count(int at, int64_t problem) const { return counts[at * problems + problem]; }
};

// Shows each number of an end with its column.
template <class Real, class Count>
static __device__ __forceinline__ void each_of_end(State& s, Real real, Count count) {
    int at = 0;
#pragma unroll
    for (int j = 0; j < SW_PARAMETERS; ++j) real(at++, s.x[j]);
#pragma unroll
    for (int j = 0; j < SW_PARAMETERS; ++j) real(at++, s.g[j]);
#pragma unroll
    for (int j = 0; j < SW_PARAMETERS; ++j) real(at++, s.scale[j]);
#pragma unroll
    for (int k = 0; k < packed_size; ++k) real(at++, s.H[k]);
    real(at++, s.cost);
    real(at++, s.promise);
    count(0, s.status);
    count(1, s.iterations);
    count(2, s.evaluations);
    count(3, s.accepted);
}

static __device__ __forceinline__ void store_end(const Columns& columns, int64_t problem, State& s,
                                                 int counted) {
    each_of_end(
        s, [&](int at, double value) { columns.real(at, problem) = value; },
        [&](int at, int32_t value) { columns.count(at, problem) = value; });
    columns.count(end_counts - 1, problem) = counted;
}

// Answers of a block's problems, each with an odd number of words of its own: the rows of a result are short,
// and threads that wrote one each would write all over the memory.
struct Gathered {
    static constexpr int threads = 128, n = SW_PARAMETERS, vector = n | 1, matrix = (n * n) | 1;
    double covariance[threads * matrix], variances[threads * vector], values[threads * vector];
    int8_t active[threads * n];

    // Says that a thread's problem is the first of arrays of its own.
    __device__ void take(FitModelJob& job) {
        if (job.covariance) job.covariance = covariance + threadIdx.x * matrix;
        if (job.variances) job.variances = variances + threadIdx.x * vector;
        job.values = values + threadIdx.x * vector;
        job.active = active + threadIdx.x * n;
    }

    template <class T>
    __device__ static void write(T* to, const T* from, int64_t first, int rows, int size, int apart) {
        if (!to) return;
        for (int k = threadIdx.x; k < rows * size; k += blockDim.x)
            to[first * size + k] = from[k / size * apart + k % size];
    }

    __device__ void write(const FitModelJob& job, int64_t first, int rows) const {
        write(job.covariance, covariance, first, rows, n * n, matrix);
        write(job.variances, variances, first, rows, n, vector);
        write(job.active, active, first, rows, n, n);
        if (job.options.single)
            write(static_cast<float*>(job.values), reinterpret_cast<const float*>(values), first, rows, n,
                  2 * vector);
        else
            write(static_cast<double*>(job.values), values, first, rows, n, vector);
    }
};

// A thread has a problem; a block has at most Gathered::threads. (Shared memory is enough for few
// parameters.)
extern "C" __global__ void fit_ends(const __grid_constant__ FitModelJob job, double* reals, int32_t* counts) {
    const int64_t first = int64_t(blockIdx.x) * blockDim.x, problem = first + threadIdx.x;
    FitModelJob own = job;
#if SW_PARAMETERS <= 5
    __shared__ Gathered gathered;
    gathered.take(own);
    own.reals += problem;
    own.counts += problem;
    const int64_t place = 0;
#else
    const int64_t place = problem;
#endif
    if (problem < job.problems) {
        const Columns columns = {job.problems, reals, counts};
        State s;
        each_of_end(
            s, [&](int at, double& value) { value = columns.real(at, problem); },
            [&](int at, int32_t& value) { value = columns.count(at, problem); });
        write_answer(Size(), own, place, job.low + problem * job.low_stride,
                     job.high + problem * job.high_stride, state_of(Size(), s),
                     columns.count(end_counts - 1, problem));
    }
#if SW_PARAMETERS <= 5
    __syncthreads();
    gathered.write(job, first, int(min_of(int64_t(blockDim.x), job.problems - first)));
#endif
}
