// The counts of a walk's breakpoints in bins, kept from list to list: what is to be listed next is known from
// them, without a sweep that finds too many and without one that counts them again.
#pragma once

#include <vector>

#include "core/quasi_newton/cauchy_walk.hpp"

SW_BEGIN

class CountedBreaks {
public:
    // Before a walk.
    void forget() { bins.clear(); }

    // After the sweep that has counted, before its decision.
    void keep(const State& s, const double* total) {
        above = s.walk.above, high = s.walk.high, shift = s.walk.shift;
        bins.assign(total, total + walk_bins);
        bins.resize(size_t(2 * walk_bins), 0.0);  // behind those that are crossed, as many
    }

    // After a decision: if the walk goes on within the bins, by them.
    void select(State& s, int length) {
        if (s.action != Action::list_breaks || bins.empty()) return;
        const uint64_t at = s.walk.above;
        if (at <= above || at >= high || (at - above) & ((uint64_t(1) << shift) - 1)) return;
        s.walk.high = high;
        s.walk.shift = shift;
        decide_count(s, bins.data() + ((at - above) >> shift), length);
    }

private:
    uint64_t above = 0, high = 0;
    int16_t shift = 0;
    std::vector<double> bins;
};

SW_END
