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
    Aim(const HostVectors<T>& v, const State& state, const Options& options, const double* coefficients)
        : v(v), state(state), options(options), coefficients(coefficients) {}

    // Leaves the row of one chunk: aim_row.
    void chunk(int64_t begin, int64_t end, Workspace& w, double* row) const {
        AimTotals totals;
        CarefulSum slope;
        for (int64_t at = begin; at < end; at += tile) {
            const int count = int(min_of(int64_t(tile), end - at));
            const int packs = (count + lanes - 1) / lanes, padded = packs * lanes;
            w.g = view(w.g_tile, v.g + at, count, padded);
            w.x = view(w.x_tile, v.x + at, count, padded);
            combine(v.y, coefficients, at, count, w.g, w.y, padded);
            combine(v.s, coefficients + state.pairs, at, count, nullptr, w.s, padded);
            if (v.weights) {
                widen(w.root, v.weights + at, count, padded);
                for (int i = 0; i < padded; ++i) w.y[i] *= w.root[i];
            }
            // The step to the unconstrained minimiser over the free variables, and where it leads.
            double *step = w.moving, *goal = w.breaks;
            for (int i = 0; i < padded; ++i) {
                step[i] = -state.gamma * w.y[i] - w.s[i];
                goal[i] = w.x[i] + step[i];
            }
            if (v.lower) {
                set_bounds(w, v, at, count, padded);
                if (v.weights) {
                    for (int i = 0; i < padded; ++i) w.descent[i] = w.root[i] * w.g[i];
                } else {
                    std::memcpy(w.descent, w.g, sizeof(double) * padded);
                }
                if (state.confine == Confine::measure) {
                    measure(padded, w);
                    totals.truncation = min_of(totals.truncation, smallest(w.projected, packs));
                    continue;
                }
                confine(padded, w);
            }
            narrow(v.trial + at, goal, count);
            narrow(v.d + at, step, count);
            if (sizeof(T) < sizeof(double)) widen(step, v.d + at, count, padded);  // as it is stored
            if (v.lower) {
                for (int i = 0; i < padded; ++i) {
                    w.projected[i] = feasible_multiple(w.x[i], step[i], w.lower[i], w.upper[i]);
                }
                totals.step_limit = min_of(totals.step_limit, smallest(w.projected, packs));
            }
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

    // out = base + Σ coefficient · row, eight rows at a time, added in groups of four.
    void combine(const Byte* history, const double* c, int64_t at, int count, const double* base, double* out,
                 int padded) const {
        const int r = state.pairs;
        if (base && r == 0) std::memcpy(out, base, sizeof(double) * padded);
        if (!base) std::memset(out, 0, sizeof(double) * padded);
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
                    add_multiples<8>(rows, k, from, count, out);
                } else {
                    add_multiples<4>(rows, k, from, count, out);
                }
            }
        });
        for (int i = count; i < padded; ++i) out[i] = 0;
    }

    template <int R, class H>
    static void add_multiples(const H* const* rows, const double* k, const double* from, int count,
                              double* out) {
        int i = 0;
        for (; i + lanes <= count; i += lanes) {
            Pack total = load(from + i);
            for (int b = 0; b < R; b += 4) {
                for (int c = b; c < b + 4; ++c) prefetch(rows[c] + i + tile);
                total += (k[b] * load(rows[b] + i) + k[b + 1] * load(rows[b + 1] + i)) +
                         (k[b + 2] * load(rows[b + 2] + i) + k[b + 3] * load(rows[b + 3] + i));
            }
            store(out + i, total);
        }
        for (; i < count; ++i) {
            double total = from[i];
            for (int b = 0; b < R; b += 4) {
                total += (k[b] * widened(rows[b][i]) + k[b + 1] * widened(rows[b + 1][i])) +
                         (k[b + 2] * widened(rows[b + 2][i]) + k[b + 3] * widened(rows[b + 3][i]));
            }
            out[i] = total;
        }
    }

    // Step and goal of every variable, within the bounds; the rule is known to the compiler where that saves
    // work.
    void confine(int padded, Workspace& w) const {
        const AimRule rule = aim_rule(state);
        if (rule.confine == Confine::truncate) {
            confine_by(rule, padded, w);
        } else if (rule.carries) {
            confine_by(AimRule{Confine::project, true, rule.carry_time, 0, 0}, padded, w);
        } else {
            confine_by(AimRule{Confine::project, false, 0, 0, 0}, padded, w);
        }
    }

    static inline __attribute__((always_inline)) void confine_by(const AimRule rule, int padded,
                                                                 Workspace& w) {
        const double *x = w.x, *g = w.g, *lower = w.lower, *upper = w.upper, *descent = w.descent;
        double *step = w.moving, *goal = w.breaks;
        SW_APART
        for (int i = 0; i < padded; ++i) {
            const Aimed aimed =
                aim_variable(rule, x[i], g[i], descent[i], goal[i], step[i], lower[i], upper[i]);
            goal[i] = aimed.goal;
            step[i] = aimed.step;
        }
    }

    void measure(int padded, Workspace& w) const {
        const AimRule rule = aim_rule(state);
        SW_APART
        for (int i = 0; i < padded; ++i) {
            w.projected[i] =
                feasible_fraction(rule, w.x[i], w.g[i], w.descent[i], w.breaks[i], w.lower[i], w.upper[i]);
        }
    }
};

SW_END
