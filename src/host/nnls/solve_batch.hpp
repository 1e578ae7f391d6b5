// A batch of systems of one kind of matrix: a queue over all threads, or one large system on all of them.
// Each kind is compiled by itself, so that compilers work side by side.
#pragma once

#include <atomic>
#include <memory>
#include <new>
#include <vector>

#include "host/common/subnormals.hpp"
#include "host/common/thread_team.hpp"
#include "host/nnls/shared_matrix.hpp"

SW_BEGIN
namespace nnls {

// From this many entries on, a product with A costs so much more than a barrier that threads share one
// system.
constexpr int64_t large_system = int64_t(1) << 22;

template <class Scalar, class Matrix>
void solve_batch(const HostJob& host) {
    const Job& job = host.job;
    const Matrix* kind = nullptr;
    const Matrix first = matrix_of(job, 0, kind);
    const int64_t work = int64_t(job.rows) * job.columns;
    // Fewer systems than threads, each large: the threads work on one system together.
    if (job.systems < host.threads && work >= large_system) {
        OwnTask<Matrix> own(job.options, extent_of(job, first, host.threads, true), Shared());
        for (int64_t system = 0; system < job.systems; ++system) {
            own.task.take(matrix_of(job, matrix_number(job, system), kind));
            run_thread_team(host.threads, [&](const ThreadTeam& team) {
                const FlushSubnormals flush;
                solve_system<Scalar>(team, job, system, own.task);
            });
        }
        return;
    }
    const bool share = shares_columns(job);
    // One matrix, or those of a dictionary.
    std::vector<std::unique_ptr<SharedMatrix<Matrix>>> common(share ? std::max(1, job.family.matrices) : 0);
    for (size_t k = 0; k < common.size(); ++k)
        common[k] =
            std::make_unique<SharedMatrix<Matrix>>(host, matrix_of(job, static_cast<int64_t>(k), kind));
    const Shared shared = share ? common[0]->shared : Shared();
    const Extent extent = extent_of(job, first, 1, !share);
    const int64_t piece = job.options.chain
                              ? nnls_chain_length
                              : std::clamp<int64_t>((1 << 17) / std::max<int64_t>(work, 1), 1, 64);
    const int pieces = static_cast<int>((job.systems + piece - 1) / piece);
    const int threads = std::min(host.threads, pieces);
    std::vector<std::unique_ptr<OwnTask<Matrix>>> tasks(threads);
    std::atomic<bool> out_of_memory{false};
    Pool::instance().run(pieces, threads, [&](int p, int thread) {
        const FlushSubnormals flush;
        std::unique_ptr<OwnTask<Matrix>>& own = tasks[thread];
        try {
            if (!own) own = std::make_unique<OwnTask<Matrix>>(job.options, extent, shared);
        } catch (const std::bad_alloc&) {
            out_of_memory = true;
            return;
        }
        for (int64_t system = p * piece; system < std::min(job.systems, (p + 1) * piece); ++system) {
            const int64_t index = matrix_number(job, system);
            own->task.take(matrix_of(job, index, kind));
            if (job.family.which) own->task.share(common[static_cast<size_t>(index)]->shared);
            solve_system<Scalar>(Lone(), job, system, own->task);
        }
    });
    if (out_of_memory) throw std::bad_alloc();
}

template <class Scalar, class Matrix>
void solve_either(const HostJob& host) {
    host.job.family.general ? solve_batch<Scalar, Stacked<Matrix>>(host) : solve_batch<Scalar, Matrix>(host);
}

void solve_dense_double(const HostJob& host);
void solve_dense_single(const HostJob& host);
void solve_pulses_double(const HostJob& host);
void solve_pulses_single(const HostJob& host);

}  // namespace nnls
SW_END
