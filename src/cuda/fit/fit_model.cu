// Fits by a compiled model on a CUDA device, whole fits in one launch: a thread has a problem, evaluates the
// model and decides (core/fit), and takes the next problem from a queue when it has ended; what holds there
// is kept, and judged by another launch (ends.cuh). Some searches of a trial point take one factorisation and
// some take ten: threads whose search has ended wait for others, so that most of a warp evaluate the model
// together, but not for the last. Compiled with
//   SW_SCALAR      float or double: what data and model are in; sums are double
//   SW_MODEL       the model (core/fit/models), with SW_COUNT, SW_FLAG, SW_ACROSS, its shape
//   SW_PARAMETERS, SW_VARIABLES
//   SW_POINTS      points of a problem; 0: known when it runs
//   SW_UNROLL_POINTS  how many of them code is written for; of a grid, those of a row
//   SW_STAGED      1: a problem's data lie in shared memory
//   SW_WEIGHTED, SW_OWN_X   1: problems have weights; x of their own
//   SW_LOSS        a FitLoss
//   SW_ROW         of an expression: statements that set value and J from p and x; else not defined
//   SW_REFILL      threads of a warp that have to have ended before they take further problems
//   SW_READY       threads of 32 that run that have to be ready before they evaluate the model
//   SW_THREADS     threads of a block
//   SW_BLOCKS      blocks of a multiprocessor that registers have to be there for
#include "core/fit/models/decays.hpp"
#include "core/fit/models/launch.hpp"
#include "core/fit/models/peaks.hpp"
#include "core/fit/models/spots.hpp"
#include "core/fit/models/tofts.hpp"
#include "cuda/fit/ends.cuh"
#include "cuda/fit/expression.cuh"

// (A test that runs this source on a CPU says where its shared memory is.)
#if !defined(SW_SHARED_MEMORY)
#define SW_SHARED_MEMORY extern __shared__ __align__(16) char memory[];
#endif

typedef SW_SCALAR Scalar;
typedef Shape<Exactly<SW_COUNT>, Exactly<SW_FLAG>, Exactly<SW_ACROSS>> DeviceShape;

// The arrays of a thread's problem.
struct FitArrays {
    const Scalar *x, *y, *weights;
    int step;  // between its points: 1, or 32 where lanes of a warp lie side by side
};

// Cost, g and H at a point, summed in the order of the points.
static __device__ __forceinline__ void evaluate(const FitModelJob& job, const FitArrays& problem,
                                                const double* trial, double& cost, double* g, double* H) {
    constexpr int n = SW_PARAMETERS;
    Scalar p[n];
#pragma unroll
    for (int j = 0; j < n; ++j) {
        p[j] = Scalar(trial[j]);
        g[j] = 0;
    }
#pragma unroll
    for (int k = 0; k < n * (n + 1) / 2; ++k) H[k] = 0;
    cost = 0;
    constexpr DeviceShape shape = {};
    SW_MODEL<Scalar, DeviceShape> model(shape, p);
    const int points = SW_POINTS ? SW_POINTS : job.points;
    constexpr int together = SW_UNROLL_POINTS;
    const auto add = [&](int i, int column) {
        Scalar x[SW_VARIABLES], value, J[n];
#pragma unroll
        for (int v = 0; v < SW_VARIABLES; ++v) x[v] = problem.x[v * points + i];
#if SW_ACROSS
        model.cell(x, i, column, value, J);
#else
        model.row(x, i, value, J);
#endif
        const Scalar y = problem.y[i * problem.step];
#if SW_LOSS == 0
        Scalar r = value - y;
#if SW_WEIGHTED
        const Scalar w = problem.weights[i * problem.step];
        r = w == 0 ? Scalar(0) : w * r;
#pragma unroll
        for (int j = 0; j < n; ++j) J[j] = w == 0 ? Scalar(0) : w * J[j];
#endif
        const double residual = r;
        cost += residual * residual;
        const double pull = residual, curve = 1;
#else
        const double w = SW_WEIGHTED ? double(problem.weights[i * problem.step]) : 1.0;
        if (w == 0) return;
        const FitPoint found = fit_point(FitLoss(SW_LOSS), job.loss_scale, value, y, w);
        cost += 2 * found.cost;
        const double pull = found.pull, curve = found.curve;
#endif
        double row[n];
#pragma unroll
        for (int j = 0; j < n; ++j) row[j] = J[j];
#pragma unroll
        for (int j = 0; j < n; ++j) {
            g[j] += row[j] * pull;
            const double left = SW_LOSS == 0 ? row[j] : curve * row[j];
#pragma unroll
            for (int k = 0; k <= j; ++k) H[at(j, k)] += left * row[k];
        }
    };
#if SW_ACROSS
#pragma unroll 1
    for (int first = 0; first < points; first += SW_ACROSS) {
#pragma unroll together
        for (int column = 0; column < SW_ACROSS; ++column) add(first + column, column);
    }
#else
#pragma unroll together
    for (int i = 0; i < points; ++i) add(i, 0);
#endif
    cost *= 0.5;
}

extern "C" __global__ void __launch_bounds__(SW_THREADS, SW_BLOCKS)
    fit_model(const __grid_constant__ FitLaunch launch, double* reals, int32_t* counts) {
#if SW_STAGED
    SW_SHARED_MEMORY
#endif
    constexpr unsigned all = 0xffffffffu;
    // Threads that wait until as many of their warp have ended: together they write and read.
    constexpr int refill = SW_REFILL;
    const FitModelJob& job = launch.job;
    const Size n;
    const int points = SW_POINTS ? SW_POINTS : job.points;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#if SW_STAGED
    Scalar* staged = reinterpret_cast<Scalar*>(memory) + warp * points * 32 * (1 + SW_WEIGHTED) + lane;
#endif
    State s;
    FitArrays problem = {static_cast<const Scalar*>(job.x), nullptr, nullptr, 1};
    int64_t number = -1;
    int counted = 0;
    const double *low = job.low, *high = job.high;
    Aim<double, SW_PARAMETERS> aim;
    aim.need = false;
    bool running = false, dry = false;
    for (;;) {
        const unsigned busy = __ballot_sync(all, running), aiming = __ballot_sync(all, aim.need);
        if (!dry && 32 - __popc(busy) >= refill || busy == 0) {
            if (!running && number >= 0) {
                store_end({job.problems, reals, counts}, number, s, counted);
                number = -1;
            }
            if (dry) return;
            const unsigned idle = ~busy;
            unsigned long long first = 0;
            if (lane == 0)
                first = atomicAdd(reinterpret_cast<unsigned long long*>(launch.queue),
                                  static_cast<unsigned long long>(__popc(idle)));
            first = __shfl_sync(all, first, 0);
            dry = static_cast<int64_t>(first) + __popc(idle) >= job.problems;
            const int64_t next = static_cast<int64_t>(first) + __popc(idle & ((1u << lane) - 1));
            if (!running && next < job.problems) {
                number = next;
                const Scalar* y = static_cast<const Scalar*>(job.y) + number * job.y_stride;
                const Scalar* w = SW_WEIGHTED
                                      ? static_cast<const Scalar*>(job.weights) + number * job.weights_stride
                                      : nullptr;
                double squares = 0;
                counted = 0;
                for (int i = 0; i < points; ++i) {
                    const Scalar weight = SW_WEIGHTED ? w[i] : Scalar(1),
                                 datum = weight == 0 ? Scalar(0) : y[i];
                    counted += weight != 0;
                    squares += double(weight) * datum * (double(weight) * datum);
#if SW_STAGED
                    staged[i * 32] = datum;
                    if (SW_WEIGHTED) staged[(points + i) * 32] = weight;
#endif
                }
#if SW_STAGED
                problem.y = staged;
                problem.weights = staged + points * 32;
                problem.step = 32;
#else
                problem.y = y;
                problem.weights = w;
#endif
                if (SW_OWN_X) problem.x = static_cast<const Scalar*>(job.x) + number * job.x_stride;
                low = job.low + number * job.low_stride;
                high = job.high + number * job.high_stride;
                const Scalar* start = static_cast<const Scalar*>(job.start) + number * job.start_stride;
                double x0[SW_PARAMETERS];
#pragma unroll
                for (int j = 0; j < n; ++j) x0[j] = start[j];
                begin_one(n, job.options, low, high, x0, s);
                s.floor = 8 * job.options.epsilon * job.options.epsilon * squares;
                if (counted == 0 && s.status == still_running) s.status = int(FitStatus::no_points);
                running = s.status == still_running;
            }
            __syncwarp();
        }
        // (A thread whose problem is new is ready, too.)
        if (32 * __popc(aiming) > (32 - SW_READY) * __popc(busy)) {
            if (aim.need) {
                aim_goes_on(n, job.options, low, high, s, aim);
                if (!aim.need) {
                    aim_ends(n, job.options, low, high, s, aim);
                    running = s.status == still_running;
                }
            }
        } else if (running && !aim.need) {
            double cost, g[SW_PARAMETERS], H[SW_PARAMETERS * (SW_PARAMETERS + 1) / 2];
            evaluate(job, problem, s.trial, cost, g, H);
            side_turn_begins<double>(n, job.options, low, high, s, cost, g, H, aim);
            running = aim.need;
        }
    }
}
