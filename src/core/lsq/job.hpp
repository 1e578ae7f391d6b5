// The solution of one system of a batch by one team.
#pragma once

#include "core/lsq/deviations.hpp"
#include "core/lsq/general.hpp"
#include "core/lsq/general_answer.hpp"
#include "core/lsq/plain.hpp"

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

// Where a system's b is, and where its answer goes.
struct Places {
    const void* b;
    void *x, *dual;
    uint8_t* in_factor;
};

// How a system ended: what an answer has beside its vectors.
struct Ended {
    Tally tally;
    double residual, violation;
    int insertions, removals;
};

template <class Numbers, class Team, class Matrix>
SW_HD Ended solve_general(const Team& team, const Job& job, int64_t system, Task<Matrix>& task,
                          WarmStart warm, const Places& at) {
    const int64_t n = job.columns;
    const Constraints& constraints = job.constraints;
    State<Team, Matrix, Numbers> s(team, task, job);
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
    run_general(s, job, system, at.b, warm, is_finite(near) ? near : 0.0);
    const bool known = s.tally.status != non_finite && s.tally.status != infeasible;
    Ended ended;
    general_answer(s, job, system, at.b, at.x, at.dual, at.in_factor, ended.residual, ended.violation);
    if (team.rank() == 0 && constraints.used_lam) {
        const double phi0 = s.search.unpenalized / (s.b_scale * s.b_scale);
        constraints.unpenalized[system] = known ? phi0 : double_nan();
        constraints.at_end[system] = s.search.at_end;
        constraints.evaluations[system] = s.search.evaluations;
        constraints.passive[system] = known ? s.factor.count - constraints.summed : 0;
    }
    if (constraints.factor)
        keep_factor(s, constraints.factor + system * (n * (n + 1) / 2),
                    constraints.factor_order + system * (n + 1), known);
    if (constraints.deviation) deviations(s, constraints.deviation + system * n, known);
    ended.tally = s.tally;
    ended.insertions = s.factor.insertions;
    ended.removals = s.factor.removals;
    return ended;
}

template <class Numbers, class Team, class Matrix>
SW_HD Ended solve_plain(const Team& team, const Job& job, Task<Matrix>& task, WarmStart warm,
                        const Places& at) {
    const bool cold = !warm.values && !warm.marks;
    double more = cold ? damping_to_begin_with(team, task) : 0.0;
    const double damping = task.options.damping;
    int64_t costs[4] = {0, 0, 0, 0};
    Ended ended;
    ended.insertions = ended.removals = 0;
    for (;;) {
        if (more > 0) set_damping(team, task, more);
        State<Team, Matrix, Numbers> s(team, task, job);
        s.tally.solves = ended.tally.solves;
        s.tally.passes = ended.tally.passes;
        run_plain(s, at.b, warm);
        answer_plain(s, at.x, at.dual, at.in_factor, ended.residual);
        ended.violation = judge_plain(s, job);
        ended.tally = s.tally;
        ended.insertions += s.factor.insertions;
        ended.removals += s.factor.removals;
        for (int k = 0; k < 4; ++k) costs[k] += task.ws.costs[k];
        if (!(more > 0)) break;
        more = 0;
        set_damping(team, task, damping);
        if (ended.tally.status == non_finite) break;
        warm.values = at.x;
    }
    team.sync();
    if (team.rank() == 0)
        for (int k = 0; k < 4; ++k) task.ws.costs[k] = costs[k];
    return ended;
}

// The task's matrix is that of the system.
template <class Numbers, class Team, class Matrix>
SW_HD void solve_system(const Team& team, const Job& job, int64_t system, Task<Matrix>& task) {
    const int64_t n = job.columns;
    const Numbers numbers(job);
    WarmStart warm;
    if (job.warm_values) warm.values = numbers.after(job.warm_values, system * job.warm_stride);
    if (job.warm_marks) warm.marks = job.warm_marks + system * job.warm_stride;
    if (job.options.chain && system % nnls_chain_length != 0) warm.marks = job.in_factor + (system - 1) * n;
    const Places at{numbers.after(job.b, system * job.b_stride), numbers.after(job.x, system * n),
                    numbers.after(job.dual, system * n),
                    job.in_factor ? job.in_factor + system * n : nullptr};
    Ended ended;
    if constexpr (Matrix::general)
        if (is_general(task)) ended = solve_general<Numbers>(team, job, system, task, warm, at);
    if constexpr (Matrix::plain)
        if (!is_general(task)) ended = solve_plain<Numbers>(team, job, task, warm, at);
    if (team.rank() != 0) return;
    job.residual[system] = ended.residual;
    job.violation[system] = ended.violation;
    job.status[system] = ended.tally.status;
    job.insertions[system] = ended.insertions;
    job.removals[system] = ended.removals;
    job.solves[system] = ended.tally.solves;
    job.passes[system] = ended.tally.passes;
    job.escalated[system] = ended.tally.escalated;
    for (int k = 0; k < 4; ++k) job.costs[4 * system + k] = task.ws.costs[k];
}

}  // namespace lsq
SW_END
