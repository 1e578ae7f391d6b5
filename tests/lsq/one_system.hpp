// One system with its memory and its answer, for the programs that solve it with a team of threads. Include
// after what the solver's headers depend on (see device_branches.cpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "core/lsq/job.hpp"
#if defined(__CUDACC__)  // lanes.hpp
#include "cuda/lsq/sweeps.cuh"
#else
#include "host/lsq/sweeps.hpp"
#endif

using namespace stepwell;
using namespace stepwell::lsq;

// A dense system of random numbers; `job` points into it.
struct RandomSystem {
    template <class Random>
    RandomSystem(int m, int n, NnlsOptions options, Random& random)
        : a(static_cast<size_t>(m) * n), b(m), start(n) {
        std::uniform_real_distribution<double> uniform(0, 1);
        for (double& value : a) value = uniform(random);
        for (double& value : b) value = uniform(random);
        for (double& value : start) value = uniform(random) - 0.5;
        job.rows = m;
        job.columns = n;
        job.a = a.data();
        job.row_stride = n;
        job.b = b.data();
        job.b_stride = m;
        job.options = options;
    }
    RandomSystem(const RandomSystem&) = delete;
    std::vector<double> a, b, start;
    Job job{};
};

inline Job pulse_job(const std::vector<double>& pulse, int origin, const std::vector<double>& b) {
    Job job{};
    job.rows = job.columns = static_cast<int32_t>(b.size());
    job.a = pulse.data();
    job.pulse_length = static_cast<int32_t>(pulse.size());
    job.pulse_origin = origin;
    job.b = b.data();
    job.options = {0.0, 3e-15, 0.0, 1000, gram, 1, 0};
    return job;
}

// All memory starts as NaN: what is read before it is written shows.
template <class Matrix>
struct OneSystem {
    OneSystem(const Job& given, int members, int64_t fast_bytes = 0, const Shared& shared = Shared())
        : job(given),
          matrix(matrix_of(job, 0, static_cast<const Matrix*>(nullptr))),
          x(job.columns),
          dual(job.columns),
          in_factor(job.columns),
          fast(fast_bytes / 8 + 16, std::nan("")) {
        job.systems = 1;
        job.x = x.data();
        job.dual = dual.data();
        job.in_factor = in_factor.data();
        job.residual = &residual;
        job.violation = &reported;
        int32_t** fields[] = {&job.status, &job.insertions, &job.removals,
                              &job.solves, &job.passes,     &job.escalated};
        for (int k = 0; k < 6; ++k) *fields[k] = counts + k;
        job.costs = costs;
        if (job.constraints.general) {
            state.resize(job.columns);
            job.constraints.state = state.data();
            double** reals[] = {&job.constraints.multiplier, &job.constraints.equality_error,
                                &job.constraints.used_lam,   &job.constraints.fit,
                                &job.constraints.seminorm,   &job.constraints.unpenalized};
            for (int k = 0; k < 6; ++k) *reals[k] = more + k;
            int32_t** numbers[] = {&job.constraints.at_end, &job.constraints.evaluations,
                                   &job.constraints.passive};
            for (int k = 0; k < 3; ++k) *numbers[k] = more_counts + k;
            deviation.resize(job.columns);
            job.constraints.deviation = deviation.data();
        }
        const Extent extent = extent_of(job, matrix, members, shared.columns == nullptr);
        slow.assign(Workspace::bytes(extent) / 8 + 16, std::nan(""));
        task.arrange(job.options, extent, shared, Arena{aligned(fast), fast_bytes, aligned(slow)});
        task.take(matrix);
    }
    OneSystem(const OneSystem&) = delete;

    template <class Team>
    void solve(const Team& team) {
        solve_system<NumbersOf<double>>(team, job, 0, task);
    }

    Job job;
    Matrix matrix;
    Task<Matrix> task;
    std::vector<double> x, dual;
    std::vector<uint8_t> in_factor;
    double residual = 0, reported = 0;
    int32_t counts[6] = {};
    int64_t costs[4] = {};
    // Of general problems.
    std::vector<int8_t> state;
    std::vector<double> deviation;
    double more[6] = {};
    int32_t more_counts[3] = {};

private:
    static char* aligned(std::vector<double>& v) {
        return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(v.data()) + 63) / 64 * 64);
    }
    std::vector<double> fast, slow;
};
