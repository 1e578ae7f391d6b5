// A thread of a CPU that solves a small system (core/lsq/small): its sweeps go by vector registers.
#pragma once

#include "host/lsq/column_sweeps.hpp"
#include "host/lsq/unconstrained_batch.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// Rows of a matrix of its own that are at work at a time, column after column.
constexpr int panel_rows = 256;
// Columns lie so far apart there: not a power of two, of which caches keep few.
constexpr int panel_stride = panel_rows + 8;

struct OneCore : OneLane, TriangleSweeps, ColumnSweeps {
    static constexpr bool has_sweeps = true;

    double* rows;                  // as many as A has, padded, or as a panel has
    double* panel;                 // columns of a matrix of its own and b
    KeptInverses* kept = nullptr;  // where all systems have one matrix of few columns

    // Of `group` systems with one matrix, b of each `step` numbers apart: A'b, the numbers of a column side
    // by side, with zeros after the last of them, and b . b from `squares` on. Of each they are summed in the
    // same order, whichever the others are.
    static constexpr int group = systems_at_once;
    template <class Scalar>
    static void multiply_group(const Scalar* b, int64_t step, int here, int count, const Shared& shared,
                               int columns, double* products, double* squares) {
        const Scalar* row[group];
        for (int k = 0; k < group; ++k) row[k] = b + min_of(k, here - 1) * step;
        // (With the first four columns goes b . b, so that b is read once. What comes next is asked for
        // meanwhile, a part with each four: all of it with the first is more at once than a core waits for.)
        const int parts = (columns + 3) / 4, part = group * count / parts;
        multiply_four<true>(row, count, shared, 0, columns, products, squares, b + group * step, parts);
        for (int j = 4; j < columns; j += 4)
            multiply_four<false>(row, count, shared, j, columns, products, squares,
                                 b + group * step + j / 4 * part, parts);
    }

    // r . r of r = b - A x with the columns of `nonzero`, and, if it is wanted, A'r.
    template <bool wants_product, class Scalar>
    double residual(const Scalar* b, int count, const Shared& shared, const double* x, uint64_t nonzero,
                    int columns, double* w) const {
        if (wants_product && columns <= 4) return pass<4>(b, count, shared, x, columns, w);
        if (wants_product && columns <= 8) return pass<8>(b, count, shared, x, columns, w);
        const int length = static_cast<int>(padded(count));
        for (int i = 0; i < count; ++i) rows[i] = double(b[i]);
        clear(count, length);
        if (nonzero) {
            subtract(shared.columns, shared.column_stride, x, nonzero, columns, length);
            clear(count, length);  // below A's rows there may be others
        }
        if constexpr (wants_product)
            multiply<false>(shared.columns, shared.column_stride, columns, length, w);
        return inner(rows, rows, length);
    }

    // The same of a matrix of its own, by rows.
    template <class Scalar>
    double residual_of_own(const Scalar* a, int64_t row_stride, const void* b, int count, int columns,
                           const double* x, double* w) const {
        double square = 0;
        for (int j = 0; j < columns; ++j) w[j] = 0;
        for (int first = 0; first < count; first += panel_rows) {
            const int length =
                take_panel(a, row_stride, static_cast<const Scalar*>(b), first, count, columns);
            const double* own_b = panel + columns * panel_stride;
            for (int i = 0; i < length; ++i) rows[i] = own_b[i];
            subtract(panel, panel_stride, x, (bit_of(columns) - 1), columns, length);
            multiply<true>(panel, panel_stride, columns, length, w);
            square += inner(rows, rows, length);
        }
        return square;
    }

    // The table of a matrix of its own.
    template <class Scalar>
    void form_table(const Scalar* a, int64_t row_stride, const void* b, int count, int columns,
                    double* table) const {
        const int n = columns;
        for (int k = 0; k < table_length(n); ++k) table[k] = 0;
        for (int first = 0; first < count; first += panel_rows) {
            const int length = take_panel(a, row_stride, static_cast<const Scalar*>(b), first, count, n);
            // What comes next, or with the next system, is brought near meanwhile.
            const Scalar* next = a + (first + panel_rows) * row_stride;
            // (After the last column comes b.)
            for (int i = 0; i <= n; i += 2) {
                int j = i;
                for (; j + 1 < n; j += 4) next = add_products<4>(i, j, n, length, table, next);
                if (j <= n) next = add_products<2>(i, j, n, length, table, next);
            }
        }
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < i; ++j) table[i * n + j] = table[j * n + i];
    }

private:
    void clear(int from, int to) const {
        for (int i = from; i < to; ++i) {
            SW_SHORT_LOOP(i);
            rows[i] = 0;
        }
    }

    // Of rows of a group: products with four columns from j on, and with themselves. Of the rows that come
    // next one of so many parts is asked for meanwhile.
    template <bool squared, class Scalar>
    static void multiply_four(const Scalar* const (&row)[group], int count, const Shared& shared, int j,
                              int columns, double* products, double* squares, const Scalar* next, int parts) {
        constexpr int line = 64 / sizeof(Scalar);
        const int pace = parts * register_size;
        int due = 0;
        const DoubleRegister nothing = unknown_zeros();
        const double* column[4];
        for (int q = 0; q < 4; ++q)
            column[q] = shared.columns + min_of(j + q, columns - 1) * shared.column_stride;
        DoubleRegister sum[group][4], square[group];
        for (int k = 0; k < group; ++k) {
            square[k] = nothing;
            for (int q = 0; q < 4; ++q) sum[k][q] = nothing;
        }
        int i = 0;
        for (; i + register_size <= count; i += register_size) {
            if (i == due) {
                due += pace;
                for (int k = 0; k < group * register_size; k += line) prefetch(next + k);
                next += group * register_size;
            }
            DoubleRegister entry[4];
            for (int q = 0; q < 4; ++q) entry[q] = register_at(column[q] + i);
            for (int k = 0; k < group; ++k) {
                const DoubleRegister value = load_register(row[k] + i);
                for (int q = 0; q < 4; ++q) sum[k][q] += entry[q] * value;
                if (squared) square[k] += value * value;
            }
        }
        const int here = min_of(4, columns - j);
        double* into = products + group * j;
        for (int q = 0; q < 4; ++q)
            for (int k = 0; k < group; k += 2)
                write_sum_of_lanes(q < here ? sum[k][q] : nothing, q < here ? sum[k + 1][q] : nothing,
                                   into + group * q + k);
        for (int k = 0; squared && k < group; k += 2)
            write_sum_of_lanes(square[k], square[k + 1], squares + k);
        for (int k = 0; k < group; ++k)
            for (int t = i; t < count; ++t) {
                const double value = double(row[k][t]);
                for (int q = 0; q < here; ++q) into[group * q + k] += column[q][t] * value;
                if (squared) squares[k] += value * value;
            }
    }

    // The sums of two registers. (At once, where what reads them reads both.)
    static void write_sum_of_lanes(DoubleRegister a, DoubleRegister b, double* to) {
#if defined(__aarch64__)
        register_at(to) = vpaddq_f64(a, b);
#else
        to[0] = sum_of_lanes(a);
        to[1] = sum_of_lanes(b);
#endif
    }

    static DoubleRegister load_register(const double* p) { return register_at(p); }
    static DoubleRegister load_register(const float* p) { return load_wide<register_size>(p); }

    // All in one pass, with few columns: rows of b, less A x, by rows of A.
    template <int most, class Scalar>
    double pass(const Scalar* b, int count, const Shared& shared, const double* x, int columns,
                double* w) const {
        // (With few sums there are two of each, so that none waits for the one before.)
        constexpr int both = most <= 4 ? 2 : 1;
        const double* column[most];
        double factor[most];
        DoubleRegister sum[both][most] = {}, square[2] = {};
        for (int j = 0; j < most; ++j) {
            column[j] = shared.columns + min_of(j, columns - 1) * shared.column_stride;
            factor[j] = j < columns ? x[j] : 0.0;
        }
        const auto residual_at = [&](int i) {
            DoubleRegister r = load_register(b + i), other = {};
            for (int j = 0; j < most; j += 2) {
                r -= register_at(column[j] + i) * factor[j];
                other += register_at(column[j + 1] + i) * factor[j + 1];
            }
            return r - other;
        };
        int i = 0;
        for (; i + 2 * register_size <= count; i += 2 * register_size) {
            const DoubleRegister r = residual_at(i), next = residual_at(i + register_size);
            square[0] += r * r;
            square[1] += next * next;
            for (int j = 0; j < most; ++j) {
                sum[0][j] += register_at(column[j] + i) * r;
                sum[both - 1][j] += register_at(column[j] + i + register_size) * next;
            }
        }
        double all = sum_of_lanes(square[0] + square[1]), rest[most];
        for (int j = 0; j < most; ++j)
            rest[j] = sum_of_lanes(both > 1 ? sum[0][j] + sum[both - 1][j] : sum[0][j]);
        for (; i < count; ++i) {
            double r = double(b[i]);
            for (int j = 0; j < most; ++j) r -= column[j][i] * factor[j];
            all += r * r;
            for (int j = 0; j < most; ++j) rest[j] += column[j][i] * r;
        }
        for (int j = 0; j < columns; ++j) w[j] = rest[j];
        return all;
    }

    // rows -= the columns of `nonzero` times x, four at a time.
    void subtract(const double* columns, int64_t stride, const double* x, uint64_t nonzero, int count,
                  int length) const {
        nonzero &= count < 64 ? bit_of(count) - 1 : ~uint64_t(0);
        while (nonzero) {
            const double* column[4];
            double factor[4];
            for (int k = 0; k < 4; ++k) {
                const int j = nonzero ? lowest_of(nonzero) : 0;
                column[k] = columns + j * stride;
                factor[k] = nonzero ? x[j] : 0.0;
                nonzero &= nonzero - 1;
            }
            for (int i = 0; i < length; i += register_size)
                register_at(rows + i) -=
                    (register_at(column[0] + i) * factor[0] + register_at(column[1] + i) * factor[1]) +
                    (register_at(column[2] + i) * factor[2] + register_at(column[3] + i) * factor[3]);
        }
    }

    // w = (or, where it adds, +=) the products of columns with `rows`, four at a time.
    template <bool adds>
    void multiply(const double* columns, int64_t stride, int count, int length, double* w) const {
        for (int j = 0; j < count; j += 4) {
            double sums[4];
            const double* column[4];
            for (int k = 0; k < 4; ++k) column[k] = columns + min_of(j + k, count - 1) * stride;
            inner_four(column, rows, length, sums);
            for (int k = 0; k < 4 && j + k < count; ++k) w[j + k] = adds ? w[j + k] + sums[k] : sums[k];
        }
    }

    // (Eight packs of dot_four() are more registers than NEON has: a quarter slower there.)
    static void inner_four(const double* const* column, const double* b, int length, double* sums) {
        DoubleRegister even[4] = {}, odd[4] = {};
        const double *c0 = column[0], *c1 = column[1], *c2 = column[2], *c3 = column[3];
        int i = 0;
        for (; i + 2 * register_size <= length; i += 2 * register_size) {
            const DoubleRegister u = register_at(b + i), v = register_at(b + i + register_size);
            even[0] += register_at(c0 + i) * u;
            even[1] += register_at(c1 + i) * u;
            even[2] += register_at(c2 + i) * u;
            even[3] += register_at(c3 + i) * u;
            odd[0] += register_at(c0 + i + register_size) * v;
            odd[1] += register_at(c1 + i + register_size) * v;
            odd[2] += register_at(c2 + i + register_size) * v;
            odd[3] += register_at(c3 + i + register_size) * v;
        }
        if (i < length) {
            const DoubleRegister u = register_at(b + i);
            even[0] += register_at(c0 + i) * u;
            even[1] += register_at(c1 + i) * u;
            even[2] += register_at(c2 + i) * u;
            even[3] += register_at(c3 + i) * u;
        }
        for (int k = 0; k < 4; ++k) sums[k] = sum_of_lanes(even[k] + odd[k]);
    }

    // Some rows of A, and of b after its last column, one column after the other; the rest of the last eight
    // is zero. Returns how many that makes.
    template <class Scalar>
    int take_panel(const Scalar* a, int64_t row_stride, const Scalar* b, int first, int count,
                   int columns) const {
        const int here = min_of(panel_rows, count - first), length = static_cast<int>(padded(here));
        // Two rows and two columns at a time.
        int i = 0;
        for (; i + 2 <= here; i += 2) {
            const Scalar *upper = a + (first + i) * row_stride, *below = upper + row_stride;
            int j = 0;
            for (; j + 2 <= columns; j += 2) {
                const Two u{double(upper[j]), double(upper[j + 1])},
                    v{double(below[j]), double(below[j + 1])};
                *reinterpret_cast<Two*>(panel + j * panel_stride + i) = Two{u[0], v[0]};
                *reinterpret_cast<Two*>(panel + (j + 1) * panel_stride + i) = Two{u[1], v[1]};
            }
            if (j < columns)
                *reinterpret_cast<Two*>(panel + j * panel_stride + i) =
                    Two{double(upper[j]), double(below[j])};
        }
        if (i < here)
            for (int j = 0; j < columns; ++j)
                panel[j * panel_stride + i] = double(a[(first + i) * row_stride + j]);
        for (int k = 0; k < here; ++k) panel[columns * panel_stride + k] = double(b[first + k]);
        for (int j = 0; j <= columns; ++j)
            for (int i = here; i < length; ++i) panel[j * panel_stride + i] = 0;
        return length;
    }

    // Of a panel: the products of columns i and i + 1 with some from j on. With each eight rows a line from
    // `next` on is asked for; returns the one after them.
    template <int some, class Scalar>
    const Scalar* add_products(int i, int j, int n, int length, double* table, const Scalar* next) const {
        DoubleRegister sums[2][some] = {};
        const double *a0 = panel + i * panel_stride, *a1 = panel + min_of(i + 1, n) * panel_stride;
        const double* other[some];
        for (int q = 0; q < some; ++q) other[q] = panel + min_of(j + q, n) * panel_stride;
        for (int eight = 0; eight < length; eight += padding) {
            prefetch(next);
            next += 64 / sizeof(Scalar);
            for (int t = eight; t < eight + padding; t += register_size) {
                const DoubleRegister u = register_at(a0 + t), v = register_at(a1 + t);
                for (int q = 0; q < some; ++q) {
                    const DoubleRegister c = register_at(other[q] + t);
                    sums[0][q] += u * c;
                    sums[1][q] += v * c;
                }
            }
        }
        for (int p = 0; p < 2; ++p)
            for (int q = 0; q < some; ++q) {
                const int row = i + p, column = j + q;
                if (row > column || column > n || row > n) continue;
                // Row i of products with the columns, then those with b.
                double& into = column < n ? table[row * n + column] : table[n * n + row];
                into += sum_of_lanes(sums[p][q]);
            }
        return next;
    }
};

}  // namespace small
}  // namespace lsq
SW_END
