// The sweep that finds the next direction, on one chunk of the variables.
#pragma once

#include "core/common/careful_sum.hpp"
#include "core/quasi_newton/decide.hpp"
#include "core/quasi_newton/variable.hpp"
#include "host/quasi_newton/tiles.hpp"

SW_BEGIN

// Second read of the history: the direction and the trial point at step 1.
template <class T>
class Aim {
public:
    // `accepted`: the gradient at the trial point, which is taken over on the way; null: it has been.
    Aim(const HostVectors<T>& v, const State& state, const Options& options, const double* coefficients,
        const T* accepted)
        : v(v),
          state(state),
          options(options),
          coefficients(coefficients),
          accepted(accepted),
          rule(aim_rule(state)) {}

    // Leaves the row of one chunk: aim_row.
    void chunk(int64_t begin, int64_t end, Workspace& w, double* row) const {
        AimTotals totals;
        totals.step_limit = lowest_limit.so_far();
        CarefulSum slope;
        set_multiples(w);
        for (int64_t at = begin; at < end; at += tile) {
            const int count = int(min_of(int64_t(tile), end - at));
            const int packs = (count + lanes - 1) / lanes, padded = packs * lanes;
            if (accepted) accept_point(v, accepted, at, at + count);
            w.g = w.path = view(w.g_tile, v.g + at, count, padded);
            w.x = view(w.x_tile, v.x + at, count, padded);
            if (v.weights) {
                widen(w.root, v.weights + at, count, padded);
                for (int i = 0; i < padded; ++i) w.descent[i] = w.root[i] * w.g[i];
                w.path = w.descent;
            }
            if (v.lower) set_bounds(w, v, at, count, padded);
            const Aims out{room(w.breaks, v.trial + at, count, padded),
                           room(w.moving_tile, v.d + at, count, padded)};
            aim_tile(at, count, packs, w, out, totals);
            if (rule.confine == Confine::measure) continue;
            put_back(v.trial + at, out.goal, w.breaks, count);
            put_back(v.d + at, out.step, w.moving_tile, count);
            slope.add(sum_products(w.g, out.step, packs));
            totals.direction_squared += sum_products(out.step, out.step, packs);
        }
        lowest_limit.found(totals.step_limit);
        totals.slope = slope.value();
        totals.put(row);
    }

private:
    const HostVectors<T>& v;
    const State& state;
    const Options& options;
    const double* coefficients;
    const T* const accepted;
    const AimRule rule;
    Lowest lowest_limit;

    // Where the goals and steps of a tile go.
    struct Aims {
        double *goal, *step;
    };

    // Rows and their coefficients, [Y; S], each filled up to whole groups of four by zero times the newest.
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
    void pick_packs(int64_t at, int packs, const TilePlaces& places, Workspace& w, const Aims& out) const {
        w.pick_none();
        for (int k = 0; k < packs; ++k) {
            if (rests(places, k * lanes)) {
                rest(places, k * lanes, out);
            } else {
                w.pick(k);
                w.prefetch_rows(min_of(4, Workspace::groups_of(state.pairs)),
                                (at + k * lanes) * bytes_of(options.history));
            }
        }
    }

    void aim_tile(int64_t at, int count, int packs, Workspace& w, const Aims& out, AimTotals& totals) const {
        const TilePlaces places(w);
        if (v.lower) {
            pick_packs(at, packs, places, w, out);
        } else {
            w.pick_all(packs);
        }
        with_type(options.history, [&](auto type) {
            using H = decltype(type);
            const int groups = Workspace::groups_of(state.pairs);
            combine<H>(0, groups, at, count, w.g, w.y_tile, w);
            combine<H>(groups, 2 * groups, at, count, nullptr, w.s_tile, w);
        });
        const bool by_variable = rule.confine != Confine::project;
        const Lanes carried = lanes_of(later_than(rule.carry_time));
        w.each_pick([&](int k) {
            const int i = k * lanes;
            const Slices steps = free_steps(i, w);
            if (!v.lower) return aim_freely(steps, places, i, out);
            if (!by_variable && !(rule.carries && breaks_before(carried, places, i)))
                return project(steps, places, i, out, totals);
            aim_freely(steps, places, i, out);
            if (rule.confine == Confine::measure) return measure(i, places, out, totals);
            confine(i, places, out);
            limit_step(i, places, out, totals);
        });
    }

    // Whether all variables of a pack are held.
    static bool rests(const TilePlaces& places, int i) {
        Flags free = {};
        SW_UNROLLED
        for (int slice = 0; slice < slices; ++slice)
            free |= ~TileSlice(places, i + slice * slice_lanes).held();
        return !any_lane(free);
    }

    static void rest(const TilePlaces& places, int i, const Aims& out) {
        for (int slice = 0; slice < slices; ++slice) {
            const int j = i + slice * slice_lanes;
            register_at(out.goal + j) = load_slice(places.x + j);
            register_at(out.step + j) = lanes_of(0);
        }
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

    // out = base + Σ coefficient · row over the picked packs, for rows in groups of four.
    template <class H>
    static void combine(int begin, int end, int64_t at, int count, const double* base, double* out,
                        Workspace& w) {
        if (begin == end) {
            w.each_pick([&](int k) { store(out + k * lanes, base ? load(base + k * lanes) : splat(0)); });
        }
        for (int a = begin; a < end; a += 4) {
            if (a > begin || base) {
                add_multiples<H, true>(a, at, count, a > begin ? out : base, out, w);
            } else {
                add_multiples<H, false>(a, at, count, nullptr, out, w);
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
                for (int slice = 0; slice < slices; ++slice) {
                    const int j = i + slice * slice_lanes;
                    const auto part = [&](int b) -> Lanes { return c[b] * load_slice(rows[b] + j); };
                    const Lanes sum = (part(0) + part(1)) + (part(2) + part(3));
                    register_at(out + j) = adds ? load_slice(from + j) + sum : sum;
                }
            }
        }
        if (!picks.ends_with(whole / lanes)) return;
        for (int i = whole; i < whole + lanes; ++i) {  // a pack that is not whole
            const auto part = [&](int b) { return c[b][0] * widened(rows[b][i]); };
            const double sum = i < count ? (part(0) + part(1)) + (part(2) + part(3)) : 0.0;
            out[i] = adds && i < count ? from[i] + sum : sum;
        }
    }

    // The steps to the minimiser over the free variables, of the pack at element i of a tile.
    Slices free_steps(int i, const Workspace& w) const {
        Slices steps;
        for (int slice = 0; slice < slices; ++slice) {
            const int j = i + slice * slice_lanes;
            Lanes y = load_slice(w.y_tile + j);
            if (v.weights) y *= load_slice(w.root + j);
            steps.part[slice] = -state.gamma * y - load_slice(w.s_tile + j);
        }
        return steps;
    }

    void aim_freely(const Slices& steps, const TilePlaces& places, int i, const Aims& out) const {
        for (int slice = 0; slice < slices; ++slice) {
            const int j = i + slice * slice_lanes;
            register_at(out.goal + j) = load_slice(places.x + j) + steps.part[slice];
            register_at(out.step + j) = v.lower ? steps.part[slice] : as_stored<T>(steps.part[slice]);
        }
    }

    // Step and goal within the bounds, where nobody is carried; and the largest feasible multiple of the
    // step.
    void project(const Slices& steps, const TilePlaces& places, int i, const Aims& out,
                 AimTotals& totals) const {
        const Lanes limit = lanes_of(totals.step_limit);
        Flags near = {};
        SW_UNROLLED
        for (int slice = 0; slice < slices; ++slice) {
            const int j = i + slice * slice_lanes;
            const TileSlice one(places, j);
            const Lanes free = steps.part[slice];
            const auto aimed = aim_within<Lanes>(one.x, one.x + free, free, one.held(), one.lower, one.upper);
            const Lanes step = as_stored<T>(aimed.step);
            register_at(out.goal + j) = aimed.goal;
            register_at(out.step + j) = step;
            near |= may_limit_below(limit, one.x, step, one.lower, one.upper);
        }
        if (any_lane(near)) limit_step(i, places, out, totals);
    }

    // By any rule.
    void confine(int begin, const TilePlaces& at, const Aims& out) const {
        for (int i = begin; i < begin + lanes; ++i) {
            const Aimed aimed = aim_variable(rule, at.x[i], at.g[i], at.path[i], out.goal[i], out.step[i],
                                             at.lower[i], at.upper[i]);
            out.goal[i] = aimed.goal;
            out.step[i] = double(T(aimed.step));
        }
    }

    static void limit_step(int begin, const TilePlaces& at, const Aims& out, AimTotals& totals) {
        for (int i = begin; i < begin + lanes; ++i) {
            totals.step_limit =
                min_of(totals.step_limit, feasible_multiple(at.x[i], out.step[i], at.lower[i], at.upper[i]));
        }
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
