// One large system after the other, each by all threads; compiled once per instruction set.
#include "host/common/thread_team.hpp"
#include "host/lsq/solve_batch.hpp"

SW_BEGIN
namespace lsq {
namespace {

struct AllThreadsPerSystem {
    template <class Matrix>
    static void solve(const HostJob& host) {
        const Job& job = host.job;
        const Matrix* kind = nullptr;
        MatrixReader matrices(host);
        OwnTask<Matrix> own(job.options, extent_of(job, matrices.read(0, kind), host.threads, true),
                            Shared());
        for (int64_t system = 0; system < job.systems && !host.is_interrupted(); ++system) {
            own.task.take(matrices.read(matrix_number(job, system), kind));
            run_thread_team(host.threads, [&](const ThreadTeam& team) {
                const FlushSubnormals flush;
                solve_one(team, host, system, own.task);
            });
            mend(host, system, own.task.matrix);
        }
    }
};

}  // namespace

void solve_together(const HostJob& host) {
    solve_by<AllThreadsPerSystem>(host);
}

}  // namespace lsq
SW_END
