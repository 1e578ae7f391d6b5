// The state of the solve of one system, as each member of a team keeps it; what it points at is the team's.
// The parts of the solver are functions of it, a file each: the dual (dual.hpp), columns in and out of the
// factor (insertion.hpp, bounded.hpp), the way to a solution (advance.hpp), the best point (rebuild.hpp), and
// the iteration of them all (active_set.hpp).
#pragma once

#include "core/lsq/factor.hpp"
#include "core/lsq/numbers.hpp"
#include "core/lsq/scaling.hpp"

SW_BEGIN
namespace lsq {

// A column's score counts only while it is zero and not barred: the gate. One at its upper bound may only go
// down.
SW_CALL void set_state(const Setting& task, int j, int state) {
    task.ws.state[j] = state;
    const double inverse = task.inverse_norm_of(j);
    task.ws.gate[j] = state == zero ? inverse : state == reflected ? -inverse : 0.0;
}

// Of a system with bounds, a bound sum, weights of rows or a penalty: what is given, as the caller gave it.
struct Given {
    const double *lower = nullptr, *upper = nullptr;
    double sum_low = 0, sum_high = 0;
    const double* gram = nullptr;  // where normal equations are given
    bool relaxes = false;          // some far bounds do not count
};

// Where the search for a lambda by a rule stands (search.hpp).
struct Search {
    int at_end = 0;       // -1, 1: lambda is at an end of its range; 2: an L-curve without a corner
    int evaluations = 0;  // solutions with some lambda
    double unpenalized = double_nan();  // phi at nu = 0
    double level = 0;                   // what phi has to be
    double factor_of_level = 0;         // level / phi at nu = 0; 0 where the noise makes the level
    bool is_cut = false;                // the search met the limit on solutions
    bool has_false_level = false;  // phi at nu = 0, of which the level is a multiple, may not be the least
    bool lacks_level = false;      // phi is not the level, or the level is false
    bool beyond = false;           // x lies beyond a far bound, which has to count
};

template <class Team, class Matrix, class Numbers>
struct State {
    static constexpr bool general = Matrix::general, plain = Matrix::plain, shifts = Matrix::shifts;

    const Team& team;
    const Task<Matrix>& task;
    const Workspace& ws;
    const Numbers numbers;  // how b is read, and x and the dual are written
    Tally tally;
    Factor<Team> factor;

    double b_scale = 1, b_norm = 0;

    // The dual: the largest score of a zero and the largest of a positive, and what rounding leaves of each.
    double top = 0, slope = 0, slack = 0, slope_slack = 0;
    int top_column = 0;
    double size = 0;  // |b| + sum |a_j| |x_j|
    double squared_residual = 0;
    bool fresh = false;      // ws.r and ws.w are those of x, from A
    bool from_gram = false;  // the dual comes from the Gram matrix; at its end it is verified from A
    bool trusting = false;   // at its end the dual is not verified: a lambda is only tried
    bool exact = false;      // ws.r comes from twice the precision
    // The dual, and squared_residual, are of the part of the residual outside the span of the positives, and
    // Q'(b - A x) stands in place of Q'b.
    bool projected = false;
    bool any_barred = false, any_dependent = false;

    // The columns inserted in this step, in ws.inserted.
    int inserted_count = 0, insertion_limit = max_insertions;
    bool solved = false;  // ws.z is the solution on them

    // Lowest squared residual so far; its point is in ws.best_x, ws.best_order.
    double best = double_infinity;
    int best_count = 0;
    bool restarted = false;  // with Q and R in place of the Gram factor

    // Of the general solver. `reference_size`: sum |a_j| |x_j| of the columns at bounds. `multiplier`: that
    // of a bound sum; its part is in ws.w.
    IfConstrained<Given> given;
    IfConstrained<Search> search;
    double reference_size = 0, multiplier = 0;
    double weighed_square = 0;  // this member's part of the squared residual under the metric
    bool has_moved = false;     // a column's part has been taken from ws.b, which is rounded since

    SW_HD State(const Team& team, const Task<Matrix>& task, const Job& job)
        : team(team), task(task), ws(task.ws), numbers(job), factor(team, task) {}
    State(const State&) = delete;  // a lambda takes it by reference

    SW_HD int columns() const { return task.matrix.columns; }
    SW_HD bool is_general() const { return lsq::is_general(task); }
    SW_HD void mark(int j, int state) const { set_state(task, j, state); }
    // Whether the caller wants the call to end: the same for all members.
    SW_HD bool is_interrupted() const {
#if defined(__CUDACC__)
        return false;
#else
        const NnlsOptions& options = task.options;
        if (!options.interrupted) return false;
        return team.max(team.rank() == 0 ? double(options.interrupted(options.watch)) : 0.0) > 0;
#endif
    }
};

}  // namespace lsq
SW_END
