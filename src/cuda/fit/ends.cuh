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

// A thread has a problem.
extern "C" __global__ void fit_ends(const __grid_constant__ FitModelJob job, double* reals, int32_t* counts) {
    const int64_t problem = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (problem >= job.problems) return;
    const Columns columns = {job.problems, reals, counts};
    State s;
    each_of_end(
        s, [&](int at, double& value) { value = columns.real(at, problem); },
        [&](int at, int32_t& value) { value = columns.count(at, problem); });
    write_answer(Size(), job, problem, job.low + problem * job.low_stride,
                 job.high + problem * job.high_stride, state_of(Size(), s),
                 columns.count(end_counts - 1, problem));
}
