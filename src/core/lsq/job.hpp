// The solution of one system of a batch by one team.
#pragma once

#include "core/lsq/search.hpp"
#include "core/lsq/stacked.hpp"

SW_BEGIN
namespace lsq {

template <class Scalar>
SW_HD Dense<Scalar> matrix_of(const Job& job, int64_t index, const Dense<Scalar>*) {
    return {static_cast<const Scalar*>(job.a) + index * job.a_stride, job.row_stride, job.rows, job.columns};
}

template <class Scalar>
SW_HD Convolution<Scalar> matrix_of(const Job& job, int64_t index, const Convolution<Scalar>*) {
    return {static_cast<const Scalar*>(job.a) + index * job.a_stride,
            job.pulse_length,
            job.pulse_origin,
            job.rows,
            job.columns,
            nullptr};
}

template <class Top>
SW_HD Stacked<Top> matrix_of(const Job& job, int64_t index, const Stacked<Top>*) {
    const Top* kind = nullptr;
    return Stacked<Top>(matrix_of(job, index, kind), job.constraints);
}

template <class Matrix>
SW_HD Extent extent_of(const Job& job, const Matrix& matrix, int members, bool gathers) {
    Extent e;
    e.rows = matrix.rows;
    e.rows_of_a = job.rows;
    e.columns = matrix.columns;
    e.damped = job.options.damping > 0;
    e.max_columns = e.damped ? e.columns : min_of(e.rows, e.columns);
    const Constraints& constraints = job.constraints;
    e.general = constraints.general;
    e.relative_to_b = is_relative_to_b(constraints);
    e.summed = constraints.summed;
    e.penalized = constraints.penalized;
    e.metric = constraints.summed || constraints.penalized || constraints.weights;
    e.zeros_before = matrix.zeros_before();
    e.zeros_after = matrix.zeros_after();
    e.members = members;
    e.pulse_length = matrix.pulse_length();
    e.pulse_origin = matrix.pulse_origin();
    e.square_q = job.options.update == rotations;
    e.weighted = constraints.weights != nullptr;
    e.gram_only = constraints.gram != nullptr;
    if (e.gram_only) e.max_columns = e.columns;
    e.has_q = job.options.update != csne && !e.gram_only;
    e.gathers = gathers;
#if defined(__CUDACC__)
    e.by_column = true;
#else
    e.by_column = false;
#endif
    return e;
}

// The search for lambda is compiled for general problems alone.
template <class Team, class Matrix, class Numbers, bool general>
struct SolverOf {
    typedef ActiveSet<Team, Matrix, Numbers> type;
};
template <class Team, class Matrix, class Numbers>
struct SolverOf<Team, Matrix, Numbers, true> {
    typedef Search<Team, Matrix, Numbers> type;
};

template <class Team>
SW_HD void set_damping(const Team& team, Setting& task, double damping) {
    team.sync();
    if (team.rank() == 0) task.options.damping = damping;
    team.sync();
}

// The damping to begin with; 0: that which is asked for. With fewer rows than columns and little damping a
// cold start first fits b by a vertex, as without damping, and then exchanges hundreds of columns one by one
// for the many that share the fit in the solution. More damping shows nearly all of these at once.
template <class Team, class Matrix>
SW_CALL double damping_to_begin_with(const Team& team, const Task<Matrix>& task) {
    const Matrix& matrix = task.matrix;
    if (!task.extent.damped || !task.extent.gathers || matrix.rows >= matrix.columns) return 0;
    if (matrix.rows < many_columns || !task.options.guarded) return 0;
    double part = 0;
    team.each(matrix.columns, [&](int j) {
        for (int i = 0; i < matrix.rows; ++i) part += matrix.entry(i, j) * matrix.entry(i, j);
    });
    const double more = first_damping * square_root(team.sum(part) / matrix.columns);
    return is_finite(more) && task.options.damping < 0.2 * more ? more : 0.0;
}

// The task's matrix is that of the system.
template <class Numbers, class Team, class Matrix>
SW_HD void solve_system(const Team& team, const Job& job, int64_t system, Task<Matrix>& task) {
    typedef typename SolverOf<Team, Matrix, Numbers, Matrix::general>::type Solver;
    const int64_t n = job.columns;
    const Numbers numbers(job);
    WarmStart warm;
    if (job.warm_values) warm.values = numbers.after(job.warm_values, system * job.warm_stride);
    if (job.warm_marks) warm.marks = job.warm_marks + system * job.warm_stride;
    if (job.options.chain && system % nnls_chain_length != 0) warm.marks = job.active + (system - 1) * n;
    const void* b = numbers.after(job.b, system * job.b_stride);
    void *x = numbers.after(job.x, system * n), *dual = numbers.after(job.dual, system * n);
    uint8_t* active = job.active ? job.active + system * n : nullptr;
    double residual, violation;
    Tally tally;
    int insertions, removals;
    if constexpr (Matrix::general) {
        Solver solver(team, task);
        const Constraints& constraints = job.constraints;
        if (constraints.has_states && warm.marks) {
            warm.states = reinterpret_cast<const int8_t*>(warm.marks);
            warm.marks = nullptr;
        }
        if (job.options.chain && warm.marks) {
            warm.states = constraints.state + (system - 1) * n;
            warm.marks = nullptr;
        }
        // A chain hands on lambda as well.
        const bool follows = job.options.chain && system % nnls_chain_length != 0;
        const double near = follows ? constraints.used_lam[system - 1] : 0.0;
        solver.solve(job, system, b, warm, is_finite(near) ? near : 0.0);
        const bool known = solver.tally.status != non_finite && solver.tally.status != infeasible;
        solver.general_answer(job, system, b, x, dual, active, residual, violation);
        if (team.rank() == 0 && constraints.used_lam) {
            const double phi0 = solver.unpenalized / (solver.b_scale * solver.b_scale);
            constraints.unpenalized[system] = known ? phi0 : double_nan();
            constraints.at_end[system] = solver.at_end;
            constraints.evaluations[system] = solver.evaluations;
            constraints.passive[system] = known ? solver.factor.count - constraints.summed : 0;
        }
        if (constraints.factor)
            solver.keep_factor(constraints.factor + system * (n * (n + 1) / 2),
                               constraints.factor_order + system * (n + 1), known);
        if (constraints.deviation) solver.deviations(constraints.deviation + system * n, known);
        tally = solver.tally;
        insertions = solver.factor.insertions;
        removals = solver.factor.removals;
    } else {
        const bool cold = !warm.values && !warm.marks;
        double more = cold ? damping_to_begin_with(team, task) : 0.0;
        const double damping = task.options.damping;
        int64_t costs[4] = {0, 0, 0, 0};
        insertions = removals = 0;
        for (;;) {
            if (more > 0) set_damping(team, task, more);
            Solver solver(team, task);
            solver.tally.solves = tally.solves;
            solver.tally.passes = tally.passes;
            solver.run(job, b, warm);
            solver.answer(x, dual, active, residual);
            violation = solver.judge(job);
            tally = solver.tally;
            insertions += solver.factor.insertions;
            removals += solver.factor.removals;
            for (int k = 0; k < 4; ++k) costs[k] += task.ws.costs[k];
            if (!(more > 0)) break;
            more = 0;
            set_damping(team, task, damping);
            if (tally.status == non_finite) break;
            warm.values = x;
        }
        team.sync();
        if (team.rank() == 0)
            for (int k = 0; k < 4; ++k) task.ws.costs[k] = costs[k];
    }
    if (team.rank() != 0) return;
    job.residual[system] = residual;
    job.violation[system] = violation;
    job.status[system] = tally.status;
    job.insertions[system] = insertions;
    job.removals[system] = removals;
    job.solves[system] = tally.solves;
    job.passes[system] = tally.passes;
    job.escalated[system] = tally.escalated;
    for (int k = 0; k < 4; ++k) job.costs[4 * system + k] = task.ws.costs[k];
}

}  // namespace lsq
SW_END
