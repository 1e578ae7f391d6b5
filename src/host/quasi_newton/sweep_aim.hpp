// The sweep that finds the next direction, on one chunk of the variables.
#pragma once

#include "core/common/careful_sum.hpp"
#include "core/quasi_newton/decide.hpp"
#include "core/quasi_newton/variable.hpp"
#include "host/quasi_newton/gram.hpp"
#include "host/quasi_newton/tiles.hpp"

SW_BEGIN

// Second read of the history: the direction and the trial point at step 1.
template <class T>
class Aim {
public:
    // `accepted`: the gradient at the trial point, which is taken over on the way; null: it has been.
    Aim(const HostVectors<T>& v, const State& state, const Options& options, const double* coefficients,
        const T* accepted)
        : v(v), state(state), options(options), coefficients(coefficients), accepted(accepted) {}

    // Leaves the row of one chunk: aim_row.
    void chunk(int64_t begin, int64_t end, Workspace& w, double* row) const {
        AimTotals totals;
        CarefulSum slope;
        for (int64_t at = begin; at < end; at += tile) {
            const int count = int(min_of(int64_t(tile), end - at));
            const int packs = (count + lanes - 1) / lanes, padded = packs * lanes;
            if (accepted) accept_point(v, accepted, at, at + count);
            w.g = w.path = view(w.g_tile, v.g + at, count, padded);
            w.x = view(w.x_tile, v.x + at, count, padded);
            if (v.lower) {
                set_bounds(w, v, at, count, padded);
                pick_packs(packs, w);
            } else {
                w.pick_all(packs);
            }
            combine(v.y, coefficients, at, count, w.g, w.y, w);
            combine(v.s, coefficients + state.pairs, at, count, nullptr, w.s, w);
            if (v.weights) {
                widen(w.root, v.weights + at, count, padded);
                for (int i = 0; i < padded; ++i) w.y[i] *= w.root[i];
            }
            // The step to the unconstrained minimiser over the free variables, and where it leads.
            double *step = w.moving, *goal = w.breaks;
            if (!v.lower || state.confine != Confine::project) aim_freely(0, padded, w);
            if (v.lower) {
                if (v.weights) {
                    for (int i = 0; i < padded; ++i) w.descent[i] = w.root[i] * w.g[i];
                    w.path = w.descent;
                }
                if (state.confine == Confine::measure) {
                    measure(padded, w);
                    totals.truncation = min_of(totals.truncation, smallest(w.projected, padded));
                    continue;
                }
                confine(packs, w);
            }
            narrow(v.trial + at, goal, count);
            narrow(v.d + at, step, count);
            if (sizeof(T) < sizeof(double)) widen(step, v.d + at, count, padded);  // as it is stored
            if (v.lower) limit_step(packs, w, totals);
            slope.add(sum_products(w.g, step, packs));
            totals.direction_squared += sum_products(step, step, packs);
        }
        totals.slope = slope.value();
        totals.put(row);
    }

private:
    const HostVectors<T>& v;
    const State& state;
    const Options& options;
    const double* coefficients;
    const T* const accepted;

    // Where a variable is not held: the others stay whatever the history says.
    static void pick_packs(int packs, Workspace& w) {
        w.picked = 0;
        const TilePlaces places(w);
        double* mask = w.mask;
        const auto look = [&](int i) {
            const Flags held = TileSlice(places, i).held();
            register_at(mask + i) = ones_unless(held);
            return ~held;
        };
        each_pack_where(packs, look, [&](int first) { w.picks[w.picked++] = first / lanes; });
    }

    // The step to the minimiser over the free variables.
    Lanes free_step(Lanes y, Lanes s) const { return -state.gamma * y - s; }

    void aim_freely(int begin, int end, Workspace& w) const {
        for (int i = begin; i < end; i += slice_lanes) {
            const Lanes step = free_step(load_slice(w.y + i), load_slice(w.s + i));
            register_at(w.moving + i) = step;
            register_at(w.breaks + i) = load_slice(w.x + i) + step;
        }
    }

    // out = base + Σ coefficient · row over the picked packs, eight rows at a time, added in groups of four.
    void combine(const Byte* history, const double* c, int64_t at, int count, const double* base, double* out,
                 Workspace& w) const {
        const int r = state.pairs;
        const Picks picks{w.picks, w.picked};
        for (int p = 0; p < picks.count && (r == 0 || !base); ++p) {
            const int k = picks.packs[p] * lanes;
            store(out + k, base ? load(base + k) : splat(0));
        }
        with_type(options.history, [&](auto type) {
            using H = decltype(type);
            for (int a = 0; a < r; a += 8) {
                const H* rows[8];
                double k[8];
                for (int b = 0; b < 8; ++b) {
                    const int age = min_of(a + b, r - 1);
                    rows[b] =
                        reinterpret_cast<const H*>(place_of(history, v, options, age, state.head, r, at));
                    k[b] = a + b < r ? c[a + b] : 0.0;
                }
                const double* from = a == 0 && base ? base : out;
                if (r - a > 4) {
                    add_multiples<8>(rows, k, from, count, picks, out);
                } else {
                    add_multiples<4>(rows, k, from, count, picks, out);
                }
            }
        });
    }

    template <int R, class H>
    static void add_multiples(const H* const* rows, const double* k, const double* from, int count,
                              const Picks& picks, double* out) {
        for (int p = 0; p < picks.count; ++p) {
            const int i = picks.packs[p] * lanes;
            if (i + lanes > count) {
                add_last_multiples<R>(rows, k, from, i, count, out);
                return;
            }
            for (int c = 0; c < R; ++c) prefetch(rows[c] + i + tile);
            for (int slice = 0; slice < slices; ++slice) {
                const int at = i + slice * slice_lanes;
                const auto part = [&](int b) -> Lanes { return k[b] * load_slice(rows[b] + at); };
                Lanes total = load_slice(from + at);
                for (int b = 0; b < R; b += 4) total += (part(b) + part(b + 1)) + (part(b + 2) + part(b + 3));
                register_at(out + at) = total;
            }
        }
    }

    // Those of a pack that is not whole.
    template <int R, class H>
    static void add_last_multiples(const H* const* rows, const double* k, const double* from, int i,
                                   int count, double* out) {
        for (; i < count; ++i) {
            double total = from[i];
            for (int b = 0; b < R; b += 4) {
                total += (k[b] * widened(rows[b][i]) + k[b + 1] * widened(rows[b + 1][i])) +
                         (k[b + 2] * widened(rows[b + 2][i]) + k[b + 3] * widened(rows[b + 3][i]));
            }
            out[i] = total;
        }
        for (; i % lanes != 0; ++i) out[i] = 0;
    }

    // Step and goal of every variable, within the bounds; the rule is known to the compiler where that saves
    // work. Where nobody is carried, no breakpoints are asked for.
    void confine(int packs, Workspace& w) const {
        const AimRule rule = aim_rule(state);
        if (rule.confine == Confine::truncate) return confine_by(rule, 0, packs * lanes, w);
        if (!rule.carries) return project(0, packs * lanes, w);
        const Lanes limit = lanes_of(later_than(rule.carry_time));
        int begin = 0;
        const TilePlaces places(w);
        const auto look = [&](int i) {
            const TileSlice at(places, i);
            return at.breaks_before(limit, load_slice(places.path + i), at.held());
        };
        each_pack_where(packs, look, [&](int first) {
            project(begin, first, w);
            aim_freely(first, first + lanes, w);
            confine_by(AimRule{Confine::project, true, rule.carry_time, 0, 0}, first, first + lanes, w);
            begin = first + lanes;
        });
        project(begin, packs * lanes, w);
    }

    // Where nobody is carried.
    void project(int begin, int end, Workspace& w) const {
        const TilePlaces places(w);
        const double *y = w.y, *s = w.s, *mask = w.mask;
        double *goal = w.breaks, *steps = w.moving;
        for (int i = begin; i < end; i += slice_lanes) {
            const Lanes x = load_slice(places.x + i), step = free_step(load_slice(y + i), load_slice(s + i));
            const Flags held = load_slice(mask + i) == 0.0;
            const auto aimed = aim_within<Lanes>(x, x + step, step, held, load_slice(places.lower + i),
                                                 load_slice(places.upper + i));
            register_at(goal + i) = aimed.goal;
            register_at(steps + i) = aimed.step;
        }
    }

    static inline __attribute__((always_inline)) void confine_by(const AimRule rule, int begin, int end,
                                                                 Workspace& w) {
        const double *x = w.x, *g = w.g, *lower = w.lower, *upper = w.upper, *path = w.path;
        double *step = w.moving, *goal = w.breaks;
        SW_APART
        for (int i = begin; i < end; ++i) {
            const Aimed aimed = aim_variable(rule, x[i], g[i], path[i], goal[i], step[i], lower[i], upper[i]);
            goal[i] = aimed.goal;
            step[i] = aimed.step;
        }
    }

    // The largest feasible multiple of the step, found only where it may be less than that of others.
    static void limit_step(int packs, Workspace& w, AimTotals& totals) {
        const double *x = w.x, *step = w.moving, *lower = w.lower, *upper = w.upper;
        Lanes limit = lanes_of(totals.step_limit);
        const auto look = [&](int i) -> Flags {
            return may_limit_below(limit, load_slice(x + i), load_slice(step + i), load_slice(lower + i),
                                   load_slice(upper + i));
        };
        each_pack_where(packs, look, [&](int begin) {
            for (int i = begin; i < begin + lanes; ++i) {
                totals.step_limit =
                    min_of(totals.step_limit, feasible_multiple(x[i], step[i], lower[i], upper[i]));
            }
            limit = lanes_of(totals.step_limit);
        });
    }

    void measure(int padded, Workspace& w) const {
        const AimRule rule = aim_rule(state);
        SW_APART
        for (int i = 0; i < padded; ++i) {
            w.projected[i] =
                feasible_fraction(rule, w.x[i], w.g[i], w.path[i], w.breaks[i], w.lower[i], w.upper[i]);
        }
    }
};

SW_END
