// The kernel of src/cuda/fit/fit_model.cu on the CPU, thread by thread: its queue, and its turn side by side
// against the turn of core/fit/turn.hpp, problem by problem with the same evaluations. Prints how many
// problems differ in their status or number of evaluations, the largest difference of costs, and how many
// were written how often.
#include "device_emulator.hpp"
//
#define SW_SCALAR double
#define SW_MODEL Exponentials
#define SW_COUNT 2
#define SW_FLAG 0
#define SW_ACROSS 0
#define SW_PARAMETERS 4
#define SW_VARIABLES 1
#define SW_POINTS 0
#define SW_UNROLL_POINTS 1
#define SW_STAGED 1
#define SW_WEIGHTED 1
#define SW_OWN_X 0
#define SW_LOSS 0
#define SW_REFILL 8
#define SW_READY 24
#define SW_THREADS 64
#define SW_BLOCKS 1
#define SW_SHARED_MEMORY static __attribute__((aligned(16))) char memory[1 << 16];
#define __forceinline__ inline

inline int __popc(unsigned bits) {
    return __builtin_popcount(bits);
}

#include <random>

#include "../../src/cuda/fit/fit_model.cu"

namespace {

struct Answers {
    std::vector<double> values, variances, reals;
    std::vector<int32_t> counts;
    std::vector<int8_t> active;

    explicit Answers(size_t problems)
        : values(4 * problems),
          variances(4 * problems),
          reals(fit_reals * problems),
          counts(fit_counts * problems, -77),
          active(4 * problems) {}

    void show(FitModelJob& job) {
        job.values = values.data();
        job.variances = variances.data();
        job.reals = reals.data();
        job.counts = counts.data();
        job.active = active.data();
    }
};

}  // namespace

int main() {
    constexpr int problems = 333, points = 24;
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    std::vector<double> x(points), y(problems * points), weights(problems * points, 1.0);
    for (int i = 0; i < points; ++i) x[i] = 0.13 * i;
    for (int k = 0; k < problems; ++k) {
        const double a = 0.3 + uniform(random), b = 0.3 + uniform(random), slow = 0.3 + uniform(random);
        const double fast = slow * (3 + 7 * uniform(random));
        for (int i = 0; i < points; ++i) {
            y[k * points + i] =
                a * std::exp(-slow * x[i]) + b * std::exp(-fast * x[i]) + 0.02 * normal(random);
            if (k % 7 == 3 && i % 5 == 1) weights[k * points + i] = 0;
            if (k == 50) weights[k * points + i] = 0;
            if (k % 11 == 5 && i == 4) y[k * points + i] = double_infinity - double_infinity;
        }
    }
    const double start[] = {0.5, 0.5, 0.5, 5.0}, low[] = {0, 0.4, 0.01, 0.01}, high[] = {1.1, 5, 50, 12};
    FitLaunch launch{};
    FitModelJob& job = launch.job;
    job.problems = problems;
    job.points = points;
    job.parameters = 4;
    job.x = x.data();
    job.y = y.data();
    job.weights = weights.data();
    job.y_stride = job.weights_stride = points;
    job.start = start;
    job.low = low;
    job.high = high;
    job.options = {1e-10, 1e-10, 0, double_epsilon, 200, 1000, 0, 1};
    Answers device(problems), single(problems);
    uint64_t queue = 0;
    launch.queue = &queue;
    device.show(job);
    std::vector<double> reals(end_reals * problems);
    std::vector<int32_t> counts(end_counts * problems, -77);
    emulator::launch(2, SW_THREADS, [&] { fit_model(launch, reals.data(), counts.data()); });
    emulator::launch((problems + 63) / 64, 64, [&] { fit_ends(job, reals.data(), counts.data()); });

    single.show(job);
    for (int k = 0; k < problems; ++k) {
        const Size n;
        FitState<4> s;
        begin_fit(n, job.options, low, high, start, s);
        double squares = 0;
        int counted = 0;
        for (int i = 0; i < points; ++i) {
            const double w = weights[k * points + i], datum = w == 0 ? 0 : y[k * points + i];
            counted += w != 0;
            squares += w * datum * (w * datum);
        }
        s.floor = 8 * double_epsilon * double_epsilon * squares;
        if (counted == 0) s.status = FitStatus::no_points;
        const FitArrays problem = {x.data(), y.data() + k * points, weights.data() + k * points, 1};
        while (s.status == FitStatus::running) {
            double cost, g[4], H[10];
            evaluate(job, problem, s.trial, cost, g, H);
            fit_turn(n, job.options, low, high, s, cost, g, H);
        }
        if (s.accepted > 0) s.promise = certify(n, low, high, s, 1.0).promise;
        write_answer(n, job, k, low, high, s, counted);
    }
    int unwritten = 0, other_status = 0, other_evaluations = 0, converged = 0, at_bounds = 0;
    double cost = 0, promise = 0;
    for (int k = 0; k < problems; ++k) {
        unwritten += device.counts[k] == -77;
        other_status += device.counts[k] != single.counts[k];
        other_evaluations += device.counts[2 * problems + k] != single.counts[2 * problems + k];
        converged += device.counts[k] > 0;
        for (int j = 0; j < 4; ++j) at_bounds += device.active[4 * k + j] != 0;
        const double apart = std::fabs(device.reals[k] / single.reals[k] - 1);
        if (device.counts[k] <= 0) continue;
        cost = apart > cost ? apart : cost;
        const double promised = std::fabs(device.reals[problems + k] - single.reals[problems + k]);
        promise = promised > promise ? promised : promise;
    }
    std::printf(
        "{\"unwritten\": %d, \"status\": %d, \"evaluations\": %d, \"converged\": %d, \"at_bounds\": %d, "
        "\"cost\": %.3g, \"promise\": %.3g, \"drawn\": %d}\n",
        unwritten, other_status, other_evaluations, converged, at_bounds, cost, promise, int(queue));
}
