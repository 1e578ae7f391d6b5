// The answer of one problem, written where the caller wants it: the same on the host and on a device.
#pragma once

#include "core/fit/certificate.hpp"
#include "core/fit/models/job.hpp"
#include "core/fit/models/numbers.hpp"

SW_BEGIN
namespace fit {

// Puts a number into an array of the caller's type.
SW_HD void put(void* array, bool single, int64_t at, double value) {
    if (single)
        static_cast<float*>(array)[at] = float(value);
    else
        static_cast<double*>(array)[at] = value;
}

// Variances and covariance where all parameters lie between their bounds and JᵀJ, with columns of length one,
// is far from singular: the same as find_covariance() without pivoting, in code that a device keeps in
// registers. False where that has to do it.
template <class Size>
SW_HD bool find_plain_covariance(Size n, const FitState<Size::capacity>& s, double variance,
                                 FitCertificate& found, double* variances, double* covariance) {
    constexpr int N = Size::capacity;
    double L[N * (N + 1) / 2], unit[N];
    double smallest = 1;
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        unit[i] = inverse_root(s.H[at(i, i)]);
        SW_UNROLL
        for (int j = 0; j < i; ++j) {
            double sum = s.H[at(i, j)] * unit[i] * unit[j];
            SW_UNROLL
            for (int k = 0; k < j; ++k) sum -= L[at(i, k)] * L[at(j, k)];
            L[at(i, j)] = sum * L[at(j, j)];
        }
        double pivot = 1;
        SW_UNROLL
        for (int k = 0; k < i; ++k) pivot -= L[at(i, k)] * L[at(i, k)];
        smallest = pivot < smallest ? pivot : smallest;
        L[at(i, i)] = inverse_root(pivot);
    }
    if (!(smallest > 1e-6)) return false;
    found.rank = n;
    found.condition = smallest;
    // L⁻¹ in place, then L⁻ᵀL⁻¹.
    SW_UNROLL
    for (int j = 0; j < n; ++j) SW_UNROLL
    for (int i = j + 1; i < n; ++i) {
        double sum = 0;
        SW_UNROLL
        for (int k = j; k < i; ++k) sum -= L[at(i, k)] * L[at(k, j)];
        L[at(i, j)] = sum * L[at(i, i)];
    }
    SW_UNROLL
    for (int i = 0; i < n; ++i) SW_UNROLL
    for (int j = 0; j <= i; ++j) {
        double sum = 0;
        SW_UNROLL
        for (int k = i; k < n; ++k) sum += L[at(k, i)] * L[at(k, j)];
        sum *= variance * unit[i] * unit[j];
        if (i == j) variances[i] = sum;
        covariance[at(i, j)] = sum;
    }
    return true;
}

// As fits whose model is the caller's are written (host/fit/kernels.cpp): NaN where nothing was evaluated,
// infinite variances where there are no degrees of freedom. s.promise is that of the certificate: the turn
// that ended the fit has found it at s.x, by the model without damping.
template <class Size>
SW_HD void write_answer(Size n, const FitModelJob& job, int64_t problem, const double* low,
                        const double* high, const FitState<Size::capacity>& s, int points) {
    constexpr int N = Size::capacity;
    int free = 0;
    double violation = 0, optimality = 0;
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        free += lies_between(s.x[i], low[i], high[i]);
        const bool held = (s.x[i] <= low[i] && s.g[i] >= 0) || (s.x[i] >= high[i] && s.g[i] <= 0);
        if (held || s.g[i] == 0) continue;
        const double size = absolute(s.g[i]), column = s.H[at(i, i)];
        optimality = max_of(optimality, size);
        violation = max_of(violation, size * inverse_root(column > 0 ? column : 1));
    }
    const bool known = job.unit_variance || job.loss == int32_t(FitLoss::poisson), evaluated = s.accepted > 0;
    const bool counts = known || points > free;
    const double none = double_infinity - double_infinity;
    const double variance = known ? 1.0 : counts ? 2 * s.cost / (points - free) : 1.0;
    FitCertificate found{none, none, none, none, 1, free, 0};
    double variances[N], packed[N * (N + 1) / 2];
    if (evaluated) {
        const double unit = counts ? variance : 2 * s.cost, promised = s.promise * s.cost;
        found.promise = s.promise;
        found.violation = s.cost > 0 ? violation / square_root(2 * s.cost) : 0;
        found.optimality = optimality;
        found.distance = unit > 0 ? square_root(2 * promised / unit) : promised > 0 ? double_infinity : 0;
        if (job.variances) {
            const bool plain = free == n && find_plain_covariance(n, s, variance, found, variances, packed);
            if (!plain) {
                // (Copies, so that those of the common case stay in registers.)
                double careful[N], table[N * (N + 1) / 2];
                find_covariance(n, low, high, s, variance, job.options.epsilon, found, careful,
                                job.covariance ? table : nullptr);
                SW_UNROLL
                for (int i = 0; i < n; ++i) variances[i] = careful[i];
                SW_UNROLL
                for (int i = 0; i < at(n, 0); ++i) packed[i] = job.covariance ? table[i] : 0;
            }
        }
    } else {
        SW_UNROLL
        for (int i = 0; i < n; ++i) variances[i] = none;
        SW_UNROLL
        for (int i = 0; i < at(n, 0); ++i) packed[i] = none;
    }
    int8_t* active = job.active + problem * n;
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        const bool unknown = evaluated && !counts && lies_between(s.x[i], low[i], high[i]);
        put(job.values, job.options.single, problem * n + i, s.x[i]);
        if (job.variances) job.variances[problem * n + i] = unknown ? double_infinity : variances[i];
        if (job.covariance) SW_UNROLL
        for (int j = 0; j < n; ++j)
            job.covariance[(problem * n + i) * n + j] =
                unknown && lies_between(s.x[j], low[j], high[j]) ? double_infinity : packed[either(i, j)];
        active[i] = int8_t(!(low[i] < high[i]) ? 2 : s.x[i] <= low[i] ? -1 : s.x[i] >= high[i] ? 1 : 0);
    }
    const double reals[fit_reals] = {evaluated ? s.cost : none, found.promise,  found.violation,
                                     found.optimality,          found.distance, found.condition};
    const int32_t counted[fit_counts] = {int32_t(s.status), s.iterations, s.evaluations, s.accepted,
                                         found.rank,        free,         points};
    SW_UNROLL
    for (int i = 0; i < fit_reals; ++i) job.reals[i * job.problems + problem] = reals[i];
    SW_UNROLL
    for (int i = 0; i < fit_counts; ++i) job.counts[i * job.problems + problem] = counted[i];
}

}  // namespace fit
SW_END
