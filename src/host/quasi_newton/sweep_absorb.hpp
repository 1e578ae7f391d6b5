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
        totals.first_break = lowest_break.so_far();
        w.set_slots(layout.rows, head(), options.slots);
        w.clear(layout);
        for (int64_t at = begin; at < end; at += tile) {
            const int count = int(min_of(int64_t(tile), end - at));
            const int packs = (count + lanes - 1) / lanes;
            if (layout.rows > 0) set_places(at, w);
            load_point(at, count, packs, w);
            classify(count, packs, w, totals);
            if (layout.rows > 0) add_rows(at, count, packs, w, reinterpret_cast<TileGram*>(kept));
            if (kept) kept += TileGram::doubles_of(options.slots);
        }
        lowest_break.found(totals.first_break);
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
    Lowest lowest_break;
    const bool accepted;  // else the point may yet be refused, and x and g stay

    // The new pair lies in the ring already, in the slot that the head will leave behind.
    int head() const { return gather == Gather::pair ? state.head + 1 : state.head; }

    // The accepted point in the tile buffers; with a new pair, s and y in buffers and ring.
    void load_point(int64_t at, int count, int packs, Workspace& w) const {
        const int padded = packs * lanes;
        w.g = view(w.g_tile, (gather == Gather::again ? v.g : gradient) + at, count, padded);
        w.x = view(w.x_tile, (gather == Gather::again ? v.x : v.trial) + at, count, padded);
        if (gather == Gather::pair) form_pair(at, count, padded, w);
        if (gather != Gather::again && accepted) {
            narrow(v.x + at, w.x, count);
            narrow(v.g + at, w.g, count);
        }
        w.path = w.g;
        if (v.weights) {
            w.path = w.descent;
            widen(w.root, v.weights + at, count, padded);
            // h g itself, not √h √h g: every sweep must find the same breakpoints, to the last bit.
            for (int i = 0; i < padded; ++i) w.descent[i] = w.root[i] * w.g[i];
            for (int i = 0; i < padded; ++i) w.root[i] = i < count ? std::sqrt(w.root[i]) : 1.0;
            for (int i = 0; i < padded; ++i) w.inverse_root[i] = 1 / w.root[i];
            if (gather == Gather::pair) {
                for (int i = 0; i < padded; ++i) w.s_tile[i] *= w.inverse_root[i], w.y_tile[i] *= w.root[i];
            }
        }
        if (v.lower) set_bounds(w, v, at, count, padded);
    }

    // The new pair, as it is stored: sums must see it so. In the ring alone where that holds it as the sums
    // want it.
    void form_pair(int64_t at, int count, int padded, Workspace& w) const {
        // step * d, not the difference of the points: no digits cancel.
        const double *d = view(w.s_tile, v.d + at, count, padded), *g = w.g,
                     *g_before = view(w.y_tile, v.g + at, count, padded);
        const double scale = pair_scale(options.narrowed, -state.search.slope0 * state.search.step);
        const double step = scale * state.search.step;
        with_type(options.history, [&](auto type) {
            using H = decltype(type);
            const int64_t place = int64_t(state.head) * v.stride;
            H *s_row = reinterpret_cast<H*>(v.s + place) + at,
              *y_row = reinterpret_cast<H*>(v.y + place) + at;
            double *s = w.s_tile, *y = w.y_tile;
            if constexpr (sizeof(H) == sizeof(double)) {
                if (!v.weights) s = room(s, s_row, count, padded), y = room(y, y_row, count, padded);
            }
            for (int i = 0; i < padded; i += slice_lanes) {
                const Lanes s_i = step * load_slice(d + i),
                            y_i = scale * (load_slice(g + i) - load_slice(g_before + i));
                register_at(s + i) = s_i;
                register_at(y + i) = y_i;
            }
            if (s == w.s_tile) store_rounded(s_row, s, count), store_rounded(y_row, y, count);
            w.s = s, w.y = y;
        });
    }

    // Which variables are free, which carried; norms and the first breakpoint.
    void classify(int count, int packs, Workspace& w, AbsorbTotals& totals) const {
        // √h g over the variables that move: its square is h g², and its product with the stacked rows is q.
        w.moving = v.lower || v.weights ? w.moving_tile : w.g;
        if (!v.lower) {
            for (int i = 0; v.weights && i < packs * lanes; ++i) w.moving_tile[i] = w.root[i] * w.g[i];
        } else if (gather == Gather::again) {
            stand_again(packs, w);
        } else {
            v.weights ? stand<true>(packs, w, totals) : stand<false>(packs, w, totals);
        }
        if (gather == Gather::again) return;
        const double* projected = v.lower ? w.projected : w.g;
        const double gradient_squared = sum_products(w.g, w.g, packs);
        const int free = v.lower ? count_free(packs, w) : count;
        totals.held += count - free;
        totals.movable_descent += free == 0                     ? 0.0
                                  : free == count && !v.weights ? gradient_squared
                                                                : sum_products(w.moving, w.moving, packs);
        totals.gradient_squared += gradient_squared;
        totals.projected_squared += sum_products(projected, projected, packs);
        totals.x_squared += sum_products(w.x, w.x, packs);
        totals.projected_gradient = max_of(totals.projected_gradient, largest_magnitude(projected, packs));
    }

    // At an accepted point: nobody is carried yet. Breakpoints are found only where one may be the first, and
    // packs are picked where a variable is free or has moved: elsewhere sums have nothing to add.
    template <bool weighted>
    void stand(int packs, Workspace& w, AbsorbTotals& totals) const {
        const TilePlaces places(w);
        const double *descent = w.descent, *root = w.root, *s = gather == Gather::pair ? w.s : nullptr;
        double *mask = w.mask, *projected = w.projected, *moving = w.moving_tile;
        w.pick_none();
        w.strays = false;
        Lanes first = lanes_of(totals.first_break);
        for (int k = 0; k < packs; ++k) {
            Flags free = {}, rare = {};  // a breakpoint that may be the first, or one held that has moved
            SW_UNROLLED
            for (int slice = 0; slice < slices; ++slice) {
                const int i = k * lanes + slice * slice_lanes;
                const TileSlice at(places, i);
                const Flags held = at.held();
                const Lanes path = weighted ? load_slice(descent + i) : at.g;
                register_at(mask + i) = ones_unless(held);
                register_at(moving + i) = held ? lanes_of(0) : weighted ? load_slice(root + i) * at.g : at.g;
                register_at(projected + i) = projected_gradient(at.x, at.g, at.lower, at.upper);
                free |= ~held & lane_bits_of(slice);
                rare |= at.breaks_before(first, path, held);
                if (s) rare |= reinterpret_cast<Flags>(load_slice(s + i)) & held;
            }
            w.free[k] = (unsigned char)(bits_of_any(free));
            bool stray = false;
            if (any_lane(rare)) {
                first_break_of(k * lanes, w, totals);
                first = lanes_of(totals.first_break);
                stray = s && has_moved(k * lanes, s, mask);
            }
            pick(k, stray, w);
        }
    }

    // Whether a variable of a pack has moved that is held now.
    static bool has_moved(int begin, const double* s, const double* mask) {
        for (int i = begin; i < begin + lanes; ++i)
            if (s[i] != 0 && mask[i] == 0) return true;
        return false;
    }

    void pick(int pack, bool stray, Workspace& w) const {
        w.strays |= stray;
        if (!w.free[pack] && !stray) return;
        w.pick(pack);
        w.prefetch_rows(min_of(4, 2 * layout.rows), pack * lanes * bytes_of(options.history));
    }

    static void first_break_of(int begin, const Workspace& w, AbsorbTotals& totals) {
        for (int i = begin; i < begin + lanes; ++i) {
            const Standing one =
                classify_variable<false>(w.x[i], w.g[i], w.path[i], w.lower[i], w.upper[i], 0.0);
            totals.first_break = min_of(totals.first_break, one.time);
        }
    }

    // With those that the Cauchy path carries to their bounds.
    void stand_again(int packs, Workspace& w) const {
        const double carry_time = state.carry_time;
        const Lanes limit = lanes_of(carry_time < 0 ? -1.0 : later_than(carry_time));
        w.pick_none();
        w.strays = false;
        const TilePlaces places(w);
        double *mask = w.mask, *carried = w.carried;
        const auto look = [&](int i) {
            const TileSlice at(places, i);
            const Flags held = at.held();
            register_at(mask + i) = ones_unless(held);
            register_at(carried + i) = lanes_of(0);
            return at.breaks_before(limit, load_slice(places.path + i), held);
        };
        each_pack_where(packs, look, [&](int begin) {
            for (int i = begin; i < begin + lanes; ++i) {
                const Standing one =
                    classify_variable<true>(w.x[i], w.g[i], w.path[i], w.lower[i], w.upper[i], carry_time);
                w.mask[i] = one.mask;
                w.carried[i] = v.weights ? one.carried * w.inverse_root[i] : one.carried;
            }
        });
        const double* root = w.root;
        double* moving = w.moving_tile;
        for (int k = 0; k < packs; ++k) {
            Flags free = {};
            for (int slice = 0; slice < slices; ++slice) {
                const int i = k * lanes + slice * slice_lanes;
                const Flags held = load_slice(mask + i) == 0.0;
                const Lanes g = load_slice(places.g + i);
                register_at(moving + i) = held ? lanes_of(0) : v.weights ? load_slice(root + i) * g : g;
                free |= ~held & lane_bits_of(slice);
            }
            w.free[k] = (unsigned char)(bits_of_any(free));
            pick(k, false, w);
        }
    }

    static int count_free(int packs, const Workspace& w) {
        uint64_t bits[tile / 64] = {};
        std::memcpy(bits, w.free, size_t(packs));
        int free = 0;
        for (const uint64_t some : bits) free += __builtin_popcountll(some);
        return free;
    }

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

    void add_rows(int64_t at, int count, int packs, Workspace& w, TileGram* kept) const {
        if (v.weights || !v.lower) w.pick_all(packs);
        if (v.weights) {
            with_type(options.history,
                      [&](auto type) { scale_rows(w.places<decltype(type)>(), count, packs, w); });
            gather_scaled(packs, w);
            if (layout.gram) form_tile_gram(packs, w, *w.tile_gram);
        } else if (v.lower) {
            add_bounded(count, packs, w, kept);
        } else {
            with_type(options.history, [&](auto type) { gather_all(w.places<decltype(type)>(), count, w); });
        }
        if (gather == Gather::again) add_carried(at, count, packs, w);
    }

    // Without a diagonal and with bounds. Products with the new y over all variables are not wanted but for
    // its own: G over the free variables takes their place (form_model).
    void add_bounded(int count, int packs, Workspace& w, TileGram* kept) const {
        const int r = layout.rows;
        const bool adds_pair = gather == Gather::pair;
        if (adds_pair) w.fresh_sums[(r - 1) * Workspace::columns + 1] += own_products(w.y, packs);
        if (w.picked == 0) return keep_nothing(packs, w, kept);
        const uint64_t known = slots_from(adds_pair ? r - 1 : r);
        if (kept && std::memcmp(w.free, kept->free, size_t(packs)) == 0 &&
            (kept->slots | known) == kept->slots) {
            update_gram(count, packs, w, *kept);
            return;
        }
        with_type(options.history, [&](auto type) {
            const auto rows = w.places<decltype(type)>();
            if (adds_pair) {
                gather_columns<2, true>(rows, {w.moving, w.s}, count, w);
            } else {
                gather_columns<1, true>(rows, {w.moving}, count, w);
            }
        });
        form_tile_gram(w.picked, w, kept ? *kept : *w.tile_gram);
        if (!kept) return;
        keep_gradient_sums(w, *kept);
        std::memcpy(kept->free, w.free, size_t(packs));
        kept->slots = slots_from(r);
    }

    // Of a tile all of whose variables are held and have not moved: all products are zero.
    void keep_nothing(int packs, const Workspace& w, TileGram* kept) const {
        if (!kept) return;
        const uint64_t all = ~uint64_t(0);
        if (kept->slots == all && std::memcmp(w.free, kept->free, size_t(packs)) == 0) return;
        std::fill_n(kept->products(), w.product_count() + 2 * options.slots * lanes, 0.0);
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
    void form_tile_gram(int packs, Workspace& w, TileGram& gram) const {
        const int size = 2 * layout.rows;
        form_gram(w.rows, size, tile, packs, w.gram_sums);
        double* products = gram.products();
        const int* place = w.places_of_products();
        for (int i = 0; i < size; ++i)
            for (int j = 0; j <= i; ++j) products[*place++] = add_lanes(w.gram_sums[int64_t(i) * size + j]);
        add_products(products, w);
    }

    static void add_products(const double* products, Workspace& w) {
        const int count = w.product_count();
        SW_APART
        for (int i = 0; i < count; ++i) w.chunk_products[i] += products[i];
    }

    // The products of a tile whose free variables are the same as before: those with the new pair; if there
    // is none, the point is the same too, and nothing is read.
    void update_gram(int count, int packs, Workspace& w, TileGram& kept) const {
        const int r = layout.rows;
        if (gather == Gather::pair) {
            const double* free_y = mask_pair(packs, w);
            with_type(options.history, [&](auto type) {
                const auto rows = w.places<decltype(type)>();
                if (w.strays) {
                    gather_columns<4, false>(rows, {w.moving, w.s, free_y, w.free_s}, count, w);
                } else {
                    gather_columns<3, false>(rows, {w.moving, w.s, free_y}, count, w);
                }
            });
            const int *place = w.places_of_products(), s = 2 * r - 1, y = r - 1;
            double* products = kept.products();
            for (int j = 0; j < 2 * r; ++j) {
                const Pack* sums = w.tile_sums + j * Workspace::tile_columns;
                products[place[triangle(s, j)]] = add_lanes(sums[w.strays ? 3 : 1]);
                products[place[j < y ? triangle(y, j) : triangle(j, y)]] = add_lanes(sums[2]);
            }
            keep_gradient_sums(w, kept);
            kept.slots |= uint64_t(1) << w.slot_of_row(r - 1);
        } else {
            const double* sums = kept.gradient_sums(options.slots);
            for (int j = 0; j < 2 * r; ++j)
                w.fresh_sums[j * Workspace::columns + 2] += load(sums + w.slot_of_row(j) * lanes);
        }
        add_products(kept.products(), w);
    }

    // The new pair over the free variables: y is returned, s is the same where nothing strays.
    static const double* mask_pair(int packs, Workspace& w) {
        if (count_free(packs, w) == packs * lanes) return w.y;
        const double *y = w.y, *s = w.s, *mask = w.mask;
        double *free_y = w.free_y, *free_s = w.free_s;
        SW_APART
        for (int i = 0; i < packs * lanes; ++i) free_y[i] = y[i] * mask[i];
        if (!w.strays) return free_y;
        SW_APART
        for (int i = 0; i < packs * lanes; ++i) free_s[i] = s[i] * mask[i];
        return free_y;
    }

    void keep_gradient_sums(const Workspace& w, TileGram& kept) const {
        double* sums = kept.gradient_sums(options.slots);
        for (int j = 0; j < 2 * layout.rows; ++j)
            store(sums + w.slot_of_row(j) * lanes, w.tile_sums[j * Workspace::tile_columns]);
    }

    // Products of all rows with columns: √h g first, then the new s; those two are summed over the chunk.
    template <int C, bool masked, class Element>
    void gather_columns(const Element* const* rows, const double* const (&columns)[C], int count,
                        Workspace& w) const {
        const int r = 2 * layout.rows;
        constexpr int stride = Workspace::tile_columns;
        gather_rows<C, masked>(rows, r, columns, w.mask, w.rows, count, w.picks(), w.tile_sums, stride);
        for (int j = 0; j < r; ++j) {
            Pack* fresh = w.fresh_sums + j * Workspace::columns;
            const Pack* sums = w.tile_sums + j * stride;
            fresh[2] += sums[0];
            if (C > 1) fresh[0] += sums[1];
        }
    }

    // Where no G takes their place, products with the new y as well.
    template <class Element>
    void gather_all(const Element* const* rows, int count, Workspace& w) const {
        if (gather != Gather::pair) return gather_columns<1, false>(rows, {w.moving}, count, w);
        gather_columns<3, false>(rows, {w.moving, w.s, w.y}, count, w);
        for (int j = 0; j < 2 * layout.rows; ++j)
            w.fresh_sums[j * Workspace::columns + 1] += w.tile_sums[j * Workspace::tile_columns + 2];
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
