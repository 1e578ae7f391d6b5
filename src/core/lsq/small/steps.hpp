// Steps of a small system: the way to the solution on the columns between their bounds. A step solves for the
// difference from x, from the dual at x: so every step is one of refinement too.
#pragma once

#include "core/lsq/small/factor.hpp"

SW_BEGIN
namespace lsq {
namespace small {

template <class Kind, class Lanes>
struct Steps : Factor<Kind, Lanes> {
    using Base = Factor<Kind, Lanes>;
    using Base::at_upper;
    using Base::count;
    using Base::factored;
    using Base::in_factor;
    using Base::keeps_inverses;
    using Base::lanes;
    using Base::order;
    using Base::own_positions;
    using Base::step;
    using Base::sweeps_signs;
    using Base::width;
    using Base::x;

    int solves = 0, insertions = 0, removals = 0;
    int32_t costs[4] = {0, 0, 0, 0};  // accesses and flops of updates, then of downdates

    SW_HD Steps(const Job& job, int64_t system, const Products& products, const Lanes& lanes,
                Store<Kind, width>& store)
        : Base(job, system, products, lanes, store) {}

    // The way from x to the solution on the columns of the factor: so much of the dual is left; one column
    // that entered, at the last place, has to go `inward`, 1 up, -1 down; 0 where there is none, or more than
    // one.
    bool on_the_way = false;
    double left = 1, inward = 0;
    // The columns that entered, where the duals of the others in the factor are left as they are, rounding
    // that a step of refinement sees to; else none.
    static constexpr uint64_t none = 0;
    uint64_t entered = none;
    // Whether the next step may be a projected one: all of it is taken, and what would be beyond a bound is
    // at that bound, so that x is no solution; and whether the last one was.
    bool may_project = false, was_projected = false;

    SW_HD void set_out(double towards, uint64_t columns) {
        on_the_way = true;
        left = 1;
        inward = towards;
        entered = columns;
    }

    // One solution: goes there, or as far as bounds allow, where what would go beyond is left. False where
    // another solver has to see to it.
    SW_HD bool advance(int max_solves) {
        if (solves >= max_solves || !this->complete_factor()) return false;
        const bool projects = Lanes::has_sweeps && may_project;
        may_project = false;
        ++solves;
        this->solve(left, entered);
        if (inward != 0) {
            bool outward = false;
            this->each_in_factor([&](int j, int t) {
                if (entered & bit_of(j)) outward = !(inward * step[t] > 0);
            });
            if (lanes.any(outward)) return false;
            inward = 0;
        }
        double alpha = room_in_bounds();
        if (!lanes.any(alpha < double_infinity)) {
            take_all();
            on_the_way = false;
            return true;
        }
        if (projects) {
            on_the_way = false;
            was_projected = true;
            return walk(1);
        }
        alpha = min_of(lanes.least(alpha), 1.0);
        if (!walk(alpha)) return false;
        left *= 1 - alpha;
        on_the_way = count > 0;
        return true;
    }

    // To the solution on the columns in the factor. False, and x is where it was, where bounds are in the
    // way.
    SW_HD bool go_freely() {
        ++solves;
        this->solve(1, none);
        if (lanes.any(room_in_bounds() < double_infinity)) return false;
        take_all();
        return true;
    }

    // To the solution on the columns in the factor, with what is beyond a bound at that bound, where it
    // leaves.
    SW_HD void projected_step() {
        ++solves;
        if constexpr (sweeps_signs) {
            if (this->products.guess)  // which x is already
                for (int j = 0; j < kept_columns; ++j) step[j] = 0;
            else
                this->solve(1, none);
            const uint64_t gone = lanes.projected_step(x, step, in_factor);
            this->nonzero |= in_factor;
            if (gone) leave(gone, 0, gone);
            return;
        }
        this->solve(1, none);
        walk(1);
    }

    // What the last columns took to enter, as the solver for all sizes counts it.
    SW_HD void count_insertions(int columns = 1) {
        insertions += columns;
        costs[0] += columns;
        costs[1] += flops_before(count) - flops_before(count - columns);
    }

private:
    SW_HD void take_all() {
        if constexpr (keeps_inverses)
            add_scaled(1.0, step, x, kept_columns);
        else
            this->each_in_factor([&](int j, int t) { x[j] += step[t]; });
        lanes.sync();
        this->nonzero |= in_factor;
    }

    // How much of a step bounds allow; infinite where it is more than all of it.
    SW_HD double room_in_bounds() const {
        double alpha = double_infinity;
        if constexpr (sweeps_signs) {
            for (uint64_t rest = lanes.not_above_zero(x, step) & in_factor; rest; rest &= rest - 1)
                alpha = min_of(alpha, room(lowest_of(rest), step[lowest_of(rest)]));
        } else {
            this->each_in_factor([&](int j, int t) { alpha = min_of(alpha, room(j, step[t])); });
        }
        return alpha;
    }

    // How much of a step column j can go; infinite where it can go all of it.
    SW_HD double room(int j, double by) const {
        const double from = x[j], to = from + by;
        if constexpr (!Kind::bounded) {
            if (to > 0) return double_infinity;
            return from > 0 ? from / -by : 0.0;
        } else {
            const double low = this->lower(j), high = this->upper(j);
            if (!(to > low)) return from > low ? (low - from) / by : 0.0;
            if (!(to < high)) return from < high ? (high - from) / by : 0.0;
            return double_infinity;
        }
    }

    // Takes alpha of the step; what reaches a bound leaves. False where a bound sum has no column left.
    SW_HD bool walk(double alpha) {
        if constexpr (keeps_inverses) return walk_by_columns(alpha);
        if constexpr (Lanes::has_sweeps && !Kind::bounded) return walk_to_zero(alpha);
        int place = 0, first = count;
        uint64_t gone = 0, up = 0, zero = 0, places = 0;
        const auto take = [&](int begin, double by) {
            const int p = begin + lanes.lane(), j = p < count ? order[p] : 0;
            bool stays = false;
            if (p < count) {
                const int met = step_to_bound(j, alpha, by);
                stays = met == 0;
                if (x[j] == 0) zero |= bit_of(j);
                if (!stays) gone |= bit_of(j), places |= bit_of(p);
                if (met > 0) up |= bit_of(j);
            }
            const unsigned staying = lanes.votes(stays), leaving = lanes.votes(p < count && !stays);
            if (leaving) first = min_of(first, begin + lowest_of(leaving));
            if (stays) order[place + bits_in(staying & ((1u << lanes.lane()) - 1))] = j;
            place += bits_in(staying);
            removals += bits_in(leaving);
            lanes.sync();
        };
        if constexpr (width == 1) {
            SW_ROLLED
            for (int p = 0; p < count; ++p) take(p, step[p]);
        } else {
            SW_UNROLL
            for (int t = 0; t < own_positions; ++t)
                if (width * t < count) take(width * t, step[t]);
        }
        const int rows = factored;
        depart(lanes.join(gone), lanes.join(up), lanes.join(zero), first, place);
        if constexpr (Lanes::has_sweeps) this->take_out(places, rows, first);
        return !Kind::summed || count > 0;
    }

    // The same where there are no bounds but zero.
    SW_HD bool walk_to_zero(double alpha) {
        const int before = count, rows = factored;
        uint64_t places = 0, gone = 0;
        for (int p = 0; p < before; ++p)
            places |= uint64_t(step_to_bound(order[p], alpha, step[p]) != 0) << p;
        const int first = places ? lowest_of(places) : before;
        int stay = first;
        for (int p = first; p < before; ++p) {
            const int j = order[p];
            order[stay] = j;
            if (!(places >> p & 1)) {
                ++stay;
                continue;
            }
            gone |= bit_of(j);
        }
        removals += before - stay;
        depart(gone, 0, gone, first, stay);
        this->take_out(places, rows, first);
        return !Kind::summed || count > 0;
    }

    // The same where a column's position is its number.
    SW_HD bool walk_by_columns(double alpha) {
        uint64_t gone = 0, up = 0, zero = 0;
        this->each_in_factor([&](int j, int t) {
            const int met = step_to_bound(j, alpha, step[t]);
            if (x[j] == 0) zero |= bit_of(j);
            if (met != 0) gone |= bit_of(j);
            if (met > 0) up |= bit_of(j);
        });
        leave(gone, up, zero);
        return !Kind::summed || count > 0;
    }

    SW_HD void leave(uint64_t gone, uint64_t up, uint64_t zero) {
        const unsigned out = static_cast<unsigned>(gone), in = static_cast<unsigned>(in_factor);
        removals += bits_in(out);
        depart(gone, up, zero, bits_in(in & ((out & -out) - 1)), bits_in(in & ~out));
    }

    // Moves x_j by alpha of its step, to a bound where it meets one: 1 the upper, -1 the lower, 0 none.
    SW_HD int step_to_bound(int j, double alpha, double by) {
        const double moved = x[j] + alpha * by, low = this->lower(j), high = this->upper(j);
        if constexpr (Lanes::has_sweeps && !Kind::bounded) {
            // (What would be above zero after all of the step has more room than that.)
            const bool above = x[j] + by > 0 || (moved > 0 && room(j, by) > alpha);
            x[j] = above ? moved : 0.0;
            return above ? 0 : -1;
        }
        const bool stays = room(j, by) > alpha && (by > 0 ? moved < high : moved > low);
        // (It may be at its upper bound, and its step be zero.)
        const bool up = by > 0 || moved >= high;
        x[j] = stays ? clamp_to(moved, low, high) : up ? high : low;
        return stays ? 0 : up ? 1 : -1;
    }

    // The columns that are gone, some to their upper bounds, and all whose x is zero now; of `stay` that stay
    // those from place `first` on have others than before them.
    SW_HD void depart(uint64_t gone, uint64_t up, uint64_t zero, int first, int stay) {
        this->nonzero = (this->nonzero | in_factor) & ~zero;
        in_factor &= ~gone;
        at_upper = (at_upper & ~gone) | up;
        costs[2] += max_of(0, stay - first);
        if (stay > first) costs[3] += flops_before(stay) - flops_before(first);
        factored = min_of(factored, first);
        count = stay;
    }

    // The sum of k^2 + 4 k over all k below `places`.
    SW_HD static int flops_before(int places) {
        return (places - 1) * places * (2 * places - 1) / 6 + 2 * places * (places - 1);
    }
};

}  // namespace small
}  // namespace lsq
SW_END
