// A batch of systems, as every target receives it: plain data, filled once (stepwell/lsq/job.py) and read by
// the solver as it is.
#pragma once

#include "core/common/config.hpp"

namespace stepwell {

struct NnlsOptions {
    double tolerance;    // on w_j / (|a_j| |b|), where the caller gave one; else 0
    double rounding;     // on w_j / |a_j| over |b| + sum |a_j| x_j: what rounding may leave
    double damping;      // lambda of lambda^2 |x|^2
    int32_t max_solves;  // limit on least-squares solutions
    int32_t update;      // an Update
    int32_t guarded;     // 0: one insertion a step (Lawson & Hanson); 1: several (deviation maximisation)
    int32_t chain;       // 1: start from the set of the system before
    // Whether the caller wants the call to end, asked now and then with `watch`; of the host, or null.
    int32_t (*interrupted)(void*);
    void* watch;
};

// What a problem has beyond x >= 0 and one lambda of all systems; `general` is 0 where it has nothing.
// Strides are numbers from one system to the next, 0: one row for all.
struct NnlsConstraints {
    int32_t general;
    int32_t nonnegative;          // 1: bounds are (0, inf), and violations are relative to |b| alone
    const double *lower, *upper;  // a row: the bounds of x
    int64_t lower_stride, upper_stride;
    const uint8_t* mask;  // a row: 0 where a column does not take part; or null
    int64_t mask_stride;
    const double* weights;  // a row: what rows of A and b are multiplied with; or null
    int64_t weights_stride;
    const int32_t* which;  // the matrix of each system, or null
    int32_t matrices;      // how many matrices `which` chooses from
    int32_t summed;        // 1: sum_low <= coefficients . x <= sum_high
    int32_t slack;         // 1: one more column, of zeros, takes the difference of the two
    int32_t penalized;     // 1: lambda^2 |L x|^2 by rows below A
    const double *sum_low, *sum_high;
    int64_t sum_stride;          // 0 or 1
    const double* coefficients;  // all positive, or null: ones
    const double* penalty;       // L, or null: the unit matrix
    int32_t penalty_rows;
    int32_t has_states;  // 1: warm_marks are states
    const double* lam;
    int64_t lam_stride;       // 0 or 1
    int32_t rule;             // a Rule: how lambda is chosen; 0: it is given
    int32_t own_spectra;      // 1: `spectrum` has a row a system, not a matrix
    double chi2;              // the factor of rule_chi2
    const double* noise;      // standard deviation of an entry of b
    int64_t noise_stride;     // 0 or 1
    const double* spectrum;   // of cross-validation: a row a matrix, eigenvalues of A'A in the pencil
    int64_t spectrum_stride;  // with A'A + pencil L'L
    const double* pencil;
    // What comes out beside x: states a row, the rest an entry a system.
    int8_t* state;
    double *multiplier, *equality_error;
    double* gap;  // of a bound sum: see frank_wolfe.hpp; or null
    // All or none; passive: columns between bounds, less one for a bound sum.
    double *used_lam, *fit, *seminorm, *unpenalized;
    int32_t *at_end, *evaluations, *passive;
    double* deviation;  // a row: of x where b's entries have standard deviation one; or null
    // Normal equations in place of A and b: A'A, `gram_stride` apart, A'b, and b'b or null.
    const double* gram;
    int64_t gram_stride;
    const double* linear;
    int64_t linear_stride;
    const double* squared_b;
    int64_t squared_b_stride;
    // The factor of the columns between bounds, for derivatives; or null. See keep_factor().
    double* factor;         // a row of n (n + 1) / 2 numbers
    int32_t* factor_order;  // a row of 1 + n: how many columns, -1 where there is no factor, and which
};

// A chain is broken every so often, so that what a system starts from does not depend on who solves it.
constexpr int64_t nnls_chain_length = 64;

struct NnlsJob {
    int64_t systems;
    // Of the batch that these are a part of, by which a method is chosen; or 0.
    int64_t systems_in_batch;
    int32_t rows, columns;
    int32_t single;  // 1: a, b, warm_values, x and dual are floats; 0: doubles. Read by the host alone.
    // Dense matrices, `a_stride` apart (0: one for all); or, where `pulse_length` is not 0, pulses of a
    // convolution.
    const void* a;
    int64_t a_stride, row_stride;
    int32_t pulse_length, pulse_origin;
    const void* b;
    int64_t b_stride;
    const double* tables;  // of small systems with matrices of their own: see small/tables.hpp
    NnlsOptions options;
    NnlsConstraints constraints;
    const void* warm_values;    // a row a system, or null
    const uint8_t* warm_marks;  // a row a system, or null
    int64_t warm_stride;        // 0: one row for all
    // One entry a system (x, dual and in_factor: a row).
    void *x, *dual;
    uint8_t* in_factor;
    double *residual, *violation;
    int32_t *status, *insertions, *removals, *solves, *passes, *escalated;
    int64_t* costs;  // 4 a system: accesses and flops of updates, then of downdates
};

}  // namespace stepwell
