// Plain data of nonlinear least squares: options, the state of one problem, how it ended, and its
// certificate.
#pragma once

#include "core/common/config.hpp"

namespace stepwell {

// Why a fit ended. The Python enum stepwell.FitStatus carries the messages; a test holds the two together.
enum class FitStatus : int32_t {
    limit = 0,          // iterations or evaluations
    gradient = 1,       // violation <= gtol
    promise = 2,        // the bounded model promises less than ftol of the cost
    step = 3,           // the last step was below xtol (only where asked for)
    zero_residual = 5,  // the residual is the rounding of the model
    callback = -2,      // stopped by the caller
    rounding = -3,      // no step lowers the cost, and what is promised is its rounding
    stalled = -4,       // no step lowers the cost although the model promises more
    nonfinite_start = -5,
    nonfinite = -6,  // not finite at every step tried
    no_points = -7,
    crossed_bounds = -8,
    running = 100,
};

struct FitOptions {
    double ftol, gtol, xtol;  // xtol 0: not tested
    double epsilon;           // of the type in which the caller evaluates
    int32_t max_iterations, max_evaluations;
    int8_t single;        // trial points are rounded to float32; bounds have been
    int8_t secant;        // the term of second derivatives in the tail
    double accuracy = 0;  // relative error of the derivatives beyond rounding, as of differences
};

// One problem of at most N parameters. Matrices are lower triangles, packed by rows: entry (i, j <= i) is at
// i (i + 1) / 2 + j.
template <int N>
struct FitState {
    static constexpr int packed = N * (N + 1) / 2;
    double x[N];       // accepted point
    double trial[N];   // where cost, g and H are wanted next
    double g[N];       // Jᵀr at x
    double scale[N];   // largest Σ J_ij² seen (Moré's D²)
    double H[packed];  // JᵀJ at x
    double S[packed];  // what the second derivatives of the residuals add to it
    double cost, radius, damping;
    double floor;      // a cost that is the rounding of the data, from the caller (or 0)
    double predicted;  // what the model foretold of the step to the trial point
    double last;       // what the last accepted step took off the cost, relative to it
    double promise;    // of the bounded model without damping, over the cost
    FitStatus status;
    int32_t iterations, evaluations, accepted;
    int16_t rejections, nonfinite;  // in a row
    int8_t secant_helps;            // S foretold the last step better than H alone
    int8_t secant_used;             // in the step to the trial point
};

// What holds at the point that is returned.
struct FitCertificate {
    double promise;     // what the bounded model could still take off the cost, over the cost
    double violation;   // largest cosine between residual and a column that may move
    double optimality;  // largest entry of the projected gradient
    double distance;    // to the minimum, in standard errors
    double condition;   // smallest pivot of JᵀJ with columns of length one, over those kept
    int32_t free, rank;
};

}  // namespace stepwell
