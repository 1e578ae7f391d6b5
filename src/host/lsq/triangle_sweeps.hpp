// Products and solutions with a small triangle, by the vector registers of a CPU. L is a unit triangle, by
// rows without its diagonal. Vectors are short here: what counts is how long one number waits for the one
// before.
#pragma once

#include "core/lsq/small/choice.hpp"
#include "core/lsq/small/lanes.hpp"
#include "host/lsq/vectors.hpp"

SW_BEGIN
namespace lsq {
namespace small {

typedef Register<double> DoubleRegister;
constexpr int register_size = register_lanes<double>;

struct TriangleSweeps {
    // Rows of a factor are short, and triangles go by fours: of a register of eight numbers half would be
    // left to loops that go one by one.
    static constexpr int few = min_of(register_size, 4);
    typedef VectorOf<double, few>::anywhere Few;
    typedef VectorOf<double, 2>::anywhere Two;

    // to[p] = value(p), for places from `first` on. In fours, as substitute() reads them: a register that is
    // read from several stores waits until all of them are in the cache.
    template <class Value>
    static void fill(double* to, int first, int count, Value value) {
        int p = first;
        for (; few == 4 && p + 4 <= count; p += 4)
            put_four(to + p, value(p), value(p + 1), value(p + 2), value(p + 3));
        for (; p < count; ++p) {
            SW_SHORT_LOOP(p);
            to[p] = value(p);
        }
    }

    // a . b by two registers: dot()'s packs of eight cost decays a tenth more.
    static double inner(const double* a, const double* b, int count) {
        Few sums[2] = {};
        int i = 0;
        for (; i + 2 * few <= count; i += 2 * few) {
            sums[0] += few_at(a + i) * few_at(b + i);
            sums[1] += few_at(a + i + few) * few_at(b + i + few);
        }
        if (few > 2 && i + few <= count) {
            sums[0] += few_at(a + i) * few_at(b + i);
            i += few;
        }
        double rest = 0;
        for (; i < count; ++i) {
            SW_SHORT_LOOP(i);
            rest += a[i] * b[i];
        }
        return sum_of_lanes(sums[0] + sums[1]) + rest;
    }

    // values = L^-1 values, the first `rows`, of which those before `first` are zero; L, a unit triangle, by
    // rows without its diagonal. Four rows at a time: they wait for one another only among themselves.
    static void substitute(const double* factor, double* values, int rows, int first) {
        int p = first;
        for (; p + 4 <= rows; p += 4) {
            const double* row[4];
            double sums[4];
            for (int k = 0; k < 4; ++k) row[k] = row_of(factor, p + k);
            const double* const from[4] = {row[0] + first, row[1] + first, row[2] + first, row[3] + first};
            inner_four_rows(from, values + first, p - first, sums);
            const double v0 = values[p] - sums[0];
            const double v1 = values[p + 1] - sums[1] - row[1][p] * v0;
            const double v2 = (values[p + 2] - sums[2] - row[2][p] * v0) - row[2][p + 1] * v1;
            const double v3 =
                (values[p + 3] - sums[3] - row[3][p] * v0 - row[3][p + 1] * v1) - row[3][p + 2] * v2;
            put_four(values + p, v0, v1, v2, v3);
        }
        if (p == first) ++p;
        for (; p < rows; ++p) values[p] -= inner(row_of(factor, p) + first, values + first, p - first);
    }

    // values = L^-T values, the same way.
    static void substitute_back(const double* factor, double* values, int rows) {
        int p = rows;
        for (; p % 4 != 0; --p) {
            const double* last = row_of(factor, p - 1);
            const double value = values[p - 1];
            int i = 0;
            for (; i + few <= p - 1; i += few) few_at(values + i) -= few_at(last + i) * value;
            for (; i < p - 1; ++i) {
                SW_SHORT_LOOP(i);
                values[i] -= last[i] * value;
            }
        }
        for (p -= 4; p >= 0; p -= 4) {
            const double* row[4];
            for (int k = 0; k < 4; ++k) row[k] = row_of(factor, p + k);
            const double v3 = values[p + 3], v2 = values[p + 2] - row[3][p + 2] * v3;
            const double v1 = values[p + 1] - row[3][p + 1] * v3 - row[2][p + 1] * v2;
            const double v0 = (values[p] - row[3][p] * v3 - row[2][p] * v2) - row[1][p] * v1;
            values[p] = v0;
            values[p + 1] = v1;
            values[p + 2] = v2;
            // (The next four first, and those that are known last in each: what waits for all of this are
            // they.)
            for (int i = p - few; i >= 0; i -= few) {
                Few rest = few_at(values + i) - few_at(row[3] + i) * v3;
                rest -= few_at(row[2] + i) * v2;
                rest -= few_at(row[1] + i) * v1;
                few_at(values + i) = rest - few_at(row[0] + i) * v0;
            }
        }
    }

    // row = E values, E = D^-1; returns values . E values.
    static double scale_row(const double* values, const double* inverse_pivot, double* row, int count) {
        Few sum = {};
        int i = 0;
        for (; i + few <= count; i += few) {
            const Few value = few_at(values + i), entry = value * few_at(inverse_pivot + i);
            few_at(row + i) = entry;
            sum += entry * value;
        }
        double rest = 0;
        for (; i < count; ++i) {
            SW_SHORT_LOOP(i);
            row[i] = values[i] * inverse_pivot[i];
            rest += row[i] * values[i];
        }
        return sum_of_lanes(sum) + rest;
    }

    // What becomes four rows of L at once: the products of four columns with those of the rows that are
    // there, side by side, a whole number of fours of them (whatever the last hold).
    typedef double Fours[most_positions][4];

    // values = L^-1 values, for four at once, four rows at a time.
    static void substitute_four(const double* factor, Fours& values, int rows) {
        for (int p = 0; p < rows; p += 4) {
            const double* row[4];
            Four own[4];
            for (int k = 0; k < 4; ++k) {
                row[k] = row_of(factor, p + k);
                own[k] = Four(values[p + k]);
            }
            for (int q = 0; q < p; ++q) {
                const Four value(values[q]);
                for (int k = 0; k < 4; ++k) own[k].subtract(value, row[k][q]);
            }
            for (int q = 0; q < 3; ++q)
                for (int k = q + 1; k < 4; ++k) own[k].subtract(own[q], row[k][p + q]);
            for (int k = 0; k < 4; ++k) own[k].keep(values[p + k]);
        }
    }

    // Rows E values, E = D^-1, and values' E values.
    static void scale_four(const Fours& values, const double* inverse_pivot, int count,
                           double* const (&row)[4], double (&products)[4][4]) {
        Four sums[4];
        const auto scale = [&](int p) {
            const Four value(values[p]);
            Four scaled = value;
            scaled.multiply(inverse_pivot[p]);
            for (int k = 0; k < 4; ++k) sums[k].add(scaled, values[p][k]);
            return scaled;
        };
        int p = 0;
        for (; p + 2 <= count; p += 2) {
            const Four first = scale(p), second = scale(p + 1);
            for (int k = 0; k < 4; ++k) *reinterpret_cast<Two*>(row[k] + p) = Two{first.at(k), second.at(k)};
        }
        if (p < count) {
            const Four last = scale(p);
            for (int k = 0; k < 4; ++k) row[k][p] = last.at(k);
        }
        for (int k = 0; k < 4; ++k) sums[k].keep(products[k]);
    }

    // L D L' of so many rows, without the rows and columns of some places.
    static void take_out(double* factor, double* inverse_pivot, int rows, uint64_t places) {
        while (places) {
            const int last = 63 - __builtin_clzll(places);
            take_out_one(factor, inverse_pivot, rows--, last);
            places ^= bit_of(last);
        }
    }

private:
    // Four numbers, in one register or two.
    struct Four {
        Few part[4 / few] = {};
        Four() = default;
        explicit Four(const double* values) {
            for (int u = 0; u < 4 / few; ++u) part[u] = few_at(values + u * few);
        }
        double at(int k) const { return part[k / few][k % few]; }
        void multiply(double by) {
            for (int u = 0; u < 4 / few; ++u) part[u] *= by;
        }
        void add(const Four& other, double by) {
            for (int u = 0; u < 4 / few; ++u) part[u] += other.part[u] * by;
        }
        void subtract(const Four& other, double by) {
            for (int u = 0; u < 4 / few; ++u) part[u] -= other.part[u] * by;
        }
        void keep(double* values) const {
            for (int u = 0; u < 4 / few; ++u) few_at(values + u * few) = part[u];
        }
    };

    // What follows a place has d v v' more without it, d the pivot and v the column there. (Gill, Golub,
    // Murray and Saunders 1974, method C1, with 1/alpha instead of alpha: a sum of what is positive.)
    static void take_out_one(double* factor, double* inverse_pivot, int rows, int place) {
        double left[most_positions], taken[most_positions], inverse_alpha = inverse_pivot[place];
        for (int i = place + 1; i < rows; ++i) {
            const double* row = row_of(factor, i);
            double* to = row_of(factor, i - 1);
            double v = row[place];
            const int before = i - place - 1;
            move_down(row, to, place);
            for (int j = 0; j < before; ++j) {
                SW_SHORT_LOOP(j);
                const double entry = row[place + 1 + j];
                v -= left[j] * entry;
                to[place + j] = entry + taken[j] * v;
            }
            // (v / d first: v^2 may be beyond all numbers where columns are as far apart in size.)
            const double inverse = inverse_pivot[i], scaled = v * inverse, next = inverse_alpha + v * scaled;
            const double part = 1 / next;
            left[before] = v;
            taken[before] = scaled * part;
            inverse_pivot[i - 1] = inverse * (inverse_alpha * part);
            inverse_alpha = next;
        }
    }

    // Copies numbers to places before them.
    static void move_down(const double* from, double* to, int count) {
        int j = 0;
        for (; j + few <= count; j += few) few_at(to + j) = few_at(from + j);
        for (; j < count; ++j) {
            SW_SHORT_LOOP(j);
            to[j] = from[j];
        }
    }

    static void put_four(double* to, double a, double b, double c, double d) {
        typedef VectorOf<double, 4>::anywhere Whole;
        if constexpr (few == 4)
            *reinterpret_cast<Whole*>(to) = Whole{a, b, c, d};
        else
            to[0] = a, to[1] = b, to[2] = c, to[3] = d;
    }
    static const Few& few_at(const double* p) { return *reinterpret_cast<const Few*>(p); }
    static Few& few_at(double* p) { return *reinterpret_cast<Few*>(p); }

    // Four rows with one vector.
    static void inner_four_rows(const double* const* row, const double* b, int length, double* sums) {
        Few all[4] = {};
        int i = 0;
        for (; i + few <= length; i += few) {
            const Few u = few_at(b + i);
            for (int k = 0; k < 4; ++k) all[k] += few_at(row[k] + i) * u;
        }
        for (int k = 0; k < 4; ++k) sums[k] = sum_of_lanes(all[k]);
        for (; i < length; ++i) {
            SW_SHORT_LOOP(i);
            for (int k = 0; k < 4; ++k) sums[k] += row[k][i] * b[i];
        }
    }
};

}  // namespace small
}  // namespace lsq
SW_END
