// Columns in and out of the positive set: one a step (Lawson & Hanson), or several (deviation maximisation;
// Dessole, Dell'Orto & Marcuzzi 2023).
#pragma once

#include "core/lsq/dual.hpp"

SW_BEGIN
namespace lsq {

// The way from a column's bound into what is allowed.
template <class State>
SW_HD double inward(const State& s, int j) {
    return s.is_general() ? s.task.sign_of(j) : 1.0;
}

// Chooses the columns of this step and inserts them, ws.z solved. False where none can be; inserted_count
// is then -1 if the Gram factor must give way.
template <class State>
SW_HD bool insert_several(State& s) {
    const int before = s.factor.count;
    // With the Gram matrix the dual costs no more than an insertion: one at a time is best.
    // Where rounding is all that is left, too: several at once are guesses.
    const bool one_by_one = s.from_gram && !dual_costs_more_than_entry(s);
    const bool several = s.task.options.guarded && !one_by_one && !s.projected;
    const int max_inserted = several ? s.insertion_limit : 1;
    Peak peak{s.top, s.top_column};
    if (!s.task.options.guarded && peak.value > s.slack) peak = steepest_in_the_callers_units(s);
    const double min_peak = s.task.options.guarded ? s.slack : 0.0;
    s.inserted_count = 0;
    // (Every turn bars a column, or inserts one.)
    for (int turn = 0; peak.value > min_peak && turn < s.columns(); ++turn) {
        const double threshold = max_of(candidate_share * peak.value, s.slack);
        int number = 0;
        if (max_inserted > 1)
            number = take_largest(s.team, s.ws.score, s.columns(), threshold, peak.value, max_candidates,
                                  s.ws.crowd, s.ws.order + before);
        if (max_inserted == 1) number = take_one(s, peak.index);
        for (int q = s.team.row(); q < number; q += s.team.rows()) fetch(s, before + q);
        s.team.sync();
        if (!try_candidates(s, before, before + number, max_inserted)) {
            while (s.factor.count > before) take_back(s);
            s.inserted_count = -1;
            return false;
        }
        if (s.inserted_count > 0) break;
        peak = largest(s.team, s.ws.score, s.columns());
        s.team.sync();
    }
    if (s.inserted_count == 0) return false;
    s.solved = s.inserted_count > 1;
    const bool dropped = s.solved && drop_negative(s, before);
    // Where many were dropped, the next step tries fewer.
    s.insertion_limit = min_of(2 * (dropped ? s.inserted_count : s.insertion_limit), max_insertions);
    return true;
}

// Inserts a column that is named by itself, outside a step; not where its part outside the others is at
// most `least` of it.
template <class State>
SW_CALL Entry insert_alone(State& s, int j, double least = 0) {
    const int place = s.factor.count;
    if (s.team.rank() == 0) s.ws.order[place] = j;
    s.team.sync();
    if (s.team.row() == 0) fetch(s, place);
    s.team.sync();
    return enter_at_end(s, j, least);
}

template <class State>
SW_HD void remove(State& s, int position) {
    const int j = s.ws.order[position];
    s.team.sync();
    s.factor.leave(position);
    if (s.team.rank() == 0) s.mark(j, s.ws.state[j] & ~is_in_factor);
    s.team.sync();
}

// Removes all positions where x is zero: one after the other from the last, or by entering anew what
// stays behind the first of them, whatever costs less.
template <class State>
SW_CALL void remove_zeros(State& s) {
    if (s.factor.count >= many_columns && s.task.options.guarded && remove_at_once(s)) return;
    for (int end = s.factor.count; end > 0;) {  // the last of those at zero, and so on
        int last = -1;
        s.team.lane_each(end, [&](int p) {
            if (!(s.ws.x[p] > 0)) last = max_of(last, p);
        });
        end = s.team.lane_max_int(last);
        if (end >= 0) remove(s, end);
    }
}

// Brings the column at a position to where the factor expects it. By one group; no sync.
template <class State>
SW_HD void fetch(const State& s, int position) {
    if (s.task.shared.columns || s.task.extent.shifted()) return;
    // Of normal equations the panel has what lies beneath: the row of a bound sum, or nothing.
    if constexpr (State::general)
        if (s.task.extent.gram_only) scale_row(s, s.ws.order[position]);
    const int slot = s.ws.slot[position], j = s.ws.order[position], length = s.task.extent.row_length();
    double* column = s.ws.panel + static_cast<int64_t>(slot) * length;
    s.task.matrix.gather(s.team, s.task.envelope, j, s.ws.scale[j], column, length);
    if (s.team.lane() == 0) s.task.matrix.bounds(s.task.envelope, j, column, s.ws.low[slot], s.ws.high[slot]);
}

// On a device a large table is read from slow memory for every dual, and by one team.
template <class State>
SW_HD bool dual_costs_more_than_entry(const State& s) {
#if defined(__CUDACC__)
    return s.task.extent.gram_only && s.columns() >= large_table;
#else
    (void)s;
    return false;
#endif
}

// Lawson & Hanson choose the largest w_j itself, of columns as they are given: that decides how often one
// has to leave again (Luo & Duraiswami, Table 7.3). The scores become those w_j where rounding allows it.
template <class State>
SW_HD Peak steepest_in_the_callers_units(const State& s) {
    double* score = s.ws.score;
    const double slack = s.slack;
    s.team.each(s.columns(), [&](int j) {
        score[j] = score[j] > slack ? score[j] * (s.task.norm_of(j) / s.task.scale_of(j)) : 0.0;
    });
    s.team.sync();
    const Peak peak = largest(s.team, score, s.columns());
    s.team.sync();
    return peak;
}

// Inserts column j, which is already gathered after the positive ones.
template <class State>
SW_HD Entry enter_at_end(State& s, int j, double least = 0) {
    const int place = s.factor.count;
    const Columns columns = s.factor.positive();
    const int first = columns.first(place), length = columns.last(place) - first;
    const double part = part_of_dot(s.team, columns.at(place) + first, s.ws.weighed_b + first, length);
    double product = columns.factor_of(place) * s.team.sum(part);
    if constexpr (State::general)
        if (s.task.extent.gram_only) product += s.ws.c[j];
    const Inserted column = s.factor.weigh(j, s.ws.weighed_b, product, 0, 0);
    if (column.outcome != Entry::entered) return column.outcome;
    if (!(column.pivot > least * s.task.norm_of(j))) return Entry::escalate;
    enter(s, j, column);
    return column.outcome;
}

// False where rotations cost less.
template <class State>
SW_CALL bool remove_at_once(State& s) {
    const int count = s.factor.count;
    int first = count, stay = 0;
    double rotating = 0, entering = 0;
    for (int p = 0; p < count; ++p) {
        const bool stays = s.ws.x[p] > 0;
        if (!stays && first == count) first = stay;
        if (stays) ++stay;
        if (first == count) continue;
        if (stays)
            entering += s.factor.cost_of_entry(stay);
        else
            rotating += s.factor.cost_of_removal(count - p);
    }
    s.team.sync();
    if (entering >= rotating || s.projected) return false;
    // What stays moves ahead of what goes, in its order.
    if (s.team.rank() == 0)
        for (int p = first, place = first; p < count; ++p) {
            const int32_t j = s.ws.order[p], slot = s.ws.slot[p];
            if (!(s.ws.x[p] > 0)) {
                s.mark(j, s.ws.state[j] & ~is_in_factor);
                continue;
            }
            s.ws.order[p] = s.ws.order[place];
            s.ws.slot[p] = s.ws.slot[place];
            s.ws.order[place] = j;
            s.ws.slot[place] = slot;
            s.ws.x[place++] = s.ws.x[p];
        }
    s.team.sync();
    const int insertions = s.factor.insertions, removals = s.factor.removals;
    s.factor.truncate(first);
    for (int p = first; p < stay; ++p) {
        const int place = s.factor.count, j = s.ws.order[p];
        const double value = s.ws.x[p];
        s.team.sync();
        if (place != p) swap_positions(s, p, place);
        if (enter_at_end(s, j) != Entry::entered) {
            if (s.team.rank() == 0) s.mark(j, s.ws.state[j] & ~is_in_factor);
        } else if (s.team.rank() == 0) {
            s.ws.x[place] = value;
        }
        s.team.sync();
    }
    s.factor.insertions = insertions;
    s.factor.removals = removals + count - s.factor.count;
    return true;
}

template <class State>
SW_HD int take_one(const State& s, int j) {
    if (s.team.rank() == 0) {
        s.ws.order[s.factor.count] = j;
        s.ws.score[j] = -1;
    }
    s.team.sync();
    return 1;
}

// Inserts candidates in turn, those that make an angle with all inserted before them. False where the
// Gram factor must give way.
template <class State>
SW_HD bool try_candidates(State& s, int first, int last, int max_inserted) {
    const double* against = s.from_gram ? s.ws.weighed_b : s.ws.r;
    for (int candidate = first; s.inserted_count < max_inserted; ++candidate) {
        if (s.inserted_count > 0) candidate = next_apart(s, candidate, first, last);
        if (candidate >= last) break;
        const int place = s.factor.count;
        if (candidate != place) swap_positions(s, candidate, place);
        const int j = s.ws.order[place], others = max_inserted > 1 ? last - place - 1 : 0;
        const double way = inward(s, j);
        const Inserted column = s.factor.weigh(j, against, s.ws.w[j], s.factor.settled, others, s.multiplier);
        if (column.outcome == Entry::escalate) return false;
        // Lawson & Hanson's test: the new unknown has to become positive.
        if (column.outcome != Entry::entered || !(way * s.factor.promise(column) > 0)) {
            if (column.outcome == Entry::dependent) s.any_dependent = true;
            if (s.inserted_count == 0) bar(s, j);
            s.team.sync();
            continue;
        }
        if (others > 0) mark_near(s, j, s.inserted_count == 0, others, s.ws.near + (place + 1 - first));
        if (s.team.rank() == 0) s.ws.inserted[s.inserted_count] = j;
        ++s.inserted_count;
        enter(s, j, column);
    }
    return true;
}

// The next candidate that is not too close to those inserted. Each group searches for itself.
template <class State>
SW_HD int next_apart(const State& s, int candidate, int first, int last) {
#if defined(__CUDACC__)
    for (; candidate < last; candidate += s.team.lanes()) {
        const int own = candidate + s.team.lane();
        const int next = s.team.lane_min_int(own < last && !s.ws.near[own - first] ? own : last);
        if (next < last) return next;
    }
    return last;
#else
    while (candidate < last && s.ws.near[candidate - first]) ++candidate;
    return candidate;
#endif
}

template <class State>
SW_HD void swap_positions(const State& s, int a, int b) {
    if (s.team.rank() == 0) {
        const int32_t j = s.ws.order[a], slot = s.ws.slot[a];
        s.ws.order[a] = s.ws.order[b];
        s.ws.slot[a] = s.ws.slot[b];
        s.ws.order[b] = j;
        s.ws.slot[b] = slot;
    }
    s.team.sync();
}

// Marks the candidates left that are nearly parallel to j, the column weighed last. No sync.
template <class State>
SW_HD void mark_near(State& s, int j, bool first, int others, int32_t* near) {
    const double* products = s.factor.products_with_others(others);
    const double limit = candidate_cosine * s.task.norm_of(j);
    const int32_t* candidates = s.ws.order + s.factor.count + 1;
    s.team.each_short(others, [&](int q) {
        const int is_near = absolute(products[q]) > limit * s.task.norm_of(candidates[q]);
        near[q] = first ? is_near : near[q] | is_near;
    });
}

// Ends in a sync.
template <class State>
SW_HD void enter(State& s, int j, const Inserted& column) {
    s.factor.accept(column);
    if (s.team.rank() == 0) s.mark(j, s.ws.state[j] | is_in_factor);
    s.team.sync();
}

// Deviation maximisation's guard: of the new unknowns all have to become positive, so the latest are
// dropped until they do. The first alone does. Whether any was dropped.
template <class State>
SW_HD bool drop_negative(State& s, int before) {
    bool dropped = false;
    for (;;) {
        s.factor.solve();
        double lowest = -double_infinity;
        s.team.lane_each(s.factor.count - before, [&](int p) {
            lowest = max_of(lowest, -inward(s, s.ws.order[before + p]) * s.ws.z[before + p]);
        });
        lowest = s.team.lane_max(lowest);
        if (lowest < 0 || s.inserted_count == 1) return dropped;
        take_back(s);
        --s.inserted_count;
        dropped = true;
    }
}

template <class State>
SW_HD void take_back(State& s) {
    const int j = s.ws.order[s.factor.count - 1];
    s.team.sync();
    s.factor.take_back();
    --s.factor.insertions;
    if (s.team.rank() == 0) s.mark(j, s.ws.state[j] & ~is_in_factor);
    s.team.sync();
}

}  // namespace lsq
SW_END
