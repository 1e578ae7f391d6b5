// The sweep that takes in an accepted point, on one chunk of the variables.
#pragma once

#include "core/common/careful_sum.hpp"
#include "core/quasi_newton/decide.hpp"
#include "core/quasi_newton/variable.hpp"
#include "host/quasi_newton/gram.hpp"
#include "host/quasi_newton/tiles.hpp"

SW_BEGIN

// First read of the history: forms the new pair, finds the free variables, and sums everything the decisions
// need.
template <class T>
class Absorb {
public:
    Absorb(const HostVectors<T>& v, const State& state, const Options& options, SumLayout layout,
           Gather gather, const T* gradient, bool accepted = true)
        : v(v),
          state(state),
          options(options),
          layout(layout),
          gather(gather),
          gradient(gradient),
          accepted(accepted) {}

    // Leaves the row of one chunk: absorb_row or regather_row. `kept`: the products of its tiles, or null.
    void chunk(int64_t begin, int64_t end, Workspace& w, double* row, double* kept) const {
        AbsorbTotals totals;
        w.set_slots(layout.rows, head(), options.slots);
        w.clear(layout);
        for (int64_t at = begin; at < end; at += tile) {
            const int count = int(min_of(int64_t(tile), end - at));
            const int packs = (count + lanes - 1) / lanes;
            load_point(at, count, packs, w);
            classify(count, packs, w, totals);
            if (layout.rows > 0) add_rows(at, count, packs, w, reinterpret_cast<TileGram*>(kept));
            if (kept) kept += TileGram::doubles_of(options.slots);
        }
        if (layout.rows > 0) w.collect(layout, row);
        if (gather != Gather::again) totals.put(row + layout.length());
    }

private:
    const HostVectors<T>& v;
    const State& state;
    const Options& options;
    const SumLayout layout;
    const Gather gather;
    const T* gradient;
    const bool accepted;  // else the point may yet be refused, and x and g stay

    // The new pair lies in the ring already, in the slot that the head will leave behind.
    int head() const { return gather == Gather::pair ? state.head + 1 : state.head; }

    // The accepted point in the tile buffers; with a new pair, s and y in buffers and ring.
    void load_point(int64_t at, int count, int packs, Workspace& w) const {
        const int padded = packs * lanes;
        w.g = view(w.g_tile, (gather == Gather::again ? v.g : gradient) + at, count, padded);
        w.x = view(w.x_tile, (gather == Gather::again ? v.x : v.trial) + at, count, padded);
        if (gather == Gather::pair) {
            // step * d, not the difference of the points: no digits cancel.
            const double *d = view(w.s, v.d + at, count, padded),
                         *g_before = view(w.y, v.g + at, count, padded);
            const double scale = pair_scale(options.narrowed, -state.search.slope0 * state.search.step);
            const double step = scale * state.search.step;
            for (int i = 0; i < padded; ++i) w.s[i] = step * d[i];
            for (int i = 0; i < padded; ++i) w.y[i] = scale * (w.g[i] - g_before[i]);
            store_pair(at, count, padded, w);
        }
        if (gather != Gather::again && accepted) {
            narrow(v.x + at, w.x, count);
            narrow(v.g + at, w.g, count);
        }
        if (v.weights) {
            widen(w.root, v.weights + at, count, padded);
            // h g itself, not √h √h g: every sweep must find the same breakpoints, to the last bit.
            for (int i = 0; i < padded; ++i) w.descent[i] = w.root[i] * w.g[i];
            for (int i = 0; i < padded; ++i) w.root[i] = i < count ? std::sqrt(w.root[i]) : 1.0;
            for (int i = 0; i < padded; ++i) w.inverse_root[i] = 1 / w.root[i];
            if (gather == Gather::pair) {
                for (int i = 0; i < padded; ++i) w.s[i] *= w.inverse_root[i], w.y[i] *= w.root[i];
            }
        }
        if (v.lower) set_bounds(w, v, at, count, padded);
    }

    // The new pair from the tile buffers to the ring, and back as it is stored: sums must see it so.
    void store_pair(int64_t at, int count, int padded, Workspace& w) const {
        with_type(options.history, [&](auto type) {
            using H = decltype(type);
            const int64_t place = int64_t(state.head) * v.stride;
            H* s = reinterpret_cast<H*>(v.s + place) + at;
            H* y = reinterpret_cast<H*>(v.y + place) + at;
            narrow(s, w.s, count);
            narrow(y, w.y, count);
            if (sizeof(H) == sizeof(double)) return;
            widen(w.s, s, count, padded);
            widen(w.y, y, count, padded);
        });
    }

    // Which variables are free, which carried; norms and the first breakpoint.
    void classify(int count, int packs, Workspace& w, AbsorbTotals& totals) const {
        const int padded = packs * lanes;
        const double *x = w.x, *g = w.g;
        // √h g: its square is h g², and its product with the stacked rows is q.
        if (v.weights) {
            for (int i = 0; i < padded; ++i) w.moving[i] = w.root[i] * g[i];
        } else {
            std::memcpy(w.moving, g, sizeof(double) * padded);
        }
        if (v.lower) {
            if (gather == Gather::again) {
                stand<true>(padded, w);
                if (v.weights) {
                    for (int i = 0; i < padded; ++i) w.carried[i] *= w.inverse_root[i];
                }
            } else {
                stand<false>(padded, w);
                totals.held += count - sum_products(w.mask, w.mask, packs);
                totals.first_break = min_of(totals.first_break, smallest(w.breaks, packs));
            }
            for (int i = 0; i < padded; ++i) w.moving[i] *= w.mask[i];
        }
        if (gather != Gather::again) {
            const double* projected = v.lower ? w.projected : g;
            totals.movable_descent += sum_products(w.moving, w.moving, packs);
            totals.gradient_squared += sum_products(g, g, packs);
            totals.projected_squared += sum_products(projected, projected, packs);
            totals.x_squared += sum_products(x, x, packs);
            totals.projected_gradient =
                max_of(totals.projected_gradient, largest_magnitude(projected, packs));
        }
    }

    template <bool again>
    void stand(int padded, Workspace& w) const {
        const double *x = w.x, *g = w.g, *descent = v.weights ? w.descent : w.g;
        const double *lower = w.lower, *upper = w.upper, carry_time = state.carry_time;
        double *breaks = w.breaks, *mask = w.mask, *other = again ? w.carried : w.projected;
        SW_APART
        for (int i = 0; i < padded; ++i) {
            const Standing one =
                classify_variable<again>(x[i], g[i], descent[i], lower[i], upper[i], carry_time);
            if (!again) breaks[i] = one.time;
            mask[i] = one.mask;
            other[i] = again ? one.carried : one.projected;
        }
    }

    void add_rows(int64_t at, int count, int packs, Workspace& w, TileGram* kept) const {
        const int r = layout.rows;
        const Byte** places = w.places<Byte>();
        for (int age = 0; age < r; ++age) {
            places[age] = place_of(v.y, v, options, age, head(), r, at);
            places[r + age] = place_of(v.s, v, options, age, head(), r, at);
        }
        if (v.weights) {
            with_type(options.history,
                      [&](auto type) { scale_rows(w.places<decltype(type)>(), count, packs, w); });
            gather_scaled(packs, w);
        } else if (kept) {
            add_kept(count, packs, w, *kept);
        } else if (layout.gram) {
            gather_rows_of<true>(count, w);
        } else {
            gather_rows_of<false>(count, w);
        }
        if (layout.gram && !kept) form_tile_gram(packs, w, *w.tile_gram);
        if (gather == Gather::again) add_carried(at, count, packs, w);
    }

    // The products of a tile, of which as much as possible is kept.
    void add_kept(int count, int packs, Workspace& w, TileGram& kept) const {
        unsigned char free[tile / 8] = {};
        for (int k = 0; k < packs; ++k) free[k] = nonzero_lanes(load(w.mask + k * lanes));
        const bool adds_pair = gather == Gather::pair;
        const uint64_t known = slots_from(adds_pair ? layout.rows - 1 : layout.rows);
        if (std::memcmp(free, kept.free, sizeof(free)) == 0 && (kept.slots | known) == kept.slots) {
            update_gram(count, packs, w, kept);
            return;
        }
        gather_rows_of<true>(count, w);
        // Without those that the Cauchy point carries to bounds, for once: the next sweep begins with them.
        form_tile_gram(packs, w, adds_pair ? kept : *w.tile_gram);
        if (!adds_pair) return;
        std::memcpy(kept.free, free, sizeof(free));
        kept.slots = slots_from(layout.rows);
    }

    // A bit each slot of the oldest pairs.
    uint64_t slots_from(int pairs) const {
        uint64_t bits = 0;
        for (int age = 0; age < pairs; ++age)
            bits |= uint64_t(1) << slot_of(age, head(), layout.rows, options.slots);
        return bits;
    }

    template <bool masked>
    void gather_rows_of(int count, Workspace& w) const {
        with_type(options.history,
                  [&](auto type) { gather_from<masked>(w.places<decltype(type)>(), count, w); });
    }

    // All products of a tile from the masked copies of its rows.
    void form_tile_gram(int packs, Workspace& w, TileGram& gram) const {
        const int size = 2 * layout.rows;
        form_gram(w.rows, size, tile, packs, w.gram_sums);
        double* products = gram.products();
        for (int i = 0; i < size; ++i)
            for (int j = 0; j <= i; ++j) {
                products[w.product_of(w.slot_of_row(i), w.slot_of_row(j))] =
                    add_lanes(w.gram_sums[int64_t(i) * size + j]);
            }
        add_products(products, w);
    }

    static void add_products(const double* products, Workspace& w) {
        const int count = w.product_count();
        SW_APART
        for (int i = 0; i < count; ++i) w.chunk_products[i] += products[i];
    }

    // The products of a tile whose free variables are the same as before: those with the new pair, if any.
    void update_gram(int count, int packs, Workspace& w, TileGram& kept) const {
        const int r = layout.rows;
        if (gather == Gather::pair) {
            SW_APART
            for (int i = 0; i < packs * lanes; ++i) {
                w.free_s[i] = w.s[i] * w.mask[i];
                w.free_y[i] = w.y[i] * w.mask[i];
            }
            const double* columns[] = {w.s, w.y, w.moving, w.free_s, w.free_y};
            with_type(options.history, [&](auto type) {
                gather_columns<5, 3, false>(w.places<decltype(type)>(), columns, 0, count, w);
            });
            for (int j = 0; j < 2 * r; ++j) {
                const Pack* sums = w.tile_sums + j * Workspace::tile_columns;
                const int row = w.slot_of_row(j);
                kept.products()[w.product_of(row, w.slot_of_row(2 * r - 1))] = add_lanes(sums[3]);
                kept.products()[w.product_of(row, w.slot_of_row(r - 1))] = add_lanes(sums[4]);
            }
            kept.slots |= uint64_t(1) << w.slot_of_row(r - 1);
        } else {
            gather_rows_of<false>(count, w);
        }
        add_products(kept.products(), w);
    }

    // Products of all rows with the new pair and with √h g, or with the latter alone; masked copies for the
    // Gram matrix.
    template <bool masked, class Element>
    void gather_from(const Element* const* rows, int count, Workspace& w) const {
        const double* columns[] = {w.s, w.y, w.moving};
        if (gather == Gather::pair) {
            gather_columns<3, 3, masked>(rows, columns, 0, count, w);
        } else {
            gather_columns<1, 1, masked>(rows, columns + 2, 2, count, w);
        }
    }

    // Products of all rows with C columns; those with the first few are summed over the chunk, `from` there.
    template <int C, int summed, bool masked, class Element>
    void gather_columns(const Element* const* rows, const double* const* columns, int from, int count,
                        Workspace& w) const {
        const int r = 2 * layout.rows;
        constexpr int stride = Workspace::tile_columns;
        gather_rows<C, masked>(rows, r, columns, w.mask, w.rows, count, w.tile_sums, stride);
        for (int j = 0; j < r; ++j)
            for (int c = 0; c < summed; ++c)
                w.fresh_sums[j * Workspace::columns + from + c] += w.tile_sums[j * stride + c];
    }

    // With a diagonal, rows are scaled on their way into the tile buffers: y √h and s/√h.
    template <class H>
    void scale_rows(const H* const* places, int count, int packs, Workspace& w) const {
        const int r = layout.rows, padded = packs * lanes;
        for (int j = 0; j < 2 * r; ++j) {
            double* row = w.tile_row(j);
            const double* scale = j < r ? w.root : w.inverse_root;
            widen(row, places[j], count, padded);
            for (int i = 0; i < padded; ++i) row[i] *= scale[i];
        }
    }

    void gather_scaled(int packs, Workspace& w) const {
        const int r = layout.rows;
        const double** rows = w.places<double>();
        for (int j = 0; j < 2 * r; ++j) rows[j] = w.tile_row(j);
        gather_from<false>(rows, packs * lanes, w);
        if (layout.all_ss) {  // over all variables: before masking
            form_gram(w.tile_row(r), r, tile, packs, w.gram_sums);
            for (int j = 0; j < r * r; ++j) w.whole_sums[j] += w.gram_sums[j];
        }
        if (!v.lower) return;
        for (int j = 0; j < 2 * r; ++j) {
            double* row = w.tile_row(j);
            for (int i = 0; i < packs * lanes; ++i) row[i] *= w.mask[i];
        }
    }

    // Σ_H w delta: carried variables are few, so rows are read again only where a tile has one.
    void add_carried(int64_t at, int count, int packs, Workspace& w) const {
        if (largest_magnitude(w.carried, packs) == 0) return;
        const int r = layout.rows;
        for (int age = 0; age < r; ++age) {
            const Byte *y_row = place_of(v.y, v, options, age, state.head, r, at),
                       *s_row = place_of(v.s, v, options, age, state.head, r, at);
            const int word = bytes_of(options.history);
            double y = 0, s = 0;
            for (int i = 0; i < count; ++i) {
                if (w.carried[i] == 0) continue;
                const double y_i = element_at(y_row + i * word, options.history),
                             s_i = element_at(s_row + i * word, options.history);
                y += w.carried[i] * y_i * (v.weights ? w.root[i] : 1.0);
                s += w.carried[i] * s_i * (v.weights ? w.inverse_root[i] : 1.0);
            }
            w.carried_sums[age] += y;
            w.carried_sums[r + age] += s;
        }
    }
};

SW_END
