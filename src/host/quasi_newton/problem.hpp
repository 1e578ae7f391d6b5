// One problem on the host: the sweeps of every action over its chunks, and the decisions on their totals.
#pragma once

#include "core/quasi_newton/decide.hpp"
#include "host/quasi_newton/chunks.hpp"
#include "host/quasi_newton/engine.hpp"
#include "host/quasi_newton/simd_matrices.hpp"
#include "host/quasi_newton/sweeps.hpp"

SW_BEGIN

template <class T>
class Problem {
public:
    static constexpr bool walks = true;

    Problem(const HostVectors<T>& v, State& state, const Options& options, const SmallMatrices& matrices,
            const Chunks& chunks, std::vector<Workspace>& workspaces, int first_workspace,
            const Exchange& exchange, double* kept)
        : v(v),
          state(state),
          options(options),
          matrices(matrices),
          chunks(chunks),
          workspaces(workspaces),
          first_workspace(first_workspace),
          exchange(exchange),
          kept(kept) {}

    // One evaluation, one turn: from f and g at the trial point to the next trial point or the end. A turn
    // may be cut after the line search has decided, so that the caller can supply the diagonal for an
    // accepted point.
    void turn(double f, const T* at_trial, TurnPart part) {
        gradient = at_trial;
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
            }
        }
        if (part == TurnPart::begin && state.action == Action::absorb) return;
        if (starts && state.action == Action::done) {
            // Not finite at the start: that point is all there is.
            std::copy_n(v.trial, v.n, v.x);
            std::copy_n(gradient, v.n, v.g);
        }
        run_actions(*this);
        // The caller sees the solution where it would have seen the next trial.
        if (state.action == Action::done) std::copy_n(v.x, v.n, v.trial);
    }

    Action action() const { return state.action; }

    void slope(double f) {
        const double* total =
            totals({.shape = slope_row, .f = &f}, [&](int64_t begin, int64_t end, Workspace&, double* row) {
                row[0] = slope_chunk(v, gradient, begin, end);
                row[1] = 0;
            });
        decide_slope(state, options, f, total[0]);
    }

    // Both at once, for a trial point that will probably be accepted: one exchange instead of two. The pair
    // is written to the spare place of the ring; x and g are replaced once the point is accepted.
    void slope_and_absorb(double f) {
        const SumLayout layout = sum_layout(options, rows_to_gather(Gather::pair, state, options));
        const RowShape row_of_absorb = absorb_row(layout);
        const Absorb<T> sweep(v, state, options, layout, Gather::pair, gradient, false);
        const double* total = totals(
            {.shape = {slope_row.sums + row_of_absorb.sums, row_of_absorb.maxima, row_of_absorb.minima},
             .f = &f},
            [&](int64_t begin, int64_t end, Workspace& w, double* row) {
                row[0] = slope_chunk(v, gradient, begin, end);
                row[1] = 0;
                sweep.chunk(begin, end, w, row + slope_row.sums, kept_of(begin));
            });
        decide_slope(state, options, f, total[0]);
        if (state.action != Action::absorb) return;
        chunks.each([&](int, int64_t begin, int64_t end, int) {
            std::copy(v.trial + begin, v.trial + end, v.x + begin);
            std::copy(gradient + begin, gradient + end, v.g + begin);
        });
        take_in(layout, total + slope_row.sums);
    }

    void absorb() {
        const Gather gather = state.iterations == 0 ? Gather::start : Gather::pair;
        const SumLayout layout = sum_layout(options, rows_to_gather(gather, state, options));
        take_in(layout, products(layout, gather, absorb_row(layout)));
    }

    void list_breaks() {
        BreakList list = workspace(0).break_list(state.pairs);
        const BreakSweep<T> sweep(v, state, options);
        std::atomic<int> listed{0};
        const double* total = totals({.shape = list_row, .list = &list},
                                     [&](int64_t begin, int64_t end, Workspace& w, double* row) {
                                         sweep.list(begin, end, w, list, listed, row);
                                     });
        if (total[0] <= list.length) {
            std::sort(list.breaks, list.breaks + int(total[0]),
                      [](const Break& a, const Break& b) { return a.before(b); });
        }
        decide_list(team, state, workspace(0).scratch, list, list.breaks, total[0]);
    }

    void count_breaks() {
        const BreakSweep<T> sweep(v, state, options);
        const double* total = totals(
            {.shape = {walk_bins, 0, 0}},
            [&](int64_t begin, int64_t end, Workspace& w, double* row) { sweep.count(begin, end, w, row); });
        decide_count(state, total, longest_list);
    }

    void sum_ties() {
        const BreakSweep<T> sweep(v, state, options);
        double* total = totals(
            {.shape = ties_row(state)},
            [&](int64_t begin, int64_t end, Workspace& w, double* row) { sweep.ties(begin, end, w, row); });
        decide_ties(team, state, workspace(0).scratch, total);
    }

    void regather() {
        const SumLayout layout = sum_layout(options, rows_to_gather(Gather::again, state, options));
        const double* total = products(layout, Gather::again, regather_row(layout));
        decide_regather(team, state, matrices, workspace(0).scratch, layout, total);
    }

    void aim() {
        const Aim<T> sweep(v, state, options, workspace(0).scratch.coefficients);
        const double* total = totals(
            {.shape = aim_row, .decided = workspace(0).scratch.coefficients},
            [&](int64_t begin, int64_t end, Workspace& w, double* row) { sweep.chunk(begin, end, w, row); });
        decide_aim(state, options, AimTotals::of(total));
    }

    void step() {
        chunks.each(
            [&](int, int64_t begin, int64_t end, int) { step_chunk(v, state.search.step, begin, end); });
        state.action = Action::evaluate;
    }

private:
    const HostVectors<T> v;
    State& state;
    const Options& options;
    const SmallMatrices matrices;
    const Chunks chunks;
    std::vector<Workspace>& workspaces;
    const int first_workspace;  // problems of a batch run one per thread, each with that thread's workspace
    const Exchange exchange;
    double* const kept;  // products of tiles (kept_grams.hpp), or null
    const T* gradient = nullptr;
    DecidingThread team;

    // Whether the ring has a place for a pair whose point may yet be refused.
    bool absorbs_ahead() const { return exchange.call && options.slots > options.capacity; }

    void take_in(const SumLayout& layout, const double* total) {
        decide_absorb(team, state, options, matrices, workspace(0).scratch,
                      AbsorbTotals::of(total + layout.length()), layout, total);
    }

    Workspace& workspace(int thread) { return workspaces[first_workspace + thread]; }

    const double* products(const SumLayout& layout, Gather gather, const RowShape& shape) {
        const Absorb<T> sweep(v, state, options, layout, gather, gradient);
        return totals({.shape = shape}, [&](int64_t begin, int64_t end, Workspace& w, double* row) {
            sweep.chunk(begin, end, w, row, kept_of(begin));
        });
    }

    // Those of the chunk that begins there.
    double* kept_of(int64_t begin) const {
        const int64_t chunk = (begin + chunks.before) / chunks.length;
        return kept ? kept + chunk * KeptGrams::doubles_of_chunk(chunks, options.slots) : nullptr;
    }

    struct Phase {
        RowShape shape;
        double* f = nullptr;
        BreakList* list = nullptr;
        const double* decided = nullptr;
    };

    // Sweeps over all chunks, each of which leaves a row, and folds them: the seam between sums and
    // decisions.
    template <class Sweep>
    double* totals(const Phase& phase, const Sweep& sweep) {
        const RowShape shape = phase.shape;
        std::vector<double>& memory = workspace(0).chunk_rows;
        const size_t needed = size_t(shape.width()) * size_t(max_of(chunks.count, 1));
        if (memory.size() < needed) memory.resize(needed);
        double* rows = memory.data();
        chunks.each([&](int c, int64_t begin, int64_t end, int thread) {
            sweep(begin, end, workspace(thread), rows + int64_t(c) * shape.width());
        });
        if (exchange.call) {
            exchange.call(exchange.context, Found{state.action, &state, rows, chunks.count, shape, phase.f,
                                                  phase.list, phase.decided});
        } else {
            fold_rows(rows, chunks.count, shape);
        }
        return rows;
    }
};

SW_END
