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

constexpr int patience = 6;      // turns that need not have fewer breaches
constexpr int least_block = 32;  // columns may enter whatever there are

enum class Exchange { settled, unsettled, impossible };

// Exchanges until the set is the solution's, from that which is in the factor. The dual is fresh where it
// settles; where it does not, the solution may be outside bounds.
template <class State>
SW_CALL Exchange exchange_blocks(State& s) {
    int fewest = s.columns() + 1, turns_without = 0;
    for (;;) {
        if (s.factor.count == 0 && !s.fresh) dual_from_gram(s);
        const int outside = s.factor.count > 0 ? find_solution(s) : 0;
        const int asking = count_above(s, s.slack);
        if (outside + asking == 0) return Exchange::settled;
        if (outside + asking < fewest) {
            fewest = outside + asking;
            turns_without = 0;
        } else if (++turns_without > patience) {
            return Exchange::unsettled;
        }
        if (s.tally.solves >= s.task.options.max_solves) return Exchange::unsettled;
        const int entering = asking > 0 ? choose(s, asking) : 0;
        const int staying = outside > 0 ? let_leave(s) : s.factor.count;
        if (!enter_chosen(s, staying, entering)) return Exchange::impossible;
    }
}

// The columns that are named from position `first` on, `number` of them, enter together.
template <class State>
SW_CALL bool enter_named(State& s, int number) {
    const int first = s.factor.count;
    for (int q = s.team.row(); q < number; q += s.team.rows()) fetch(s, first + q);
    s.team.sync();
    if (!s.factor.enter_together(number)) return false;
    s.team.each_short(number, [&](int q) {
        const int j = s.ws.order[first + q];
        s.mark(j, s.ws.state[j] | is_in_factor);
    });
    s.team.sync();
    return true;
}

// Writes the columns that are wanted to `out`, in their order. How many there are. Ends in a sync.
template <class State, class Wanted>
SW_HD int list_columns(const State& s, int32_t* out, Wanted wanted) {
    int found = 0;
#if defined(__CUDACC__)
    SW_ROLLED
    for (int base = 0; base < s.columns(); base += s.team.size()) {
        const int j = base + s.team.rank();
        const bool mine = j < s.columns() && wanted(j);
        int passed;
        const int place = found + s.team.place(mine, passed);
        if (mine) out[place] = j;
        found += passed;
    }
#else
    for (int j = 0; j < s.columns(); ++j)
        if (wanted(j)) {
            if (s.team.rank() == 0) out[found] = j;
            ++found;
        }
#endif
    s.team.sync();
    return found;
}

// x, which may be outside bounds, and its dual. How many are outside.
template <class State>
SW_HD int find_solution(State& s) {
    ++s.tally.solves;
    s.factor.solve();
    finish_step(s);
    dual_from_gram(s);
    double outside = 0;
    s.team.lane_each(s.factor.count, [&](int p) { outside += is_inside(s, p) ? 0.0 : 1.0; });
    return static_cast<int>(s.team.lane_sum(outside));
}

template <class State>
SW_HD bool is_inside(const State& s, int p) {
    const int j = s.ws.order[p];
    return s.ws.x[p] > s.task.least_of(j) && s.ws.x[p] < s.task.most_of(j);
}

// How far the bound that position p is outside of is from where it counts from.
template <class State>
SW_HD double way_out(const State& s, int p) {
    const int j = s.ws.order[p];
    const double least = s.task.least_of(j);
    return s.ws.x[p] > least ? s.task.most_of(j) : least;
}

template <class State>
SW_HD void mark_as_left(const State& s, int p) {
    const int j = s.ws.order[p], state = s.ws.state[j] & ~(is_in_factor | reflected);
    s.mark(j, way_out(s, p) < s.task.most_of(j) ? state : state | reflected);
}

template <class State>
SW_HD int count_above(const State& s, double threshold) {
    const double* score = s.ws.score;
    double number = 0;
    s.team.each(s.columns(), [=, &number](int j) { number += score[j] > threshold ? 1.0 : 0.0; });
    return static_cast<int>(s.team.sum(number));
}

// Writes the columns with the largest scores to ws.best_order, in their order. How many there are.
template <class State>
SW_HD int choose(const State& s, int asking) {
    const int most = max_of(least_block, s.factor.count / 4);
    double low = s.slack, high = s.top;
    int above_high = 0;
    for (int step = 0; asking > most && step < 50 && 4 * above_high < 3 * most; ++step) {
        const double middle = 0.5 * (low + high);
        const int number = count_above(s, middle);
        if (number > most) {
            low = middle;
        } else {
            high = middle;
            above_high = number;
        }
    }
    // (All alike: none is above.)
    return collect(s, asking > most && above_high > 0 ? high : low);
}

template <class State>
SW_HD int collect(const State& s, double threshold) {
    const double* score = s.ws.score;
    return list_columns(s, s.ws.best_order, [=](int j) { return score[j] > threshold; });
}

// Those outside their bounds leave: by rotations where they are few, else with all that entered after the
// first of them. Returns how many stay: the first of them in the factor, the others at the positions
// after these.
template <class State>
SW_CALL int let_leave(State& s) {
    const int count = s.factor.count;
    // Those that go back to where they count from, together.
    double lowest = count, far = 0;
    s.team.each_short(count, [&](int p) {
        if (is_inside(s, p)) return;
        lowest = min_of(lowest, double(p));
        if (way_out(s, p) != 0)
            far = 1;
        else
            mark_as_left(s, p);
    });
    int first = static_cast<int>(-s.team.max(-lowest));
    const bool moved = s.team.max(far) > 0;
    s.team.sync();
    if (moved) {
        for (int p = count - 1; p >= 0; --p) {
            const int j = s.ws.order[p];
            if (!(s.ws.state[j] & is_in_factor) || is_inside(s, p)) continue;
            const double d = way_out(s, p), before = absolute(s.task.reference_of(j));
            s.team.sync();
            take_from_b(s, p, j, d);
            if (s.team.rank() == 0) mark_as_left(s, p);
            s.team.sync();
            s.reference_size += s.task.size_of(j) * (absolute(s.task.reference_of(j)) - before);
        }
        first = 0;  // Q'b of all is then another
    }
    double stay = 0, rotated = 0, again = 0;
    s.team.lane_each(count, [&](int p) {
        const bool stays = s.ws.state[s.ws.order[p]] & is_in_factor;
        stay += stays ? 1.0 : 0.0;
        rotated += stays ? 0.0 : s.factor.cost_of_removal(count - 1 - p);
        again += stays && p >= first ? s.factor.cost_of_entry(p) : 0.0;
    });
    const int staying = static_cast<int>(s.team.lane_sum(stay));
    const bool few = s.team.lane_sum(rotated) < s.team.lane_sum(again) && !moved;
    s.team.sync();
    if (few) {
        for (int p = count - 1; p >= first; --p) {
            if (s.ws.state[s.ws.order[p]] & is_in_factor) continue;
            s.team.sync();
            s.factor.leave(p);  // which writes to lists from p on
        }
        s.factor.settled = min_of(s.factor.settled, first);
        s.team.sync();
        return staying;
    }
    close_up(s, first, count);
    s.factor.removals += count - staying;
    s.factor.insertions -= staying - first;
    s.factor.truncate(first);
    return staying;
}

// Of the positions from `first` on, those that stay come first, in their order. (The panel, which slots
// are for, has nothing of normal equations.) Ends in a sync.
template <class State>
SW_HD void close_up(const State& s, int first, int count) {
#if defined(__CUDACC__)
    int found = first;
    SW_ROLLED
    for (int base = first; base < count; base += s.team.size()) {
        const int p = base + s.team.rank();
        const int32_t j = p < count ? s.ws.order[p] : 0;
        const bool stays = p < count && (s.ws.state[j] & is_in_factor);
        int passed;
        const int place = found + s.team.place(stays, passed);
        if (stays) s.ws.order[place] = j;
        found += passed;
    }
#else
    if (s.team.rank() == 0)
        for (int p = first, place = first; p < count; ++p)
            if (s.ws.state[s.ws.order[p]] & is_in_factor) s.ws.order[place++] = s.ws.order[p];
#endif
    s.team.sync();
}

// What stays and is not in the factor, and the columns that were chosen.
template <class State>
SW_HD bool enter_chosen(State& s, int staying, int entering) {
    s.team.each_short(entering, [&](int q) { s.ws.order[staying + q] = s.ws.best_order[q]; });
    s.fresh = false;
    s.team.sync();
    return enter_named(s, staying + entering - s.factor.count);
}

}  // namespace lsq
SW_END
