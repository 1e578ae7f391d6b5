// Sweeps over what a small system has of each of its columns, by the vector registers of a CPU. All have a
// whole number of eights.
#pragma once

#include "core/lsq/small/tables.hpp"
#include "host/lsq/kept_inverses.hpp"
#include "host/lsq/triangle_sweeps.hpp"

SW_BEGIN
namespace lsq {
namespace small {

struct ColumnSweeps {
    // w = c - the rows of a table whose x is in `nonzero`, times x.
    void subtract_rows(const double* c, const double* table, int64_t stride, const double* x,
                       uint64_t nonzero, int columns, double* w) const {
        // (As many sums at work as hide how long each takes.)
        constexpr int at_once = 8 * register_size;
        const int length = static_cast<int>(padded(columns));
        int base = 0;
        for (; base + at_once <= length; base += at_once)
            subtract_from<at_once>(c + base, table + base, stride, x, nonzero, w + base);
        subtract_last<at_once - padding>(length - base, c + base, table + base, stride, x, nonzero, w + base);
    }

    // The same of as few columns as inverses are kept for, all of them. (Two at a time, so that sums wait
    // less for one another.)
    static void subtract_few(const double* c, const double* table, int64_t stride, const double* x,
                             int columns, double* w) {
        DoubleRegister sum[registers], other[registers] = {};
        for (int u = 0; u < registers; ++u) sum[u] = register_at(c + u * register_size);
        for (int i = 0; i < columns; i += 2) {
            const int next = min_of(i + 1, columns - 1);  // of x zero, where it is the last again
            for (int u = 0; u < registers; ++u) {
                sum[u] -= register_at(table + i * stride + u * register_size) * x[i];
                other[u] += register_at(table + next * stride + u * register_size) * x[i + 1];
            }
        }
        for (int u = 0; u < registers; ++u) register_at(w + u * register_size) = sum[u] - other[u];
    }

    // step = `part` of what a kept inverse makes of the duals of `some` columns (none: of all) and of what x
    // misses of a bound sum; zero outside the inverse's set.
    template <bool summed>
    static void solve_by(const KeptInverses::Kept& kept, const double* w, uint64_t some, int columns,
                         double deficit, double part, double* step) {
        DoubleRegister sum[registers] = {}, other[registers] = {};
        for (int u = 0; summed && u < registers; ++u)
            sum[u] = register_at(kept.along + u * register_size) * deficit;
        const auto add = [&](int i, DoubleRegister(&to)[registers]) {
            for (int u = 0; u < registers; ++u)
                to[u] += register_at(kept.inverse[i] + u * register_size) * w[i];
        };
        for (uint64_t rest = some; rest; rest &= rest - 1) add(lowest_of(rest), sum);
        for (int i = 0; !some && i < columns; i += 2) {
            add(i, sum);
            add(i + 1, other);  // where there is none it is zero
        }
        for (int u = 0; u < registers; ++u)
            register_at(step + u * register_size) = (sum[u] + other[u]) * part;
    }

    // The largest of products that are not negative, and the first place where it is.
    static int place_of_largest(const double* a, const double* b, double& most) {
        DoubleRegister products[registers], top = {};
        for (int u = 0; u < registers; ++u) {
            products[u] = register_at(a + u * register_size) * register_at(b + u * register_size);
            top = larger_of(top, products[u]);
        }
        most = highest(top);
        Bits found = {};
        for (int u = 0; u < registers; ++u) found |= (products[u] >= most) & place_of(u * register_size);
        return lowest_of(joined(found));
    }

    // The columns, of as many as inverses are kept for, that a step does not leave above zero.
    static uint64_t not_above_zero(const double* x, const double* step) {
        Bits found = {};
        for (int u = 0; u < registers; ++u)
            found |= ~((register_at(x + u * register_size) + register_at(step + u * register_size)) > 0) &
                     place_of(u * register_size);
        return joined(found);
    }

    // Takes a step; x that are not above zero then are zero, and those of `inside` among them are returned.
    static uint64_t projected_step(double* x, const double* step, uint64_t inside) {
        Bits found = {};
        for (int u = 0; u < registers; ++u) {
            const DoubleRegister moved =
                register_at(x + u * register_size) + register_at(step + u * register_size);
            const Bits above = moved > 0;
            register_at(x + u * register_size) = DoubleRegister(Bits(moved) & above);
            found |= ~above & place_of(u * register_size);
        }
        return joined(found) & inside;
    }

    // values = 1 / sqrt(values), and 0 where a value is not positive.
    static void invert_roots(double* values, int count) {
        for (int j = 0; j < count; ++j) {
            const double inverse = 1 / square_root(values[j]);
            values[j] = values[j] > 0 ? inverse : 0.0;
        }
    }

    // What judges a point: the largest score above zero, w_j inverse_j, of columns at a bound, with another
    // sign at an upper one; the largest |w_j| inverse_j of those inside; and the sum of |x_j| norm_j.
    struct Judged {
        double top, slope, sizes;
    };
    // (Scores of the others are zero. They are kept for what looks at them then.)
    template <bool bounded>
    static Judged judge(const double* w, const double* inverse, const double* x, const double* norm,
                        uint64_t at_bound, uint64_t at_upper, uint64_t inside, int length, double* scores) {
        constexpr int chains = 2;
        static_assert(padding % register_size == 0);
        constexpr int step = min_of(chains * register_size, padding);
        DoubleRegister top[chains] = {}, slope[chains] = {}, sizes[chains] = {};
        for (int j = 0; j < length; j += step)
            for (int k = 0; k < step / register_size; ++k) {
                const int at = j + k * register_size;
                const DoubleRegister dual = register_at(w + at) * register_at(inverse + at);
                const DoubleRegister score =
                    DoubleRegister(Bits(score_of<bounded>(dual, at_upper, at)) & in_set(at_bound, at));
                register_at(scores + at) = score;
                top[k] = larger_of(top[k], score);
                slope[k] = larger_of(slope[k], DoubleRegister(Bits(size_of(dual)) & in_set(inside, at)));
                sizes[k] += size_of(register_at(x + at)) * register_at(norm + at);
            }
        return {highest(larger_of(top[0], top[1])), highest(larger_of(slope[0], slope[1])),
                sum_of_lanes(sizes[0] + sizes[1])};
    }

    // The first column that has a score.
    static int place_of_score(double score, const double* scores, int length) {
        Bits found = {};
        for (int at = 0; at < length; at += register_size)
            found |= (register_at(scores + at) == score) & place_of(at);
        return lowest_of(joined(found));
    }

    // The columns with scores above `least`, not below zero, and those of them with no larger one beside
    // them.
    struct Peaks {
        uint64_t above, peaks;
    };
    static Peaks find_peaks(double least, const double* scores, int length) {
        Bits above = {}, peaks = {};
        DoubleRegister before = {}, own = register_at(scores);
        for (int at = 0; at < length; at += register_size) {
            const DoubleRegister next =
                at + register_size < length ? register_at(scores + at + register_size) : DoubleRegister{};
            const Bits high = (own > least) & place_of(at);
            above |= high;
            peaks |=
                high & (own >= joined_at<register_size - 1>(before, own)) & (own >= joined_at<1>(own, next));
            before = own;
            own = next;
        }
        return {joined(above), joined(peaks)};
    }

    // Sets both to zero. (As one loop of stores: GCC would make string instructions of two, which take longer
    // to begin than these few numbers do.)
    static void clear_two(double* a, double* b, int length) {
        for (int at = 0; at < length; at += register_size) {
            SW_SHORT_LOOP(at);
            register_at(a + at) = register_at(b + at) = DoubleRegister{};
        }
    }

    // Numbers that lie a step apart. (By registers, as they are read then.)
    static void gather(const double* from, int64_t step, double* to, int count) {
        for (int at = 0; at < count; at += register_size) {
            DoubleRegister own;
            for (int t = 0; t < register_size; ++t) own[t] = from[(at + t) * step];
            register_at(to + at) = own;
        }
    }

    // a . b over the columns of a set.
    static double inner_of_set(const double* a, const double* b, uint64_t columns, int length) {
        DoubleRegister sum = {};
        for (int at = 0; at < length; at += register_size)
            sum += DoubleRegister(Bits(register_at(a + at)) & in_set(columns, at)) * register_at(b + at);
        return sum_of_lanes(sum);
    }

    // to = values * by; false where one is not finite.
    template <class Scalar>
    static bool scale_into(Scalar* to, const double* values, const double* by, int count) {
        DoubleRegister odd = {};
        double rest = 0;
        int j = 0;
        for (; sizeof(Scalar) == sizeof(double) && j + register_size <= count; j += register_size) {
            const DoubleRegister scaled = register_at(values + j) * register_at(by + j);
            *reinterpret_cast<DoubleRegister*>(to + j) = scaled;
            odd += scaled * 0.0;
        }
        for (; j < count; ++j) {
            SW_SHORT_LOOP(j);
            to[j] = Scalar(values[j] * by[j]);
            rest += double(to[j]) * 0.0;
        }
        return sum_of_lanes(odd) + rest == 0;
    }

    // A byte a column: `one` for those of a set, but `other` for those of another; else zero.
    template <class Byte>
    static void write_bytes(Byte* to, int count, uint64_t set, uint8_t one, uint64_t but, uint8_t other) {
        for (int j = 0; j < count; j += 8, set >>= 8, but >>= 8) {
            const uint64_t in = spread(set), out = spread(but), bytes = (in & ~out) * one | out * other;
            std::memcpy(to + j, &bytes, static_cast<size_t>(min_of(8, count - j)));
        }
    }

    // A table of `given` columns and rows, with zeros up to a whole number of eights for `all` of them; false
    // where one is not finite.
    static bool copy_rows(const double* from, int given, int all, double* to, int64_t stride) {
        DoubleRegister odd = {};
        const int length = static_cast<int>(padded(all));
        for (int i = 0; i < all; ++i, from += given, to += stride) {
            const int here = i < given ? given : 0;
            for (int j = 0; j < here; ++j) to[j] = from[j];
            for (int j = here; j < length; ++j) to[j] = 0;
            for (int j = 0; j < length; j += register_size) odd += register_at(to + j) * 0.0;
        }
        return sum_of_lanes(odd) == 0;
    }

private:
    template <int some>
    static void subtract_from(const double* c, const double* table, int64_t stride, const double* x,
                              uint64_t nonzero, double* w) {
        DoubleRegister sum[some / register_size];
        for (int u = 0; u < some / register_size; ++u) sum[u] = register_at(c + u * register_size);
        for (; nonzero; nonzero &= nonzero - 1) {
            const int i = lowest_of(nonzero);
            const double* row = table + i * stride;
            for (int u = 0; u < some / register_size; ++u)
                sum[u] -= register_at(row + u * register_size) * x[i];
        }
        for (int u = 0; u < some / register_size; ++u) register_at(w + u * register_size) = sum[u];
    }

    // Those that are left, fewer than are taken at once.
    template <int some>
    static void subtract_last(int left, const double* c, const double* table, int64_t stride, const double* x,
                              uint64_t nonzero, double* w) {
        if constexpr (some > 0) {
            if (left == some) return subtract_from<some>(c, table, stride, x, nonzero, w);
            subtract_last<some - padding>(left, c, table, stride, x, nonzero, w);
        }
    }

    static constexpr int registers =
        kept_columns / register_size;  // registers of as many columns as inverses are kept for
    typedef VectorOf<int64_t, register_size>::anywhere Bits;
    // Duals over their norms, from `at` on, with the other sign at upper bounds.
    template <bool bounded>
    static DoubleRegister score_of(DoubleRegister dual, uint64_t at_upper, int at) {
        if constexpr (bounded) return DoubleRegister(Bits(dual) ^ (in_set(at_upper, at) & INT64_MIN));
        return dual;
    }
    // The bits of the columns from `at` on.
    static Bits place_of(int at) {
        static constexpr struct Places {
            int64_t bit[64];
            constexpr Places() : bit() {
                for (int j = 0; j < 64; ++j) bit[j] = static_cast<int64_t>(uint64_t(1) << j);
            }
        } places;
        return *reinterpret_cast<const Bits*>(places.bit + at);
    }
    // As many numbers as a register has, of two that follow one another, from the `from`th on.
    template <int from>
    static DoubleRegister joined_at(DoubleRegister a, DoubleRegister b) {
        typedef VectorOf<double, register_size>::aligned Whole;
        const Whole first = a, second = b;
        if constexpr (register_size == 2)
            return __builtin_shufflevector(first, second, from, from + 1);
        else if constexpr (register_size == 4)
            return __builtin_shufflevector(first, second, from, from + 1, from + 2, from + 3);
        else
            return __builtin_shufflevector(first, second, from, from + 1, from + 2, from + 3, from + 4,
                                           from + 5, from + 6, from + 7);
    }
    // All bits of the numbers from `at` on whose columns are in a set, none of the others.
    static Bits in_set(uint64_t columns, int at) {
        const Bits all = Bits{} + static_cast<int64_t>(columns);
        return (all & place_of(at)) != 0;
    }
    // The lowest eight bits as the lowest of a byte each, the first in the first byte of memory.
    static uint64_t spread(uint64_t bits) {
        static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
        const uint64_t ones = 0x0101010101010101, apart = (bits & 0xff) * ones & 0x8040201008040201;
        return (apart + 0x7f * ones) >> 7 & ones;
    }
    static uint64_t joined(Bits bits) {
        return static_cast<uint64_t>(
            fold_lanes<register_size, int64_t>(bits, [](auto a, auto b) { return a | b; }));
    }
    // Without its sign's bit.
    static DoubleRegister size_of(DoubleRegister value) { return DoubleRegister(Bits(value) & INT64_MAX); }
    // Of numbers of which the first are not negative: in the order of their bits. What is not a number is
    // larger.
    static DoubleRegister larger_of(DoubleRegister a, DoubleRegister b) {
#if defined(__aarch64__)
        return vmaxq_f64(a, b);
#else
        return DoubleRegister(Bits(b) > Bits(a) ? Bits(b) : Bits(a));
#endif
    }
    static double highest(DoubleRegister values) {
#if defined(__aarch64__)
        return vmaxvq_f64(values);
#else
        return fold_lanes<register_size>(values, [](auto a, auto b) { return a < b ? b : a; });
#endif
    }
};

}  // namespace small
}  // namespace lsq
SW_END
