// The best point so far, to which the iteration returns where rounding leads it astray, and factors made
// anew: on the columns of a point, with another update or another lambda.
#pragma once

#include "core/lsq/advance.hpp"

SW_BEGIN
namespace lsq {

template <class Team, class Matrix>
struct Rebuild : Advance<Team, Matrix> {
    using Base = Advance<Team, Matrix>;
    using Base::any_barred;
    using Base::any_dependent;
    using Base::exact;
    using Base::factor;
    using Base::fresh;
    using Base::from_gram;
    using Base::inserted_count;
    using Base::projected;
    using Base::squared_residual;
    using Base::tally;
    using Base::task;
    using Base::team;
    using Base::ws;

    // Lowest squared residual so far; its point is in ws.best_x, ws.best_order.
    double best = double_infinity;
    int best_count = 0;
    bool restarted = false;  // with Q and R in place of the Gram factor

    SW_HD Rebuild(const Team& team, const Task<Matrix>& task) : Base(team, task) {}

protected:
    // Rounding can let an insertion fail to lower the residual. Its columns are then barred until another
    // does, and a point that is worse is given up for the best: so the iteration ends. False after a return
    // to the best point.
    SW_HD bool progress() {
        if (squared_residual < best) {
            best = squared_residual;
            remember();
            if (any_barred) this->unbar();
            return true;
        }
        if (inserted_count <= 0) return true;
        return without_inserted();
    }

    SW_CALL bool without_inserted() {
        for (int q = 0; q < inserted_count; ++q) this->bar(ws.inserted[q]);
        inserted_count = 0;
        team.sync();
        if (squared_residual > best * (1 + 1e-12)) {
            rebuild(ws.best_order, ws.best_x, best_count, factor.update, true);
            return false;
        }
        this->mask_scores();
        return true;
    }

    // No column is in the factor, and nothing is known of any point.
    SW_HD void empty_factor(int update) {
        for (int p = 0; p < factor.count; ++p) {
            const int j = ws.order[p];
            team.sync();
            if (team.rank() == 0) this->mark(j, ws.state[j] & ~is_positive);
        }
        team.sync();
        factor.restart(update);
        exact = projected = restarted = any_barred = any_dependent = false;
        best = double_infinity;
        best_count = inserted_count = 0;
    }

    // Factors the columns it has anew, for another lambda^2.
    SW_HD void refactor(double penalty) {
        if (any_barred) this->unbar();
        exact = projected = restarted = false;
        best = double_infinity;
        inserted_count = 0;
        remember();
        this->set_penalty(penalty);
        rebuild(ws.best_order, ws.best_x, best_count, task.options.update, false);
        // (Free columns that depended on others may no longer do so.)
        from_gram = task.shared.gram != nullptr;
        if constexpr (Matrix::general) enter_free(this->insert_free());
        factor.settled = 0;
    }

    // After the free columns were inserted, all but those for which the Gram factor has to give way.
    SW_CALL void enter_free(bool all) {
        if (all) return;
        escalate();
        this->insert_free();
    }

    // Gives the Gram factor up for Q and R, on the columns and from the point it has.
    SW_HD void escalate() {
        tally.escalated = 1;
        inserted_count = 0;
        best = double_infinity;
        from_gram = false;
        remember();
        rebuild(ws.best_order, ws.best_x, best_count, cgs2, false);
    }

    // Keeps the point, and which columns are at their upper bounds there. Ends in a sync.
    SW_HD void remember() {
        best_count = factor.count;
        team.each_short(factor.count, [&](int p) {
            ws.best_x[p] = ws.x[p];
            ws.best_order[p] = ws.order[p];
        });
        if (this->is_general()) team.each(this->columns(), [&](int j) { ws.best_state[j] = ws.state[j]; });
        team.sync();
    }

    // Factors a remembered point anew.
    SW_CALL void rebuild(const int32_t* order, const double* x, int count, int update, bool moved) {
        for (int p = 0; p < factor.count; ++p)
            if (team.rank() == 0) this->mark(ws.order[p], ws.state[ws.order[p]] & ~is_positive);
        team.sync();
        const int insertions = factor.insertions;
        factor.restart(update);
        if constexpr (Matrix::general) {
            if (ws.metric && factor.keeps_q()) this->find_roots();
            const int looked_at = moved && this->is_general() ? this->columns() : 0;
            for (int j = 0; j < looked_at; ++j) {
                const bool crosses = (ws.state[j] ^ ws.best_state[j]) & reflected;
                team.sync();
                if (crosses) this->cross(j);
            }
        }
        for (int p = 0; p < count; ++p) {
            if (this->insert_alone(order[p]) != Entry::entered) continue;
            if (team.rank() == 0) ws.x[factor.count - 1] = x[p];
            team.sync();
        }
        factor.insertions = insertions;
        factor.settled = factor.count;
        fresh = false;
        team.sync();
    }
};

}  // namespace lsq
SW_END
