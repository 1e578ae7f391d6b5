// One problem, phase by phase: a sweep over its variables, wherever they are, which leaves rows of numbers;
// the exchange with others where there is one; the decision. The only place of the host where sums meet
// decisions.
//
// Sweeps has, for the variables that it knows:
//   rows(shape)            memory for the rows of a phase, one a chunk, room for one at least
//   slope, slope_and_absorb, absorb, list, count, ties, aim: fills rows, and returns how many
//   take_point()           after slope_and_absorb: the trial point is accepted
//   stay()                 the trial point was refused: what follows works at the accepted point
//   step(length)           the trial point becomes x + length d
//   end(at_start)          the caller sees the solution where it would have seen the next trial; at_start:
//                          f or g was not finite at the start, that point is all there is
//   scratch(), break_list(pairs, length)   memory of the decisions
//   longest()              how long a list of breakpoints may be; the same on all ranks
//   may_be_few             whether its sums may say that few variables are free: then
//   factor_few(matrices, row), put_path(path)   one row or none, of whoever has the variables
//   step_few()             aim() takes the step from their model
#pragma once

#include <algorithm>
#include <array>

#include "core/quasi_newton/counted_breaks.hpp"
#include "core/quasi_newton/decide.hpp"
#include "host/quasi_newton/chunks.hpp"
#include "host/quasi_newton/engine.hpp"
#include "host/quasi_newton/simd_matrices.hpp"
#include "host/quasi_newton/walk_sums.hpp"

SW_BEGIN

template <class Sweeps>
class Phases {
public:
    static constexpr bool walks = true;

    Phases(Sweeps& sweeps, State& state, const Options& options, const SmallMatrices& matrices,
           const Exchange& exchange)
        : sweeps(sweeps), state(state), options(options), matrices(matrices), exchange(exchange) {}

    // One evaluation, one turn: from f and g at the trial point to the next trial point or the end. A turn
    // may be cut after the line search has decided, so that the caller can supply the diagonal for an
    // accepted point.
    void turn(double f, TurnPart part) {
        if (state.action == Action::done) return;
        if (part == TurnPart::finish && state.action == Action::evaluate) return;
        const bool starts = !state.started;
        // A first part that was done already is not done twice: the caller's diagonal failed, and is asked
        // again.
        if (part != TurnPart::finish && state.action == Action::evaluate) {
            if (part == TurnPart::whole && absorbs_ahead() && expects_acceptance(state)) {
                slope_and_absorb(f);
            } else {
                slope(f);
                if (state.action != Action::absorb && !starts) sweeps.stay();
            }
        }
        if (part == TurnPart::begin && state.action == Action::absorb) return;
        const bool ends_at_start = starts && state.action == Action::done;
        run_actions(*this);
        if (state.action == Action::done) sweeps.end(ends_at_start);
    }

    Action action() const { return state.action; }

    void slope(double f) {
        const double* total =
            totals({.shape = slope_row, .f = &f}, [&](double* rows) { return sweeps.slope(rows); });
        decide_slope(state, options, f, total[0]);
    }

    // Both at once, for a trial point that will probably be accepted: one exchange instead of two. The pair
    // is written to the spare place of the ring; x and g are replaced once the point is accepted.
    void slope_and_absorb(double f) {
        const SumLayout layout = sum_layout(options, rows_to_gather(Gather::pair, state, options));
        const RowShape row = absorb_row(layout);
        const double* total = totals({.shape = {slope_row.sums + row.sums, row.maxima, row.minima}, .f = &f},
                                     [&](double* rows) { return sweeps.slope_and_absorb(layout, rows); });
        decide_slope(state, options, f, total[0]);
        if (state.action != Action::absorb) return sweeps.stay();
        sweeps.take_point();
        take_in(layout, total + slope_row.sums);
    }

    void absorb() {
        const Gather gather = state.iterations == 0 ? Gather::start : Gather::pair;
        const SumLayout layout = sum_layout(options, rows_to_gather(gather, state, options));
        take_in(layout, totals({.shape = absorb_row(layout)},
                               [&](double* rows) { return sweeps.absorb(layout, gather, rows); }));
    }

    void list_breaks() {
        BreakList list = sweeps.break_list(state.pairs, next_length());
        const double* total =
            totals({.shape = list_row, .list = &list}, [&](double* rows) { return sweeps.list(list, rows); });
        const double listed = total[0];
        const int count = listed <= list.length ? int(listed) : 0;
        std::sort(list.breaks, list.breaks + count,
                  [](const Break& a, const Break& b) { return a.before(b); });
        decide_list(team, state, sweeps.scratch(), list, list.breaks, listed);
        walk_sums.cross(state, list, count);
        select_counted();
    }

    void count_breaks() {
        const double* total =
            totals({.shape = {walk_bins, 0, 0}}, [&](double* rows) { return sweeps.count(rows); });
        counted.keep(state);
        std::copy_n(total, walk_bins, bins.begin());
        decide_count(state, total, next_length());
    }

    void sum_ties() {
        double* total = totals({.shape = ties_row(state)}, [&](double* rows) { return sweeps.ties(rows); });
        decide_ties(team, state, sweeps.scratch(), total);
        walk_sums.forget();
        select_counted();
    }

    void regather() {
        const SumLayout layout = sum_layout(options, rows_to_gather(Gather::again, state, options));
        const double* total = walk_sums.left(state);
        if (!total) {
            total = totals({.shape = regather_row(layout)},
                           [&](double* rows) { return sweeps.absorb(layout, Gather::again, rows); });
        }
        decide_regather(team, state, matrices, sweeps.scratch(), layout, total);
    }

    void aim() {
        const double* total = totals({.shape = aim_row, .decided = sweeps.scratch().coefficients},
                                     [&](double* rows) { return sweeps.aim(rows); });
        decide_aim(state, options, AimTotals::of(total));
    }

    void step() {
        sweeps.step(state.search.step);
        state.action = Action::evaluate;
    }

private:
    Sweeps& sweeps;
    State& state;
    const Options& options;
    const SmallMatrices matrices;
    const Exchange exchange;
    DecidingThread team;
    WalkSums walk_sums;
    CountedBreaks counted;
    std::array<double, walk_bins> bins;

    int next_length() const { return list_length(state.walk, sweeps.longest()); }
    void select_counted() { counted.select(state, bins.data() + counted.next_bin(state), next_length()); }

    // Whether the ring has a place for a pair whose point may yet be refused.
    bool absorbs_ahead() const { return exchange.call && options.slots > options.capacity; }

    void take_in(const SumLayout& layout, const double* total) {
        counted.forget();
        if constexpr (Sweeps::may_be_few) {
            if (options.bounded && !options.weighted && layout.rows > 0 && total[layout.few()] > 0)
                return take_in_few(layout, total);
        }
        decide_absorb(team, state, options, matrices, sweeps.scratch(),
                      AbsorbTotals::of(total + layout.length()), layout, total);
        if (state.action == Action::list_breaks) walk_sums.begin(state, layout, total);
    }

    // The same where few variables are free. One rank has them all, and the others are told of its model.
    void take_in_few(const SumLayout& layout, const double* total) {
        const auto found = AbsorbTotals::of(total + layout.length());
        const auto judge = [&] { judge_point(state, options, found); };
        take_pair(team, state, options, matrices, layout, total);
        if (!exchange.call || state.pairs == 0) judge();
        if (state.pairs == 0 || state.action == Action::done) return;
        const BothFactored model = factor_few();
        if (exchange.call) judge();
        if (state.action == Action::done) return;
        judge_model(state, options, model);
        if (state.action != Action::aim) {
            const Scratch& w = sweeps.scratch();
            if (!exchange.call) sweeps.put_path({w.k, w.path});
            std::fill_n(w.carried, 2 * state.pairs, 0.0);
            walk_sums.forget();
        } else if (state.pairs > 0) {
            sweeps.step_few();
        }
    }

    BothFactored factor_few() {
        const int size = 2 * state.pairs, factors = exchange.call ? size * size : 0;
        double* row = totals({.shape = {3 + factors + (exchange.call ? size : 0), 0, 0}}, [&](double* rows) {
            const int count = sweeps.factor_few(matrices, rows);
            if (exchange.call && count) {
                std::fill_n(rows + 3, factors + size, 0.0);
                if (rows[0] > 0) sweeps.put_path({rows + 3, rows + 3 + factors});
            }
            return count;
        });
        if (exchange.call) {
            const Scratch& w = sweeps.scratch();
            std::copy_n(row + 3, factors, w.k);
            std::copy_n(row + 3 + factors, size, w.path);
            std::fill_n(w.coefficients, size, 0.0);  // no part of the step, but looked at by all
        }
        return {row[0] > 0, row[1] > 0, row[2]};
    }

    struct Phase {
        RowShape shape;
        double* f = nullptr;
        BreakList* list = nullptr;
        const double* decided = nullptr;
    };

    // Sweeps, and puts the rows together: the seam between sums and decisions.
    template <class Sweep>
    double* totals(const Phase& phase, const Sweep& sweep) {
        double* rows = sweeps.rows(phase.shape);
        const int count = sweep(rows);
        if (exchange.call) {
            exchange.call(exchange.context, PhaseSums{state.action, &state, rows, count, phase.shape, phase.f,
                                                      phase.list, phase.decided});
        } else {
            fold_rows(rows, count, phase.shape);
        }
        return rows;
    }
};

SW_END
