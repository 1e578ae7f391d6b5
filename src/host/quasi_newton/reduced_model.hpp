// The model where few variables are free: B over the free variables F themselves, in place of K - G. It is
// what is left of the matrix
//
//   [ -D     Lᵀ       Y_F   ]
//   [  L     SᵀS/γ    S_F/γ ]      (compact.hpp has K in the first two rows and columns)
//   [ Y_Fᵀ   S_Fᵀ/γ   I/γ   ]
//
// once K is eliminated, so that one LDLᵀ leads through K, whose factors serve the Cauchy path, to the step.
// Products of all pairs over the free variables, 2 m² for each of them, and a second matrix of 2 m rows to
// factor are not wanted.
#pragma once

#include <vector>

#include "core/quasi_newton/compact.hpp"
#include "host/quasi_newton/history_rows.hpp"
#include "host/quasi_newton/prefetcher.hpp"

SW_BEGIN

// Memory of one thread: the free variables of the problem that has its turn, and the rows of that matrix: of
// Y, of S, of F. Columns are those of S, of F, and the right-hand side; Y has a diagonal only.
class ReducedModel {
public:
    static constexpr int most_free = 32, most_pairs = 32;

    // Whether the model is formed so: by what is the same whoever solves the problem.
    static bool pays(int free, int pairs) {
        return free > 0 && free <= most_free && pairs <= most_pairs && free <= 2 * pairs;
    }

    static size_t doubles_for(int capacity) {
        const int pairs = min_of(capacity, most_pairs);
        return size_t(2 * pairs + most_free) * stride_for(pairs, most_free);
    }
    explicit ReducedModel(int capacity) : memory(doubles_for(capacity)) {}
    size_t doubles() const { return memory.capacity(); }

    // The free variables, by a bit each, and what rows have at them: of so many pairs, [Y; S] by age.
    template <class H>
    void gather(const unsigned char* bits, int packs, const double* g, const H* const* rows, int number) {
        pairs = number, free = 0;
        for (int k = 0; k < packs; ++k)
            for (unsigned some = bits[k]; some; some &= some - 1) {
                const int i = k * lanes + lowest_bit(some);
                gradient[free] = g[i];
                variable[free++] = i;
            }
        std::fill_n(gradient + free, unit, 0.0);
        std::fill_n(variable + free, 4, variable[0]);
        stride = stride_for(pairs, free);
        for (int first = 0; first < free; first += 4) take(rows, first);
        for (int k = 0; k < 2 * pairs; ++k) {
            double* behind = row_at(k) + pairs + free;
            for (int p = 0; p < parts; ++p) register_at(behind + p * slice_lanes) = lanes_of(0);
        }
    }

    // Products of the newest s with all rows over the free variables.
    void add_products(double* with_y, double* with_s) const {
        const double* newest = row_of_s(pairs - 1) + pairs;
        for (int a = 0; a < pairs; ++a) {
            with_y[a] += over_free(row_of_y(a) + pairs, newest);
            with_s[a] += over_free(row_of_s(a) + pairs, newest);
        }
    }

    // How many pairs were gathered for this turn.
    int taken() const { return pairs; }
    // The newest was refused.
    void drop_newest() {
        const auto move = [&](const double* from, double* to) {
            std::copy_n(from + pairs, free + unit, to + pairs - 1);
        };
        for (int age = 0; age < pairs - 1; ++age) move(row_of_y(age), row_of_y(age));
        for (int age = 0; age < pairs - 1; ++age) move(row_of_s(age), row_at(pairs - 1 + age));
        --pairs;
    }

    // Factors K, then B over the free variables. `first` and `form` of what it returns are those of K and the
    // gradient, `second` says whether the step is sound. The longest stretch of a turn in which little is
    // read: what comes next is asked for here.
    BothFactored factor(const SmallMatrices& m, const State& s, Prefetcher& prefetcher) {
        const double theta = 1 / s.gamma;
        fill(m, s, theta);
        BothFactored found{true, false, 0};
        const int size = pairs + free;
        int row = 0;
        for (; row + 4 <= size; row += 4) {
            prefetcher.prefetch(24);
            if (!eliminate<4>(row)) break;
        }
        if (row + 4 > size) {
            const int left = size - row;
            if (left == 3) eliminate<3>(row);
            if (left == 2) eliminate<2>(row);
            if (left == 1) eliminate<1>(row);
        }
        found.first = sound_rows >= pairs;
        found.second = sound_rows == size;
        for (int k = 0; found.first && k < 2 * pairs; ++k) {
            const double q = over_free(row_at(k) + pairs, gradient);
            found.form += q * inverse[k] * q;
        }
        return found;
    }

    // The step over the free variables; the others' are left as they are.
    void step(double* steps) {
        waits = true;
        double rest[most_free];
        for (int a = 0; a < free; ++a) rest[a] = row_at(2 * pairs + a)[pairs + free];
        for (int a = free - 1; a >= 0; --a) {
            const double one = rest[a] * inverse[2 * pairs + a];
            steps[variable[a]] = one;
            for (int b = 0; b < a; ++b) rest[b] -= row_at(2 * pairs + b)[pairs + a] * one;
        }
    }

    // Whether there is a step since a point was absorbed last, in this turn or, where its message failed, in
    // one before.
    bool has_step() const { return waits; }
    void drop_step() { waits = false; }

    // What a walk along the path wants: K's factors, and the gradient in their basis.
    struct Path {
        double *k, *q;
    };
    void put_path(const Path& path) const {
        const int size = 2 * pairs;
        for (int k = 0; k < size; ++k) {
            double* out = path.k + k * size;
            std::fill_n(out, size, 0.0);
            const int first = k < pairs ? k + 1 : k - pairs + 1;  // a row of y has older s only in zeros
            for (int i = first; i < pairs; ++i) out[pairs + i] = row_at(k)[i] * inverse[k];
            out[k] = inverse[k];
            path.q[k] = over_free(row_at(k) + pairs, gradient);
        }
    }

private:
    // Columns that are worked on at a time.
    static constexpr int unit = max_of(4, slice_lanes), parts = unit / slice_lanes;
    std::vector<double> memory;
    int stride = 0, pairs = 0, free = 0, sound_rows = 0;
    bool waits = false;
    int variable[most_free + 4];
    double gradient[most_free + unit];
    double inverse[2 * most_pairs + most_free];  // of the pivots

    static size_t stride_for(int pairs, int free) {
        return size_t(pairs + free + 2 * lanes - 1) / lanes * lanes;  // whole units, and zeros behind F
    }
    double* row_at(int k) { return memory.data() + k * stride; }
    const double* row_at(int k) const { return memory.data() + k * stride; }
    double* row_of_y(int age) { return row_at(age); }
    double* row_of_s(int age) { return row_at(pairs + age); }
    const double* row_of_y(int age) const { return row_at(age); }
    const double* row_of_s(int age) const { return row_at(pairs + age); }

    // Of four variables, from the first on, what all rows have at them.
    template <class H>
    void take(const H* const* rows, int first) {
        const int64_t a = variable[first], b = variable[first + 1], c = variable[first + 2],
                      d = variable[first + 3];
        double* to = row_at(0) + pairs + first;
        for (int k = 0; k < 2 * pairs; ++k, to += stride) {
            const H* from = rows[k];
            const double at_a = widened(from[a]), at_b = widened(from[b]), at_c = widened(from[c]),
                         at_d = widened(from[d]);
            to[0] = at_a, to[1] = at_b, to[2] = at_c, to[3] = at_d;
        }
    }

    double over_free(const double* a, const double* b) const {
        Lanes sums[parts] = {};
        for (int i = 0; i < free; i += unit)
            for (int p = 0; p < parts; ++p)
                sums[p] += load_slice(a + i + p * slice_lanes) * load_slice(b + i + p * slice_lanes);
        for (int p = 1; p < parts; ++p) sums[0] += sums[p];
        return sum_of_lanes(sums[0]);
    }

    void fill(const SmallMatrices& m, const State& s, double theta) {
        const int c = m.slots;
        int slot[most_pairs];
        for (int a = 0; a < pairs; ++a) slot[a] = slot_of(a, s.head, pairs, c);
        for (int a = 0; a < pairs; ++a) {
            const double *sy = m.sy + slot[a] * c, *ss = m.ss + slot[a] * c;
            double *row = row_of_s(a), *y = row_of_y(a);
            for (int b = 0; b < a; ++b) {
                row_of_s(b)[a] = theta * ss[slot[b]];
                row_of_y(b)[a] = sy[slot[b]];
            }
            for (int b = a / unit * unit; b <= a; ++b) row[b] = y[b] = 0;
            row[a] = theta * ss[slot[a]];
            inverse[a] = -1 / sy[slot[a]];
            for (int b = 0; b < free; b += slice_lanes) register_at(row + pairs + b) *= theta;
        }
        const int size = pairs + free;
        for (int a = 0; a < free; ++a) {
            double* row = row_at(2 * pairs + a);
            for (int j = (pairs + a) / unit * unit; j < (size / unit + 1) * unit; j += slice_lanes)
                register_at(row + j) = lanes_of(0);
            row[pairs + a] = theta;
            row[size] = -gradient[a];
        }
        sound_rows = 0;
    }

    // Takes all earlier rows out of R rows of S and F, from the one with the diagonal at column `first` on, a
    // multiple of four; false if one of their pivots is not sound.
    template <int R>
    bool eliminate(int first) {
        // A row of S has nothing in common with the rows of its own and newer y.
        const int from_y = min_of(pairs, first + R - 1);
        double factors[2 * most_pairs + most_free][R];  // of earlier rows in these
        const auto set_factors = [&](int begin, int end, double (*out)[R]) {
            for (int k = begin; k < end; ++k, ++out) {
                const double* row = row_at(k) + first;
                const double inverted = inverse[k];
                SW_UNROLLED
                for (int a = 0; a < R; ++a) (*out)[a] = row[a] * inverted;
            }
        };
        set_factors(0, from_y, factors);
        set_factors(pairs, pairs + first, factors + from_y);
        double* const rows = row_at(pairs + first);
        double inner[R][R] = {};  // of these rows in each other
        int sound = 0;
        for (int j = first / unit * unit; j <= pairs + free; j += unit) {
            Lanes sums[R][parts];
            for (int a = 0; a < R; ++a)
                for (int p = 0; p < parts; ++p)
                    sums[a][p] = load_slice(rows + a * stride + j + p * slice_lanes);
            Lanes second[R][parts] = {};  // of every other row: sums enough to keep two multipliers busy
            const auto subtract = [&](const double* row, int count, const double (*factor)[R]) {
                row += j;
                const auto subtract_one = [&](Lanes(&from)[R][parts]) {
                    Lanes part[parts];
                    for (int p = 0; p < parts; ++p) part[p] = load_slice(row + p * slice_lanes);
                    for (int a = 0; a < R; ++a)
                        for (int p = 0; p < parts; ++p) from[a][p] -= (*factor)[a] * part[p];
                    row += stride, ++factor;
                };
                for (int k = 0; k + 2 <= count; k += 2) subtract_one(sums), subtract_one(second);
                if (count % 2) subtract_one(sums);
            };
            subtract(row_at(0), from_y, factors);
            subtract(row_at(pairs), first, factors + from_y);
            for (int a = 0; a < R; ++a)
                for (int p = 0; p < parts; ++p) sums[a][p] += second[a][p];
            if (j <= first) {  // the diagonal is here
                double corner[R][unit];
                for (int a = 0; a < R; ++a)
                    for (int p = 0; p < parts; ++p) register_at(corner[a] + p * slice_lanes) = sums[a][p];
                sound = factor_corner<R>(corner, first - j, inverse + pairs + first, inner);
            }
            for (int a = 0; a < R; ++a)
                for (int p = 0; p < parts; ++p) {
                    for (int b = 0; b < a; ++b) sums[a][p] -= inner[a][b] * sums[b][p];
                    register_at(rows + a * stride + j + p * slice_lanes) = sums[a][p];
                }
        }
        sound_rows += sound;
        return sound == R;
    }

    // The rows of the diagonal among themselves: inverse pivots and factors; how many pivots are sound.
    template <int R>
    static int factor_corner(double (&corner)[R][unit], int first, double* inverted, double (&inner)[R][R]) {
        int sound = R;
        SW_UNROLLED
        for (int a = 0; a < R; ++a) {
            const double pivot = corner[a][first + a];
            if (!(pivot > 0 && is_finite(pivot))) sound = min_of(sound, a);
            inverted[a] = 1 / pivot;
            SW_UNROLLED
            for (int b = a + 1; b < R; ++b) {
                const double factor = inner[b][a] = corner[a][first + b] * inverted[a];
                SW_UNROLLED
                for (int i = b; i < R; ++i) corner[b][first + i] -= factor * corner[a][first + i];
            }
        }
        return sound;
    }
};

SW_END
