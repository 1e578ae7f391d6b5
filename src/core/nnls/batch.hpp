// A batch of systems, as every target receives it: plain data, filled once (stepwell/nnls/job.py) and read by
// the solver as it is.
#pragma once

#include "core/common/config.hpp"

namespace stepwell {

struct NnlsOptions {
    double tolerance;    // on w_j / (|a_j| |b|), where the caller gave one; else 0
    double rounding;     // the same of what rounding leaves, relative to |b| + sum |a_j| x_j
    double damping;      // lambda of lambda^2 |x|^2
    int32_t max_solves;  // limit on least-squares solutions
    int32_t update;      // an Update
    int32_t guarded;     // 0: one insertion a step (Lawson & Hanson); 1: several (deviation maximisation)
    int32_t chain;       // 1: start from the set of the system before
};

// A chain is broken every so often, so that what a system starts from does not depend on who solves it.
constexpr int64_t nnls_chain_length = 64;

struct NnlsJob {
    int64_t systems;
    int64_t whole;  // systems of the batch that these are a part of, by which a method is chosen; or 0
    int32_t rows, columns;
    // Dense matrices, `a_stride` apart (0: one for all); or, where `pulse_length` is not 0, pulses of a
    // convolution.
    const void* a;
    int64_t a_stride, row_stride;
    int32_t pulse_length, pulse_origin;
    const void* b;
    int64_t b_stride;
    NnlsOptions options;
    const void* warm_values;    // a row a system, or null
    const uint8_t* warm_marks;  // a row a system, or null
    int64_t warm_stride;        // 0: one row for all
    // One entry a system (x, dual and active: a row).
    void *x, *dual;
    uint8_t* active;
    double *residual, *violation;
    int32_t *status, *insertions, *removals, *solves, *passes, *escalated;
    int64_t* costs;  // 4 a system: accesses and flops of updates, then of downdates
};

}  // namespace stepwell
