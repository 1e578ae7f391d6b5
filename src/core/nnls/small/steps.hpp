// Steps of a small system: the factor of the columns between their bounds, and the way to the solution there.
//
// L D L' = A_P'A_P, row after row in the order in which columns came; a row is the forward substitution of
// its column. A step solves for the difference from x, from the dual at x: so every step is one of refinement
// too.
#pragma once

#include "core/nnls/small/dual.hpp"

SW_BEGIN
namespace nnls {
namespace small {

template <class Kind, class Lanes>
struct Steps : Dual<Kind, Lanes> {
    using Base = Dual<Kind, Lanes>;
    using Base::at_upper;
    using Base::count;
    using Base::deficit;
    using Base::keeps_inverses;
    using Base::lanes;
    using Base::order;
    using Base::own_positions;
    using Base::passive;
    using Base::sweeps_signs;
    using Base::w;
    using Base::width;
    using Base::x;

    double* const factor;  // L by rows, without the ones on its diagonal
    // A lane's positions: 1 / D; a step; and, where a sum is bound, L^-1 s, s its coefficients.
    double inverse_pivot[own_positions], step[own_positions], sum[Kind::summed ? own_positions : 1];
    int factored = 0;  // rows of L that are there
    int solves = 0, insertions = 0, removals = 0;
    int32_t costs[4] = {0, 0, 0, 0};  // accesses and flops of updates, then of downdates

    SW_HD Steps(const Job& job, int64_t system, const Products& products, const Lanes& lanes,
                Store<Kind, width>& store)
        : Base(job, system, products, lanes, store), factor(store.factor) {}

    // The way from x to the solution on the columns of the factor: so much of the dual is left; a column just
    // inserted, at the last place, has to go `inward`, 1 up, -1 down, 0 where there is none.
    bool on_the_way = false;
    double left = 1, inward = 0;
    // The columns that entered, where the duals of the others in the factor are left as they are, rounding
    // that a step of refinement sees to; else none.
    static constexpr uint64_t none = 0;
    uint64_t entered = none;

    SW_HD void set_out(double towards, uint64_t columns) {
        on_the_way = true;
        left = 1;
        inward = towards;
        entered = columns;
    }

    // One solution: goes there, or as far as bounds allow, where what would go beyond is left. False where
    // another solver has to see to it.
    SW_HD bool advance(int max_solves) {
        if (solves >= max_solves || !complete_factor()) return false;
        ++solves;
        solve();
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
        alpha = min_of(lanes.least(alpha), 1.0);
        if (!walk(alpha)) return false;
        left *= 1 - alpha;
        on_the_way = count > 0;
        return true;
    }

    // g' (L D L')^-1 g, outside the direction of a bound sum; g in `step`, which is overwritten.
    SW_HD double square_in_factor() {
        substitute(step, count);
        direct(0);
        double square = 0;
        this->each_position(count, [&](int, int t) { square += step[t] * step[t] * inverse_pivot[t]; });
        return lanes.sum(square);
    }

    // Rows of L that are missing. False where a column depends on the others as far as products tell.
    SW_HD bool complete_factor() { return complete_factor(smallest_pivot<Kind>(this->n)); }

    // The same; false also where a column's part outside the others is less than `least` of its square.
    SW_HD bool complete_factor(double least) {
        if constexpr (keeps_inverses) {
            double& outside = lanes.kept->outside[passive];
            if (outside == 0) outside = find_inverse();
            return outside > least;
        } else {
            return complete_rows(least);
        }
    }

    // To the solution on the columns in the factor. False, and x is where it was, where bounds are in the
    // way.
    SW_HD bool go_freely() {
        ++solves;
        left = 1;
        entered = none;
        solve();
        if (lanes.any(room_in_bounds() < double_infinity)) return false;
        take_all();
        return true;
    }

    // To the solution on the columns in the factor, with what is beyond a bound at that bound, where it
    // leaves.
    SW_HD void bend() {
        ++solves;
        left = 1;
        entered = none;
        if constexpr (sweeps_signs) {
            if (this->products.guess)  // which x is already
                for (int j = 0; j < kept_columns; ++j) step[j] = 0;
            else
                solve();
            const uint64_t gone = lanes.bend(x, step, passive);
            this->support |= passive;
            if (gone) leave(gone, 0, gone);
            return;
        }
        solve();
        walk(1);
    }

    // The variance of x at a position, where entries of b have variance one and the set is what it is. With M
    // = L^-T (E - E v v'E / v'E v) L^-1, E = D^-1, v = L^-1 s, it is M_pp - nu |L_P M e_p|^2.
    SW_HD double variance_at(int position) {
        if constexpr (keeps_inverses) return max_of(0.0, lanes.kept->of(passive).inverse[position][position]);
        this->each_position(count, [&](int p, int t) { step[t] = p == position; });
        double square = square_in_factor();
        if constexpr (Kind::penalized) {
            substitute_back();
            double image = 0;  // by rows of L: its products would lose what cancels
            const Family& family = this->job.family;
            SW_ROLLED
            for (int i = 0; i < family.penalty_rows; ++i) {
                double entry = 0;
                this->each_position(count, [&](int p, int t) {
                    const int j = order[p];
                    const double in_row = family.penalty ? family.penalty[i * this->job.columns + j] : i == j;
                    entry += in_row * this->scale(j) * step[t];
                });
                entry = lanes.sum(entry);
                image += entry * entry;
            }
            square -= this->nu * image;
        }
        return max_of(0.0, square);
    }

    SW_HD bool has_weak_pivot() const {
        if constexpr (keeps_inverses) return lanes.kept->outside[passive] < weak_pivot;
        bool weak = false;
        this->each_in_factor(
            [&](int j, int t) { weak = weak || inverse_pivot[t] * this->product(j, j) > 1 / weak_pivot; });
        return lanes.any(weak);
    }

    // What the last columns took to enter, as the solver for all sizes counts it.
    SW_HD void count_insertions(int columns = 1) {
        insertions += columns;
        costs[0] += columns;
        costs[1] += flops_before(count) - flops_before(count - columns);
    }

private:
    SW_HD bool complete_rows(double least) {
        SW_ROLLED
        for (; factored < count; ++factored) {
            const int place = factored, j = order[place];
            fill_step(0, place, [&](int p) { return this->product_apart(j, order[p]); });
            substitute(step, place);
            double *const row = factor + place * (place - 1) / 2, inside = 0, in_sum = 0;
            if constexpr (Lanes::has_sweeps) {
                inside = lanes.scale_row(step, inverse_pivot, row, place);
                if constexpr (Kind::summed) in_sum = lanes.inner(row, sum, place);
            } else {
                this->each_position(place, [&](int p, int t) {
                    const double entry = step[t] * inverse_pivot[t];
                    row[p] = entry;
                    inside += entry * step[t];
                    if constexpr (Kind::summed) in_sum += entry * sum[t];
                });
            }
            const double square = this->product(j, j), outside = square - lanes.sum(inside);
            if (!(outside > least * square)) return false;
            const double inverse = 1 / outside;
            if constexpr (Kind::summed) in_sum = this->coefficient(j) - lanes.sum(in_sum);
            const auto set = [&](int t) {
                inverse_pivot[t] = inverse;
                if constexpr (Kind::summed) sum[t] = in_sum;
            };
            if constexpr (width == 1)
                set(place);
            else
                this->each_position(place + 1, [&](int p, int t) {
                    if (p == place) set(t);
                });
            lanes.sync();
        }
        return true;
    }

    // Of the columns in the factor, in ascending order: the rows of (A_P'A_P)^-1, in the directions that keep
    // a bound sum, what changes that sum by one, and what its multiplier is of duals. Returns the smallest
    // part of a column's square outside those before it.
    SW_HD double find_inverse() {
        auto& kept = lanes.kept->of(passive);
        kept = {};
        if constexpr (Kind::summed) find_multiplier(kept.multiplier);
        int place = 0;
        for (uint64_t rest = passive; rest; rest &= rest - 1) order[place++] = lowest_of(rest);
        factored = 0;
        double outside = nothing_outside;
        if (complete_rows(0)) {
            const auto solve_for = [&](int position, double* row) {  // `count`: for what changes the sum
                for (int p = 0; p < count; ++p) step[p] = p == position;
                substitute(step, count);
                direct(position == count);
                substitute_back();
                for (int p = 0; p < count; ++p) row[order[p]] = step[p];
            };
            outside = 1;
            for (int p = 0; p < count; ++p) {
                const int j = order[p];
                solve_for(p, kept.inverse[j]);
                outside = min_of(outside, 1 / (inverse_pivot[p] * this->product(j, j)));
            }
            if (Kind::summed) solve_for(count, kept.along);
        }
        return outside;
    }

    SW_HD void find_multiplier(double* row) const {
        double square = 0;
        this->each_in_factor([&](int j, int) { square += this->coefficient(j) * this->coefficient(j); });
        this->each_in_factor([&](int j, int) { row[j] = -this->coefficient(j) / square; });
    }

    SW_HD void take_all() {
        if constexpr (keeps_inverses)
            add_scaled(1.0, step, x, kept_columns);
        else
            this->each_in_factor([&](int j, int t) { x[j] += step[t]; });
        lanes.sync();
        this->support |= passive;
    }

    // How much of a step bounds allow; infinite where it is more than all of it.
    SW_HD double room_in_bounds() const {
        double alpha = double_infinity;
        if constexpr (sweeps_signs) {
            for (uint64_t rest = lanes.not_above_zero(x, step) & passive; rest; rest &= rest - 1)
                alpha = min_of(alpha, room(lowest_of(rest), step[lowest_of(rest)]));
        } else {
            this->each_in_factor([&](int j, int t) { alpha = min_of(alpha, room(j, step[t])); });
        }
        return alpha;
    }

    // Where a sum is bound: step += mu v, v = L^-1 s, so that v'E step is what is given.
    SW_HD void direct(double along) {
        if constexpr (Kind::summed) {
            double inside = 0, size = 0;
            this->each_position(count, [&](int, int t) {
                inside += sum[t] * inverse_pivot[t] * step[t];
                size += sum[t] * inverse_pivot[t] * sum[t];
            });
            inside = lanes.sum(inside);
            size = lanes.sum(size);
            const double mu = size > 0 ? (along - inside) / size : 0.0;
            this->each_position(count, [&](int, int t) { step[t] += mu * sum[t]; });
        }
    }

    // A position's value, from the lane that has it.
    SW_HD double value_at(const double (&values)[own_positions], int p) const {
        if constexpr (width == 1) return values[p];
        double mine = values[0];
        SW_UNROLL
        for (int t = 1; t < own_positions; ++t) mine = p >= width * t ? values[t] : mine;
        return lanes.pick(mine, p % width);
    }

    // step at the places from `first` up to `end`.
    template <class Value>
    SW_HD void fill_step(int first, int end, Value value) {
        if constexpr (Lanes::has_sweeps)
            lanes.fill(step, first, end, value);
        else
            this->each_position(end, [&](int p, int t) {
                if (p >= first) step[t] = value(p);
            });
    }

    // values = L^-1 values, the first `rows`, of which those before `first` are zero. A thread takes a row
    // after the other, lanes a column.
    SW_HD void substitute(double (&values)[own_positions], int rows, int first = 0) const {
        if constexpr (Lanes::has_sweeps) {
            lanes.substitute(factor, values, rows, first);
        } else if constexpr (width == 1) {
            for (int p = first + 1; p < rows; ++p) {
                const double* row = factor + p * (p - 1) / 2;
                double part[2] = {values[p], 0};
                SW_UNROLL_BY(4)
                for (int q = first; q < p; ++q) part[q % 2] -= row[q] * values[q];
                values[p] = part[0] + part[1];
            }
        } else {
            SW_UNROLL_BY(2)
            for (int q = first; q < rows - 1; ++q) {
                const double value = value_at(values, q);
                this->each_position(rows, [&](int p, int t) {
                    if (p > q) values[t] -= factor[p * (p - 1) / 2 + q] * value;
                });
            }
        }
    }

    // step = L^-T D^-1 step. Threads begin at the same row, so that they read the same places.
    SW_HD void substitute_back() {
        this->each_position(count, [&](int, int t) { step[t] *= inverse_pivot[t]; });
        if constexpr (Lanes::has_sweeps) {
            lanes.substitute_back(factor, step, count);
        } else if constexpr (width == 1) {
            for (int p = Kind::positions - 1; p > 0; --p) {
                if (p >= count) continue;
                const double* row = factor + p * (p - 1) / 2;
                const double value = step[p];
                SW_UNROLL_BY(4)
                for (int q = 0; q < p; ++q) step[q] -= row[q] * value;
            }
        } else {
            SW_UNROLL_BY(2)
            for (int p = count - 1; p > 0; --p) {
                const double* row = factor + p * (p - 1) / 2;
                const double value = value_at(step, p);
                this->each_position(p, [&](int q, int t) { step[t] -= row[q] * value; });
            }
        }
    }

    // step = (L D L')^-1 w_P; where a sum is bound, of w_P + mu s with s'step = what the sum misses.
    SW_HD void solve() {
        if constexpr (keeps_inverses) {
            const auto& kept = lanes.kept->of(passive);
            lanes.template solve_by<Kind::summed>(kept, w, entered, this->n, deficit, left, step);
            return;
        }
        int first = 0;
        if (entered != none)
            for (first = count; first > 0 && (entered & bit_of(order[first - 1]));) --first;
        this->each_position(first, [&](int, int t) { step[t] = 0; });
        fill_step(first, count, [&](int p) { return left * w[order[p]]; });
        substitute(step, count, first);
        direct(left * deficit);
        substitute_back();
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
        int place = 0, first = count;
        uint64_t gone = 0, up = 0, zero = 0, places = 0;
        const auto take = [&](int begin, double by) {
            const int p = begin + lanes.lane(), j = p < count ? order[p] : 0;
            bool stays = false;
            if (p < count) {
                stays = moves(j, alpha, by);
                if (x[j] == 0) zero |= bit_of(j);
                if (!stays) gone |= bit_of(j), places |= bit_of(p);
                if (!stays && by > 0) up |= bit_of(j);
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
        if constexpr (Lanes::has_sweeps) take_out(places, rows, first);
        return !Kind::summed || count > 0;
    }

    // The rows of L without those of some places, the first of them at `first`. (A device's threads find them
    // anew: each would take out others.)
    SW_HD void take_out(uint64_t places, int rows, int first) {
        lanes.take_out(factor, inverse_pivot, rows, places);
        factored = count;
        if constexpr (Kind::summed)
            for (int p = first; p < count; ++p)
                sum[p] = this->coefficient(order[p]) - lanes.inner(factor + p * (p - 1) / 2, sum, p);
    }

    // The same where a column's position is its number.
    SW_HD bool walk_by_columns(double alpha) {
        uint64_t gone = 0, up = 0, zero = 0;
        this->each_in_factor([&](int j, int t) {
            const bool stays = moves(j, alpha, step[t]);
            if (x[j] == 0) zero |= bit_of(j);
            if (!stays) gone |= bit_of(j);
            if (!stays && step[t] > 0) up |= bit_of(j);
        });
        leave(gone, up, zero);
        return !Kind::summed || count > 0;
    }

    SW_HD void leave(uint64_t gone, uint64_t up, uint64_t zero) {
        const unsigned out = static_cast<unsigned>(gone), in = static_cast<unsigned>(passive);
        removals += bits_in(out);
        depart(gone, up, zero, bits_in(in & ((out & -out) - 1)), bits_in(in & ~out));
    }

    // Moves x_j by alpha of its step, to a bound where it meets one: false then.
    SW_HD bool moves(int j, double alpha, double by) {
        const double moved = x[j] + alpha * by, low = this->lower(j), high = this->upper(j);
        const bool stays = room(j, by) > alpha && (by > 0 ? moved < high : moved > low);
        x[j] = stays ? clamp_to(moved, low, high) : by > 0 ? high : low;
        return stays;
    }

    // The columns that are gone, some to their upper bounds, and all whose x is zero now; of `stay` that stay
    // those from place `first` on have others than before them.
    SW_HD void depart(uint64_t gone, uint64_t up, uint64_t zero, int first, int stay) {
        this->support = (this->support | passive) & ~zero;
        passive &= ~gone;
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
}  // namespace nnls
SW_END
