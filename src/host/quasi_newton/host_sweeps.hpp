// The sweeps of every phase over the variables of one problem in the host's memory (phases.hpp), chunk by
// chunk and on several threads.
#pragma once

#include "core/quasi_newton/decide.hpp"
#include "host/quasi_newton/chunks.hpp"
#include "host/quasi_newton/sweeps.hpp"

SW_BEGIN

class HostSweeps {
public:
    static constexpr bool may_be_few = true;

    HostSweeps(const HostVectors& v, HostVector gradient, const State& state, const Options& options,
               const Chunks& chunks, std::vector<Workspace>& workspaces, int first_workspace, double* kept,
               HostVector copy, bool alone, bool folds)
        : v(v),
          gradient(gradient),
          state(state),
          options(options),
          chunks(chunks),
          workspaces(workspaces),
          first_workspace(first_workspace),
          kept(kept),
          copy(copy),
          alone(alone && chunks.count == 1),
          folds(folds) {}
    HostSweeps(const HostSweeps&) = delete;
    // Whatever ended the turn, a message that raised too: an accepted point is not lost.
    ~HostSweeps() {
        if (to_take) take_all();
    }

    double* rows(const RowShape& shape) {
        std::vector<double>& memory = workspace(0).chunk_rows;
        const size_t needed = size_t(shape.width()) * size_t(max_of(chunks.count, 1));
        if (memory.size() < needed) memory.resize(needed);
        return memory.data();
    }
    const Scratch& scratch() { return workspace(0).scratch; }
    // Only after sums that say so; whoever has no variables is told by others.
    int factor_few(const SmallMatrices& matrices, double* row) {
        ReducedModel& few = workspace(0).few;
        if (chunks.count == 0) return 0;
        if (state.pairs < few.taken()) few.drop_newest();
        const BothFactored found = few.factor(matrices, state, workspace(0).prefetcher);
        row[0] = found.first, row[1] = found.second, row[2] = found.form;
        return 1;
    }
    void put_path(const ReducedModel::Path& path) { workspace(0).few.put_path(path); }
    void step_few() {
        if (chunks.count > 0) workspace(0).few.step(workspace(0).free_s);
    }
    int longest() const { return longest_of_chunks(chunks.length, options.capacity); }
    BreakList break_list(int pairs, int length) { return workspace(0).break_list(pairs, length); }

    int slope(double* rows) {
        return each_row(rows, slope_row, [&](int64_t begin, int64_t end, Workspace&, double* row) {
            row[0] = slope_chunk(v, gradient, begin, end);
            row[1] = 0;
        });
    }

    int slope_and_absorb(const SumLayout& layout, double* rows) {
        const RowShape shape = absorb_row(layout);
        const Absorb sweep(v, state, options, layout, Gather::pair, gradient, false, alone);
        return each_row(rows, {slope_row.sums + shape.sums, shape.maxima, shape.minima},
                        [&](int64_t begin, int64_t end, Workspace& w, double* row) {
                            row[0] = slope_chunk(v, gradient, begin, end);
                            row[1] = 0;
                            sweep.chunk(begin, end, is_short(begin, end), w, row + slope_row.sums,
                                        kept_of(begin, end));
                        });
    }

    // Sweeps go on at the trial point, and aim() brings x and g there on its way: no pass of their own.
    void take_point() { to_take = true, sets_known = true; }

    // Later sweeps work at x in any case: absorb() has put an accepted point there.
    void stay() const {}

    int absorb(const SumLayout& layout, Gather gather, double* rows) {
        const HostVectors here = at_point();
        const Absorb sweep(here, state, options, layout, gather, gradient, true, alone);
        sets_known = gather == Gather::pair;
        tile_known = gather != Gather::again && chunks.count == 1 && v.n <= tile;
        return each_row(rows, gather == Gather::again ? regather_row(layout) : absorb_row(layout),
                        [&](int64_t begin, int64_t end, Workspace& w, double* row) {
                            sweep.chunk(begin, end, is_short(begin, end), w, row, kept_of(begin, end));
                        });
    }

    int list(const BreakList& list, double* rows) {
        tile_known = false;
        const HostVectors here = at_point();
        const BreakSweep sweep(here, state, options);
        std::atomic<int> listed{0};
        return each_row(rows, list_row, [&](int64_t begin, int64_t end, Workspace& w, double* row) {
            sweep.list(begin, end, w, list, listed, row);
        });
    }

    int count(double* rows) {
        tile_known = false;
        const HostVectors here = at_point();
        const BreakSweep sweep(here, state, options);
        return each_row(rows, {walk_bins, 0, 0}, [&](int64_t begin, int64_t end, Workspace& w, double* row) {
            sweep.count(begin, end, w, row);
        });
    }

    int ties(double* rows) {
        tile_known = false;
        const HostVectors here = at_point();
        const BreakSweep sweep(here, state, options);
        return each_row(rows, ties_row(state), [&](int64_t begin, int64_t end, Workspace& w, double* row) {
            sweep.ties(begin, end, w, row);
        });
    }

    int aim(double* rows) {
        const Aim sweep(v, state, options, scratch().coefficients, to_take ? gradient : HostVector(),
                        sets_known, workspace(0).few.has_step() && state.pairs > 0, tile_known, copy);
        to_take = false;
        const auto aim_chunk = [&](int64_t begin, int64_t end, Workspace& w, double* row) {
            sweep.chunk(begin, end, w, row, kept_of(begin, end));
        };
        return each_row(rows, aim_row, aim_chunk, true);
    }

    void step(double length) {
        chunks.each([&](int, int64_t begin, int64_t end, int) {
            step_chunk(v, length, begin, end);
            if (copy) copy_numbers(v.trial + begin, end - begin, copy + begin);
        });
    }

    void end(bool at_start) {
        if (at_start || to_take) take_all();
        copy_numbers(v.x, v.n, v.trial);
    }

private:
    const HostVectors v;
    const HostVector gradient;
    const State& state;
    const Options& options;
    const Chunks chunks;
    std::vector<Workspace>& workspaces;
    const int first_workspace;  // problems of a batch run one per thread, each with that thread's workspace
    double* const kept;         // products of tiles (tile_gram_cache.hpp), or null
    const HostVector copy;      // of the trial point, or null
    const bool alone;           // one chunk has all variables
    const bool folds;           // rows into one, on the way; else nobody has, and there is one a chunk
    bool to_take = false;       // the trial point is accepted, and x and g are still those before it
    bool sets_known = false;    // the free variables at the point are those of the kept products
    bool tile_known = false;    // the only tile is in its buffers, and it is known what is free of it

    void take_all() {
        accept_point(v, gradient, 0, v.n);
        to_take = false;
    }

    // The vectors with the accepted point in place of x and g, to be read.
    HostVectors at_point() const {
        HostVectors here = v;
        if (to_take) here.x = v.trial, here.g = gradient;
        return here;
    }

    Workspace& workspace(int thread) { return workspaces[size_t(first_workspace + thread)]; }

    // Whether a chunk has few variables; parts of longer ones are swept as these are.
    bool is_short(int64_t begin, int64_t end) const {
        return end - begin <= AbsorbFew::most && (begin + chunks.before) % chunks.length == 0;
    }

    // Those of a chunk; few variables have none.
    double* kept_of(int64_t begin, int64_t end) const {
        if (!kept || is_short(begin, end)) return nullptr;
        return kept + chunks.tiles_before(begin) * TileGram::doubles_of(options.slots);
    }

    // sweep(begin, end, workspace, row) for every chunk; returns how many rows there are then.
    template <class Sweep>
    int each_row(double* rows, const RowShape& shape, const Sweep& sweep, bool back = false) {
        const int64_t width = shape.width();
        const auto sweep_chunk = [&](int c, int64_t begin, int64_t end, int thread) {
            sweep(begin, end, workspace(thread), rows + c * width);
        };
        if (!folds || chunks.useful_threads() == 1) {
            chunks.each(sweep_chunk, back);
            return chunks.count;
        }
        RowFolder folder(rows, chunks.count, shape);
        chunks.each([&](int c, int64_t begin, int64_t end, int thread) {
            sweep_chunk(c, begin, end, thread);
            folder.done(c);
        });
        return 1;
    }
};

SW_END
