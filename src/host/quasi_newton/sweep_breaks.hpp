// The sweeps of the exact Cauchy point (core/quasi_newton/cauchy_walk.hpp), on one chunk of the variables.
// Only where a breakpoint may be of the selection are variables looked at one by one.
#pragma once

#include <atomic>

#include "core/quasi_newton/cauchy_walk.hpp"
#include "core/quasi_newton/variable.hpp"
#include "host/quasi_newton/tiles.hpp"

SW_BEGIN

class BreakSweep {
public:
    BreakSweep(const HostVectors& v, const State& state, const Options& options)
        : v(v), state(state), options(options) {}

    // Breakpoints in (above, high] with their rows, in any order; no more once there are too many. Leaves how
    // many this chunk has put into the list, or would have: list_row.
    void list(int64_t begin, int64_t end, Workspace& w, const BreakList& list, std::atomic<int>& listed,
              double* row) const {
        row[0] = 0;
        if (listed.load(std::memory_order_relaxed) > list.length) return;
        each_break(begin, end, w, state.walk.above, [&](int64_t i, uint64_t time) {
            const int record = listed.fetch_add(1, std::memory_order_relaxed);
            ++row[0];
            if (record >= list.length) return;
            list.breaks[record] = make_break(time, i, record);
            double* crossing = list.rows + int64_t(record) * (2 * state.pairs + 1);
            std::fill_n(crossing, 2 * state.pairs + 1, 0.0);
            add_crossing(i, crossing);
        });
    }

    // How many of (above, high] lie in each bin.
    void count(int64_t begin, int64_t end, Workspace& w, double* bins) const {
        std::fill_n(bins, walk_bins, 0.0);
        const CauchyWalk& walk = state.walk;
        each_break(begin, end, w, walk.above,
                   [&](int64_t, uint64_t time) { ++bins[(time - walk.above - 1) >> walk.shift]; });
    }

    // The sum of the rows of all variables whose breakpoint is `high`: ties_row.
    void ties(int64_t begin, int64_t end, Workspace& w, double* sums) const {
        const int width = 2 * state.pairs + 1;
        TileSums tiles(w.memory_of_tiles(), width);
        bool any = false;
        const auto add = [&](int64_t i, uint64_t) {
            if (!any) std::fill_n(tiles.row(), width, 0.0);
            any = true;
            add_crossing(i, tiles.row());
        };
        for (int64_t at = begin; at < end; at += tile, any = false) {
            each_break(at, min_of(at + tile, end), w, state.walk.high - 1, add);
            any ? tiles.add() : tiles.add_nothing();
        }
        std::copy_n(tiles.total(), width, sums);
    }

private:
    const HostVectors& v;
    const State& state;
    const Options& options;

    double descent_of(int64_t i) const { return v.weights ? v.weights[i] * v.g[i] : v.g[i]; }

    // Calls work(variable, number of its time) for those in (above, high].
    template <class Work>
    void each_break(int64_t begin, int64_t end, Workspace& w, uint64_t above, const Work& work) const {
        const uint64_t high = state.walk.high;
        const Lanes limit = lanes_of(later_than(time_of_number(high)));
        for (int64_t at = begin; at < end; at += tile) {
            const int count = int(min_of(int64_t(tile), end - at));
            const int packs = (count + lanes - 1) / lanes;
            load_point(at, count, packs * lanes, w);
            const TilePlaces places(w);
            const auto look = [&](int i) {
                const TileSlice at(places, i);
                return at.breaks_before(limit, load_slice(places.path + i), at.held());
            };
            each_pack_where(packs, look, [&](int first) {
                for (int i = first; i < min_of(first + lanes, count); ++i) {
                    const VariableStatus one =
                        classify_variable<false>(w.x[i], w.g[i], w.path[i], w.lower[i], w.upper[i], 0.0);
                    const uint64_t time = number_of_time(one.time);
                    if (time > above && time <= high) work(at + i, time);
                }
            });
        }
    }

    void load_point(int64_t at, int count, int padded, Workspace& w) const {
        w.x = view(w.x_tile, v.x + at, count, padded);
        w.g = w.path = view(w.g_tile, v.g + at, count, padded);
        set_bounds(w, v, at, count, padded);
        if (v.weights) {
            widen(w.descent, v.weights + at, count, padded);
            for (int i = 0; i < padded; ++i) w.descent[i] *= w.g[i];
            w.path = w.descent;
        }
    }

    void add_crossing(int64_t i, double* sums) const {
        const int r = state.pairs;
        const double g = v.g[i], descent = descent_of(i);
        for (int a = 0; a < r; ++a) {
            const double y = element_at(place_of(v.y, v, options, a, state.head, r, i), options.history),
                         s = element_at(place_of(v.s, v, options, a, state.head, r, i), options.history);
            sums[a] += crossing_of_y(y, descent);
            sums[r + a] += crossing_of_s(s, g, state.gamma);
        }
        sums[2 * r] += g * descent;
    }
};

SW_END
