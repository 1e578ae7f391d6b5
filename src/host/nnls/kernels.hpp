// What the bindings of NNLS hand to the kernels of one instruction set.
#pragma once

#include <cstdint>

#include "core/nnls/batch.hpp"
#include "host/common/dispatch.hpp"

namespace stepwell {

struct HostJob {
    NnlsJob job;
    bool single;     // float instead of double
    bool form_gram;  // of a shared matrix
    int32_t threads;
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

struct NnlsKernels {
    void (*solve)(const HostJob&);
    // Bytes that a team of a CUDA device needs, of so many members.
    int64_t (*device_workspace_bytes)(const NnlsJob&, int32_t members);
    void (*try_factor)(FactorTrial&);
};

SW_FOR_EACH_ISA(const NnlsKernels& nnls_kernels();)

}  // namespace stepwell
