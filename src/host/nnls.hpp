// A batch of NNLS systems as the bindings hand it to the kernels of one instruction set.
#pragma once

#include <cstdint>

namespace stepwell {

struct NnlsJob {
    int64_t systems;
    int32_t rows, columns;
    bool single;  // float instead of double
    // Dense matrices, `a_stride` apart (0: one for all); or, where `pulse_length` is not 0, pulses of a
    // convolution.
    const void* a;
    int64_t a_stride, row_stride;
    int32_t pulse_length, pulse_origin;
    const void* b;
    int64_t b_stride;
    double tolerance, damping;
    int32_t most_solves, update, guarded;
    bool form_gram;             // of a shared matrix
    const void* warm_values;    // systems x columns, or null
    const uint8_t* warm_marks;  // systems x columns, or null
    int64_t warm_stride;        // 0: one for all
    bool chain;                 // start from the set of the system before
    int32_t threads;
    // One entry a system (x, dual and active: a row).
    void *x, *dual;
    uint8_t* active;
    double *residual, *violation;
    int32_t *status, *insertions, *removals, *solves, *passes, *escalated;
    int64_t* costs;  // 4 a system: accesses and flops of updates, then of downdates
};

// Inserts and removes columns of A (m x n, row-major) as told (j: insert column j; -1 - p: remove position
// p), then reports how orthogonal Q is, how well Q R matches A, and what the insertions and removals cost.
struct FactorTrial {
    int32_t rows, columns, update;
    const double* a;
    const int32_t* moves;
    int64_t move_count;
    double orthogonality, backward_error;
    int32_t count, rejected;
    int64_t costs[4];
};

// Sizes of a batch on a CUDA device, whose workspace the host has to provide.
struct DeviceExtent {
    int32_t rows, columns, pulse_length, pulse_origin, update, members;
    bool damped, shared;
};

struct NnlsKernels {
    void (*solve)(const NnlsJob&);
    int64_t (*device_workspace_bytes)(const DeviceExtent&);
    void (*try_factor)(FactorTrial&);
};

#define SW_DECLARE_NNLS(isa)           \
    namespace isa {                    \
    const NnlsKernels& nnls_kernels(); \
    }
SW_DECLARE_NNLS(baseline)
#if defined(__x86_64__)
SW_DECLARE_NNLS(avx2)
SW_DECLARE_NNLS(avx512)
#endif
#undef SW_DECLARE_NNLS

}  // namespace stepwell
