// The sweep that takes in an accepted point, on one chunk of the variables. First read of the history: forms
// the new pair, finds the free variables (absorb_point.hpp), and sums everything that the decisions need
// (absorb_rows.hpp).
#pragma once

#include "host/quasi_newton/absorb_few.hpp"
#include "host/quasi_newton/absorb_point.hpp"
#include "host/quasi_newton/absorb_rows.hpp"

SW_BEGIN

class Absorb {
public:
    Absorb(const HostVectors& v, const State& state, const Options& options, SumLayout layout, Gather gather,
           HostVector gradient, bool accepted, bool alone)
        : options(options),
          layout(layout),
          gather(gather),
          alone(alone),
          point(v, state, options, layout.rows, gather, gradient, accepted),
          rows(v, state, options, layout, gather) {}

    // Leaves the row of one chunk: absorb_row or regather_row. `kept`: the products of its tiles, or null.
    void chunk(int64_t begin, int64_t end, Workspace& w, double* row, double* kept) const {
        AbsorbTotals totals;
        totals.first_break = lowest_break.so_far();
        w.few.drop_step();
        if (rows.are_products_only() && end - begin <= AbsorbFew::most) {
            take_few(begin, end, w, row, totals);
        } else {
            take_tiles(begin, end, w, row, kept, totals);
        }
        lowest_break.found(totals.first_break);
        if (gather != Gather::again) totals.put(row + layout.length());
    }

private:
    const Options& options;
    const SumLayout layout;
    const Gather gather;
    const bool alone;  // the chunk, if it is short, is all there is
    const AbsorbPoint point;
    const AbsorbRows rows;
    RunningMinimum lowest_break;

    // work(at, count, packs) for every tile, of which the point is taken in.
    template <class Work>
    void each_tile(int64_t begin, int64_t end, Workspace& w, AbsorbTotals& totals, const Work& work) const {
        for (int64_t at = begin; at < end; at += tile) {
            const int count = int(min_of(int64_t(tile), end - at));
            const int packs = (count + lanes - 1) / lanes;
            if (layout.rows > 0) rows.set_places(at, w);
            point.take(at, count, packs, w, totals);
            work(at, count, packs);
        }
    }

    void take_few(int64_t begin, int64_t end, Workspace& w, double* row, AbsorbTotals& totals) const {
        static_assert(AbsorbFew::most <= tile);
        each_tile(begin, end, w, totals, [&](int64_t, int, int packs) {
            with_type(options.history, [&](auto type) {
                if (alone && gather == Gather::pair && ReducedModel::pays(w.count_free(packs), layout.rows))
                    return take_free<decltype(type)>(packs, w, row);
                AbsorbFew few(layout, w);
                few.add<decltype(type)>(packs, gather);
                few.collect(row);
            });
        });
    }

    // Where the model will be that of the few free variables: the products with the new s, and no others.
    template <class H>
    void take_free(int packs, Workspace& w, double* row) const {
        const int r = layout.rows;
        const H* const* places = w.places<H>();
        std::fill_n(row, layout.free_gram(), 0.0);
        if (w.strays) {
            std::fill_n(w.tile_sums, 2 * r, 0.0);
            add_others(w.s, packs, places, 2 * r, w, w.tile_sums);
            std::copy_n(w.tile_sums, r, row + layout.new_sy());
            std::copy_n(w.tile_sums + r, r, row + layout.new_ss());
        }
        w.few.gather(w.free, packs, w.g, places, r);
        w.few.add_products(row + layout.new_sy(), row + layout.new_ss());
        row[layout.new_yy() + r - 1] = w.own_y;
        row[layout.few()] = 1;
    }

    void take_tiles(int64_t begin, int64_t end, Workspace& w, double* row, double* kept,
                    AbsorbTotals& totals) const {
        w.set_slots(layout.rows, rows.head(), options.slots);
        w.clear(layout);
        each_tile(begin, end, w, totals, [&](int64_t at, int count, int packs) {
            if (layout.rows > 0) rows.add(at, count, packs, w, reinterpret_cast<TileGram*>(kept));
            if (kept) kept += TileGram::doubles_of(options.slots);
        });
        if (layout.rows > 0) w.collect(layout, row);
    }
};

SW_END
