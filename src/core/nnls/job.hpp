// The solution of one system of a batch by one team.
#pragma once

#include "core/nnls/active_set.hpp"
#include "core/nnls/convolution.hpp"
#include "core/nnls/dense.hpp"

SW_BEGIN
namespace nnls {

template <class Scalar>
SW_HD Dense<Scalar> matrix_of(const Job& job, int64_t system, const Dense<Scalar>*) {
    return {static_cast<const Scalar*>(job.a) + system * job.a_stride, job.row_stride, job.rows, job.columns};
}

template <class Scalar>
SW_HD Convolution<Scalar> matrix_of(const Job& job, int64_t system, const Convolution<Scalar>*) {
    return {static_cast<const Scalar*>(job.a) + system * job.a_stride,
            job.pulse_length,
            job.pulse_origin,
            job.rows,
            job.columns,
            nullptr};
}

template <class Matrix>
SW_HD Extent extent_of(const Job& job, const Matrix& matrix, int members, bool gathers) {
    Extent e;
    e.rows = job.rows;
    e.columns = job.columns;
    e.damped = job.options.damping > 0;
    e.max_columns = e.damped ? job.columns : min_of(job.rows, job.columns);
    e.zeros_before = matrix.zeros_before();
    e.zeros_after = matrix.zeros_after();
    e.members = members;
    e.pulse_length = matrix.pulse_length();
    e.pulse_origin = matrix.pulse_origin();
    e.square_q = job.options.update == rotations;
    e.has_q = job.options.update != csne;
    e.gathers = gathers;
#if defined(__CUDACC__)
    e.by_column = true;
#else
    e.by_column = false;
#endif
    return e;
}

// The task's matrix is that of the system.
template <class Scalar, class Team, class Matrix>
SW_HD void solve_system(const Team& team, const Job& job, int64_t system, const Task<Matrix>& task) {
    ActiveSet<Team, Matrix, Scalar> solver(team, task);
    const int64_t n = job.columns;
    WarmStart<Scalar> warm;
    if (job.warm_values) warm.values = static_cast<const Scalar*>(job.warm_values) + system * job.warm_stride;
    if (job.warm_marks) warm.marks = job.warm_marks + system * job.warm_stride;
    if (job.options.chain && system % nnls_chain_length != 0) warm.marks = job.active + (system - 1) * n;
    solver.run(static_cast<const Scalar*>(job.b) + system * job.b_stride, warm);
    double residual;
    solver.answer(static_cast<Scalar*>(job.x) + system * n, static_cast<Scalar*>(job.dual) + system * n,
                  job.active + system * n, residual);
    if (team.rank() != 0) return;
    const Tally& tally = solver.tally;
    job.residual[system] = residual;
    job.violation[system] = tally.status == non_finite ? double_nan() : solver.violation();
    job.status[system] = tally.status;
    job.insertions[system] = solver.factor.insertions;
    job.removals[system] = solver.factor.removals;
    job.solves[system] = tally.solves;
    job.passes[system] = tally.passes;
    job.escalated[system] = tally.escalated;
    for (int k = 0; k < 4; ++k) job.costs[4 * system + k] = task.ws.costs[k];
}

}  // namespace nnls
SW_END
