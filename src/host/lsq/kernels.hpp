// What the bindings of NNLS hand to the kernels of one instruction set.
#pragma once

#include <cstdint>

#include "core/lsq/batch.hpp"
#include "host/common/dispatch.hpp"

namespace stepwell {

struct HostJob {
    NnlsJob job;
    bool form_gram;  // whether the products of a shared matrix are formed beforehand
    int32_t threads;

    bool is_interrupted() const {
        return job.options.interrupted && job.options.interrupted(job.options.watch);
    }
};

struct NnlsKernels {
    void (*solve)(const HostJob&);
    // Bytes that a team of `members` threads of a CUDA device needs.
    int64_t (*device_workspace_bytes)(const NnlsJob&, int32_t members);
    // Rows of a general problem's columns: A's, and those beneath.
    int32_t (*stacked_rows)(const NnlsJob&);
};

SW_FOR_EACH_ISA(const NnlsKernels& nnls_kernels();)

}  // namespace stepwell
