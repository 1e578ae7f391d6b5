// Which columns of a small system are between their bounds at first: a start says so, or a guess.
#pragma once

#include "core/lsq/small/dual.hpp"
#include "core/lsq/small/steps.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// The columns that a start says are between their bounds enter at once, at its values where it has some.
template <class State>
SW_HD void take_start(State& s) {
    const int64_t row = s.system * s.job.warm_stride;
    const void* values = s.job.warm_values ? s.numbers.after(s.job.warm_values, row) : nullptr;
    const uint8_t* marks = s.job.warm_marks ? s.job.warm_marks + row : nullptr;
    if (!values && !marks) return;
    for (int j = 0; j < s.n; ++j) {
        if (!s.is_at_bound(j)) continue;
        const double low = s.lower(j), high = s.upper(j);
        int said = 0;  // -1 at the lower bound, 1 at the upper, 0 between
        double value = s.x[j];
        if (values) {
            value = s.in_units_of(j, s.numbers.read(values, j));
            said = !(value > low) ? -1 : !(value < high) ? 1 : 0;
        } else if (s.job.constraints.has_states) {
            said = static_cast<int8_t>(marks[j]) == 2 ? -1 : static_cast<int8_t>(marks[j]);
        } else {
            said = marks[j] ? 0 : -1;
        }
        if (said == 0 && s.count < State::positions) {
            set_x(s, j, value);
            enter(s, j);
            count_insertions(s);
        } else if (said != 0 && is_finite(said > 0 ? high : low)) {
            set_x(s, j, said > 0 ? high : low);
            s.at_upper = said > 0 ? s.at_upper | bit_of(j) : s.at_upper & ~bit_of(j);
        }
    }
}

// A first guess of the columns between their bounds: those that the solution without bounds has there.
// True where x is the solution on the columns in the factor then.
template <class State>
SW_HD bool take_guess(State& s) {
    const int before = s.count;
    const uint64_t at_upper = s.at_upper, in_factor = s.in_factor;
    if (!enter_all(s)) return false;
    const int all = s.count;
    if constexpr (State::sweeps_signs) {
        if (s.products.guess && s.products.guess->is_positive) {
            ++s.counts.solves;
            s.nonzero = s.in_factor;
            return true;
        }
    }
    if (!State::sweeps_signs || !s.products.guess) dual_from_table<false>(s);
    if constexpr (!State::projects) {
        if (go_freely(s)) return true;
        leave_again(s, before, in_factor, at_upper);
        return false;
    }
    projected_step(s);
    return s.count == all;
}

// Puts all columns at bounds into the factor, unless one nearly depends on the others.
template <class State>
SW_HD bool enter_all(State& s) {
    const int before = s.count;
    const uint64_t at_upper = s.at_upper, in_factor = s.in_factor;
    enter_some(s, s.out_of_factor());
    if (!complete_factor(s, max_of(near_pivot, smallest_pivot<State>(s.n)))) {
        leave_again(s, before, in_factor, at_upper);
        return false;
    }
    count_insertions(s, s.count - before);
    return true;
}

template <class State>
SW_HD void leave_again(State& s, int before, uint64_t in_factor, uint64_t at_upper) {
    s.factored = min_of(s.factored, before);
    s.at_upper = at_upper;
    s.in_factor = in_factor;
    s.count = before;
}

}  // namespace small
}  // namespace lsq
SW_END
