// The factor of NNLS by itself: columns inserted and removed as told, for the study of what updates cost.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/lsq/job.hpp"
#include "host/common/thread_team.hpp"
#include "host/lsq/sweeps.hpp"

SW_BEGIN
namespace lsq {
namespace {

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

struct alignas(64) Line {
    char bytes[64];
};

void run(FactorTrial& trial) {
    const Lone team;
    const Dense<double> matrix{trial.a, trial.columns, trial.rows, trial.columns};
    Job job{};
    job.rows = trial.rows;
    job.columns = trial.columns;
    job.options.update = trial.update;
    const Extent extent = extent_of(job, matrix, 1, true);
    std::vector<Line> memory(Workspace::bytes(extent) / sizeof(Line) + 1);
    Task<Dense<double>> task;
    task.arrange(job.options, extent, Shared(), Arena{nullptr, 0, memory.front().bytes});
    const Workspace& ws = task.ws;
    const int length = extent.row_length();
    std::fill(ws.r, ws.r + length, 0.0);
    std::fill(ws.b, ws.b + length, 0.0);
    matrix.measure(team, ws.r, ws.envelope, ws.score, ws.w);
    for (int j = 0; j < trial.columns; ++j) {
        scale_column(matrix, j, ws.score[j], 0.0, ws.scale[j], ws.norm[j]);
        ws.inverse_norm[j] = ws.norm[j] > 0 ? 1.0 / ws.norm[j] : 0.0;
    }
    for (int p = 0; p < extent.positions(); ++p) ws.slot[p] = p;
    std::fill(ws.costs, ws.costs + 4, 0);
    if (extent.square_q)
        for (int64_t c = 0; c < length; ++c)
            for (int i = 0; i < length; ++i) ws.q[c * length + i] = i == c;
    Factor<Lone> factor(team, task);
    trial.rejected = 0;
    for (int64_t move = 0; move < trial.move_count; ++move) {
        const int32_t j = trial.moves[move];
        if (j < 0) {
            factor.leave(-1 - j);
            continue;
        }
        const int slot = ws.slot[factor.count];
        ws.order[factor.count] = j;
        double* column = ws.panel + static_cast<int64_t>(slot) * length;
        matrix.gather(team, ws.envelope, j, ws.scale[j], column, length);
        matrix.bounds(ws.envelope, j, column, ws.low[slot], ws.high[slot]);
        const Inserted entrance = factor.weigh(j, ws.b, 0.0, 0, 0);
        if (entrance.outcome == Entry::entered)
            factor.accept(entrance);
        else
            ++trial.rejected;
    }
    trial.count = factor.count;
    trial.orthogonality = trial.backward_error = 0;
    for (int p = 0; p < factor.count; ++p) {
        const double* q = ws.q + static_cast<int64_t>(p) * length;
        const double* column = factor.positive().at(p);
        if (factor.keeps_q())
            for (int s = 0; s <= p; ++s)
                trial.orthogonality =
                    std::max(trial.orthogonality,
                             absolute(dot(ws.q + static_cast<int64_t>(s) * length, q, length) - (s == p)));
        // a_p = Q R e_p, or, without Q, a_s . a_p = (R e_s) . (R e_p).
        if (factor.keeps_q()) {
            for (int i = 0; i < trial.rows; ++i) {
                double sum = 0;
                for (int s = 0; s <= p; ++s)
                    sum += ws.q[static_cast<int64_t>(s) * length + i] * factor.triangle.row(s)[p];
                trial.backward_error = std::max(trial.backward_error, absolute(sum - column[i]));
            }
        } else {
            for (int s = 0; s <= p; ++s) {
                double sum = 0;
                for (int t = 0; t <= s; ++t) sum += factor.triangle.row(t)[s] * factor.triangle.row(t)[p];
                trial.backward_error = std::max(trial.backward_error,
                                                absolute(sum - dot(factor.positive().at(s), column, length)));
            }
        }
    }
    std::copy(ws.costs, ws.costs + 4, trial.costs);
}

}  // namespace

extern "C" void stepwell_nnls_factor(FactorTrial* trial) {
    run(*trial);
}

}  // namespace lsq
SW_END
