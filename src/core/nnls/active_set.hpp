// Non-negative least squares by an active set (Lawson & Hanson), written once for every team.
//
// Everything is done in scaled units: columns by a power of two to a norm in [1, 2), b by a power of two. The
// scaling is exact, so the residual and the dual of the scaled problem are those of the answer. Decisions are
// replicated: all members of a team read the same numbers after a sync and take the same branch.
#pragma once

#include "core/nnls/factor.hpp"
#include "core/nnls/scaling.hpp"

SW_BEGIN
namespace nnls {

enum ColumnState : int32_t { zero = 0, is_positive = 1, barred = 2 };

// A warm start: values (x itself) or marks (which unknowns are positive), or neither.
template <class Scalar>
struct WarmStart {
    const Scalar* values = nullptr;
    const uint8_t* marks = nullptr;
};

template <class Team, class Matrix, class Scalar>
struct ActiveSet {
    const Team& team;
    const Matrix& matrix;
    const Options& options;
    Workspace& ws;
    Shared shared;
    Tally tally;
    Factor<Team> factor;
    Envelope envelope;

    double b_scale = 1, b_norm = 0;
    double best =
        double_infinity;  // lowest squared residual so far, and its point in ws.best_x, ws.best_order
    int best_count = 0;
    double squared_residual = 0;
    double top = 0, slope = 0,
           room = 0;  // largest dual of a zero, of a positive, and what rounding leaves of either
    int top_column = 0;
    int block[most_in_a_block];  // columns inserted in this step
    int block_size = 0;
    int block_limit = most_in_a_block;
    bool from_gram = false;  // the dual comes from the Gram matrix; at its end it is verified from A
    bool fresh = false;      // ws.r and ws.w are those of x, from A
    bool any_barred = false, any_dependent = false;
    bool solved = false;  // ws.z is the solution on the columns just inserted

    SW_HD ActiveSet(const Team& team, const Matrix& matrix, const Options& options, const Extent& extent,
                    const Shared& shared, Workspace& ws)
        : team(team),
          matrix(matrix),
          options(options),
          ws(ws),
          shared(shared),
          factor{team, ws, tally, extent, shared, options.damping, options.update},
          envelope(shared.envelope.low ? shared.envelope : ws.envelope) {}

    SW_CALL void run(const Scalar* b, WarmStart<Scalar> warm) {
        if (!begin(b)) {
            tally.status = non_finite;
            return;
        }
        if (b_norm == 0) {
            team.each(matrix.columns, [&](int j) { ws.w[j] = 0; });
            team.sync();
            fresh = true;
            return;
        }
        if (warm.values || warm.marks) start_from(warm);
        tally.status = iterate();
        if (!fresh || from_gram) look_from_matrix();
        if (any_barred) unbar();
        if (sizeof(Scalar) < sizeof(double)) round_answer();
        if (tally.status >= stalled && top <= room && slope <= room) tally.status = converged;
    }

    // x, w and the residual norm in the caller's units, into arrays of the caller's kind.
    SW_CALL void answer(Scalar* x, Scalar* dual, uint8_t* active, double& residual) {
        const double missing = tally.status == non_finite ? double_nan() : 0.0;
        team.each(matrix.columns, [&](int j) { x[j] = Scalar(missing); });
        team.each(matrix.columns, [&](int j) { active[j] = 0; });
        if (tally.status == non_finite || b_norm == 0) {
            team.each(matrix.columns, [&](int j) { dual[j] = Scalar(missing); });
        } else {
            const double* scale = shared.scale ? shared.scale : ws.scale;
            const double b_unscale = 1 / b_scale;
            team.each(matrix.columns,
                      [&](int j) { dual[j] = Scalar(scale[j] > 0 ? ws.w[j] / scale[j] * b_unscale : 0.0); });
        }
        team.sync();
        team.few(factor.count, [&](int p) {
            const int j = ws.order[p];
            x[j] = Scalar(ws.x[p] * (factor.scale_of(j) / b_scale));
            active[j] = 1;
        });
        residual = missing;
        if (b_norm > 0 && tally.status != non_finite)
            residual =
                square_root(team.sum(part_of_dot(team, ws.r, ws.r, factor.extent.row_length()))) / b_scale;
        team.sync();
    }

    // Largest w_j / (|a_j| |b|) over the zeros, |w_j| over the positives. Of a finished run.
    SW_HD double violation() const { return b_norm > 0 ? max_of(0.0, max_of(top, slope)) / b_norm : 0.0; }

private:
    // ---- start
    // -----------------------------------------------------------------------------------------------

    SW_CALL bool begin(const Scalar* b) {
        const int length = factor.extent.row_length();
        const double most = largest_magnitude(team, b, matrix.rows);
        if (!is_finite(most)) return false;
        b_scale = most >= 1e-290 ? power_below(most) : 0.0;
        team.each(length, [&](int i) { ws.b[i] = ws.r[i] = i < matrix.rows ? b_scale * double(b[i]) : 0.0; });
        const int before = static_cast<int>(padded(matrix.zeros_before()));
        team.each(before, [&](int i) { ws.r[i - before] = 0; });
        team.each(matrix.zeros_after(), [&](int i) { ws.r[length + i] = 0; });
        team.each(matrix.columns, [&](int j) { ws.state[j] = zero; });
        if (!shared.columns) team.each(factor.extent.most_columns + 1, [&](int p) { ws.slot[p] = p; });
        if (factor.extent.square_q) square_identity();
        team.sync();
        squared_residual = team.sum(part_of_dot(team, ws.r, ws.r, length));
        b_norm = square_root(squared_residual);
        if (shared.scale) {
            if (b_norm > 0) matrix.multiply(team, ws.r, envelope, ws.w, ws.scratch);
        } else if (!measure()) {
            return false;
        }
        ++tally.passes;
        team.each(matrix.columns, [&](int j) { ws.gate[j] = factor.inverse_norm_of(j); });
        scale_dual();
        from_gram = shared.gram != nullptr;
        if (from_gram) team.each(matrix.columns, [&](int j) { ws.c[j] = ws.w[j]; });
        best = squared_residual;
        fresh = true;
        team.sync();
        return true;
    }

    SW_CALL bool measure() {
        double* squares = ws.score;
        matrix.measure(team, ws.r, envelope, squares, ws.w);
        double bad = 0;
        team.each(matrix.columns, [&](int j) {
            double scale, norm;
            if (!scale_column(matrix, j, squares[j], options.damping, scale, norm)) bad = 1;
            ws.scale[j] = scale;
            ws.norm[j] = norm;
            ws.inverse_norm[j] = norm > 0 ? 1.0 / norm : 0.0;
        });
        team.argmax(bad, team.rank());
        team.sync();
        return bad == 0;
    }

    SW_HD void square_identity() {
        const int length = factor.extent.q_length();
        for (int c = 0; c < length; ++c)
            team.each(length,
                      [&](int i) { ws.q[static_cast<int64_t>(c) * length + i] = i == c ? 1.0 : 0.0; });
    }

    // The positive set of a neighbour: its columns enter at once; what then is negative leaves.
    SW_CALL void start_from(WarmStart<Scalar> warm) {
        for (int j = 0; j < matrix.columns; ++j) {
            const bool wanted = warm.values ? warm.values[j] > Scalar(0) : warm.marks[j] != 0;
            if (!wanted || factor.norm_of(j) == 0) continue;
            fetch(j);
            if (insert(j, ws.b, ws.w[j], 0) != Entry::entered) continue;
            const double value = warm.values ? double(warm.values[j]) / factor.scale_of(j) * b_scale : 0.0;
            if (team.rank() == 0) ws.x[factor.count - 1] = is_finite(value) ? value : 0.0;
            team.sync();
        }
        fresh = false;
        if (factor.count == 0) {
            fresh = true;
            return;
        }
        if (warm.values) {
            if (advance()) finish_step();
            return;
        }
        while (factor.count > 0) {  // each round removes a column or is the last
            factor.solve();
            bool all_positive = true;
            for (int p = factor.count - 1; p >= 0; --p)
                if (!(ws.z[p] > 0)) {
                    all_positive = false;
                    remove(p);
                    // ws.z keeps the old order below p: only higher places moved.
                }
            if (all_positive) {
                finish_step();
                return;
            }
        }
        finish_step();
    }

    // ---- the iteration
    // ---------------------------------------------------------------------------------------

    SW_CALL int iterate() {
        int refinements = 0;
        for (;;) {
            if (!fresh) {
                if (from_gram && tally.solves < 5 * matrix.columns + 50)
                    look_from_gram();
                else
                    look_from_matrix();
                if (!from_gram && !progress()) continue;
            }
            const bool nothing_left = top <= room;
            // The positives' dual is zero but for the factor's error: refine before relying on the zeros'
            // dual.
            if (factor.count > 0 && slope > room && (nothing_left || slope > 0.1 * top) && refinements < 3) {
                ++refinements;
                if (!refine()) return limit;
                continue;
            }
            const bool solved_here = nothing_left && slope <= room;
            if (solved_here && !from_gram) return converged;
            if (tally.solves >= options.most_solves) return limit;
            if (nothing_left || !insert_block()) {
                // The end of this road: look at A itself, then rely on Q and R, then refine, then give up.
                if (from_gram && block_size >= 0) {
                    from_gram = false;
                    fresh = false;
                    refinements = 0;
                } else if (factor.update == gram) {
                    if (!escalate()) return limit;
                    refinements = 0;
                } else if (slope > room && refinements < 3) {
                    ++refinements;
                    if (!refine()) return limit;
                } else {
                    return any_dependent ? dependent : stalled;
                }
                continue;
            }
            refinements = 0;
            if (!advance(solved)) return limit;
            finish_step();
        }
    }

    // x becomes z, which is positive: settled.
    SW_CALL void finish_step() {
        team.few(factor.count, [&](int p) { ws.x[p] = ws.z[p]; });
        factor.settled = factor.count;
        fresh = false;
        team.sync();
    }

    // From x towards the least-squares solution z, dropping what reaches zero, until z is positive (Lawson &
    // Hanson's inner loop). Starts with z solved when `solved`. False at the limit, with x feasible.
    SW_CALL bool advance(bool solved = false) {
        for (;;) {
            if (tally.solves >= options.most_solves) return false;
            ++tally.solves;
            if (!solved) factor.solve();
            solved = false;
            double step = -double_infinity;  // minus the longest feasible step
            team.few(factor.count, [&](int p) {
                if (!(ws.z[p] > 0)) step = max_of(step, -longest_step(p));
            });
            team.argmax(step, team.rank());
            if (!(step > -double_infinity)) return true;
            const double alpha = min_of(1.0, -step);
            team.few(factor.count, [&](int p) {
                const bool blocks = !(ws.z[p] > 0) && !(longest_step(p) > alpha);
                const double moved = ws.x[p] + alpha * (ws.z[p] - ws.x[p]);
                ws.x[p] = blocks || !(moved > 0) ? 0.0 : moved;
            });
            team.sync();
            factor.settled = 0;
            fresh = false;
            for (int p = factor.count - 1; p >= 0; --p)
                if (!(ws.x[p] > 0)) remove(p);
            if (factor.count == 0) return true;
        }
    }

    // How far from x to z position p can go.
    SW_HD double longest_step(int p) const { return ws.x[p] > 0 ? ws.x[p] / (ws.x[p] - ws.z[p]) : 0.0; }

    SW_CALL void remove(int position) {
        const int j = ws.order[position];
        team.sync();
        factor.leave(position);
        if (team.rank() == 0) mark(j, ws.state[j] & ~is_positive);
        team.sync();
    }

    // A column's score counts only while it is zero and not barred: the gate.
    SW_HD void mark(int j, int state) const {
        ws.state[j] = state;
        ws.gate[j] = state == zero ? factor.inverse_norm_of(j) : 0.0;
    }

    SW_CALL bool refine() {
        team.few(factor.count, [&](int p) { ws.g[p] = ws.w[ws.order[p]]; });
        team.sync();
        factor.refine();
        block_size = 0;
        if (!advance(true)) return false;
        finish_step();
        return true;
    }

    // ---- insertion
    // -------------------------------------------------------------------------------------------

    // Brings column j to where the factor expects the next one.
    SW_CALL void fetch(int j) {
        if (shared.columns) return;
        const int slot = ws.slot[factor.count];
        const int length = factor.extent.row_length();
        double* column = ws.panel + static_cast<int64_t>(slot) * length;
        matrix.gather(team, envelope, j, ws.scale[j], column, length);
        if (team.rank() == 0) matrix.bounds(envelope, j, column, ws.low[slot], ws.high[slot]);
        team.sync();
    }

    SW_CALL Entry insert(int j, const double* against, double product, int settled) {
        const Entry outcome = factor.enter(j, against, product, settled);
        if (team.rank() == 0 && outcome == Entry::entered) mark(j, ws.state[j] | is_positive);
        team.sync();
        return outcome;
    }

    SW_HD void bar(int j) {
        if (team.rank() == 0) mark(j, ws.state[j] | barred);
        any_barred = true;
    }

    // Chooses the columns of this step and inserts them, ws.z solved. False where none can be; block_size is
    // then -1 if the Gram factor must give way.
    SW_CALL bool insert_block() {
        const int before = factor.count;
        const double* against = from_gram ? ws.b : ws.r;
        double threshold = room;
        // With the Gram matrix a look at the dual costs no more than an insertion: one at a time is best.
        const int most = options.guarded && !from_gram ? block_limit : 1;
        int misses = 0;
        bool known = true;  // the largest score is still that of the last look
        block_size = 0;
        while (block_size < most && misses < most) {
            double value = top;
            const int j = known ? top_column : largest(team, ws.score, matrix.columns, value);
            known = false;
            if (!(value > threshold)) break;
            team.sync();
            if (team.rank() == 0) ws.score[j] = -1;
            fetch(j);
            team.sync();
            if (block_size > 0 && !apart(j, before)) {
                ++misses;
                continue;
            }
            const Entry outcome = insert(j, against, ws.w[j], factor.settled);
            if (outcome == Entry::escalate) {
                while (factor.count > before) take_back();
                block_size = -1;
                return false;
            }
            // Lawson & Hanson's test: the new unknown has to become positive.
            const bool rises = outcome == Entry::entered && ws.triangle.target[factor.count - 1] > 0;
            if (outcome == Entry::entered && !rises) take_back();
            if (!rises) {
                if (outcome == Entry::dependent) any_dependent = true;
                if (block_size == 0)
                    bar(j);
                else
                    ++misses;
                continue;
            }
            if (block_size == 0) threshold = max_of(candidate_share * value, room);
            block[block_size++] = j;
        }
        team.sync();
        if (block_size == 0) return false;
        // Deviation maximisation's guard: of the new unknowns all have to become positive, so the latest are
        // dropped until they do. The first alone does.
        const bool several = block_size > 1;
        bool dropped = false;
        if (several)
            for (;;) {
                factor.solve();
                double lowest = -double_infinity;
                team.few(factor.count - before, [&](int p) { lowest = max_of(lowest, -ws.z[before + p]); });
                team.argmax(lowest, team.rank());
                if (lowest < 0 || block_size == 1) break;
                take_back();
                --block_size;
                dropped = true;
            }
        // Where many were dropped, the next step tries fewer.
        block_limit = min_of(2 * (dropped ? block_size : block_limit), most_in_a_block);
        solved = several;
        return true;
    }

    // Whether candidate j makes an angle with every column of this step.
    SW_CALL bool apart(int j, int before) {
        const Columns columns = factor.positive();
        const double limit = candidate_cosine * factor.norm_of(j);
        double close = 0;
        if (shared.gram) {
            const double* products = shared.gram + j * shared.gram_stride;
            team.few(block_size, [&](int q) {
                if (absolute(products[block[q]]) > limit * factor.norm_of(block[q])) close = 1;
            });
            team.argmax(close, team.rank());
            return close == 0;
        }
        if (shared.columns) {
            if (team.rank() == 0) ws.order[factor.count] = j;
            team.sync();
        }
        const double* column = columns.at(factor.count);
        const int first = columns.first(factor.count), last = columns.last(factor.count);
        Columns chosen = columns;
        chosen.slot += before;
        dot_columns(team, chosen, block_size, column, first, last, ws.g);
        team.few(block_size, [&](int q) {
            if (absolute(ws.g[q]) > limit * factor.norm_of(block[q])) close = 1;
        });
        team.argmax(close, team.rank());
        return close == 0;
    }

    SW_CALL void take_back() {
        const int j = ws.order[factor.count - 1];
        team.sync();
        factor.take_back();
        --tally.insertions;
        if (team.rank() == 0) mark(j, ws.state[j] & ~is_positive);
        team.sync();
    }

    // ---- progress
    // --------------------------------------------------------------------------------------------

    // Rounding can let an insertion fail to lower the residual. Its columns are then barred until another
    // does, and a point that is worse is given up for the best: so the iteration ends. False after a return
    // to the best point.
    SW_CALL bool progress() {
        if (squared_residual < best) {
            best = squared_residual;
            best_count = factor.count;
            team.few(factor.count, [&](int p) {
                ws.best_x[p] = ws.x[p];
                ws.best_order[p] = ws.order[p];
            });
            team.sync();
            if (any_barred) unbar();
            return true;
        }
        if (block_size <= 0) return true;
        for (int q = 0; q < block_size; ++q) bar(block[q]);
        block_size = 0;
        team.sync();
        if (squared_residual > best * (1 + 1e-12)) {
            rebuild(ws.best_order, ws.best_x, best_count);
            return false;
        }
        mask_scores();
        return true;
    }

    SW_CALL void unbar() {
        team.each(matrix.columns, [&](int j) { mark(j, ws.state[j] & ~barred); });
        any_barred = any_dependent = false;
        team.sync();
        mask_scores();
    }

    // Gives the Gram factor up for Q and R, on the columns and from the point it has. False at the limit.
    SW_CALL bool escalate() {
        factor.update = cgs2;
        tally.escalated = 1;
        block_size = 0;
        team.few(factor.count, [&](int p) {
            ws.best_x[p] = ws.x[p];
            ws.best_order[p] = ws.order[p];
        });
        best_count = factor.count;
        best = double_infinity;
        from_gram = false;
        team.sync();
        rebuild(ws.best_order, ws.best_x, best_count);
        if (factor.count == 0) return true;
        if (!advance()) return false;
        finish_step();
        return true;
    }

    // Factors a remembered point anew.
    SW_CALL void rebuild(const int32_t* order, const double* x, int count) {
        for (int p = 0; p < factor.count; ++p)
            if (team.rank() == 0) mark(ws.order[p], ws.state[ws.order[p]] & ~is_positive);
        team.sync();
        const Tally before = tally;
        factor.count = factor.settled = 0;
        for (int p = 0; p < count; ++p) {
            const int j = order[p];
            fetch(j);
            double product = 0;
            if (!factor.keeps_q()) {
                if (shared.columns && team.rank() == 0) ws.order[factor.count] = j;
                team.sync();
                const double* column = factor.positive().at(factor.count);
                product = team.sum(part_of_dot(team, column, ws.b, factor.extent.row_length()));
            }
            if (insert(j, ws.b, product, 0) != Entry::entered) continue;
            if (team.rank() == 0) ws.x[factor.count - 1] = x[p];
            team.sync();
        }
        tally.insertions = before.insertions;
        factor.settled = factor.count;
        fresh = false;
        team.sync();
    }

    // The residual and the dual that are reported belong to the x that is returned, rounding to float
    // included.
    SW_CALL void round_answer() {
        const bool was_fine = top <= room && slope <= room;
        const int32_t status = tally.status;
        team.few(factor.count, [&](int p) { ws.x[p] = double(Scalar(ws.x[p])); });
        team.sync();
        look_from_matrix();
        tally.status = status >= stalled && was_fine ? int32_t(converged) : status;
    }

    // ---- residual and dual
    // -----------------------------------------------------------------------------------

    // r = b - A x and w = A'r from A itself.
    SW_CALL void look_from_matrix() {
        const int length = factor.extent.row_length();
        team.each(length, [&](int i) { ws.r[i] = ws.b[i]; });
        team.sync();
        subtract_columns(team, factor.positive(), factor.count, ws.x, ws.r, length);
        double part = part_of_dot(team, ws.r, ws.r, length);
        if (options.damping > 0)
            team.few(factor.count, [&](int p) {
                const double d = factor.below(ws.order[p]) * ws.x[p];
                part += d * d;
            });
        squared_residual = team.sum(part);
        matrix.multiply(team, ws.r, envelope, ws.w, ws.scratch);
        ++tally.passes;
        scale_dual();
        if (options.damping > 0 && factor.count > 0) {
            team.few(factor.count, [&](int p) {
                const int j = ws.order[p];
                const double d = factor.below(j);
                ws.w[j] -= d * d * ws.x[p];
            });
            team.sync();
            mask_scores();
        }
        fresh = true;
    }

    // w = A'b - A'A x from the shared Gram matrix: no pass over A.
    SW_CALL void look_from_gram() {
        const Columns products{shared.gram, shared.gram_stride,
                               ws.order,    nullptr,
                               nullptr,     static_cast<int>(padded(matrix.columns))};
        const int length = static_cast<int>(padded(matrix.columns));
        team.each(length, [&](int j) { ws.w[j] = ws.c[j]; });
        team.sync();
        subtract_columns(team, products, factor.count, ws.x, ws.w, length);
        mask_scores();
        fresh = true;
    }

    SW_HD void scale_dual() {
        team.each(matrix.columns, [&](int j) { ws.w[j] *= factor.scale_of(j); });
        team.sync();
        mask_scores();
    }

    // Scores of the zeros that may be inserted, and the largest duals.
    SW_CALL void mask_scores() {
        team.each(matrix.columns, [&](int j) { ws.score[j] = ws.w[j] * ws.gate[j]; });
        team.sync();
        top_column = largest(team, ws.score, matrix.columns, top);
        const double* inverse_norm = shared.inverse_norm ? shared.inverse_norm : ws.inverse_norm;
        const double* norm = shared.norm ? shared.norm : ws.norm;
        double steepest = 0, size = 0;
        team.few(factor.count, [&](int p) {
            const int j = ws.order[p];
            steepest = max_of(steepest, absolute(ws.w[j] * inverse_norm[j]));
            size += ws.x[p] * norm[j];
        });
        team.argmax(steepest, team.rank());
        slope = steepest;
        // b - A x is rounded to a few ulp of |b| + sum |a_j| x_j.
        room = options.tolerance * (b_norm + team.sum(size));
    }
};

}  // namespace nnls
SW_END
