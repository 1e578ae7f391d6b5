// Columns of a small system into the factor and out of it.
#pragma once

#include "core/lsq/small/state.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// The sum of k^2 + 4 k over all k below `places`.
SW_HD int flops_before(int places) {
    return (places - 1) * places * (2 * places - 1) / 6 + 2 * places * (places - 1);
}

// For all lanes at once, when all have read what was there.
template <class State>
SW_HD void set_x(State& s, int j, double value) {
    s.lanes.sync();
    if (s.lanes.lane() == 0) s.x[j] = value;
    s.lanes.sync();
    s.nonzero = value != 0 ? s.nonzero | bit_of(j) : s.nonzero & ~bit_of(j);
}

// A column is the last in the factor then.
template <class State>
SW_HD void enter(State& s, int j) {
    if constexpr (!State::keeps_inverses) {
        if (s.lanes.lane() == 0) s.order[s.count] = j;
        s.lanes.sync();
    }
    ++s.count;
    s.in_factor |= bit_of(j);
    s.at_upper &= ~bit_of(j);
}

// Columns that are out of the factor, as many as it has room for.
template <class State>
SW_HD void enter_some(State& s, uint64_t columns) {
    if constexpr (State::keeps_inverses) {
        s.in_factor |= columns;
        s.at_upper &= ~columns;
        s.count = bits_in(static_cast<unsigned>(s.in_factor));
        return;
    }
    int place = s.count;
    SW_ROLLED
    for (; columns && place < State::positions; columns &= columns - 1, ++place) {
        const int j = lowest_of(columns);
        if (s.lanes.lane() == 0) s.order[place] = j;
        s.in_factor |= bit_of(j);
    }
    s.at_upper &= ~s.in_factor;
    s.count = place;
    s.lanes.sync();
}

// The columns that are gone, as depart() takes them, where a column's position is its number.
template <class State>
SW_HD void leave(State& s, uint64_t gone, uint64_t up, uint64_t zero) {
    const unsigned out = static_cast<unsigned>(gone), in = static_cast<unsigned>(s.in_factor);
    s.counts.removals += bits_in(out);
    depart(s, gone, up, zero, bits_in(in & ((out & -out) - 1)), bits_in(in & ~out));
}

// The columns that are gone, some to their upper bounds, and all whose x is zero now; of `stay` that stay
// those from place `first` on have others than before them.
template <class State>
SW_HD void depart(State& s, uint64_t gone, uint64_t up, uint64_t zero, int first, int stay) {
    s.nonzero = (s.nonzero | s.in_factor) & ~zero;
    s.in_factor &= ~gone;
    s.at_upper = (s.at_upper & ~gone) | up;
    s.counts.costs[2] += max_of(0, stay - first);
    if (stay > first) s.counts.costs[3] += flops_before(stay) - flops_before(first);
    s.factored = min_of(s.factored, first);
    s.count = stay;
}

// What the last columns took to enter, as the solver for all sizes counts it.
template <class State>
SW_HD void count_insertions(State& s, int columns = 1) {
    s.counts.insertions += columns;
    s.counts.costs[0] += columns;
    s.counts.costs[1] += flops_before(s.count) - flops_before(s.count - columns);
}

}  // namespace small
}  // namespace lsq
SW_END
