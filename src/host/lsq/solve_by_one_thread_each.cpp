// Many systems, each by one thread; compiled once per instruction set.
#include <atomic>
#include <memory>
#include <new>
#include <vector>

#include "host/lsq/small_systems.hpp"
#include "host/lsq/solve_batch.hpp"

SW_BEGIN
namespace lsq {
namespace {

// What a thread works with.
struct Worker {
    Worker(const HostJob& host, const Extent& extent, const Shared& shared)
        : matrices(host), own(host.job.options, extent, shared) {}
    MatrixReader matrices;
    OwnTask own;
};

// Threads that try small systems first, and the rest where something is left.
struct ThreadState {
    std::unique_ptr<SmallSystems> small;
    std::unique_ptr<Worker> worker;
};

}  // namespace

void solve_by_one_thread_each(const HostJob& host) {
    const Job& job = host.job;
    MatrixReader matrices(host);
    const bool share = shares_columns(job);
    // One matrix, or those of a dictionary.
    std::vector<std::unique_ptr<SharedMatrix>> common(share ? std::max(1, job.constraints.matrices) : 0);
    for (size_t k = 0; k < common.size(); ++k)
        common[k] = std::make_unique<SharedMatrix>(host, matrices.read(static_cast<int64_t>(k)));
    const Shared shared = share ? common[0]->shared : Shared();
    const Extent extent = extent_of(job, matrices.read(0), 1, !share);
    // (Normal equations have no rows.)
    const int64_t work = int64_t(job.constraints.gram ? job.columns : job.rows) * job.columns;
    // A few systems that take longer than to wake a thread are dealt out evenly.
    const int64_t even = (job.systems + host.threads - 1) / host.threads;
    const int64_t most = job.systems * work >= (1 << 15) ? std::clamp<int64_t>(even, 1, 64) : 64;
    const int64_t piece = job.options.chain
                              ? nnls_chain_length
                              : std::clamp<int64_t>((1 << 17) / std::max<int64_t>(work, 1), 1, most);
    const int pieces = static_cast<int>((job.systems + piece - 1) / piece);
    const int threads = std::min(host.threads, pieces);
    const bool tries = small::source_of(job, host.form_gram) != small::no_source;
    std::vector<ThreadState> thread_states(threads);
    std::atomic<bool> out_of_memory{false};
    Pool::instance().run(pieces, threads, [&](int p, int thread) {
        const FlushSubnormals flush;
        ThreadState& state = thread_states[thread];
        if (host.is_interrupted()) return;
        try {
            if (tries && !state.small) state.small = std::make_unique<SmallSystems>(host);
            const int64_t end = std::min(job.systems, (p + 1) * piece);
            for (int64_t system = p * piece; system < end; ++system) {
                const int64_t index = matrix_number(job, system);
                const Shared& own =
                    job.constraints.which ? common[static_cast<size_t>(index)]->shared : shared;
                if (tries && state.small->solve(system, end, own)) continue;
                if (!state.worker) state.worker = std::make_unique<Worker>(host, extent, shared);
                Task<EitherMatrix>& task = state.worker->own.task;
                task.take(state.worker->matrices.read(index));
                if (job.constraints.which) task.share(own);
                solve_one(Lone(), host, system, task);
                mend(host, system, task.matrix);
            }
        } catch (const std::bad_alloc&) {
            out_of_memory = true;
        }
    });
    if (out_of_memory) throw std::bad_alloc();
}

}  // namespace lsq
SW_END
