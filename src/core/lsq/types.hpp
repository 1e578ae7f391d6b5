// The words of non-negative least squares: options in, tally and status out.
#pragma once

#include "core/lsq/batch.hpp"

SW_BEGIN
namespace lsq {

// stepwell.NNLSStatus has the same numbers.
enum Status : int32_t {
    converged = 0,   // optimality certified from A
    limit = 1,       // the iteration limit; the point so far is kept
    stalled = 2,     // rounding lets no step lower the residual any more
    dependent = 3,   // what is left to insert depends numerically on the positive columns
    non_finite = 4,  // NaN or infinity in A, b or x
    infeasible = 5,  // no x is within the bounds, or none of those has the sum
};

// How a new column enters the factor (Luo & Duraiswami, section 3). `gram` is R alone from the normal
// equations, corrected as in `csne` only where the pivot is small; the first three keep Q.
enum Update : int32_t { cgs2 = 0, mgs = 1, rotations = 2, csne = 3, gram = 4 };

// How lambda is chosen, where it is not given; stepwell/lsq/constraints.py has the names.
enum Rule : int32_t { rule_given = 0, rule_chi2 = 1, rule_discrepancy = 2, rule_gcv = 3, rule_lcurve = 4 };

// What general problems alone have. A kernel for plain ones knows that it is not there, and has no code for
// it.
#if defined(SW_GENERAL) && !SW_GENERAL
template <class T>
struct IfConstrained {
    SW_HD IfConstrained& operator=(T) { return *this; }
    SW_HD constexpr operator T() const { return T(); }
};
#else
template <class T>
using IfConstrained = T;
#endif

typedef NnlsConstraints Constraints;

// Whether violations are over |b|, not |b| + sum |a_j| |x_j|.
SW_HD bool is_relative_to_b(const Constraints& constraints) {
    return !constraints.general || constraints.nonnegative;
}
typedef NnlsJob Job;

// A sum between two ends: with one more column, the slack, the sum is the end that is nearest to zero. (x and
// the slack count in units of it, and have no rounding of the other.)
struct SumRange {
    double sum, slack_low, slack_high;
};
SW_HD SumRange range_of_sum(double low, double high) {
    const double nearest = absolute(low) < absolute(high) ? low : high,
                 sum = is_finite(nearest) ? nearest : 0.0;
    return {sum, sum - high, sum - low};
}

// The number of a system's matrix.
SW_HD int64_t matrix_number(const Job& job, int64_t system) {
    return job.constraints.which ? job.constraints.which[system] : system;
}

// Whether the one matrix of all systems is prepared once, with its columns stored: of a convolution, whose
// columns are shifts of one pulse, only where they are few.
SW_HD bool shares_columns(const Job& job) {
    const bool few = static_cast<int64_t>(job.rows) * job.columns <= int64_t(1) << 22;
    if (job.constraints.gram) return false;
    if (job.constraints.which) return true;
    return job.a_stride == 0 && (job.systems > 1 || job.systems_in_batch > 1) &&
           (job.pulse_length == 0 || few);
}

// What one system took, beside the factor's insertions and removals. Column accesses and flops, which count
// as in Table 3.1 of Luo & Duraiswami, are in Workspace::costs.
struct Tally {
    int32_t status = converged;
    int32_t solves = 0;
    int32_t passes = 0;     // products with the whole of A
    int32_t escalated = 0;  // 1 where the Gram factor was given up for Q and R
};

// Several insertions a step (Dessole, Dell'Orto & Marcuzzi 2023): a candidate's dual is at least `share` of
// the largest, and its cosine with those already chosen in this step is at most `cosine`.
// At most max_candidates columns of large dual are considered in a step, and max_insertions inserted.
constexpr int max_candidates = 32;
constexpr int max_insertions = 32;
constexpr double candidate_share = 0.4;
constexpr double candidate_cosine = 0.8;

// A column whose part outside the span of the others is this small (relative) is dependent: 100 ulp, as a
// vector of rounding errors has about sqrt(m) of them.
constexpr double dependence = 100 * double_epsilon;
// Where x is rounded to single precision: 16 of its ulp, below which rounding takes as much of a fit as a
// column adds; and where the order in which free columns enter begins to matter.
constexpr double dependence_in_single = 2e-6, doubtful_in_single = 1e-4;
// Below these relative pivots the Gram factor corrects a column with A itself, then gives way to Q and R.
constexpr double correct_below = 1e-3;
constexpr double escalate_below = 1e-7;
// How much longer a step may be than a factor says where products have lost the digits of a pivot.
constexpr double doubtful_pivots = 1e3;
// What rounding may take of a variance that comes from products.
constexpr double rounding_of_variances = 1e-8;
// The part of a column's squared norm outside the others that is rounding, of normal equations that are
// given: A is not there to correct it.
SW_HD double dependent_below(int columns) {
    return 4 * double_epsilon * columns;
}

// How many turns of the iteration may follow each other without a solution.
constexpr int max_idle_turns = 100;

// From so many positive columns on, several may leave at once: fewer cost nothing.
constexpr int many_columns = 64;

// From so many columns on many enter and leave at once where normal equations are given, and a device, where
// they cannot, inserts several.
constexpr int large_table = 128;
// Columns that enter a factor together, at the most: of a device; a CPU takes eight.
constexpr int block_width = 16;

// The first damping, relative to the columns' norm, where little damping is asked for.
constexpr double first_damping = 0.05;

// A bound is far where it is more than so many times what b alone would make of its unknown. x counts from
// bounds, and would lose as many times its rounding to them.
constexpr double far_bounds = 16;
// Bounds of an unknown, as bits.
enum BoundSide : int32_t { lower_side = 1, upper_side = 2 };

}  // namespace lsq
SW_END
