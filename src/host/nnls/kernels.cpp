// NNLS on the CPU, compiled once per instruction set: which kind of matrix a batch has, and what it needs.
#include "host/nnls/solve_batch.hpp"

SW_BEGIN
namespace nnls {
namespace {

void solve(const HostJob& host) {
    const bool pulses = host.job.pulse_length != 0;
    if (host.single) {
        pulses ? solve_pulses_single(host) : solve_dense_single(host);
    } else {
        pulses ? solve_pulses_double(host) : solve_dense_double(host);
    }
}

template <class Matrix>
int64_t workspace_of(const NnlsJob& job, int32_t members) {
    const Matrix* kind = nullptr;
    Extent extent = extent_of(job, matrix_of(job, 0, kind), members, !shares_columns(job));
    extent.by_column = true;
    return Workspace::bytes(extent);
}

int32_t stacked_rows(const NnlsJob& job) {
    const Stacked<Convolution<double>>* convolution = nullptr;
    const Stacked<Dense<double>>* dense = nullptr;
    return job.pulse_length ? matrix_of(job, 0, convolution).rows : matrix_of(job, 0, dense).rows;
}

int64_t device_workspace_bytes(const NnlsJob& job, int32_t members) {
    if (job.family.general)
        return job.pulse_length ? workspace_of<Stacked<Convolution<double>>>(job, members)
                                : workspace_of<Stacked<Dense<double>>>(job, members);
    return job.pulse_length ? workspace_of<Convolution<double>>(job, members)
                            : workspace_of<Dense<double>>(job, members);
}

}  // namespace
}  // namespace nnls
SW_END

namespace stepwell {
namespace SW_ISA {
const NnlsKernels& nnls_kernels() {
    static const NnlsKernels kernels{nnls::solve, nnls::device_workspace_bytes, nnls::stacked_rows};
    return kernels;
}
}  // namespace SW_ISA
}  // namespace stepwell
