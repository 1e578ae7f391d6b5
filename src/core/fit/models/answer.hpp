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

// (JᵀJ)⁻¹ where all parameters lie between their bounds and JᵀJ, with columns of length one, is far from
// singular, which the pivot that is returned tells: without pivoting, in code that a device keeps in
// registers and a CPU does for problems side by side.
template <class R, class Size>
SW_HD R invert_plain(Size n, const R* H, R* inverse) {
    constexpr int N = Size::capacity;
    R L[N * (N + 1) / 2], unit[N];
    R smallest = R(1.0);
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        unit[i] = inverse_root_of(H[at(i, i)]);
        SW_UNROLL
        for (int j = 0; j < i; ++j) {
            R sum = H[at(i, j)] * unit[i] * unit[j];
            SW_UNROLL
            for (int k = 0; k < j; ++k) sum = sum - L[at(i, k)] * L[at(j, k)];
            L[at(i, j)] = sum * L[at(j, j)];
        }
        R pivot = R(1.0);
        SW_UNROLL
        for (int k = 0; k < i; ++k) pivot = pivot - L[at(i, k)] * L[at(i, k)];
        smallest = choose(pivot >= smallest, smallest, pivot);  // (NaN is kept)
        L[at(i, i)] = inverse_root_of(pivot);
    }
    // L⁻¹ in place, then L⁻ᵀL⁻¹.
    SW_UNROLL
    for (int j = 0; j < n; ++j) SW_UNROLL
    for (int i = j + 1; i < n; ++i) {
        R sum = R(0.0);
        SW_UNROLL
        for (int k = j; k < i; ++k) sum = sum - L[at(i, k)] * L[at(k, j)];
        L[at(i, j)] = sum * L[at(i, i)];
    }
    SW_UNROLL
    for (int i = 0; i < n; ++i) SW_UNROLL
    for (int j = 0; j <= i; ++j) {
        R sum = R(0.0);
        SW_UNROLL
        for (int k = i; k < n; ++k) sum = sum + L[at(k, i)] * L[at(k, j)];
        inverse[at(i, j)] = sum * unit[i] * unit[j];
    }
    return smallest;
}

// The same, asked for when an answer is written.
template <class Size>
struct PlainInverse {
    static constexpr int packed = Size::capacity * (Size::capacity + 1) / 2;
    Size n;
    const double* H;
    SW_HD double operator()(double* inverse) const { return invert_plain(n, H, inverse); }
};

// Pivots of (JᵀJ)⁻¹ above which it is found without pivoting.
constexpr double plain_pivot = 1e-6;

// As fits whose model is the caller's are written (host/fit/kernels.cpp): NaN where nothing was evaluated,
// infinite variances where there are no degrees of freedom. s.promise is that of the certificate: the turn
// that ended the fit has found it at s.x, by the model without damping.
// inverse(packed) fills in the inverse of H and returns its smallest pivot, as invert_plain() does.
template <class Size, class Inverse>
SW_HD void write_answer(Size n, const FitModelJob& job, int64_t problem, const double* low,
                        const double* high, const FitState<Size::capacity>& s, int points,
                        const Inverse& inverse) {
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
            const double smallest = free == n ? inverse(packed) : 0.0;
            if (smallest > plain_pivot) {
                found.rank = n;
                found.condition = smallest;
                SW_UNROLL
                for (int i = 0; i < at(n, 0); ++i) packed[i] *= variance;
                SW_UNROLL
                for (int i = 0; i < n; ++i) variances[i] = packed[at(i, i)];
            } else {
                // (Copies, so that those of the common case stay in registers.)
                const FitState<N> state = s;
                double careful[N], table[N * (N + 1) / 2];
                find_covariance(n, low, high, state, variance, job.options.epsilon, found, careful,
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

template <class Size>
SW_HD void write_answer(Size n, const FitModelJob& job, int64_t problem, const double* low,
                        const double* high, const FitState<Size::capacity>& s, int points) {
    write_answer(n, job, problem, low, high, s, points, PlainInverse<Size>{n, s.H});
}

}  // namespace fit
SW_END
