// The absorb sweep on one tile, up to the rows of the history: the new pair, where every variable stands, and
// norms. What is loaded of a tile is used for all of that at once.
#pragma once

#include "core/quasi_newton/decide.hpp"
#include "core/quasi_newton/variable.hpp"
#include "host/quasi_newton/tiles.hpp"

SW_BEGIN

struct Formed {
    Lanes s, y;
};

// Where a new pair comes from and goes to, on one tile. H: the type of the history.
template <class H>
struct NewPair {
    const double *d, *g_before;
    double step, scale;
    H *s_row, *y_row;  // as it is stored
    double *s, *y;     // and as the sums see it: the same place where that is of doubles
    double* free_y;    // y over the free variables, where there are bounds

    // From element i on.
    Formed form(int i, Lanes g) const {
        // step * d, not the difference of the points: no digits cancel.
        const Lanes new_s = store_rounded(s_row + i, step * load_slice(d + i));
        const Lanes difference = g - load_slice(g_before + i);
        const Lanes new_y =
            store_rounded(y_row + i, sizeof(H) < sizeof(double) ? scale * difference : difference);
        if constexpr (sizeof(H) < sizeof(double)) register_at(s + i) = new_s, register_at(y + i) = new_y;
        return {new_s, new_y};
    }
    // The same within bounds, and y over the free variables.
    Formed form(int i, Lanes g, Flags held) const {
        const Formed formed = form(i, g);
        register_at(free_y + i) = unless(held, formed.y);
        return formed;
    }
    // Asks for what it will read and write from element i on.
    void ask(int i) const {
        prefetch(d + i), prefetch(g_before + i);
        prefetch_to_write(s_row + i), prefetch_to_write(y_row + i);
    }
};

// One that is there already, or none.
struct NoNewPair {
    const double* s;  // null: none
    void form(int, Lanes) const {}
    Formed form(int i, Lanes, Flags) const { return {s ? load_slice(s + i) : lanes_of(0), lanes_of(0)}; }
    void ask(int) const {}
};

class AbsorbPoint {
public:
    AbsorbPoint(const HostVectors& v, const State& state, const Options& options, int pairs, Gather gather,
                HostVector gradient, bool accepted)
        : v(v),
          state(state),
          options(options),
          pairs(pairs),
          gather(gather),
          gradient(gradient),
          accepted(accepted) {}

    // Leaves the tile's vectors, its free variables and, where there are bounds, the packs to be read.
    void take(int64_t at, int count, int packs, Workspace& w, AbsorbTotals& totals) const {
        const int padded = packs * lanes;
        w.g = w.path = view(w.g_tile, (gather == Gather::again ? v.g : gradient) + at, count, padded);
        w.x = view(w.x_tile, (gather == Gather::again ? v.x : v.trial) + at, count, padded);
        if (v.lower) set_bounds(w, v, at, count, padded);
        if (v.weights) weigh(at, count, padded, w);
        // √h g over the variables that move: its square is h g², and its product with the stacked rows is q.
        w.moving = v.lower || v.weights ? w.moving_tile : w.g;
        if (gather == Gather::again) {
            if (v.lower) return stand_again(packs, w);
            if (v.weights) set_weighted_gradient(padded, w);
            return;
        }
        if (gather == Gather::pair) {
            with_type(options.history,
                      [&](auto type) { take_pair<decltype(type)>(at, count, packs, w, totals); });
        } else {
            stand(NoNewPair{nullptr}, at, count, packs, w, totals);
        }
        totals.held += count - (v.lower ? w.count_free(packs) : count);
        if (!v.lower) add_norms(packs, w, totals);
    }

private:
    const HostVectors& v;
    const State& state;
    const Options& options;
    const int pairs;  // whose rows will be read
    const Gather gather;
    const HostVector gradient;
    const bool accepted;  // else the point may yet be refused, and x and g stay

    void weigh(int64_t at, int count, int padded, Workspace& w) const {
        w.path = w.descent;
        widen(w.root, v.weights + at, count, padded);
        // h g itself, not √h √h g: every sweep must find the same breakpoints, to the last bit.
        for (int i = 0; i < padded; ++i) w.descent[i] = w.root[i] * w.g[i];
        for (int i = 0; i < padded; ++i) w.root[i] = i < count ? std::sqrt(w.root[i]) : 1.0;
        for (int i = 0; i < padded; ++i) w.inverse_root[i] = 1 / w.root[i];
    }

    static void set_weighted_gradient(int padded, Workspace& w) {
        for (int i = 0; i < padded; ++i) w.moving_tile[i] = w.root[i] * w.g[i];
    }

    // The new pair, as it is stored: sums must see it so. Straight into the ring, but for a pack that is not
    // whole, and where a diagonal scales what the sums see.
    template <class H>
    void take_pair(int64_t at, int count, int packs, Workspace& w, AbsorbTotals& totals) const {
        constexpr bool wide = sizeof(H) == sizeof(double);
        const int padded = packs * lanes;
        const int64_t place = int64_t(state.head) * v.stride;
        H *s_row = reinterpret_cast<H*>(v.s + place) + at, *y_row = reinterpret_cast<H*>(v.y + place) + at;
        alignas(64) H s_end[wide ? 1 : tile], y_end[wide ? 1 : tile];
        H *s_room = s_end, *y_room = y_end;
        if constexpr (wide) s_room = w.s_tile, y_room = w.y_tile;
        const bool in_place = count == padded && !(wide && v.weights);
        const double scale = pair_scale(options.narrowed, -state.search.slope0 * state.search.step);
        const NewPair<H> pair{view(w.s_tile, v.d + at, count, padded),
                              view(w.y_tile, v.g + at, count, padded),
                              scale * state.search.step,
                              scale,
                              in_place ? s_row : s_room,
                              in_place ? y_row : y_room,
                              w.s_tile,
                              w.y_tile,
                              w.free_y};
        w.s = w.s_tile, w.y = w.y_tile;
        if constexpr (wide) w.s = pair.s_row, w.y = pair.y_row;
        if (v.weights) {
            for (int i = 0; i < padded; i += slice_lanes) pair.form(i, load_slice(w.g + i));
        } else {
            stand(pair, at, count, packs, w, totals);
        }
        if (!in_place) {
            std::memcpy(s_row, s_room, sizeof(H) * size_t(count));
            std::memcpy(y_row, y_room, sizeof(H) * size_t(count));
        }
        if (v.weights) {
            for (int i = 0; i < padded; ++i) w.s_tile[i] *= w.inverse_root[i], w.y_tile[i] *= w.root[i];
            stand(NoNewPair{w.s}, at, count, packs, w, totals);
        }
    }

    // Takes the point over and finds where its variables stand.
    template <class Pair>
    void stand(const Pair& pair, int64_t at, int count, int packs, Workspace& w, AbsorbTotals& totals) const {
        const TakenPoint to = taken_point(at, count, packs);
        if (!v.lower) {
            const double *x = w.x, *g = w.g;
            for (int i = 0; i < packs * lanes; i += slice_lanes) {
                const Lanes x_i = load_slice(x + i), g_i = load_slice(g + i);
                pair.form(i, g_i);  // before the older gradient is written over
                to.take(i, x_i, g_i);
            }
            if (v.weights) set_weighted_gradient(packs * lanes, w);
        } else if (v.weights) {
            stand_within<true>(pair, to, packs, w, totals);
        } else {
            stand_within<false>(pair, to, packs, w, totals);
        }
        if (v.single || count < packs * lanes) {
            if (accepted) narrow(v.x + at, w.x, count), narrow(v.g + at, w.g, count);
        }
    }

    // Where an accepted point goes: over the one before. Null: it will be brought there later, or not at all.
    struct TakenPoint {
        double *x, *g;
        void take(int i, Lanes x_i, Lanes g_i) const {
            if (x) register_at(x + i) = x_i, register_at(g + i) = g_i;
        }
    };
    TakenPoint taken_point(int64_t at, int count, int packs) const {
        if (v.single || !accepted || count < packs * lanes) return {nullptr, nullptr};
        return {v.x.as<double>() + at, v.g.as<double>() + at};
    }

    // At an accepted point: nobody is carried yet. Breakpoints are found only where one may be the first, and
    // packs are picked where a variable is free or has moved: elsewhere sums have nothing to add.
    // (Pair and place by value: for all that the compiler knows, a store might change what a reference
    // shows.)
    template <bool weighted, class Pair>
    void stand_within(const Pair pair, const TakenPoint to, int packs, Workspace& w,
                      AbsorbTotals& totals) const {
        const TilePlaces places(w);
        const double *descent = w.descent, *root = w.root;
        double* moving = w.moving_tile;
        constexpr int64_t rare_bit = 256;  // beside those of the lanes
        const Lanes first = lanes_of(totals.first_break);
        Lanes top = lanes_of(0);
        Lanes projected_2 = {}, gradient_2 = {}, moving_2 = {}, x_2 = {}, y_2 = {};  // squares
        uint32_t open = 0, rare_packs = 0;
        for (int k = 0; k < packs; ++k) {
            // Ten vectors at once are more than the hardware foresees: a little ahead in each.
            const int ahead = (k + 8) * lanes;
            if (v.n > tile) {  // fewer are at hand
                pair.ask(ahead);
                places.ask(ahead);
                if (to.x) prefetch_to_write(to.x + ahead);
            }
            Flags free = {}, rare = {};  // a breakpoint that may be the first, or one held that has moved
            SW_UNROLLED
            for (int slice = 0; slice < slices; ++slice) {
                const int i = k * lanes + slice * slice_lanes;
                const TileSlice at(places, i);
                const Flags held = at.held();
                const Lanes path = weighted ? load_slice(descent + i) : at.g;
                const Lanes cut = projected_gradient(at.x, at.g, at.lower, at.upper);
                const Formed formed = pair.form(i, at.g, held);  // before the older gradient is written over
                to.take(i, at.x, at.g);
                const Lanes moves = unless(held, weighted ? load_slice(root + i) * at.g : at.g);
                register_at(moving + i) = moves;
                projected_2 += cut * cut;
                gradient_2 += at.g * at.g;
                moving_2 += moves * moves;
                x_2 += at.x * at.x;
                y_2 += formed.y * formed.y;
                top = max_of(top, magnitude(cut));
                free |= ~held & lane_bits_of(slice);
                rare |= held ? reinterpret_cast<Flags>(formed.s) : at.may_break_before(first, path);
            }
            const int64_t found = bits_of_any(free | (rare != 0 ? Flags{} + rare_bit : Flags{}));
            w.free[k] = (unsigned char)(found);
            rare_packs |= uint32_t(found / rare_bit) << k;
            if (!w.free[k]) continue;
            open |= uint32_t(1) << k;
            w.prefetch_rows(min_of(4, 2 * pairs), k * lanes * bytes_of(options.history));
        }
        for (int i = 0; i < slice_lanes; ++i)
            totals.projected_gradient = max_of(totals.projected_gradient, top[i]);
        totals.projected_squared += sum_of_lanes(projected_2);
        totals.gradient_squared += sum_of_lanes(gradient_2);
        totals.movable_descent += sum_of_lanes(moving_2);
        totals.x_squared += sum_of_lanes(x_2);
        w.own_y = sum_of_lanes(y_2);
        w.strays = false;
        for (; rare_packs; rare_packs &= rare_packs - 1) {
            const int k = __builtin_ctz(rare_packs);
            first_break_of(k, w, totals);
            if (gather != Gather::pair || !has_moved(k * lanes, w)) continue;
            w.strays = true;
            open |= uint32_t(1) << k;
        }
        w.pick_these(open);
    }

    // Whether a variable of a pack has moved that is held now.
    static bool has_moved(int begin, const Workspace& w) {
        Flags moved = {};
        SW_UNROLLED
        for (int slice = 0; slice < slices; ++slice)
            moved |= (load_slice(w.s + begin + slice * slice_lanes) != 0.0) &
                     ~chosen(w.free[begin / lanes], slice);
        return any_lane(moved);
    }

    static void first_break_of(int pack, const Workspace& w, AbsorbTotals& totals) {
        const TilePlaces places(w);
        Lanes least = lanes_of(totals.first_break);
        SW_UNROLLED
        for (int slice = 0; slice < slices; ++slice) {
            const int i = pack * lanes + slice * slice_lanes;
            if (!any_chosen(w.free[pack], slice)) continue;
            const TileSlice at(places, i);
            const Lanes time = breakpoint(at.x, load_slice(places.path + i), at.lower, at.upper);
            least = chosen(w.free[pack], slice) ? min_of(least, time) : least;
        }
        totals.first_break = least_lane(least);
    }

    // Where there are no bounds.
    void add_norms(int packs, const Workspace& w, AbsorbTotals& totals) const {
        const auto [gradient, x] = sums_of_squares<2>({w.g, w.x}, packs);
        totals.gradient_squared += gradient;
        totals.movable_descent += v.weights ? sums_of_squares<1>({w.moving}, packs)[0] : gradient;
        totals.x_squared += x;
        totals.projected_squared = totals.gradient_squared;
        totals.projected_gradient = max_of(totals.projected_gradient, largest_magnitude(w.g, packs));
    }

    // With those that the Cauchy path carries to their bounds.
    void stand_again(int packs, Workspace& w) const {
        const double carry_time = state.carry_time;
        const Lanes limit = lanes_of(carry_time < 0 ? -1.0 : later_than(carry_time));
        w.strays = false;
        const TilePlaces places(w);
        const double* root = w.root;
        double *carried = w.carried, *moving = w.moving_tile;
        uint32_t open = 0;
        for (int k = 0; k < packs; ++k) {
            Flags free = {}, goes = {};
            SW_UNROLLED
            for (int slice = 0; slice < slices; ++slice) {
                const int i = k * lanes + slice * slice_lanes;
                const TileSlice at(places, i);
                const Flags held = at.held();
                register_at(carried + i) = lanes_of(0);
                free |= ~held & lane_bits_of(slice);
                goes |= at.breaks_before(limit, load_slice(places.path + i), held);
            }
            w.free[k] = (unsigned char)(bits_of_any(free));
            if (any_lane(goes)) carry(k, w);
            for (int slice = 0; slice < slices; ++slice) {
                const int i = k * lanes + slice * slice_lanes;
                const Lanes g = load_slice(places.g + i);
                register_at(moving + i) =
                    unless(~chosen(w.free[k], slice), v.weights ? load_slice(root + i) * g : g);
            }
            if (!w.free[k]) continue;
            open |= uint32_t(1) << k;
            w.prefetch_rows(min_of(4, 2 * pairs), k * lanes * bytes_of(options.history));
        }
        w.pick_these(open);
    }

    // Those of a pack that are carried: they are no longer free.
    void carry(int pack, Workspace& w) const {
        unsigned bits = 0;
        for (int lane = 0; lane < lanes; ++lane) {
            const int i = pack * lanes + lane;
            const VariableStatus one =
                classify_variable<true>(w.x[i], w.g[i], w.path[i], w.lower[i], w.upper[i], state.carry_time);
            if (one.mask != 0) bits |= 1u << lane;
            w.carried[i] = v.weights ? one.carried * w.inverse_root[i] : one.carried;
        }
        w.free[pack] = (unsigned char)(bits);
    }
};

SW_END
