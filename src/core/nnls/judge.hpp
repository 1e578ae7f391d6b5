// The end of every system is judged here, whoever solved it: what was measured of the x that is returned,
// from what the caller gave, becomes its violation and its status.
#pragma once

#include "core/nnls/types.hpp"

SW_BEGIN
namespace nnls {

// How much the dual w of an unknown misses of what it must be: not positive at a lower bound, not negative at
// an upper one, zero between. With equal bounds it may be anything.
SW_HD double breach_of(double x, double lower, double upper, double w) {
    if (lower == upper) return 0.0;
    if (!(x > lower)) return max_of(0.0, w);
    if (!(x < upper)) return max_of(0.0, -w);
    return absolute(w);
}

// What was measured of an x.
struct Measured {
    double breach;  // the largest of a dual over its column's norm
    double b_norm;
    double size;  // |b| + sum |a_j| |x_j|, to which the residual is rounded
    // What x has to fit: |b|, the residual, and sum |a_j| |x_j| of what bounds and sums fix.
    double task;
    double sum_error = 0;  // how far the sum is outside its bounds
    double sum_size = 0;   // sum c_j |x_j|, and the bounds' own
};

// What of the certificate rounding may leave, in units of what a solver asks of itself: another order of the
// same sums; and more where a factor has the row of a sum in it, which is as long as that of the largest
// column.
constexpr double allowed_rounding = 4, allowed_with_sum = 1024;
// No answer is called converged whose violation, or whose breach beside what it has to fit, is above this:
// whatever rounds it, the caller sees no certificate.
constexpr double credible_violation = 1e-7;
// The same of answers in single precision.
constexpr double single_epsilon = 6e-8, credible_in_single = 1e-4;

SW_HD double violation_of(const Job& job, const Measured& x) {
    const double measure = is_relative_to_b(job.family) ? x.b_norm : x.size;
    return measure > 0 ? max_of(0.0, x.breach) / measure : x.breach > 0 ? double_infinity : 0.0;
}

// Whether the certificate holds. `single`: x is rounded to single precision.
SW_HD bool is_certified(const Job& job, const Measured& x, bool single) {
    const Options& options = job.options;
    const bool summed = job.family.general && job.family.summed;
    const double rounding = options.rounding * (summed ? allowed_with_sum : allowed_rounding),
                 epsilon = single ? single_epsilon : double_epsilon,
                 credible = max_of(options.tolerance, single ? credible_in_single : credible_violation),
                 violation = violation_of(job, x);
    const double slack = (rounding + (single ? 4 * single_epsilon : 0.0)) * x.size;
    return (x.breach <= slack || violation <= options.tolerance) && violation <= credible &&
           x.breach <= credible * x.task && x.sum_error <= 64 * epsilon * x.sum_size;
}

// The status of a system that its solver says ended with `said`.
SW_HD int32_t judged_status(const Job& job, const Measured& x, bool single, int32_t said) {
    if (said == non_finite || said == infeasible || said == limit) return said;
    if (is_certified(job, x, single)) return converged;
    return said == converged ? int32_t(stalled) : said;
}

}  // namespace nnls
SW_END
