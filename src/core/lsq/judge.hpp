// The end of every system is judged here, whoever solved it: what was measured of the x that is returned,
// from what the caller gave, becomes its violation and its status.
#pragma once

#include "core/lsq/dot.hpp"
#include "core/lsq/types.hpp"

SW_BEGIN
namespace lsq {

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
    double breach;  // the largest violation of a dual's sign (breach_of), over its column's norm
    double b_norm;
    double size;  // |b| + sum |a_j| |x_j|, to which the residual is rounded
    // The size of what x has to fit. `given`, for the decrement: |b|, sum |a_j| |x_j| of the columns at
    // bounds and, where a sum fixes more, the residual. `task`, for breaches: with the residual.
    double given, task;
    double sum_error = 0;  // how far the sum is outside its bounds
    double sum_size = 0;   // sum c_j |x_j|, and the bounds' own
    // The root of what a step of all columns between bounds would lower the objective by.
    double decrement = 0;
    // The root of the objective, where it may be too large; and what it is no larger than at the y within the
    // bounds that is nearest to zero: |b| + sum |k_j| |y_j|.
    double objective = 0, named = double_infinity;
    // Whether Kx - b came of terms so much larger that its rounding hides what a dual says.
    bool hides_duals = false;
};

// Beside a bound sum x may be far from zero though nothing is to be fitted: b and Kx - b, `explained`, are
// then what is left of terms as large as `size`. (Where they are no more than rounding there is nothing to
// lower.)
constexpr double cancelled = 1e-6;
SW_HD bool hides_duals(double explained, double size) {
    return explained < cancelled * size && explained > 64 * double_epsilon * size;
}

SW_HD double nearest_to_zero(double lower, double upper) {
    return lower > 0 ? lower : upper < 0 ? upper : 0.0;
}

// How large the terms of Kx may have to be where a sum is bound: those on the way from the point within the
// bounds that is nearest to zero to the sum, by the one column that can go all the way at the lowest cost, or
// by the dearest where none can.
struct WayToSum {
    double missing, size = 0, lowest = double_infinity, dearest = 0;

    // `sum`: of the point that is nearest to zero.
    SW_HD WayToSum(double sum, double low, double high)
        : missing(sum < low    ? low - sum
                  : sum > high ? high - sum
                               : 0.0) {}

    SW_HD void add(double lower, double upper, double norm, double c) {
        const double nearest = nearest_to_zero(lower, upper);
        if (nearest != 0) size += absolute(nearest) * norm;
        if (!(c > 0)) return;
        dearest = max_of(dearest, norm / c);
        if (c * (missing > 0 ? upper - nearest : nearest - lower) >= absolute(missing))
            lowest = min_of(lowest, norm / c);
    }
    // With the least and the largest of all members' numbers.
    SW_HD double length() const {
        return missing == 0 ? size : size + absolute(missing) * (lowest < double_infinity ? lowest : dearest);
    }
};

// A column beside a bound sum: its dual with the multiplier that there is, its coefficient, and which way it
// can go. The inverse norm of a column of zeros is 0.
struct SummedColumn {
    double w, c, inverse_norm;
    bool rises, falls;
};
// How x is rounded in single precision.
constexpr double single_epsilon = 6e-8;
// How far the sum may be from its ends to be at one, of the size of its terms.
SW_HD double rounding_of_sum(bool single) {
    return 64 * (single ? single_epsilon : double_epsilon);
}
// What a multiplier may change by, so that its sign is that of the end that the sum is at.
struct Shifts {
    double least, most;
};
SW_HD Shifts allowed_shifts(double sum, double low, double high, double room, double multiplier) {
    const bool at_low = sum <= low + room, at_high = sum >= high - room;
    return {at_high ? -double_infinity : -multiplier, at_low ? double_infinity : -multiplier};
}

// By how much columns(0), ..., columns(n - 1) break the conditions at the multiplier for which that is least,
// which is the given one and `shift` more: w_j + shift c_j over the norm, not positive where a column can
// rise, not negative where it can fall. The largest of these lines is the lowest where one that rises with
// the shift and one that falls meet.
template <class Team, class Columns>
SW_CALL double least_breach(const Team& team, int n, const Columns& columns, Shifts shifts, double& shift) {
    // A column of zeros says which sign the multiplier has.
    double least = shifts.least, negated_most = -shifts.most;
    team.each(n, [&](int j) {
        const SummedColumn own = columns(j);
        if (!(own.c > 0) || own.inverse_norm > 0) return;
        if (own.rises) negated_most = max_of(negated_most, own.w / own.c);
        if (own.falls) least = max_of(least, -own.w / own.c);
    });
    least = team.max(least);
    const double most = -team.max(negated_most);
    const auto within = [=](double value) {
        return least <= most ? clamp_to(value, least, most) : 0.5 * (least + most);
    };
    constexpr int max_rounds = 12;
    double best = double_infinity, at = within(0.0);
    shift = at;
    for (int round = 0; round < max_rounds; ++round) {
        double up = -double_infinity, down = -double_infinity;
        int64_t rising = 0, falling = 0;
        team.each(n, [&](int j) {
            const SummedColumn own = columns(j);
            const double value = (own.w + at * own.c) * own.inverse_norm;
            if (own.rises && value > up) up = value, rising = j;
            if (own.falls && -value > down) down = -value, falling = j;
        });
        rising = team.argmax(up, rising);
        falling = team.argmax(down, falling);
        const double breach = max_of(0.0, max_of(up, down));
        if (!(breach < best)) break;
        best = breach;
        shift = at;
        const SummedColumn first = columns(static_cast<int>(rising)),
                           second = columns(static_cast<int>(falling));
        const double rise = up > -double_infinity ? first.c * first.inverse_norm : 0.0,
                     fall = down > -double_infinity ? second.c * second.inverse_norm : 0.0;
        if (breach == 0 || !(rise + fall > 0)) break;
        at = within(at - (rise > 0 && fall > 0 ? up - down : rise > 0 ? up : -down) / (rise + fall));
    }
    return best;
}

// How far rounding may leave the certificate violated, in units of what a solver asks of itself: by another
// order of the same sums, and more where a factor has the row of a sum, which is as long as that of the
// largest column.
constexpr double allowed_rounding = 4, allowed_with_sum = 1024;
// No answer is called converged whose violation, or whose breach beside what it has to fit, is above this:
// whatever rounds it, the caller sees no certificate.
constexpr double credible_violation = 1e-7;
// The same of answers in single precision.
constexpr double credible_in_single = 1e-4;
// Nor one that a step of all columns between bounds would lower by the square of more than this part of what
// x has to fit, whatever tolerance is asked for.
constexpr double credible_decrement = 1e-2;

SW_HD double violation_of(const Job& job, const Measured& x) {
    const double measure = is_relative_to_b(job.constraints) ? x.b_norm : x.size;
    if (!(measure < double_infinity && x.breach < double_infinity)) return double_infinity;
    return measure > 0 ? max_of(0.0, x.breach) / measure : x.breach > 0 ? double_infinity : 0.0;
}

// Whether the certificate holds. `single`: x is rounded to single precision.
SW_HD bool is_certified(const Job& job, const Measured& x, double violation, bool single) {
    const NnlsOptions& options = job.options;
    const bool summed = job.constraints.general && job.constraints.summed;
    const double rounding = options.rounding * (summed ? allowed_with_sum : allowed_rounding),
                 credible = max_of(options.tolerance, single ? credible_in_single : credible_violation);
    const double slack = (rounding + (single ? 4 * single_epsilon : 0.0)) * x.size;
    // (Numbers beyond the largest certify nothing.)
    if (!(x.size < double_infinity) || (x.hides_duals && !single)) return false;
    // (What an orthogonal factor leaves beside the row of a sum, whatever x has to fit.)
    const double lowered = max_of(min_of(10 * credible, credible_decrement) * x.given, summed ? slack : 0.0);
    return (x.breach <= slack || violation <= options.tolerance) && violation <= credible &&
           x.breach <= credible * x.task && (single || x.decrement <= lowered) &&
           x.objective <= (1 + credible_in_single) * x.named &&
           x.sum_error <= rounding_of_sum(single) * x.sum_size;
}

// The status of a system that its solver says ended with `said`.
SW_HD int32_t judged_status(const Job& job, const Measured& x, bool single, int32_t said) {
    if (said == non_finite || said == infeasible || said == limit) return said;
    if (is_certified(job, x, violation_of(job, x), single)) return converged;
    return said == converged ? int32_t(stalled) : said;
}

}  // namespace lsq
SW_END
