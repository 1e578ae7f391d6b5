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

    // Leaves the row of one chunk: absorb_row or regather_row. `is_short`: of at most AbsorbFew::most
    // variables. `kept`: the products of its tiles, or null.
    void chunk(int64_t begin, int64_t end, bool is_short, Workspace& w, double* row, double* kept) const {
        AbsorbTotals totals;
        totals.first_break = lowest_break.so_far();
        w.few.drop_step();
        if (is_short && rows.are_products_only()) {
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

    // work(at, count, packs) for every tile, of which the point is taken in. Returns the sum of own_y.
    template <class Work>
    double each_tile(int64_t begin, int64_t end, Workspace& w, AbsorbTotals& totals, const Work& work) const {
        constexpr int width = 6;
        double memory[TileSums::most_levels * width];
        TileSums sums(memory, width);
        for (int64_t at = begin; at < end; at += tile) {
            const int count = int(min_of(int64_t(tile), end - at));
            const int packs = (count + lanes - 1) / lanes;
            if (layout.rows > 0) rows.set_places(at, w);
            AbsorbTotals of_tile;
            of_tile.projected_gradient = totals.projected_gradient, of_tile.first_break = totals.first_break;
            w.own_y = 0;
            point.take(at, count, packs, w, of_tile);
            work(at, count, packs);
            totals = of_tile;
            const double row[width] = {of_tile.movable_descent,
                                       of_tile.gradient_squared,
                                       of_tile.projected_squared,
                                       of_tile.x_squared,
                                       of_tile.held,
                                       w.own_y};
            std::copy_n(row, width, sums.row());
            sums.add();
        }
        const double* all = sums.total();
        totals.movable_descent = all[0], totals.gradient_squared = all[1], totals.projected_squared = all[2];
        totals.x_squared = all[3], totals.held = all[4];
        return all[5];
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
        TileSums sums(w.memory_of_tiles(), w.row_width(layout));
        const double own_y = each_tile(begin, end, w, totals, [&](int64_t at, int count, int packs) {
            if (layout.rows == 0) return;
            const bool adds = rows.add(at, count, packs, w, reinterpret_cast<TileGram*>(kept), sums.row());
            adds ? sums.add() : sums.add_nothing();
            if (kept) kept += TileGram::doubles_of(options.slots);
        });
        if (layout.rows == 0) return;
        w.collect(layout, sums.total(), row);
        if (rows.are_products_only() && gather == Gather::pair)
            row[layout.new_yy() + layout.rows - 1] = own_y;
    }
};

SW_END
