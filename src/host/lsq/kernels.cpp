// NNLS on the CPU, compiled once per instruction set: which kind of matrix a batch has, and what it needs.
#include "host/lsq/solve_batch.hpp"

SW_BEGIN
namespace lsq {
namespace {

// From this many entries on, a product with A costs so much more than a barrier that threads share one
// system.
constexpr int64_t large_system = int64_t(1) << 22;

void solve(const HostJob& host) {
    if (host.job.systems == 0) return;
    const int64_t work = int64_t(host.job.rows) * host.job.columns;
    // Fewer systems than threads, each large: the threads work on one system together.
    const bool together = host.job.systems < host.threads && work >= large_system;
    together ? solve_by_all_threads(host) : solve_by_one_thread_each(host);
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
    if (job.constraints.general)
        return job.pulse_length ? workspace_of<Stacked<Convolution<double>>>(job, members)
                                : workspace_of<Stacked<Dense<double>>>(job, members);
    return job.pulse_length ? workspace_of<Convolution<double>>(job, members)
                            : workspace_of<Dense<double>>(job, members);
}

}  // namespace
}  // namespace lsq
SW_END

namespace stepwell {
namespace SW_ISA {
const NnlsKernels& nnls_kernels() {
    static const NnlsKernels kernels{lsq::solve, lsq::device_workspace_bytes, lsq::stacked_rows};
    return kernels;
}
}  // namespace SW_ISA
}  // namespace stepwell
