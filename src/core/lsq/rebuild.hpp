// The best point so far, to which the iteration returns where rounding leads it astray, and factors made
// anew: on the columns of a point, with another update or another lambda.
#pragma once

#include "core/lsq/advance.hpp"

SW_BEGIN
namespace lsq {

// Rounding can let an insertion fail to lower the residual. Its columns are then barred until another
// does, and a point that is worse is given up for the best: so the iteration ends. False after a return
// to the best point.
template <class State>
SW_HD bool progress(State& s) {
    if (s.squared_residual < s.best) {
        s.best = s.squared_residual;
        remember(s);
        if (s.any_barred) unbar(s);
        return true;
    }
    if (s.inserted_count <= 0) return true;
    return without_inserted(s);
}

template <class State>
SW_CALL bool without_inserted(State& s) {
    for (int q = 0; q < s.inserted_count; ++q) bar(s, s.ws.inserted[q]);
    s.inserted_count = 0;
    s.team.sync();
    if (s.squared_residual > s.best * (1 + 1e-12)) {
        rebuild(s, s.ws.best_order, s.ws.best_x, s.best_count, s.factor.update, true);
        return false;
    }
    mask_scores(s);
    return true;
}

// No column is in the factor, and nothing is known of any point.
template <class State>
SW_HD void empty_factor(State& s, int update) {
    for (int p = 0; p < s.factor.count; ++p) {
        const int j = s.ws.order[p];
        s.team.sync();
        if (s.team.rank() == 0) s.mark(j, s.ws.state[j] & ~is_in_factor);
    }
    s.team.sync();
    s.factor.restart(update);
    s.exact = s.projected = s.restarted = s.any_barred = s.any_dependent = false;
    s.best = double_infinity;
    s.best_count = s.inserted_count = 0;
}

// Factors the columns it has anew, for another lambda^2.
template <class State>
SW_HD void refactor(State& s, double penalty) {
    if (s.any_barred) unbar(s);
    s.exact = s.projected = s.restarted = false;
    s.best = double_infinity;
    s.inserted_count = 0;
    remember(s);
    set_penalty(s, penalty);
    rebuild(s, s.ws.best_order, s.ws.best_x, s.best_count, s.task.options.update, false);
    // (Free columns that depended on others may no longer do so.)
    s.from_gram = s.task.shared.gram != nullptr;
    if constexpr (State::general) enter_free(s, insert_free(s));
    s.factor.settled = 0;
}

// After the free columns were inserted in order: all of them, or anew those that have most outside the
// others first, by Q and R where A is there. Many that nearly depend on each other have rounding for
// pivots else, and solutions without end (threshold pivoting, by factors of a hundred).
template <class State>
SW_CALL void enter_free(State& s, bool all) {
    if (all) return;
    double* value = s.ws.score;
    s.team.each(s.columns(), [&](int j) { value[j] = 0; });
    s.team.sync();
    s.team.each_short(s.factor.count, [&](int p) { value[s.ws.order[p]] = s.ws.x[p]; });
    s.team.sync();
    give_way(s, s.task.extent.gram_only ? s.factor.update : cgs2, false);
    const double last = s.numbers.rounds ? dependence_in_single : dependence;
    bool done = false;
    for (double least = 1e-2; !done; least *= 1e-2)
        done = insert_free(s, max_of(least, last)) || least <= last;
    for (int p = 0; p < s.best_count; ++p)
        if (!(s.ws.state[s.ws.best_order[p]] & is_free)) insert_called(s, s.ws.best_order[p]);
    s.team.each_short(s.factor.count, [&](int p) { s.ws.x[p] = value[s.ws.order[p]]; });
    s.factor.settled = 0;
    s.team.sync();
}

// Gives the Gram factor up for Q and R, on the columns and from the point it has.
template <class State>
SW_HD void escalate(State& s) {
    give_way(s, cgs2, true);
}

// Another factor, of the same columns or empty. The point is remembered.
template <class State>
SW_HD void give_way(State& s, int update, bool keeps) {
    s.tally.escalated = update == cgs2;
    s.inserted_count = 0;
    s.best = double_infinity;
    s.from_gram = s.from_gram && s.task.extent.gram_only;
    remember(s);
    rebuild(s, s.ws.best_order, s.ws.best_x, keeps ? s.best_count : 0, update, false);
}

// Keeps the point, and which columns are at their upper bounds there. Ends in a sync.
template <class State>
SW_HD void remember(State& s) {
    s.best_count = s.factor.count;
    s.team.each_short(s.factor.count, [&](int p) {
        s.ws.best_x[p] = s.ws.x[p];
        s.ws.best_order[p] = s.ws.order[p];
    });
    if (s.is_general()) s.team.each(s.columns(), [&](int j) { s.ws.best_state[j] = s.ws.state[j]; });
    s.team.sync();
}

// Factors a remembered point anew.
template <class State>
SW_CALL void rebuild(State& s, const int32_t* order, const double* x, int count, int update, bool moved) {
    for (int p = 0; p < s.factor.count; ++p)
        if (s.team.rank() == 0) s.mark(s.ws.order[p], s.ws.state[s.ws.order[p]] & ~is_in_factor);
    s.team.sync();
    const int insertions = s.factor.insertions;
    s.factor.restart(update);
    if constexpr (State::general) {
        if (s.ws.metric && s.factor.keeps_q()) find_roots(s);
        const int looked_at = moved && s.is_general() ? s.columns() : 0;
        for (int j = 0; j < looked_at; ++j) {
            const bool crosses = (s.ws.state[j] ^ s.ws.best_state[j]) & reflected;
            s.team.sync();
            if (crosses) cross(s, j);
        }
    }
    for (int p = 0; p < count; ++p) {
        if (insert_alone(s, order[p]) != Entry::entered) continue;
        if (s.team.rank() == 0) s.ws.x[s.factor.count - 1] = x[p];
        s.team.sync();
    }
    s.factor.insertions = insertions;
    s.factor.settled = s.factor.count;
    s.fresh = false;
    s.team.sync();
}

}  // namespace lsq
SW_END
