// The counts of a walk's breakpoints in bins are good for several lists: what is to be listed next is known
// from them, without a sweep that finds too many and without one that counts them again. The numbers
// themselves are kept by whoever walks.
#pragma once

#include "core/quasi_newton/cauchy_walk.hpp"

SW_BEGIN

class CountedBreaks {
public:
    // Before a walk.
    SW_HD void forget() { above = high = 0; }

    // After the sweep that has counted, before its decision.
    SW_HD void keep(const State& s) { above = s.walk.above, high = s.walk.high, shift = s.walk.shift; }

    // After a decision: the bin with which the walk goes on; walk_bins where it does not, or not with a bin.
    SW_HD int next_bin(const State& s) const {
        const uint64_t at = s.walk.above;
        if (s.action != Action::list_breaks || at <= above || at >= high) return walk_bins;
        if ((at - above) & ((uint64_t(1) << shift) - 1)) return walk_bins;
        return int((at - above) >> shift);
    }

    // Then, by the counts of that bin and of those behind it: as after a sweep.
    template <class Count>
    SW_HD void select(State& s, const Count* bins, int length) const {
        const int bin = next_bin(s);
        if (bin == walk_bins) return;
        s.walk.high = high;
        s.walk.shift = shift;
        decide_count(s, bins, length, walk_bins - bin);
    }

private:
    uint64_t above = 0, high = 0;  // the bins cover what lies in between
    int16_t shift = 0;
};

SW_END
