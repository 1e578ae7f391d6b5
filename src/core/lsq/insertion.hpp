// Columns in and out of the positive set: one a step (Lawson & Hanson), or several (deviation maximisation;
// Dessole, Dell'Orto & Marcuzzi 2023).
#pragma once

#include "core/lsq/dual.hpp"

SW_BEGIN
namespace lsq {

template <class Team, class Matrix>
struct Insertion : DualState<Team, Matrix> {
    using Base = DualState<Team, Matrix>;
    using Base::factor;
    using Base::task;
    using Base::team;
    using Base::ws;

    int inserted_count = 0;  // columns inserted in this step, in ws.inserted
    int insertion_limit = max_insertions;
    bool solved = false;  // ws.z is the solution on the columns just inserted

    SW_HD Insertion(const Team& team, const Task<Matrix>& task) : Base(team, task) {}

    // Chooses the columns of this step and inserts them, ws.z solved. False where none can be; inserted_count
    // is then -1 if the Gram factor must give way.
    SW_HD bool insert_several() {
        const int before = factor.count;
        // With the Gram matrix the dual costs no more than an insertion: one at a time is best.
        // Where rounding is all that is left, too: several at once are guesses.
        const bool one_by_one = this->from_gram && !dual_costs_more_than_entry();
        const bool several = task.options.guarded && !one_by_one && !this->projected;
        const int max_inserted = several ? insertion_limit : 1;
        Peak peak{this->top, this->top_column};
        if (!task.options.guarded && peak.value > this->slack) peak = steepest_in_the_callers_units();
        const double min_peak = task.options.guarded ? this->slack : 0.0;
        inserted_count = 0;
        // (Every turn bars a column, or inserts one.)
        for (int turn = 0; peak.value > min_peak && turn < this->columns(); ++turn) {
            const double threshold = max_of(candidate_share * peak.value, this->slack);
            int number = 0;
            if (max_inserted > 1)
                number = take_largest(team, ws.score, this->columns(), threshold, peak.value, max_candidates,
                                      ws.crowd, ws.order + before);
            if (max_inserted == 1) number = take_one(peak.index);
            for (int q = team.row(); q < number; q += team.rows()) fetch(before + q);
            team.sync();
            if (!try_candidates(before, before + number, max_inserted)) {
                while (factor.count > before) take_back();
                inserted_count = -1;
                return false;
            }
            if (inserted_count > 0) break;
            peak = largest(team, ws.score, this->columns());
            team.sync();
        }
        if (inserted_count == 0) return false;
        solved = inserted_count > 1;
        const bool dropped = solved && drop_negative(before);
        // Where many were dropped, the next step tries fewer.
        insertion_limit = min_of(2 * (dropped ? inserted_count : insertion_limit), max_insertions);
        return true;
    }

    // Inserts a column that is named by itself, outside a step.
    SW_CALL Entry insert_alone(int j) {
        const int place = factor.count;
        if (team.rank() == 0) ws.order[place] = j;
        team.sync();
        if (team.row() == 0) fetch(place);
        team.sync();
        return enter_at_end(j);
    }

    SW_HD void remove(int position) {
        const int j = ws.order[position];
        team.sync();
        factor.leave(position);
        if (team.rank() == 0) this->mark(j, ws.state[j] & ~is_positive);
        team.sync();
    }

    // Removes all positions where x is zero: one after the other from the last, or by entering anew what
    // stays behind the first of them, whatever costs less.
    SW_CALL void remove_zeros() {
        if (factor.count >= many_columns && task.options.guarded && remove_at_once()) return;
        for (int end = factor.count; end > 0;) {  // the last of those at zero, and so on
            int last = -1;
            team.lane_each(end, [&](int p) {
                if (!(ws.x[p] > 0)) last = max_of(last, p);
            });
            end = team.lane_max_int(last);
            if (end >= 0) remove(end);
        }
    }

    // The way from a column's bound into what is allowed.
    SW_HD double inward(int j) const { return this->is_general() ? task.sign_of(j) : 1.0; }

    // Brings the column at a position to where the factor expects it. By one group; no sync.
    SW_HD void fetch(int position) const {
        if (task.shared.columns || task.extent.shifted()) return;
        // Of normal equations the panel has what lies beneath: the row of a bound sum, or nothing.
        if constexpr (Matrix::general)
            if (task.extent.gram_only) this->scale_row(ws.order[position]);
        const int slot = ws.slot[position], j = ws.order[position], length = task.extent.row_length();
        double* column = ws.panel + static_cast<int64_t>(slot) * length;
        task.matrix.gather(team, task.envelope, j, ws.scale[j], column, length);
        if (team.lane() == 0) task.matrix.bounds(task.envelope, j, column, ws.low[slot], ws.high[slot]);
    }

private:
    // On a device a large table is read from slow memory for every dual, and by one team.
    SW_HD bool dual_costs_more_than_entry() const {
#if defined(__CUDACC__)
        return task.extent.gram_only && this->columns() >= large_table;
#else
        return false;
#endif
    }

    // Lawson & Hanson choose the largest w_j itself, of columns as they are given: that decides how often one
    // has to leave again (Luo & Duraiswami, Table 7.3). The scores become those w_j where rounding allows it.
    SW_HD Peak steepest_in_the_callers_units() const {
        double* score = ws.score;
        const double slack = this->slack;
        team.each(this->columns(), [&](int j) {
            score[j] = score[j] > slack ? score[j] * (task.norm_of(j) / task.scale_of(j)) : 0.0;
        });
        team.sync();
        const Peak peak = largest(team, score, this->columns());
        team.sync();
        return peak;
    }

    // Inserts column j, which is already gathered after the positive ones.
    SW_HD Entry enter_at_end(int j) {
        const int place = factor.count;
        const Columns columns = factor.positive();
        const int first = columns.first(place), length = columns.last(place) - first;
        const double part = part_of_dot(team, columns.at(place) + first, ws.weighed_b + first, length);
        double product = columns.factor_of(place) * team.sum(part);
        if constexpr (Matrix::general)
            if (task.extent.gram_only) product += ws.c[j];
        const Inserted column = factor.weigh(j, ws.weighed_b, product, 0, 0);
        if (column.outcome == Entry::entered) accept(j, column);
        return column.outcome;
    }

    // False where rotations cost less.
    SW_CALL bool remove_at_once() {
        const int count = factor.count;
        int first = count, stay = 0;
        double rotating = 0, entering = 0;
        for (int p = 0; p < count; ++p) {
            const bool stays = ws.x[p] > 0;
            if (!stays && first == count) first = stay;
            if (stays) ++stay;
            if (first == count) continue;
            if (stays)
                entering += factor.cost_of_entry(stay);
            else
                rotating += factor.cost_of_removal(count - p);
        }
        team.sync();
        if (entering >= rotating || this->projected) return false;
        // What stays moves ahead of what goes, in its order.
        if (team.rank() == 0)
            for (int p = first, place = first; p < count; ++p) {
                const int32_t j = ws.order[p], slot = ws.slot[p];
                if (!(ws.x[p] > 0)) {
                    this->mark(j, ws.state[j] & ~is_positive);
                    continue;
                }
                ws.order[p] = ws.order[place];
                ws.slot[p] = ws.slot[place];
                ws.order[place] = j;
                ws.slot[place] = slot;
                ws.x[place++] = ws.x[p];
            }
        team.sync();
        const int insertions = factor.insertions, removals = factor.removals;
        factor.truncate(first);
        for (int p = first; p < stay; ++p) {
            const int place = factor.count, j = ws.order[p];
            const double value = ws.x[p];
            team.sync();
            if (place != p) exchange(p, place);
            if (enter_at_end(j) != Entry::entered) {
                if (team.rank() == 0) this->mark(j, ws.state[j] & ~is_positive);
            } else if (team.rank() == 0) {
                ws.x[place] = value;
            }
            team.sync();
        }
        factor.insertions = insertions;
        factor.removals = removals + count - factor.count;
        return true;
    }

    SW_HD int take_one(int j) const {
        if (team.rank() == 0) {
            ws.order[factor.count] = j;
            ws.score[j] = -1;
        }
        team.sync();
        return 1;
    }

    // Inserts candidates in turn, those that make an angle with all inserted before them. False where the
    // Gram factor must give way.
    SW_HD bool try_candidates(int first, int last, int max_inserted) {
        const double* against = this->from_gram ? ws.weighed_b : ws.r;
        for (int candidate = first; inserted_count < max_inserted; ++candidate) {
            if (inserted_count > 0) candidate = next_apart(candidate, first, last);
            if (candidate >= last) break;
            const int place = factor.count;
            if (candidate != place) exchange(candidate, place);
            const int j = ws.order[place], others = max_inserted > 1 ? last - place - 1 : 0;
            const double way = inward(j);
            const Inserted column =
                factor.weigh(j, against, ws.w[j], factor.settled, others, this->multiplier);
            if (column.outcome == Entry::escalate) return false;
            // Lawson & Hanson's test: the new unknown has to become positive.
            if (column.outcome != Entry::entered || !(way * factor.promise(column) > 0)) {
                if (column.outcome == Entry::dependent) this->any_dependent = true;
                if (inserted_count == 0) this->bar(j);
                team.sync();
                continue;
            }
            if (others > 0) mark_near(j, inserted_count == 0, others, ws.near + (place + 1 - first));
            if (team.rank() == 0) ws.inserted[inserted_count] = j;
            ++inserted_count;
            accept(j, column);
        }
        return true;
    }

    // The next candidate that is not too close to those inserted. Each group searches for itself.
    SW_HD int next_apart(int candidate, int first, int last) const {
#if defined(__CUDACC__)
        for (; candidate < last; candidate += team.lanes()) {
            const int own = candidate + team.lane();
            const int next = team.lane_min_int(own < last && !ws.near[own - first] ? own : last);
            if (next < last) return next;
        }
        return last;
#else
        while (candidate < last && ws.near[candidate - first]) ++candidate;
        return candidate;
#endif
    }

    SW_HD void exchange(int a, int b) const {
        if (team.rank() == 0) {
            const int32_t j = ws.order[a], slot = ws.slot[a];
            ws.order[a] = ws.order[b];
            ws.slot[a] = ws.slot[b];
            ws.order[b] = j;
            ws.slot[b] = slot;
        }
        team.sync();
    }

    // Marks the candidates left that are nearly parallel to j, the column weighed last. No sync.
    SW_HD void mark_near(int j, bool first, int others, int32_t* near) {
        const double* products = factor.products_with_others(others);
        const double limit = candidate_cosine * task.norm_of(j);
        const int32_t* candidates = ws.order + factor.count + 1;
        team.each_short(others, [&](int q) {
            const int is_near = absolute(products[q]) > limit * task.norm_of(candidates[q]);
            near[q] = first ? is_near : near[q] | is_near;
        });
    }

    // Ends in a sync.
    SW_HD void accept(int j, const Inserted& column) {
        factor.accept(column);
        if (team.rank() == 0) this->mark(j, ws.state[j] | is_positive);
        team.sync();
    }

    // Deviation maximisation's guard: of the new unknowns all have to become positive, so the latest are
    // dropped until they do. The first alone does. Whether any was dropped.
    SW_HD bool drop_negative(int before) {
        bool dropped = false;
        for (;;) {
            factor.solve();
            double lowest = -double_infinity;
            team.lane_each(factor.count - before, [&](int p) {
                lowest = max_of(lowest, -inward(ws.order[before + p]) * ws.z[before + p]);
            });
            lowest = team.lane_max(lowest);
            if (lowest < 0 || inserted_count == 1) return dropped;
            take_back();
            --inserted_count;
            dropped = true;
        }
    }

    SW_HD void take_back() {
        const int j = ws.order[factor.count - 1];
        team.sync();
        factor.take_back();
        --factor.insertions;
        if (team.rank() == 0) this->mark(j, ws.state[j] & ~is_positive);
        team.sync();
    }
};

}  // namespace lsq
SW_END
