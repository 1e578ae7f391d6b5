// The sweeps over the variables of one problem, on one chunk of them. A chunk is handled tile by tile: a
// tile's vectors are widened to double in cache-resident buffers, padded with zeros to whole packs, and every
// element goes through the functions of core/quasi_newton/variable.hpp. Whole packs of doubles need no buffer
// and are read in place.
#pragma once

#include "core/careful_sum.hpp"
#include "core/quasi_newton/decide.hpp"
#include "core/quasi_newton/variable.hpp"
#include "host/gram.hpp"
#include "host/lone_ldlt.hpp"
#include "host/workspace.hpp"

SW_BEGIN

template <class T>
inline void widen(double* out, const T* in, int count, int padded) {
    int i = 0;
    for (; i + lanes <= count; i += lanes) {
        store(out + i, load(in + i));
        prefetch(in + i + tile);
    }
    for (; i < count; ++i) out[i] = in[i];
    for (; i < padded; ++i) out[i] = 0;
}

// A tile in double, padded to whole packs: in place where it is so already, else a copy in the buffer.
inline const double* view(double* buffer, const double* in, int count, int padded) {
    if (count < padded) {
        widen(buffer, in, count, padded);
        return buffer;
    }
    for (int i = 0; i < count; i += lanes) prefetch(in + i + tile);
    return in;
}

inline const double* view(double* buffer, const float* in, int count, int padded) {
    widen(buffer, in, count, padded);
    return buffer;
}

template <class T>
inline void narrow(T* out, const double* in, int count) {
    for (int i = 0; i < count; ++i) out[i] = T(in[i]);
}

inline double sum_products(const double* a, const double* b, int packs) {
    Pack sums[4] = {splat(0), splat(0), splat(0), splat(0)};
    for (int k = 0; k < packs; ++k) sums[k & 3] += load(a + k * lanes) * load(b + k * lanes);
    return add_lanes((sums[0] + sums[2]) + (sums[1] + sums[3]));
}

inline double largest_magnitude(const double* a, int packs) {
    Pack top = splat(0);
    for (int k = 0; k < packs; ++k) {
        const Pack v = load(a + k * lanes);
        top = larger(top, larger(v, -v));
    }
    double result = 0;
    for (int i = 0; i < lanes; ++i) result = max_of(result, top[i]);
    return result;
}

inline double smallest(const double* a, int packs) {
    Pack low = splat(double_infinity);
    for (int k = 0; k < packs; ++k) low = smaller(low, load(a + k * lanes));
    double result = double_infinity;
    for (int i = 0; i < lanes; ++i) result = min_of(result, low[i]);
    return result;
}

// g·d at the trial point; not finite if any element of g is not.
template <class T>
double slope_chunk(const Vectors<T>& v, const T* gradient, int64_t begin, int64_t end) {
    CarefulSum total;
    for (int64_t at = begin; at < end; at += tile) {
        const int64_t stop = min_of(at + tile, end);
        Pack sums[4] = {splat(0), splat(0), splat(0), splat(0)};
        int64_t i = at;
        for (int k = 0; i + lanes <= stop; i += lanes, k = (k + 1) & 3) {
            sums[k] += load(gradient + i) * load(v.d + i);
        }
        double part = add_lanes((sums[0] + sums[2]) + (sums[1] + sums[3]));
        for (; i < stop; ++i) part += double(gradient[i]) * double(v.d[i]);
        total.add(part);
    }
    return total.value();
}

// A later trial of one line search.
template <class T>
void step_chunk(const Vectors<T>& v, double step, int64_t begin, int64_t end) {
    if (v.lower) {
        for (int64_t i = begin; i < end; ++i) {
            v.trial[i] = move_within(v.x[i], step * double(v.d[i]), v.lower[i], v.upper[i]);
        }
    } else {
        for (int64_t i = begin; i < end; ++i) v.trial[i] = T(double(v.x[i]) + step * double(v.d[i]));
    }
}

// First read of the history: forms the new pair, finds the free variables, and sums everything the decisions
// need.
template <class T>
class Absorb {
public:
    Absorb(const Vectors<T>& v, const State& state, const Options& options, SumLayout layout, Gather gather,
           const T* gradient)
        : v(v), state(state), options(options), layout(layout), gather(gather), gradient(gradient) {}

    void chunk(int64_t begin, int64_t end, Workspace& w, AbsorbScalars& scalars, double* sums) const {
        scalars = AbsorbScalars{0, 0, 0, 0, 0, double_infinity, 0};
        w.clear(layout);
        for (int64_t at = begin; at < end; at += tile) {
            const int count = int(min_of(int64_t(tile), end - at));
            const int packs = (count + lanes - 1) / lanes;
            load_point(at, count, packs, w);
            classify(count, packs, w, scalars);
            if (layout.rows > 0) add_rows(at, count, packs, w);
        }
        if (layout.rows > 0) w.collect(layout, sums);
    }

private:
    const Vectors<T>& v;
    const State& state;
    const Options& options;
    const SumLayout layout;
    const Gather gather;
    const T* gradient;

    // The accepted point in the tile buffers; with a new pair, s and y in buffers and ring.
    void load_point(int64_t at, int count, int packs, Workspace& w) const {
        const int padded = packs * lanes;
        w.g = view(w.g_tile, (gather == Gather::again ? v.g : gradient) + at, count, padded);
        w.x = view(w.x_tile, (gather == Gather::again ? v.x : v.trial) + at, count, padded);
        if (gather == Gather::pair) {
            // step * d, not the difference of the points: no digits cancel.
            const double *d = view(w.s, v.d + at, count, padded),
                         *g_before = view(w.y, v.g + at, count, padded);
            for (int i = 0; i < padded; ++i) w.s[i] = state.step * d[i];
            for (int i = 0; i < padded; ++i) w.y[i] = w.g[i] - g_before[i];
            T* s = v.s + int64_t(state.head) * v.n + at;
            T* y = v.y + int64_t(state.head) * v.n + at;
            narrow(s, w.s, count);
            narrow(y, w.y, count);
            if (sizeof(T) < sizeof(double)) {  // sums must see the pair as it is stored
                widen(w.s, s, count, padded);
                widen(w.y, y, count, padded);
            }
        }
        if (gather != Gather::again) {
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
        if (v.lower) {
            w.lower = view(w.lower_tile, v.lower + at, count, padded);
            w.upper = view(w.upper_tile, v.upper + at, count, padded);
        }
    }

    // Which variables are free, which carried; norms and the first breakpoint.
    void classify(int count, int packs, Workspace& w, AbsorbScalars& scalars) const {
        const int padded = packs * lanes;
        const double *x = w.x, *g = w.g, *lower = w.lower, *upper = w.upper;
        // √h g: its square is h g², and its product with the stacked rows is q.
        for (int i = 0; i < padded; ++i) w.moving[i] = v.weights ? w.root[i] * g[i] : g[i];
        if (v.lower) {
            double *mask = w.mask, *breaks = w.breaks, *carried = w.carried;
            const double held_time = state.held_time;
            for (int i = 0; i < padded; ++i) {
                const double descent = v.weights ? w.descent[i] : g[i];
                const bool movable = !is_held(x[i], g[i], lower[i], upper[i]);
                const double t = breakpoint(x[i], descent, lower[i], upper[i]);
                breaks[i] = movable ? t : double_infinity;
                mask[i] = movable ? 1.0 : 0.0;
            }
            if (gather == Gather::again) {
                for (int i = 0; i < padded; ++i) {
                    const double bound = bound_ahead(g[i], lower[i], upper[i]);
                    const bool goes = breaks[i] <= held_time;
                    carried[i] = goes ? bound - x[i] : 0.0;
                    mask[i] = goes ? 0.0 : mask[i];
                }
                if (v.weights) {
                    for (int i = 0; i < padded; ++i) carried[i] *= w.inverse_root[i];
                }
            } else {
                for (int i = 0; i < padded; ++i) {
                    w.projected[i] = projected_gradient(x[i], g[i], lower[i], upper[i]);
                }
                scalars.held += count - sum_products(mask, mask, packs);
                scalars.first_break = min_of(scalars.first_break, smallest(breaks, packs));
            }
            for (int i = 0; i < padded; ++i) w.moving[i] *= mask[i];
        }
        if (gather != Gather::again) {
            const double* projected = v.lower ? w.projected : g;
            scalars.movable_descent += sum_products(w.moving, w.moving, packs);
            scalars.gradient_squared += sum_products(g, g, packs);
            scalars.projected_squared += sum_products(projected, projected, packs);
            scalars.x_squared += sum_products(x, x, packs);
            scalars.projected_gradient =
                max_of(scalars.projected_gradient, largest_magnitude(projected, packs));
        }
    }

    void add_rows(int64_t at, int count, int packs, Workspace& w) const {
        const int r = layout.rows;
        // The new pair lies in the ring already, in the slot that the head will leave behind.
        const int head = gather == Gather::pair ? state.head + 1 : state.head;
        const T** places = w.places<T>();
        for (int age = 0; age < r; ++age) {
            const int64_t row = int64_t(slot_of(age, head, r, options.capacity)) * v.n + at;
            places[age] = v.y + row;
            places[r + age] = v.s + row;
        }
        if (v.weights) {
            scale_rows(places, count, packs, w);
            gather_scaled(packs, w);
        } else if (v.lower) {
            gather_from<true>(places, count, w);
        } else {
            gather_from<false>(places, count, w);
        }
        if (layout.gram) add_gram(w.rows, 2 * r, tile, packs, w.gram_sums);
        if (gather == Gather::again) add_carried(at, count, packs, w);
    }

    // Products of all rows with the new pair and with √h g, or with the latter alone; masked copies for the
    // Gram matrix.
    template <bool masked, class Element>
    void gather_from(const Element* const* rows, int count, Workspace& w) const {
        const double* columns[] = {w.s, w.y, w.moving};
        if (gather == Gather::pair) {
            gather_rows<3, masked>(rows, 2 * layout.rows, columns, w.mask, w.rows, count, w.fresh_sums, 3);
        } else {
            gather_rows<1, masked>(rows, 2 * layout.rows, columns + 2, w.mask, w.rows, count,
                                   w.fresh_sums + 2, 3);
        }
    }

    // With a diagonal, rows are scaled on their way into the tile buffers: y √h and s/√h.
    void scale_rows(const T* const* places, int count, int packs, Workspace& w) const {
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
        if (layout.all_ss)
            add_gram(w.tile_row(r), r, tile, packs, w.whole_sums);  // over all variables: before masking
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
            const int64_t row = int64_t(slot_of(age, state.head, r, options.capacity)) * v.n + at;
            double y = 0, s = 0;
            for (int i = 0; i < count; ++i) {
                if (w.carried[i] == 0) continue;
                y += w.carried[i] * double(v.y[row + i]) * (v.weights ? w.root[i] : 1.0);
                s += w.carried[i] * double(v.s[row + i]) * (v.weights ? w.inverse_root[i] : 1.0);
            }
            w.carried_sums[age] += y;
            w.carried_sums[r + age] += s;
        }
    }
};

// Second read of the history: the direction and the trial point at step 1.
template <class T>
class Aim {
public:
    Aim(const Vectors<T>& v, const State& state, const Options& options, const double* coefficients)
        : v(v), state(state), options(options), coefficients(coefficients) {}

    void chunk(int64_t begin, int64_t end, Workspace& w, AimScalars& scalars) const {
        scalars = AimScalars{0, 0, double_infinity, double_infinity};
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
                w.lower = view(w.lower_tile, v.lower + at, count, padded);
                w.upper = view(w.upper_tile, v.upper + at, count, padded);
                for (int i = 0; i < padded; ++i) w.descent[i] = v.weights ? w.root[i] * w.g[i] : w.g[i];
                if (state.confine == Confine::measure) {
                    scalars.truncation = min_of(scalars.truncation, feasible_fraction(packs, w));
                    continue;
                }
                confine(packs, w);
            }
            narrow(v.trial + at, goal, count);
            narrow(v.d + at, step, count);
            if (sizeof(T) < sizeof(double)) widen(step, v.d + at, count, padded);  // as it is stored
            if (v.lower) {
                for (int i = 0; i < padded; ++i) {
                    w.projected[i] = feasible_multiple(w.x[i], step[i], w.lower[i], w.upper[i]);
                }
                scalars.step_limit = min_of(scalars.step_limit, smallest(w.projected, packs));
            }
            slope.add(sum_products(w.g, step, packs));
            scalars.direction_squared += sum_products(step, step, packs);
        }
        scalars.slope = slope.value();
    }

private:
    const Vectors<T>& v;
    const State& state;
    const Options& options;
    const double* coefficients;

    // out = base + Σ coefficient · row, eight rows at a time, added in groups of four.
    void combine(const T* history, const double* c, int64_t at, int count, const double* base, double* out,
                 int padded) const {
        const int r = state.pairs;
        if (base && r == 0) std::memcpy(out, base, sizeof(double) * padded);
        if (!base) std::memset(out, 0, sizeof(double) * padded);
        for (int a = 0; a < r; a += 8) {
            const T* rows[8];
            double k[8];
            for (int b = 0; b < 8; ++b) {
                const int age = min_of(a + b, r - 1);
                rows[b] = history + int64_t(slot_of(age, state.head, r, options.capacity)) * v.n + at;
                k[b] = a + b < r ? c[a + b] : 0.0;
            }
            const double* from = a == 0 && base ? base : out;
            if (r - a > 4) {
                add_multiples<8>(rows, k, from, count, out);
            } else {
                add_multiples<4>(rows, k, from, count, out);
            }
        }
        for (int i = count; i < padded; ++i) out[i] = 0;
    }

    template <int R>
    static void add_multiples(const T* const* rows, const double* k, const double* from, int count,
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
                total += (k[b] * double(rows[b][i]) + k[b + 1] * double(rows[b + 1][i])) +
                         (k[b + 2] * double(rows[b + 2][i]) + k[b + 3] * double(rows[b + 3][i]));
            }
            out[i] = total;
        }
    }

    // The variables that the Cauchy path carries to a bound go there; held ones stay; the rest are put
    // inside. The step of a variable that meets no bound is left as it is: the difference of two points would
    // lose digits.
    void confine(int packs, Workspace& w) const {
        const int padded = packs * lanes;
        const double *x = w.x, *g = w.g, *lower = w.lower, *upper = w.upper, *descent = w.descent;
        double *step = w.moving, *goal = w.breaks;
        if (state.confine == Confine::truncate) {
            const double time = state.cauchy_time, fraction = state.truncation;
            for (int i = 0; i < padded; ++i) {
                const double cauchy = clamp_to(x[i] - time * descent[i], lower[i], upper[i]);
                goal[i] = cauchy + fraction * (goal[i] - cauchy);
                step[i] = goal[i] - x[i];
            }
        }
        for (int i = 0; i < padded; ++i) {
            const bool held = is_held(x[i], g[i], lower[i], upper[i]);
            const Aimed aimed = aim_within(x[i], goal[i], step[i], held, lower[i], upper[i]);
            step[i] = aimed.step;
            goal[i] = aimed.place;
        }
        if (state.held_time < 0) return;
        for (int i = 0; i < padded; ++i) {
            const bool goes = breakpoint(x[i], descent[i], lower[i], upper[i]) <= state.held_time;
            const bool held = is_held(x[i], g[i], lower[i], upper[i]);
            const double bound = bound_ahead(descent[i], lower[i], upper[i]);
            goal[i] = goes & !held ? bound : goal[i];
            step[i] = goes & !held ? bound - x[i] : step[i];
        }
    }

    // The largest feasible fraction of the way from the Cauchy point to the goal, over the free variables.
    double feasible_fraction(int packs, Workspace& w) const {
        const double *x = w.x, *g = w.g, *lower = w.lower, *upper = w.upper, *descent = w.descent;
        for (int i = 0; i < packs * lanes; ++i) {
            const bool free = !is_held(x[i], g[i], lower[i], upper[i]) &
                              (breakpoint(x[i], descent[i], lower[i], upper[i]) > state.held_time);
            const double cauchy = clamp_to(x[i] - state.cauchy_time * descent[i], lower[i], upper[i]);
            const double reach = feasible_multiple(cauchy, w.breaks[i] - cauchy, lower[i], upper[i]);
            w.projected[i] = free ? reach : double_infinity;
        }
        return smallest(w.projected, packs);
    }
};

SW_END
