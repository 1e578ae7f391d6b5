// One large system after the other, each by all threads; compiled once per instruction set.
#include "host/common/thread_team.hpp"
#include "host/lsq/solve_batch.hpp"

SW_BEGIN
namespace lsq {

void solve_by_all_threads(const HostJob& host) {
    const Job& job = host.job;
    MatrixReader matrices(host);
    OwnTask own(job.options, extent_of(job, matrices.read(0), host.threads, true), Shared());
    for (int64_t system = 0; system < job.systems && !host.is_interrupted(); ++system) {
        own.task.take(matrices.read(matrix_number(job, system)));
        run_thread_team(host.threads, [&](const ThreadTeam& team) {
            const FlushSubnormals flush;
            solve_one(team, host, system, own.task);
        });
        mend(host, system, own.task.matrix);
    }
}

}  // namespace lsq
SW_END
