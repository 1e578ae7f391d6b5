// A turn of fits whose model the caller's library evaluates on a CUDA device. Compiled with
//   SW_SCALAR      float or double: data, values, derivatives and parameters; sums are double
//   SW_PARAMETERS  of a problem
// A warp has a problem: its lanes add up the points, the first of them decides (core/fit/turn.hpp).
#include "core/fit/models/answer.hpp"
#include "core/fit/turn.hpp"

using namespace stepwell;
using namespace stepwell::fit;

typedef SW_SCALAR Scalar;
typedef Exactly<SW_PARAMETERS> Size;
typedef FitState<SW_PARAMETERS> State;
constexpr int n = SW_PARAMETERS;
constexpr int packed = n * (n + 1) / 2;
constexpr int warps = 4;  // of a block

static __device__ __forceinline__ double warp_sum(double value) {
#pragma unroll
    for (int offset = 16; offset; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

// How many points count, and the squares of their data.
static __device__ int count_points(const FitModelJob& job, int64_t problem, double& squares) {
    const Scalar* y = static_cast<const Scalar*>(job.y) + problem * job.y_stride;
    const Scalar* w =
        job.weights ? static_cast<const Scalar*>(job.weights) + problem * job.weights_stride : nullptr;
    int counted = 0;
    squares = 0;
    for (int i = 0; i < job.points; ++i) {
        const double weight = w ? double(w[i]) : 1.0;
        if (weight == 0) continue;
        ++counted;
        if (job.y) squares += weight * double(y[i]) * (weight * double(y[i]));
    }
    return counted;
}

static __device__ void write_trial(Scalar* trial, int64_t problem, const State& s) {
    for (int j = 0; j < n; ++j) trial[problem * n + j] = Scalar(s.trial[j]);
}

// A thread has a problem.
extern "C" __global__ void fit_begin(const __grid_constant__ FitModelJob job, State* states, Scalar* trial,
                                     int32_t* status) {
    const int64_t problem = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (problem >= job.problems) return;
    const Scalar* start = static_cast<const Scalar*>(job.start) + problem * job.start_stride;
    double x0[n], squares;
    for (int j = 0; j < n; ++j) x0[j] = double(start[j]);
    State& s = states[problem];
    begin_fit(Size(), job.options, job.low + problem * job.low_stride, job.high + problem * job.high_stride,
              x0, s);
    const int counted = count_points(job, problem, squares);
    if (counted == 0 && s.status == FitStatus::running) s.status = FitStatus::no_points;
    s.floor = is_finite(squares) ? 8 * job.options.epsilon * job.options.epsilon * squares : 0;
    write_trial(trial, problem, s);
    status[problem] = int32_t(s.status);
}

// Rows are problems that run: values (rows, points), columns of J (n, rows, points) with column_stride
// between them.
extern "C" __global__ void __launch_bounds__(32 * warps)
    fit_turn_rows(const __grid_constant__ FitModelJob job, State* states, Scalar* trial, int32_t* status,
                  const int32_t* rows, int64_t count, const Scalar* values, const Scalar* columns,
                  int64_t column_stride) {
    __shared__ __align__(16) State kept[warps];
    __shared__ double sums[warps][1 + n + packed];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int64_t row = int64_t(blockIdx.x) * warps + warp;
    if (row >= count) return;
    const int64_t problem = rows[row];
    // The state comes and goes by words, which lie side by side.
    constexpr int words = int(sizeof(State) / sizeof(int32_t));
    const int32_t* from = reinterpret_cast<const int32_t*>(states + problem);
    int32_t* here = reinterpret_cast<int32_t*>(kept + warp);
    for (int k = lane; k < words; k += 32) here[k] = from[k];

    const Scalar* y = static_cast<const Scalar*>(job.y) + problem * job.y_stride;
    const Scalar* w =
        job.weights ? static_cast<const Scalar*>(job.weights) + problem * job.weights_stride : nullptr;
    const Scalar* value = values + row * job.points;
    const Scalar* column = columns + row * job.points;
    double cost = 0, g[n], H[packed];
#pragma unroll
    for (int j = 0; j < n; ++j) g[j] = 0;
#pragma unroll
    for (int k = 0; k < packed; ++k) H[k] = 0;
    for (int i = lane; i < job.points; i += 32) {
        const double weight = w ? double(w[i]) : 1.0;
        if (weight == 0) continue;
        const FitPoint found = fit_point(FitLoss(job.loss), job.loss_scale, double(value[i]),
                                         job.y ? double(y[i]) : 0.0, weight);
        cost += found.cost;
        double J[n];
#pragma unroll
        for (int j = 0; j < n; ++j) J[j] = double(column[j * column_stride + i]);
#pragma unroll
        for (int j = 0; j < n; ++j) {
            g[j] += found.pull * J[j];
            const double left = found.curve * J[j];
#pragma unroll
            for (int k = 0; k <= j; ++k) H[at(j, k)] += left * J[k];
        }
    }
    cost = warp_sum(cost);
#pragma unroll
    for (int j = 0; j < n; ++j) g[j] = warp_sum(g[j]);
#pragma unroll
    for (int k = 0; k < packed; ++k) H[k] = warp_sum(H[k]);
    double* own = sums[warp];
    if (lane == 0) {
#pragma unroll
        for (int j = 0; j < n; ++j) own[1 + j] = g[j];
#pragma unroll
        for (int k = 0; k < packed; ++k) own[1 + n + k] = H[k];
    }
    __syncwarp();
    if (lane == 0) {
        State& s = kept[warp];
        fit_turn(Size(), job.options, job.low + problem * job.low_stride,
                 job.high + problem * job.high_stride, s, cost, own + 1, own + 1 + n);
        write_trial(trial, problem, s);
        status[problem] = int32_t(s.status);
    }
    __syncwarp();
    int32_t* to = reinterpret_cast<int32_t*>(states + problem);
    for (int k = lane; k < words; k += 32) to[k] = here[k];
}

// A thread has a problem.
extern "C" __global__ void fit_ends(const __grid_constant__ FitModelJob job, const State* states) {
    const int64_t problem = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (problem >= job.problems) return;
    double squares;
    const int counted = count_points(job, problem, squares);
    write_answer(Size(), job, problem, job.low + problem * job.low_stride,
                 job.high + problem * job.high_stride, states[problem], counted);
}
