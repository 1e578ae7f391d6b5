// The sweep that finds the next direction, on one chunk of the variables.
#pragma once

#include "core/quasi_newton/decide.hpp"
#include "core/quasi_newton/variable.hpp"
#include "host/quasi_newton/tiles.hpp"

SW_BEGIN

// Second read of the history: the direction and the trial point at step 1.
class Aim {
public:
    // `accepted`: the gradient at the trial point, which is taken over on the way; null: it has been.
    // `sets_known`: the free variables are those of the kept products (tile_gram_cache.hpp), found by this
    // turn. `steps_known`: those of the free variables are in their buffer already (reduced_model.hpp).
    // `tile_known`: there is one tile, and this turn has absorbed the point, so that its vectors are in their
    // buffers and it is known who is free.
    // `copy`: where the trial point is left a second time; null: nowhere.
    Aim(const HostVectors& v, const State& state, const Options& options, const double* coefficients,
        HostVector accepted, bool sets_known, bool steps_known, bool tile_known, HostVector copy)
        : v(v),
          state(state),
          options(options),
          coefficients(coefficients),
          accepted(accepted),
          sets_known(sets_known),
          steps_known(steps_known),
          tile_known(tile_known),
          copy(copy),
          rule(aim_rule(state)) {}

    // Leaves the row of one chunk: aim_row. `kept`: the products of its tiles, or null.
    void chunk(int64_t begin, int64_t end, Workspace& w, double* row, const double* kept) const {
        AimTotals totals;
        totals.step_limit = lowest_limit.so_far();
        double memory[2 * TileSums::most_levels];
        TileSums sums(memory, 2);
        if (!steps_known) set_multiples(w);
        for (int64_t at = begin; at < end; at += tile) {
            const int count = int(min_of(int64_t(tile), end - at));
            const int packs = (count + lanes - 1) / lanes, padded = packs * lanes;
            if (accepted) accept_point(v, accepted, at, at + count);
            w.g = w.path = view(w.g_tile, v.g + at, count, padded, tile_known);
            w.x = view(w.x_tile, v.x + at, count, padded, tile_known);
            if (v.weights) {
                widen(w.root, v.weights + at, count, padded);
                for (int i = 0; i < padded; ++i) w.descent[i] = w.root[i] * w.g[i];
                w.path = w.descent;
            }
            if (v.lower && !tile_known) set_bounds(w, v, at, count, padded);
            const Aims out{room(w.breaks, v.trial + at, count, padded),
                           room(w.moving_tile, v.d + at, count, padded)};
            pick_packs(at, packs, reinterpret_cast<const TileGram*>(kept), w, out);
            if (kept) kept += TileGram::doubles_of(options.slots);
            aim_tile(at, count, w, out, totals);
            if (rule.confine == Confine::measure) continue;
            put_back(v.trial + at, out.goal, w.breaks, count);
            put_back(v.d + at, out.step, w.moving_tile, count);
            if (copy) copy_numbers(v.trial + at, count, copy + at);
            double* of_tile = sums.row();
            of_tile[0] = sum_products(w.g, out.step, packs);
            of_tile[1] = sum_products(out.step, out.step, packs);
            sums.add();
        }
        lowest_limit.found(totals.step_limit);
        const double* all = sums.total();
        totals.slope = all[0], totals.direction_squared = all[1];
        totals.put(row);
    }

private:
    const HostVectors& v;
    const State& state;
    const Options& options;
    const double* coefficients;
    const HostVector accepted;
    const bool sets_known, steps_known, tile_known;
    const HostVector copy;
    const AimRule rule;
    RunningMinimum lowest_limit;

    // Where the goals and steps of a tile go.
    struct Aims {
        double *goal, *step;
    };

    // The steps to the minimiser over the free variables: -gamma h (g + Σ c y) - Σ c s.
    struct Steps {
        const double* known;         // where they are known already, else null
        const double *y, *s, *root;  // s, root: null where there are none
        double gamma;

        Lanes at(int i) const {
            if (known) return load_slice(known + i);
            Lanes part = load_slice(y + i);
            if (root) part *= load_slice(root + i);
            return -gamma * part - (s ? load_slice(s + i) : lanes_of(0));
        }
    };

    // Rows and what is added of each to the step -gamma h (g + Σ c y) - Σ c s: [Y; S], each filled up to
    // whole groups of four by zero times the newest.
    void set_multiples(Workspace& w) const {
        const int r = state.pairs;
        const Byte** places = w.places<Byte>();
        for (int a = 0; a < Workspace::groups_of(r); ++a) {
            const int age = min_of(a, r - 1), s = Workspace::groups_of(r) + a;
            places[a] = place_of(v.y, v, options, age, state.head, r, 0);
            places[s] = place_of(v.s, v, options, age, state.head, r, 0);
            w.multiples[a] = a < r ? coefficients[a] : 0.0;
            w.multiples[s] = a < r ? coefficients[r + a] : 0.0;
        }
        // After the last group the first is asked for, of which the next tile will read.
        for (int a = 0; a < 4 && r > 0; ++a) places[2 * Workspace::groups_of(r) + a] = places[a];
    }

    // Which packs are not at rest; the others stay, whatever the history says.
    void pick_packs(int64_t at, int packs, const TileGram* kept, Workspace& w, const Aims& out) const {
        if (!v.lower) return w.pick_all(packs);
        // Whoever rests at a point that this turn has taken over is in its place already.
        const bool in_place = sets_known && kept && out.goal != w.breaks;
        const TilePlaces places(w);
        if (sets_known && kept) {
            std::memcpy(w.free, kept->free, size_t(packs));
        } else if (!tile_known) {
            for (int k = 0; k < packs; ++k) w.free[k] = free_lanes(places, k * lanes);
        }
        uint32_t open = 0;
        const int asked = min_of(4, Workspace::groups_of(state.pairs));
        for (int k = 0; k < packs; ++k) {
            if (w.free[k]) {
                open |= uint32_t(1) << k;
                if (!steps_known) w.prefetch_rows(asked, (at + k * lanes) * bytes_of(options.history));
            } else {
                if (!in_place) store(out.goal + k * lanes, load(places.x + k * lanes));
                store(out.step + k * lanes, splat(0));
            }
        }
        w.pick_these(open);
    }

    void aim_tile(int64_t at, int count, Workspace& w, const Aims& out, AimTotals& totals) const {
        if (!steps_known)
            with_type(options.history, [&](auto type) { add_rows<decltype(type)>(at, count, w); });
        const Steps steps{steps_known ? w.free_s : nullptr, state.pairs ? w.y_tile : w.g,
                          state.pairs ? w.s_tile : nullptr, v.weights ? w.root : nullptr, state.gamma};
        const TilePlaces places(w);
        if (!v.lower) {
            w.each_pick([&](int k) { aim_freely(steps, places, k * lanes, out); });
        } else if (rule.confine == Confine::project && !rule.carries) {
            const bool single = v.single;
            w.each_pick([&](int k) {
                if (w.free[k] == 255) {
                    project<true>(steps, places, k * lanes, out, single);
                } else {
                    project<false>(steps, places, k * lanes, out, single);
                }
            });
            limit_steps(w, places, out, totals);
        } else {
            aim_by_rule(steps, w, places, out, totals);
        }
    }

    // Where variables are carried, or the rule is another one than to project.
    void aim_by_rule(const Steps& steps, const Workspace& w, const TilePlaces& places, const Aims& out,
                     AimTotals& totals) const {
        const bool by_variable = rule.confine != Confine::project;
        const Lanes carried = lanes_of(later_than(rule.carry_time));
        w.each_pick([&](int k) {
            const int i = k * lanes;
            if (!by_variable && !breaks_before(carried, places, i))
                return project<false>(steps, places, i, out, v.single);
            aim_freely(steps, places, i, out);
            if (rule.confine == Confine::measure) return measure(i, places, out, totals);
            confine(i, places, out);
        });
        if (rule.confine != Confine::measure) limit_steps(w, places, out, totals);
    }

    // A bit each variable of a pack that is not held.
    static unsigned char free_lanes(const TilePlaces& places, int i) {
        Flags free = {};
        SW_UNROLLED
        for (int slice = 0; slice < slices; ++slice)
            free |= ~TileSlice(places, i + slice * slice_lanes).held() & lane_bits_of(slice);
        return (unsigned char)(bits_of_any(free));
    }

    static bool breaks_before(Lanes time, const TilePlaces& places, int i) {
        Flags found = {};
        SW_UNROLLED
        for (int slice = 0; slice < slices; ++slice) {
            const int j = i + slice * slice_lanes;
            const TileSlice one(places, j);
            found |= one.breaks_before(time, load_slice(places.path + j), one.held());
        }
        return any_lane(found);
    }

    // What the history adds to the steps, of the picked packs: g + Σ c y and Σ c s.
    template <class H>
    void add_rows(int64_t at, int count, Workspace& w) const {
        const int rows = Workspace::groups_of(state.pairs);
        double *y = w.y_tile, *s = w.s_tile;
        for (int a = 0; a < rows; a += 4) add_multiples<H, true>(a, at, count, a ? y : w.g, y, w);
        for (int a = 0; a < rows; a += 4) {
            if (a) {
                add_multiples<H, true>(rows + a, at, count, s, s, w);
            } else {
                add_multiples<H, false>(rows + a, at, count, nullptr, s, w);
            }
        }
    }

    // Four rows from the first on, added to what is there if anything is; the next four are asked for.
    template <class H, bool adds>
    static void add_multiples(int first, int64_t at, int count, const double* from, double* out,
                              const Workspace& w) {
        const H *rows[4], *next[4];
        Lanes c[4];
        for (int b = 0; b < 4; ++b) {
            rows[b] = w.places<H>()[first + b] + at;
            next[b] = w.places<H>()[first + 4 + b] + at;
            c[b] = lanes_of(w.multiples[first + b]);
        }
        const int whole = count / lanes * lanes;
        const Picks picks = w.picks();
        for (int p = 0; p < picks.count; ++p) {
            const int end = min_of(picks.runs[p].end * lanes, whole);
            for (int i = picks.runs[p].begin * lanes; i < end; i += lanes) {
                for (int b = 0; b < 4; ++b) prefetch(next[b] + i);
                SW_UNROLLED
                for (int at_once = i; at_once < i + lanes; at_once += lanes_at_once) {
                    Lanes row[4][slices_at_once];
                    for (int b = 0; b < 4; ++b) load_slices(rows[b] + at_once, row[b]);
                    for (int slice = 0; slice < slices_at_once; ++slice) {
                        const int j = at_once + slice * slice_lanes;
                        Lanes sum = c[0] * row[0][slice];
                        for (int b = 1; b < 4; ++b) sum += c[b] * row[b][slice];
                        register_at(out + j) = adds ? load_slice(from + j) + sum : sum;
                    }
                }
            }
        }
        if (!picks.ends_with(whole / lanes)) return;
        for (int i = whole; i < whole + lanes; ++i) {  // a pack that is not whole
            double sum = 0;
            for (int b = 0; b < 4 && i < count; ++b) sum += c[b][0] * widened(rows[b][i]);
            out[i] = adds && i < count ? from[i] + sum : sum;
        }
    }

    void aim_freely(const Steps& steps, const TilePlaces& places, int i, const Aims& out) const {
        for (int slice = 0; slice < slices; ++slice) {
            const int j = i + slice * slice_lanes;
            const Lanes step = steps.at(j);
            register_at(out.goal + j) = load_slice(places.x + j) + step;
            register_at(out.step + j) = as_stored(step, v.single && !v.lower);
        }
    }

    // Step and goal within the bounds, where nobody is carried.
    template <bool all_free>
    static void project(const Steps& steps, const TilePlaces& places, int i, const Aims& out, bool single) {
        SW_UNROLLED
        for (int slice = 0; slice < slices; ++slice) {
            const int j = i + slice * slice_lanes;
            const TileSlice one(places, j);
            const Lanes step = steps.at(j);
            const auto aimed = aim_within<Lanes>(one.x, one.x + step, step, all_free ? Flags{} : one.held(),
                                                 one.lower, one.upper);
            register_at(out.goal + j) = aimed.goal;
            register_at(out.step + j) = as_stored(aimed.step, single);
        }
    }

    // The largest feasible multiple of the step, where it may be the smallest. None is below 1 where steps
    // are as they were found, not rounded: a goal strictly inside is one that the bound is farther than.
    void limit_steps(const Workspace& w, const TilePlaces& places, const Aims& out, AimTotals& totals) const {
        w.each_pick([&](int k) {
            if (!v.single && totals.step_limit <= 1) return;
            const Lanes limit = lanes_of(totals.step_limit);
            Flags near = {};
            SW_UNROLLED
            for (int slice = 0; slice < slices; ++slice) {
                const int j = k * lanes + slice * slice_lanes;
                near |= may_limit_below(limit, load_slice(places.x + j), load_slice(out.step + j),
                                        load_slice(places.lower + j), load_slice(places.upper + j));
            }
            if (any_lane(near)) limit_step(k, w, places, out, totals);
        });
    }

    // By any rule.
    void confine(int begin, const TilePlaces& at, const Aims& out) const {
        for (int i = begin; i < begin + lanes; ++i) {
            const Aimed aimed = aim_variable(rule, at.x[i], at.g[i], at.path[i], out.goal[i], out.step[i],
                                             at.lower[i], at.upper[i]);
            out.goal[i] = aimed.goal;
            out.step[i] = v.single ? double(float(aimed.step)) : aimed.step;
        }
    }

    static void limit_step(int pack, const Workspace& w, const TilePlaces& at, const Aims& out,
                           AimTotals& totals) {
        Lanes least = lanes_of(totals.step_limit);
        SW_UNROLLED
        for (int slice = 0; slice < slices; ++slice) {
            const int i = pack * lanes + slice * slice_lanes;
            if (!any_chosen(w.free[pack], slice)) continue;  // steps of the others are 0
            least = min_of(least, feasible_multiple(load_slice(at.x + i), load_slice(out.step + i),
                                                    load_slice(at.lower + i), load_slice(at.upper + i)));
        }
        totals.step_limit = least_lane(least);
    }

    void measure(int begin, const TilePlaces& at, const Aims& out, AimTotals& totals) const {
        for (int i = begin; i < begin + lanes; ++i) {
            totals.truncation = min_of(
                totals.truncation,
                feasible_fraction(rule, at.x[i], at.g[i], at.path[i], out.goal[i], at.lower[i], at.upper[i]));
        }
    }
};

SW_END
