// Turns of fits whose model the caller's library evaluates on a CUDA device. Compiled with
//   SW_SCALAR      float or double: data, values, derivatives and parameters; sums are double
//   SW_PARAMETERS  of a problem
//   SW_LOOPS       1: loops over parameters are not unrolled (core/fit/models/numbers.hpp)
// A turn is four launches, and the host takes no part in it: fit_sums (some lanes have a row), fit_decide (a
// thread has a row, and decides as compiled models do), fit_offsets and fit_pick, which put the rows that run
// on first. `rows` are problems; those among them that have ended are passed over. States are columns of
// numbers, problems side by side: those of an end, and then what else a turn wants.
#include "cuda/fit/ends.cuh"

typedef SW_SCALAR Scalar;
constexpr int n = SW_PARAMETERS, packed = packed_size;
constexpr int lanes = 8;      // of a row, where points are added up
constexpr int threads = 128;  // of a block
constexpr unsigned whole_warp = 0xffffffffu;

constexpr int trial_column = end_reals, further_counts = end_counts;

// Shows each number of a state with its column.
template <class Real, class Count>
static __device__ __forceinline__ void each_number(State& s, Real real, Count count) {
    each_of_end(s, real, count);
    int at = trial_column;
#pragma unroll
    for (int j = 0; j < n; ++j) real(at++, s.trial[j]);
#pragma unroll
    for (int k = 0; k < packed; ++k) real(at++, s.S[k]);
    real(at++, s.radius);
    real(at++, s.damping);
    real(at++, s.floor);
    real(at++, s.predicted);
    real(at++, s.last);
    int32_t helps = s.secant_helps;
    count(further_counts, s.rejections);
    count(further_counts + 1, s.nonfinite);
    count(further_counts + 2, helps);
    s.secant_helps = helps != 0;
}

static __device__ __forceinline__ void store(const Columns& columns, int64_t problem, State& s) {
    each_number(
        s, [&](int at, double value) { columns.real(at, problem) = value; },
        [&](int at, int32_t value) { columns.count(at, problem) = value; });
}

// A thread has a problem: its state, and its place among the rows.
extern "C" __global__ void fit_begin(const __grid_constant__ FitModelJob job, double* reals, int32_t* counts,
                                     int32_t* rows, Scalar* points) {
    const int64_t problem = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (problem >= job.problems) return;
    const Scalar* start = static_cast<const Scalar*>(job.start) + problem * job.start_stride;
    double x0[n], squares = 0;
    for (int j = 0; j < n; ++j) x0[j] = double(start[j]);
    State s;
    begin_one(Size(), job.options, job.low + problem * job.low_stride, job.high + problem * job.high_stride,
              x0, s);
    // How many points count, and the squares of their data.
    const Scalar* y = static_cast<const Scalar*>(job.y) + problem * job.y_stride;
    const Scalar* w =
        job.weights ? static_cast<const Scalar*>(job.weights) + problem * job.weights_stride : nullptr;
    int counted = 0;
    for (int i = 0; i < job.points; ++i) {
        const double weight = w ? double(w[i]) : 1.0;
        if (weight == 0) continue;
        ++counted;
        if (job.y) squares += weight * double(y[i]) * (weight * double(y[i]));
    }
    if (counted == 0 && s.status == still_running) s.status = int(FitStatus::no_points);
    s.floor = is_finite(squares) ? 8 * job.options.epsilon * job.options.epsilon * squares : 0;
    const Columns columns = {job.problems, reals, counts};
    store(columns, problem, s);
    columns.count(end_counts - 1, problem) = counted;
    rows[problem] = int32_t(problem);
    for (int j = 0; j < n; ++j) points[problem * n + j] = Scalar(s.trial[j]);
}

// Values (count, points) and columns of J (n, count, points) of the rows become cost, g and H: a row of
// `sums` for each number.
extern "C" __global__ void __launch_bounds__(threads)
    fit_sums(const __grid_constant__ FitModelJob job, const int32_t* status, const int32_t* rows,
             int64_t count, const Scalar* values, const Scalar* columns, double* sums) {
    const int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / lanes;
    const int lane = threadIdx.x % lanes;
    const int64_t problem = row < count ? rows[row] : 0;
    const bool runs = row < count && status[problem] == still_running;
    double cost = 0, g[n], H[packed];
#pragma unroll
    for (int j = 0; j < n; ++j) g[j] = 0;
#pragma unroll
    for (int k = 0; k < packed; ++k) H[k] = 0;
    if (runs) {
        const Scalar* y = static_cast<const Scalar*>(job.y) + problem * job.y_stride;
        const Scalar* w =
            job.weights ? static_cast<const Scalar*>(job.weights) + problem * job.weights_stride : nullptr;
        const Scalar* value = values + row * job.points;
        const Scalar* column = columns + row * job.points;
        const int64_t apart = count * job.points;
        for (int i = lane; i < job.points; i += lanes) {
            const double weight = w ? double(w[i]) : 1.0;
            if (weight == 0) continue;
            const FitPoint found = fit_point(FitLoss(job.loss), job.loss_scale, double(value[i]),
                                             job.y ? double(y[i]) : 0.0, weight);
            cost += found.cost;
            double J[n];
#pragma unroll
            for (int j = 0; j < n; ++j) J[j] = double(column[j * apart + i]);
#pragma unroll
            for (int j = 0; j < n; ++j) {
                g[j] += found.pull * J[j];
                const double left = found.curve * J[j];
#pragma unroll
                for (int k = 0; k <= j; ++k) H[at(j, k)] += left * J[k];
            }
        }
    }
    // (Every lane has the total, and writes some of them: the numbers are many, and the rows of a warp few.)
    const auto total = [&](int place, double value) {
#pragma unroll
        for (int offset = lanes / 2; offset; offset >>= 1)
            value += __shfl_xor_sync(whole_warp, value, offset);
        if (runs && lane == place % lanes) sums[place * count + row] = value;
    };
    total(0, cost);
#pragma unroll
    for (int j = 0; j < n; ++j) total(1 + j, g[j]);
#pragma unroll
    for (int k = 0; k < packed; ++k) total(1 + n + k, H[k]);
}

// A bit of `going` for each row that runs on, and their number in every block.
extern "C" __global__ void __launch_bounds__(threads)
    fit_decide(const __grid_constant__ FitModelJob job, double* reals, int32_t* counts, const int32_t* rows,
               int64_t count, const double* sums, uint32_t* going, int32_t* totals) {
    __shared__ int32_t of_warp[threads / 32];
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const Columns columns = {job.problems, reals, counts};
    bool runs = false;
    if (row < count) {
        const int64_t problem = rows[row];
        if (counts[problem] == still_running) {
            State s;
            each_number(
                s, [&](int at, double& value) { value = columns.real(at, problem); },
                [&](int at, int32_t& value) { value = columns.count(at, problem); });
            double g[n], H[packed];
            const double cost = sums[row];
#pragma unroll
            for (int j = 0; j < n; ++j) g[j] = sums[(1 + j) * count + row];
#pragma unroll
            for (int k = 0; k < packed; ++k) H[k] = sums[(1 + n + k) * count + row];
            runs = side_turn<double>(Size(), job.options, job.low + problem * job.low_stride,
                                     job.high + problem * job.high_stride, s, cost, g, H);
            store(columns, problem, s);
        }
    }
    const unsigned bits = __ballot_sync(whole_warp, runs);
    if (threadIdx.x % 32 == 0) {
        going[row / 32] = bits;
        of_warp[threadIdx.x / 32] = __popc(bits);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int32_t sum = 0;
        for (int k = 0; k < int(blockDim.x) / 32; ++k) sum += of_warp[k];
        totals[blockIdx.x] = sum;
    }
}

// Numbers of the blocks become those of the blocks before; their sum is `running`, and `seen` by the host.
// One block.
extern "C" __global__ void fit_offsets(int32_t* totals, int64_t blocks, int32_t* running, int32_t* seen) {
    __shared__ int32_t of_warp[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int32_t before = 0;
    for (int64_t first = 0; first < blocks; first += blockDim.x) {
        const int64_t block = first + threadIdx.x;
        const int32_t own = block < blocks ? totals[block] : 0;
        int32_t sum = own;
#pragma unroll
        for (int offset = 1; offset < 32; offset <<= 1) {
            const int32_t left = __shfl_up_sync(whole_warp, sum, offset);
            if (lane >= offset) sum += left;
        }
        if (lane == 31) of_warp[warp] = sum;
        __syncthreads();
        int32_t whole = 0;
        for (int k = 0; k < int(blockDim.x) / 32; ++k) {
            if (k == warp) sum += whole;
            whole += of_warp[k];
        }
        if (block < blocks) totals[block] = before + sum - own;
        before += whole;
        __syncthreads();
    }
    if (threadIdx.x == 0) *running = *seen = before;
}

// Rows in their order, those that run on first, with the points that they want.
extern "C" __global__ void __launch_bounds__(threads)
    fit_pick(int64_t problems, double* reals, const uint32_t* going, const int32_t* totals,
             const int32_t* running, const int32_t* rows, int64_t count, int32_t* next, Scalar* points) {
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= count) return;
    const uint32_t bits = going[row / 32], own = 1u << (row % 32);
    int32_t before = totals[row / threads] + __popc(bits & (own - 1));
    for (int64_t word = row / threads * (threads / 32); word < row / 32; ++word)
        before += __popc(going[word]);
    const int64_t to = bits & own ? before : *running + (row - before);
    const int64_t problem = rows[row];
    next[to] = int32_t(problem);
    const Columns columns = {problems, reals, nullptr};
    for (int j = 0; j < n; ++j) points[to * n + j] = Scalar(columns.real(trial_column + j, problem));
}
