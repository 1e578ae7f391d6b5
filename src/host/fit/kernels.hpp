// A batch of nonlinear least-squares problems on the CPU whose model is evaluated by somebody else: what the
// kernels are given. A turn takes values and derivatives of the problems that run, and leaves the next trial
// points.
#pragma once

#include <cstdint>

#include "core/fit/loss.hpp"
#include "core/fit/types.hpp"
#include "host/common/dispatch.hpp"

namespace stepwell {

// Numbers of the caller, float32 or float64, with strides in elements.
struct FitNumbers {
    const void* data = nullptr;
    bool single = false;
    int64_t stride[3] = {0, 0, 0};
};

// What is known of each problem at the end; null where it is not wanted.
struct FitEnds {
    double *x, *cost, *promise, *violation, *optimality, *distance, *condition;
    double *variances, *covariance;  // (problems, n), (problems, n, n)
    int32_t *status, *iterations, *evaluations, *accepted, *rank, *points, *free;
    int8_t* active;  // (problems, n)
};

struct FitJob {
    int64_t problems;
    int32_t n, points, threads;
    void* states;              // of kernels.state_bytes(n) each
    const double *low, *high;  // of all problems (stride 0), or n a problem
    int64_t bound_stride;
    FitOptions options;
    FitLoss loss;
    double scale;           // of a robust loss
    bool absolute;          // sigma is the standard deviation of the data itself
    double accuracy;        // relative error of the derivatives
    FitNumbers y, weights;  // strides: problem, point; no data: 0 and 1
    const int64_t* rows;    // problems that run
    int64_t running;
    FitNumbers values;    // strides: row, point
    FitNumbers jacobian;  // strides: row, point, parameter
    // With `moved`, values at points of which one parameter has moved by steps[place * n + parameter];
    // column_of[j] is the place of parameter j in the last stride, or -1 where it cannot move.
    bool moved;
    const double* steps;
    const int32_t* column_of;
    const int64_t* has_jacobian;  // place of a row in `jacobian`, or -1; null: all have theirs, in order
    double* costs;                // of rows, from `costs`
};

struct FitKernels {
    int64_t (*state_bytes)(int32_t n);
    void (*begin)(const FitJob& job, const double* x0);
    // Costs at the trial points of the rows; returns how many want a Jacobian.
    int64_t (*costs)(const FitJob& job);
    void (*turn)(const FitJob& job);
    bool (*is_running)(const FitJob& job, int64_t problem);
    bool (*wants)(const FitJob& job, int64_t problem, double cost);
    // Trial points of `count` rows with one parameter moved each, inside the bounds: (columns, count, n), and
    // steps.
    void (*moved_points)(const FitJob& job, const int64_t* places, int64_t count, const double* typical,
                         int64_t typical_stride, int32_t columns, double* steps, double* x, float* single);
    // Points of rows: the trial, or the one accepted.
    void (*points)(const FitJob& job, bool accepted, double* x, float* single);
    void (*set_status)(const FitJob& job, const int64_t* problems, int64_t count, FitStatus status);
    void (*ends)(const FitJob& job, const FitEnds& ends);
    // Variances of the rows from J itself, for those whose JᵀJ has lost too many digits.
    void (*refine)(const FitJob& job, const FitEnds& ends);
    // min ½xᵀGx − cᵀx within bounds, `count` systems of n unknowns; side: -1, 0, 1.
    void (*bounded)(int64_t count, int32_t n, const double* gram, const double* linear, const double* low,
                    const double* high, double* x, int8_t* side);
};

SW_FOR_EACH_ISA(const FitKernels& fit_kernels();)

}  // namespace stepwell
