// The set of free columns of normal equations that are given, found by exchanging many at once: those whose
// solution is outside their bounds leave, those that the dual asks for enter (block principal pivoting:
// Portugal, Judice & Vicente 1994). Not more enter than a quarter of what is there: where columns are alike,
// too many would only have to leave again. Exchanges need not come to an end, as steps of an active set do:
// where the breaches do not become fewer for a while, or columns are nearly dependent, that goes on. It also
// certifies what came of them.
#pragma once

#include "core/lsq/general_system.hpp"

SW_BEGIN
namespace lsq {

template <class Team, class Matrix, class Numbers>
struct BlockExchange : GeneralSystem<Team, Matrix, Numbers> {
    using Base = GeneralSystem<Team, Matrix, Numbers>;
    using Base::factor;
    using Base::fresh;
    using Base::slack;
    using Base::tally;
    using Base::task;
    using Base::team;
    using Base::top;
    using Base::ws;

    SW_HD BlockExchange(const Team& team, const Task<Matrix>& task) : Base(team, task) {}

protected:
    enum class Exchange { settled, unsettled, impossible };

    // Exchanges until the set is the solution's, from that which is in the factor. The dual is fresh where it
    // settles; where it does not, the solution may be outside bounds.
    SW_CALL Exchange exchange() {
        int fewest = this->columns() + 1, turns_without = 0;
        for (;;) {
            if (factor.count == 0 && !fresh) this->dual_from_gram();
            const int outside = factor.count > 0 ? find_solution() : 0;
            const int asking = count_above(slack);
            if (outside + asking == 0) return Exchange::settled;
            if (outside + asking < fewest) {
                fewest = outside + asking;
                turns_without = 0;
            } else if (++turns_without > patience) {
                return Exchange::unsettled;
            }
            if (tally.solves >= task.options.max_solves) return Exchange::unsettled;
            const int entering = asking > 0 ? choose(asking) : 0;
            const int staying = outside > 0 ? let_leave() : factor.count;
            if (!enter_chosen(staying, entering)) return Exchange::impossible;
        }
    }

    // The columns that are named from position `first` on, `number` of them, enter together.
    SW_CALL bool enter_named(int number) {
        const int first = factor.count;
        for (int q = team.row(); q < number; q += team.rows()) this->fetch(first + q);
        team.sync();
        if (!factor.enter_together(number)) return false;
        team.each_short(number, [&](int q) {
            const int j = ws.order[first + q];
            this->mark(j, ws.state[j] | is_positive);
        });
        team.sync();
        return true;
    }

    // Writes the columns that are wanted to `out`, in their order. How many there are. Ends in a sync.
    template <class Wanted>
    SW_HD int list(int32_t* out, Wanted wanted) const {
        int found = 0;
#if defined(__CUDACC__)
        SW_ROLLED
        for (int base = 0; base < this->columns(); base += team.size()) {
            const int j = base + team.rank();
            const bool mine = j < this->columns() && wanted(j);
            int passed;
            const int place = found + team.place(mine, passed);
            if (mine) out[place] = j;
            found += passed;
        }
#else
        for (int j = 0; j < this->columns(); ++j)
            if (wanted(j)) {
                if (team.rank() == 0) out[found] = j;
                ++found;
            }
#endif
        team.sync();
        return found;
    }

private:
    static constexpr int patience = 6;      // turns that need not have fewer breaches
    static constexpr int least_block = 32;  // columns may enter whatever there are

    // x, which may be outside bounds, and its dual. How many are outside.
    SW_HD int find_solution() {
        ++tally.solves;
        factor.solve();
        this->finish_step();
        this->dual_from_gram();
        double outside = 0;
        team.lane_each(factor.count, [&](int p) { outside += is_inside(p) ? 0.0 : 1.0; });
        return static_cast<int>(team.lane_sum(outside));
    }

    SW_HD bool is_inside(int p) const {
        const int j = ws.order[p];
        return ws.x[p] > task.least_of(j) && ws.x[p] < task.most_of(j);
    }

    // How far the bound that position p is outside of is from where it counts from.
    SW_HD double way_out(int p) const {
        const int j = ws.order[p];
        const double least = task.least_of(j);
        return ws.x[p] > least ? task.most_of(j) : least;
    }

    SW_HD void mark_as_left(int p) const {
        const int j = ws.order[p], state = ws.state[j] & ~(is_positive | reflected);
        this->mark(j, way_out(p) < task.most_of(j) ? state : state | reflected);
    }

    SW_HD int count_above(double threshold) const {
        const double* score = ws.score;
        double number = 0;
        team.each(this->columns(), [=, &number](int j) { number += score[j] > threshold ? 1.0 : 0.0; });
        return static_cast<int>(team.sum(number));
    }

    // Writes the columns with the largest scores to ws.best_order, in their order. How many there are.
    SW_HD int choose(int asking) const {
        const int most = max_of(least_block, factor.count / 4);
        double low = slack, high = top;
        int above_high = 0;
        for (int step = 0; asking > most && step < 50 && 4 * above_high < 3 * most; ++step) {
            const double middle = 0.5 * (low + high);
            const int number = count_above(middle);
            if (number > most) {
                low = middle;
            } else {
                high = middle;
                above_high = number;
            }
        }
        // (All alike: none is above.)
        return collect(asking > most && above_high > 0 ? high : low);
    }

    SW_HD int collect(double threshold) const {
        const double* score = ws.score;
        return list(ws.best_order, [=](int j) { return score[j] > threshold; });
    }

    // Those outside their bounds leave: by rotations where they are few, else with all that entered after the
    // first of them. Returns how many stay: the first of them in the factor, the others at the positions
    // after these.
    SW_CALL int let_leave() {
        const int count = factor.count;
        // Those that go back to where they count from, together.
        double lowest = count, far = 0;
        team.each_short(count, [&](int p) {
            if (is_inside(p)) return;
            lowest = min_of(lowest, double(p));
            if (way_out(p) != 0)
                far = 1;
            else
                mark_as_left(p);
        });
        int first = static_cast<int>(-team.max(-lowest));
        const bool moved = team.max(far) > 0;
        team.sync();
        if (moved) {
            for (int p = count - 1; p >= 0; --p) {
                const int j = ws.order[p];
                if (!(ws.state[j] & is_positive) || is_inside(p)) continue;
                const double d = way_out(p), before = absolute(task.reference_of(j));
                team.sync();
                this->take_from_b(p, j, d);
                if (team.rank() == 0) mark_as_left(p);
                team.sync();
                this->reference_size += task.size_of(j) * (absolute(task.reference_of(j)) - before);
            }
            first = 0;  // Q'b of all is then another
        }
        double stay = 0, rotated = 0, again = 0;
        team.lane_each(count, [&](int p) {
            const bool stays = ws.state[ws.order[p]] & is_positive;
            stay += stays ? 1.0 : 0.0;
            rotated += stays ? 0.0 : factor.cost_of_removal(count - 1 - p);
            again += stays && p >= first ? factor.cost_of_entry(p) : 0.0;
        });
        const int staying = static_cast<int>(team.lane_sum(stay));
        const bool few = team.lane_sum(rotated) < team.lane_sum(again) && !moved;
        team.sync();
        if (few) {
            for (int p = count - 1; p >= first; --p) {
                if (ws.state[ws.order[p]] & is_positive) continue;
                team.sync();
                factor.leave(p);  // which writes to lists from p on
            }
            factor.settled = min_of(factor.settled, first);
            team.sync();
            return staying;
        }
        close_up(first, count);
        factor.removals += count - staying;
        factor.insertions -= staying - first;
        factor.truncate(first);
        return staying;
    }

    // Of the positions from `first` on, those that stay come first, in their order. (The panel, which slots
    // are for, has nothing of normal equations.) Ends in a sync.
    SW_HD void close_up(int first, int count) const {
#if defined(__CUDACC__)
        int found = first;
        SW_ROLLED
        for (int base = first; base < count; base += team.size()) {
            const int p = base + team.rank();
            const int32_t j = p < count ? ws.order[p] : 0;
            const bool stays = p < count && (ws.state[j] & is_positive);
            int passed;
            const int place = found + team.place(stays, passed);
            if (stays) ws.order[place] = j;
            found += passed;
        }
#else
        if (team.rank() == 0)
            for (int p = first, place = first; p < count; ++p)
                if (ws.state[ws.order[p]] & is_positive) ws.order[place++] = ws.order[p];
#endif
        team.sync();
    }

    // What stays and is not in the factor, and the columns that were chosen.
    SW_HD bool enter_chosen(int staying, int entering) {
        team.each_short(entering, [&](int q) { ws.order[staying + q] = ws.best_order[q]; });
        fresh = false;
        team.sync();
        return enter_named(staying + entering - factor.count);
    }
};

}  // namespace lsq
SW_END
