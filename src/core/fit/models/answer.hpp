// The answer of one problem, written where the caller wants it: the same on the host and on a device.
#pragma once

#include "core/fit/certificate.hpp"
#include "core/fit/models/job.hpp"

SW_BEGIN
namespace fit {

// Puts a number into an array of the caller's type.
SW_HD void put(void* array, bool single, int64_t at, double value) {
    if (single)
        static_cast<float*>(array)[at] = float(value);
    else
        static_cast<double*>(array)[at] = value;
}

template <class Size>
SW_HD void write_answer(Size n, const FitModelJob& job, int64_t problem, const double* low,
                        const double* high, const FitState<Size::capacity>& s, int points) {
    constexpr int N = Size::capacity;
    int free = 0;
    for (int i = 0; i < n; ++i) free += lies_between(s.x[i], low[i], high[i]);
    const int dof = points - free;
    const double variance = job.unit_variance ? 1.0 : dof > 0 ? 2 * s.cost / dof : double_infinity;
    FitCertificate found{double_infinity, double_infinity, double_infinity, double_infinity, 0, free, 0};
    double variances[N], packed[N * (N + 1) / 2];
    for (int i = 0; i < n; ++i) variances[i] = double_infinity;
    for (int i = 0; i < at(n, 0); ++i) packed[i] = double_infinity;
    if (is_finite(s.cost)) {
        found = certify(n, low, high, s, variance);
        if (job.variances)
            find_covariance(n, low, high, s, variance, found, variances, job.covariance ? packed : nullptr);
    }
    int8_t* active = job.active + problem * n;
    for (int i = 0; i < n; ++i) {
        put(job.values, job.options.single, problem * n + i, s.x[i]);
        if (job.variances) job.variances[problem * n + i] = variances[i];
        if (job.covariance)
            for (int j = 0; j < n; ++j) job.covariance[(problem * n + i) * n + j] = packed[either(i, j)];
        active[i] = int8_t(!(low[i] < high[i]) ? 2 : s.x[i] <= low[i] ? -1 : s.x[i] >= high[i] ? 1 : 0);
    }
    const double reals[fit_reals] = {s.cost,           found.promise,  found.violation,
                                     found.optimality, found.distance, found.condition};
    const int32_t counted[fit_counts] = {int32_t(s.status), s.iterations, s.evaluations, s.accepted,
                                         found.rank,        free,         points};
    for (int i = 0; i < fit_reals; ++i) job.reals[i * job.problems + problem] = reals[i];
    for (int i = 0; i < fit_counts; ++i) job.counts[i * job.problems + problem] = counted[i];
}

}  // namespace fit
SW_END
