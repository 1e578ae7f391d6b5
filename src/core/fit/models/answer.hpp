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

// As fits whose model is the caller's are written (host/fit/kernels.cpp): NaN where nothing was evaluated,
// infinite variances where there are no degrees of freedom.
template <class Size>
SW_HD void write_answer(Size n, const FitModelJob& job, int64_t problem, const double* low,
                        const double* high, const FitState<Size::capacity>& s, int points) {
    constexpr int N = Size::capacity;
    int free = 0;
    for (int i = 0; i < n; ++i) free += lies_between(s.x[i], low[i], high[i]);
    const bool known = job.unit_variance || job.loss == int32_t(FitLoss::poisson), evaluated = s.accepted > 0;
    const bool counts = known || points > free;
    const double none = double_infinity - double_infinity;
    const double variance = known ? 1.0 : counts ? 2 * s.cost / (points - free) : 1.0;
    FitCertificate found{none, none, none, none, 1, free, 0};
    double variances[N], packed[N * (N + 1) / 2];
    for (int i = 0; i < n; ++i) variances[i] = none;
    for (int i = 0; i < at(n, 0); ++i) packed[i] = none;
    if (evaluated) {
        found = certify(n, low, high, s, counts ? variance : 2 * s.cost);
        if (job.variances)
            find_covariance(n, low, high, s, variance, job.options.epsilon, found, variances,
                            job.covariance ? packed : nullptr);
    }
    int8_t* active = job.active + problem * n;
    for (int i = 0; i < n; ++i) {
        const bool unknown = evaluated && !counts && lies_between(s.x[i], low[i], high[i]);
        put(job.values, job.options.single, problem * n + i, s.x[i]);
        if (job.variances) job.variances[problem * n + i] = unknown ? double_infinity : variances[i];
        if (job.covariance)
            for (int j = 0; j < n; ++j)
                job.covariance[(problem * n + i) * n + j] =
                    unknown && lies_between(s.x[j], low[j], high[j]) ? double_infinity : packed[either(i, j)];
        active[i] = int8_t(!(low[i] < high[i]) ? 2 : s.x[i] <= low[i] ? -1 : s.x[i] >= high[i] ? 1 : 0);
    }
    const double reals[fit_reals] = {evaluated ? s.cost : none, found.promise,  found.violation,
                                     found.optimality,          found.distance, found.condition};
    const int32_t counted[fit_counts] = {int32_t(s.status), s.iterations, s.evaluations, s.accepted,
                                         found.rank,        free,         points};
    for (int i = 0; i < fit_reals; ++i) job.reals[i * job.problems + problem] = reals[i];
    for (int i = 0; i < fit_counts; ++i) job.counts[i * job.problems + problem] = counted[i];
}

}  // namespace fit
SW_END
