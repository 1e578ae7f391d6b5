// Memory of the host target: the vectors of one problem, and the tile buffers and accumulators of one thread.
#pragma once

#include <algorithm>
#include <vector>

#include "core/quasi_newton/compact.hpp"
#include "host/vectors.hpp"

namespace stepwell {

template <class T>
struct Vectors {
    int64_t n;
    T *x, *g, *d, *trial;
    T *s, *y;                // ring buffers, capacity rows of n
    const T *lower, *upper;  // both or neither
    const T* weights;        // diagonal of H0, or null
};

}  // namespace stepwell

SW_BEGIN

constexpr int tile = 256;  // 2 KiB a row: 16 history rows of a tile fit the first-level cache

class Workspace {
public:
    Workspace(int capacity, bool bounded)
        : fresh_columns(bounded ? 2 : 3),
          buffers(size_t(tile) * 14),
          history(size_t(tile) * 2 * capacity),
          packs((4 * size_t(capacity) * capacity + size_t(capacity) * capacity + 8 * size_t(capacity)) *
                lanes),
          carried_memory(2 * size_t(capacity)),
          decision_memory(size_t(scratch_length(capacity))) {
        double** names[] = {&x,      &g,    &s,      &y,       &lower,     &upper,  &root, &inverse_root,
                            &moving, &mask, &breaks, &carried, &projected, &descent};
        double* next = buffers.data();
        for (double** name : names) *name = next, next += tile;
        rows = history.data();
        gram_sums = reinterpret_cast<Pack*>(packs.data());
        whole_sums = gram_sums + 4 * capacity * capacity;
        fresh_sums = whole_sums + capacity * capacity;
        q_sums = fresh_sums + 6 * capacity;
        carried_sums = carried_memory.data();
        scratch = scratch_views(decision_memory.data(), capacity);
    }

    double *x, *g, *s, *y, *lower, *upper, *root, *inverse_root, *moving, *mask, *breaks, *carried,
        *projected, *descent;
    double* rows;  // stacked history rows of the tile, [Y; S] in order of age
    Pack *gram_sums, *whole_sums, *fresh_sums, *q_sums;
    double* carried_sums;
    Scratch scratch;
    std::vector<double> sums;  // partial sums of the chunks, in the first thread's workspace

    double* tile_row(int index) { return rows + int64_t(index) * tile; }

    void clear(const SumLayout& layout) {
        const int r = layout.rows;
        const Pack zero = splat(0);
        if (layout.gram) std::fill(gram_sums, gram_sums + 4 * r * r, zero);
        if (layout.all_ss) std::fill(whole_sums, whole_sums + r * r, zero);
        std::fill(fresh_sums, fresh_sums + 6 * r, zero);
        std::fill(q_sums, q_sums + 2 * r, zero);
        std::fill(carried_sums, carried_sums + 2 * r, 0.0);
    }

    // Lanes added up, into the order that the decisions expect. Unbounded, q rides along as the third fresh
    // column.
    void collect(const SumLayout& layout, double* sums) const {
        const int r = layout.rows;
        const int columns = fresh_columns;
        for (int a = 0; a < r; ++a) {
            sums[layout.new_ss() + a] = add_lanes(fresh_sums[(r + a) * columns]);
            sums[layout.new_sy() + a] = add_lanes(fresh_sums[a * columns]);
            sums[layout.new_ys() + a] = add_lanes(fresh_sums[(r + a) * columns + 1]);
            sums[layout.new_yy() + a] = add_lanes(fresh_sums[a * columns + 1]);
        }
        for (int j = 0; j < 2 * r; ++j) {
            sums[layout.q() + j] = add_lanes(columns == 3 ? fresh_sums[j * columns + 2] : q_sums[j]);
            sums[layout.carried() + j] = carried_sums[j];
        }
        if (layout.gram) {
            for (int i = 0; i < 2 * r; ++i)
                for (int j = 0; j <= i; ++j) {
                    sums[layout.free_gram() + triangle(i, j)] = add_lanes(gram_sums[int64_t(i) * 2 * r + j]);
                }
        }
        if (layout.all_ss) {
            for (int i = 0; i < r; ++i)
                for (int j = 0; j <= i; ++j)
                    sums[layout.whole_ss() + triangle(i, j)] = add_lanes(whole_sums[i * r + j]);
        }
    }

    const int fresh_columns;  // s, y and, without bounds, √h g

private:
    std::vector<double> buffers, history, packs, carried_memory, decision_memory;
};

SW_END
