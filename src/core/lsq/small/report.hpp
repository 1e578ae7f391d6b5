// What a point of a small system is judged by, and how it was found: the same for a system alone and for some
// at once, whose numbers are then vectors.
#pragma once

#include "core/lsq/small/tables.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// Squares of numbers like these have all their digits.
template <class Number>
SW_HD auto is_in_range(Number squared_b) {
    return (squared_b > 1e-200) & (squared_b < 1e200);
}

// What violations are relative to, where |b| + sum |a_j x_j| is `size`.
template <class Number>
SW_HD Number measure_of(const Job& job, Number b_norm, Number size) {
    return is_relative_to_b(job.constraints) ? b_norm : size;
}

// What rounding, or the caller, leaves of duals over their norms.
template <class Number>
SW_HD Number slack_of(const Job& job, Number b_norm, Number size) {
    return max_of<Number>(job.options.tolerance * measure_of(job, b_norm, size), job.options.rounding * size);
}

// Whether products formed once have the digits of a residual.
template <class Number>
SW_HD auto is_large(Number squared_fit, Number size) {
    return squared_fit > large_residual * size * size;
}

// How systems were solved.
struct Counts {
    int32_t insertions = 0, removals = 0, solves = 0, passes = 0;
    int32_t costs[4] = {0, 0, 0, 0};  // accesses and flops of updates, then of downdates
};

// Of some systems that took the same.
template <int some>
SW_HD void write_counts(const Job& job, int64_t first, const Counts& counts) {
    const auto fill = [&](int32_t* values, int32_t value) {
        SW_UNROLL
        for (int k = 0; k < some; ++k) values[first + k] = value;
    };
    fill(job.status, converged);
    fill(job.insertions, counts.insertions);
    fill(job.removals, counts.removals);
    fill(job.solves, counts.solves);
    fill(job.passes, counts.passes);
    fill(job.escalated, 0);
    int64_t* costs = job.costs + 4 * first;
    SW_UNROLL
    for (int k = 0; k < 4 * some; ++k) costs[k] = counts.costs[k % 4];
}

}  // namespace small
}  // namespace lsq
SW_END
