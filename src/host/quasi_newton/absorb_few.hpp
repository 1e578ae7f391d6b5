// The absorb sweep on a chunk of few variables, with bounds: products of pairs over the free variables,
// formed variable by variable. Each free variable is a column of numbers [Y; S; g], and the sums wanted are
// those of every column times itself. Held variables cost nothing, and no lanes have to be added up, which
// for twenty variables would take longer than their products. Which chunks are short depends on the number of
// all variables alone, and so do the bits.
#pragma once

#include "core/quasi_newton/decide.hpp"
#include "host/quasi_newton/tiles.hpp"

SW_BEGIN

// sums += value * column, for variables that are not free but have a value: few.
template <class H>
inline void add_others(const double* values, int packs, const H* const* rows, int count, const Workspace& w,
                       double* sums) {
    for (int i = 0; i < packs * lanes; ++i) {
        if (values[i] == 0 || w.is_free(i)) continue;
        for (int j = 0; j < count; ++j) sums[j] += values[i] * widened(rows[j][i]);
    }
}

class AbsorbFew {
public:
    // Longer chunks are swept row by row, in tiles whose products are kept while nothing changes.
    static constexpr int64_t most = 128;

    AbsorbFew(const SumLayout& layout, Workspace& w)
        : layout(layout),
          pairs(layout.rows),
          size(2 * pairs),
          stride((size + lanes) / lanes * lanes),
          w(w),
          columns(w.rows),
          products(w.gram_sums),
          stray_sums(w.tile_sums) {
        std::fill_n(products, groups * (size / groups + 1) * stride, 0.0);
        std::fill_n(stray_sums, size, 0.0);
        std::fill_n(w.carried_sums, size, 0.0);
    }

    // One tile, of which it is known what is free. H: the type of the history.
    template <class H>
    void add(int packs, Gather gather) {
        const H* const* rows = w.places<H>();
        w.each_pick([&](int k) {
            for (unsigned bits = w.free[k]; bits; bits &= bits - 1) {
                const int i = k * lanes + lowest_bit(bits);
                double* column = columns + gathered * stride;
                for (int j = 0; j < size; ++j) column[j] = widened(rows[j][i]);
                column[size] = w.g[i];
                if (++gathered == block) multiply();
            }
        });
        if (gather == Gather::pair) {
            own_y += w.own_y;
            if (w.strays) add_others(w.s, packs, rows, size, w, stray_sums);
        } else {
            add_others(w.carried, packs, rows, size, w, w.carried_sums);
        }
    }

    // Into the order that the decisions expect.
    void collect(double* sums) {
        multiply();
        std::fill_n(sums, layout.free_gram(), 0.0);
        const double *s = products + (size - 1) * stride, *g = products + size * stride;
        for (int a = 0; a < pairs; ++a) {
            sums[layout.new_ss() + a] = s[pairs + a] + stray_sums[pairs + a];
            sums[layout.new_sy() + a] = s[a] + stray_sums[a];
        }
        sums[layout.new_yy() + pairs - 1] = own_y;
        std::copy_n(g, size, sums + layout.q());
        std::copy_n(w.carried_sums, size, sums + layout.carried());
        double* out = sums + layout.free_gram();
        for (int i = 0; i < size; ++i) out = std::copy_n(products + i * stride, i + 1, out);
    }

private:
    static constexpr int block = 64;  // columns that are multiplied at a time, in the first-level cache
    static constexpr int groups = 4;  // rows of products that are formed at a time
    const SumLayout layout;
    const int pairs, size, stride;
    Workspace& w;
    double *const columns, *const products, *const stray_sums;
    int gathered = 0;
    double own_y = 0;

    void multiply() {
        for (int row = 0; row <= size; row += groups) {
            if (row == size) {
                multiply_rows<1>(row);
            } else {
                multiply_rows<groups>(row);
            }
        }
        gathered = 0;
    }

    // The lower triangle of R rows, in whole packs.
    template <int R>
    void multiply_rows(int row) const {
        double* out[R];
        for (int a = 0; a < R; ++a) out[a] = products + (row + a) * stride;
        for (int j = 0; j < row + R; j += lanes) {
            Lanes acc[R][slices];
            for (int a = 0; a < R; ++a)
                for (int i = 0; i < slices; ++i) acc[a][i] = load_slice(out[a] + j + i * slice_lanes);
            const double* column = columns;
            for (int c = 0; c < gathered; ++c, column += stride) {
                Lanes part[slices];
                for (int i = 0; i < slices; ++i) part[i] = load_slice(column + j + i * slice_lanes);
                for (int a = 0; a < R; ++a) {
                    const Lanes factor = lanes_of(column[row + a]);
                    for (int i = 0; i < slices; ++i) acc[a][i] += factor * part[i];
                }
            }
            for (int a = 0; a < R; ++a)
                for (int i = 0; i < slices; ++i) register_at(out[a] + j + i * slice_lanes) = acc[a][i];
        }
    }
};

SW_END
