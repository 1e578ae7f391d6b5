// The absorb sweep on one tile: products of the rows of the history, of which those over the free variables
// are kept (tile_gram_cache.hpp).
#pragma once

#include "host/quasi_newton/gram.hpp"
#include "host/quasi_newton/tiles.hpp"

SW_BEGIN

class AbsorbRows {
public:
    AbsorbRows(const HostVectors& v, const State& state, const Options& options, SumLayout layout,
               Gather gather)
        : v(v), state(state), options(options), layout(layout), gather(gather) {}

    // The new pair lies in the ring already, in the slot that the head will leave behind.
    int head() const { return gather == Gather::pair ? state.head + 1 : state.head; }

    // Whether rows are multiplied as they are, over the free variables and where one has moved.
    bool are_products_only() const { return v.lower && !v.weights && layout.rows > 0; }

    // Of the rows, [Y; S]; behind them those of the first again.
    void set_places(int64_t at, Workspace& w) const {
        const int r = layout.rows;
        const Byte** places = w.places<Byte>();
        for (int age = 0; age < r; ++age) {
            places[age] = place_of(v.y, v, options, age, head(), r, at);
            places[r + age] = place_of(v.s, v, options, age, head(), r, at);
        }
        for (int row = 0; row < 4; ++row) places[2 * r + row] = places[min_of(row, r)];
    }

    // The sums of the tile into `row`, memory for them; false: they are zeros, which are not written.
    bool add(int64_t at, int count, int packs, Workspace& w, TileGram* kept, double* row) const {
        if (v.weights || !v.lower) w.pick_all(packs);
        const bool carries = gather == Gather::again && largest_magnitude(w.carried, packs) != 0;
        if (w.picked == 0) {
            keep_nothing(packs, w, kept);
            if (!carries) return false;
        }
        w.open_row(layout, row);
        if (layout.gram && (w.picked == 0 || TileGram::products_of(layout.rows) < w.product_count()))
            std::fill(w.products, w.row_sums, 0.0);
        if (w.picked > 0) add_free(count, packs, w, kept);
        if (carries) add_carried(at, count, w);
        return true;
    }

private:
    const HostVectors& v;
    const State& state;
    const Options& options;
    const SumLayout layout;
    const Gather gather;

    void add_free(int count, int packs, Workspace& w, TileGram* kept) const {
        if (v.weights) {
            with_type(options.history,
                      [&](auto type) { scale_rows(w.places<decltype(type)>(), count, packs, w); });
            gather_scaled(packs, w);
            if (layout.gram) form_tile_gram(packs, w, w.products);
        } else if (v.lower) {
            add_bounded(count, packs, w, kept);
        } else {
            with_type(options.history, [&](auto type) { gather_all(w.places<decltype(type)>(), count, w); });
        }
    }

    // Without a diagonal and with bounds. Products with the new y over all variables are not wanted but for
    // its own, which the sweep adds: G over the free variables takes their place (form_model).
    void add_bounded(int count, int packs, Workspace& w, TileGram* kept) const {
        const int r = layout.rows;
        const bool adds_pair = gather == Gather::pair;
        const uint64_t known = slots_from(adds_pair ? r - 1 : r);
        if (kept && std::memcmp(w.free, kept->free, size_t(packs)) == 0 &&
            (kept->slots | known) == kept->slots) {
            update_gram(count, w, *kept);
            return;
        }
        set_mask(w);
        with_type(options.history, [&](auto type) {
            const auto rows = w.places<decltype(type)>();
            if (adds_pair && w.strays) {
                gather_columns<2, true>(rows, {w.moving, w.s}, count, w);
            } else {
                gather_columns<1, true>(rows, {w.moving}, count, w);
            }
        });
        form_tile_gram(w.picked, w, kept ? kept->products() : w.products);
        if (kept) copy_products(*kept, w);
        if (adds_pair && !w.strays) add_products_with_s(w);
        if (!kept) return;
        keep_gradient_sums(w, *kept);
        std::memcpy(kept->free, w.free, size_t(packs));
        kept->slots = slots_from(r);
    }

    // Where whoever has moved is free: products of rows with the new s are those over the free variables, to
    // the last bit.
    void add_products_with_s(Workspace& w) const {
        const int *place = w.places_of_products(), s = 2 * layout.rows - 1;
        for (int j = 0; j <= s; ++j) w.row_sums[j * Workspace::columns] = w.products[place[triangle(s, j)]];
    }

    // Of a tile all of whose variables are held and have not moved: all products are zero.
    void keep_nothing(int packs, const Workspace& w, TileGram* kept) const {
        if (!kept) return;
        const uint64_t all = ~uint64_t(0);
        if (kept->slots == all && std::memcmp(w.free, kept->free, size_t(packs)) == 0) return;
        std::fill_n(kept->products(), w.product_count() + 2 * options.slots, 0.0);
        std::memcpy(kept->free, w.free, size_t(packs));
        kept->slots = all;
    }

    // A bit each slot of the oldest pairs.
    uint64_t slots_from(int pairs) const {
        uint64_t bits = 0;
        for (int age = 0; age < pairs; ++age)
            bits |= uint64_t(1) << slot_of(age, head(), layout.rows, options.slots);
        return bits;
    }

    // All products of a tile from the masked copies of its rows.
    void form_tile_gram(int packs, Workspace& w, double* products) const {
        const int size = 2 * layout.rows;
        form_gram(w.rows, size, tile, packs, w.gram_sums);
        const int* place = w.places_of_products();
        for (int i = 0; i < size; ++i)
            for (int j = 0; j <= i; ++j) products[*place++] = w.gram_sums[int64_t(i) * size + j];
    }

    static void copy_products(TileGram& kept, Workspace& w) {
        std::copy_n(kept.products(), w.product_count(), w.products);
    }

    // The products of a tile whose free variables are the same as before: those with the new pair; if there
    // is none, the point is the same too, and nothing is read.
    void update_gram(int count, Workspace& w, TileGram& kept) const {
        const int r = layout.rows;
        if (gather == Gather::pair) {
            with_type(options.history, [&](auto type) {
                const auto rows = w.places<decltype(type)>();
                if (w.strays) {
                    gather_columns<4, false>(rows, {w.moving, w.s, w.free_y, free_s(w)}, count, w);
                } else {
                    gather_columns<3, false>(rows, {w.moving, w.s, w.free_y}, count, w);
                }
            });
            const int *place = w.places_of_products(), s = 2 * r - 1, y = r - 1;
            double* products = kept.products();
            for (int j = 0; j < 2 * r; ++j) {
                const double* sums = w.tile_sums + j * Workspace::tile_columns;
                products[place[triangle(s, j)]] = sums[w.strays ? 3 : 1];
                products[place[j < y ? triangle(y, j) : triangle(j, y)]] = sums[2];
            }
            keep_gradient_sums(w, kept);
            kept.slots |= uint64_t(1) << w.slot_of_row(r - 1);
        } else {
            const double* sums = kept.gradient_sums(options.slots);
            for (int j = 0; j < 2 * r; ++j) w.row_sums[j * Workspace::columns + 2] = sums[w.slot_of_row(j)];
        }
        copy_products(kept, w);
    }

    // The new s over the free variables.
    static const double* free_s(Workspace& w) {
        w.each_pick([&](int k) {
            for (int slice = 0; slice < slices; ++slice) {
                const int i = k * lanes + slice * slice_lanes;
                register_at(w.free_s + i) = unless(~chosen(w.free[k], slice), load_slice(w.s + i));
            }
        });
        return w.free_s;
    }

    // 1 where a variable is free, else 0, in the picked packs.
    static void set_mask(Workspace& w) {
        w.each_pick([&](int k) {
            for (int slice = 0; slice < slices; ++slice)
                register_at(w.mask + k * lanes + slice * slice_lanes) =
                    unless(~chosen(w.free[k], slice), lanes_of(1));
        });
    }

    void keep_gradient_sums(const Workspace& w, TileGram& kept) const {
        double* sums = kept.gradient_sums(options.slots);
        for (int j = 0; j < 2 * layout.rows; ++j)
            sums[w.slot_of_row(j)] = w.tile_sums[j * Workspace::tile_columns];
    }

    // Products of all rows with columns: √h g first, then the new s; those two are wanted as they are.
    template <int C, bool masked, class Element>
    void gather_columns(const Element* const* rows, const double* const (&columns)[C], int count,
                        Workspace& w) const {
        const int r = 2 * layout.rows;
        constexpr int stride = Workspace::tile_columns;
        gather_rows<C, masked>(rows, r, columns, w.mask, w.rows, count, w.picks(), w.tile_sums, stride);
        for (int j = 0; j < r; ++j) {
            double* out = w.row_sums + j * Workspace::columns;
            const double* sums = w.tile_sums + j * stride;
            out[2] = sums[0];
            if (C > 1) out[0] = sums[1];
        }
    }

    // Where no G takes their place, products with the new y as well.
    template <class Element>
    void gather_all(const Element* const* rows, int count, Workspace& w) const {
        if (gather != Gather::pair) return gather_columns<1, false>(rows, {w.moving}, count, w);
        gather_columns<3, false>(rows, {w.moving, w.s, w.y}, count, w);
        for (int j = 0; j < 2 * layout.rows; ++j)
            w.row_sums[j * Workspace::columns + 1] = w.tile_sums[j * Workspace::tile_columns + 2];
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
        for (int j = 0; j < 2 * r + 4; ++j) rows[j] = w.tile_row(min_of(j, 2 * r - 1));
        gather_all(rows, packs * lanes, w);
        if (layout.all_ss) {  // over all variables: before masking
            form_gram(w.tile_row(r), r, tile, packs, w.gram_sums);
            for (int i = 0; i < r; ++i)
                for (int j = 0; j <= i; ++j) w.row_whole[triangle(i, j)] = w.gram_sums[i * r + j];
        }
        if (!v.lower) return;
        set_mask(w);
        for (int j = 0; j < 2 * r; ++j) {
            double* row = w.tile_row(j);
            for (int i = 0; i < packs * lanes; ++i) row[i] *= w.mask[i];
        }
    }

    // Σ_H w delta: carried variables are few, so rows are read again only where a tile has one.
    void add_carried(int64_t at, int count, Workspace& w) const {
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
            w.row_carried[age] = y;
            w.row_carried[r + age] = s;
        }
    }
};

SW_END
