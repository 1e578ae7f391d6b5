// Memory of one thread of the host: tile buffers, accumulators, and what its decisions need.
#pragma once

#include <algorithm>
#include <vector>

#include "core/common/simd.hpp"
#include "core/quasi_newton/cauchy_walk.hpp"
#include "core/quasi_newton/memory.hpp"
#include "host/quasi_newton/history_rows.hpp"
#include "host/quasi_newton/reduced_model.hpp"
#include "host/quasi_newton/tile_gram_cache.hpp"
#include "host/quasi_newton/tile_sums.hpp"

SW_BEGIN

class Workspace {
public:
    static constexpr int columns = 3;       // of row_sums: s, y and √h g over the movable variables
    static constexpr int tile_columns = 4;  // of tile_sums, at most
    static constexpr size_t tile_doubles = size_t(tile) * 15;
    static size_t history_doubles(size_t capacity) { return size_t(tile) * 2 * capacity; }
    // Products of a tile's rows, or of few variables one by one: whole groups of four rows of whole packs.
    static size_t gram_doubles(size_t capacity) { return (2 * capacity + 4) * (2 * capacity + lanes); }
    static size_t sum_doubles(size_t capacity) {
        return gram_doubles(capacity) + 2 * tile_columns * capacity;
    }
    // The sums of a tile (open_row): products by slots, of which there may be one more than pairs.
    static size_t row_doubles(size_t capacity) {
        return size_t(TileGram::products_of(int(capacity) + 1)) + 2 * (columns + 1) * capacity +
               capacity * (capacity + 1) / 2;
    }
    // So many of them are there from the first on: those that a chunk of 16 tiles needs.
    static constexpr int usual_rows = 5;
    // Rows in whole groups of four.
    static constexpr int groups_of(int rows) { return (rows + 3) / 4 * 4; }
    // Of rows, and of a group behind the last, which is asked for in advance.
    static size_t places_of(int capacity) { return 2 * size_t(groups_of(capacity)) + 4; }
    // Bytes of a new workspace.
    static int64_t bytes_for(int capacity) {
        const size_t m = size_t(capacity);
        const size_t doubles = tile_doubles + history_doubles(m) + sum_doubles(m) +
                               usual_rows * row_doubles(m) + 2 * m + size_t(scratch_length(capacity)) +
                               2 * size_t(groups_of(capacity)) + ReducedModel::doubles_for(capacity);
        return int64_t(sizeof(double) * doubles + sizeof(void*) * places_of(capacity) +
                       sizeof(int) * (2 * m + size_t(TileGram::products_of(capacity))));
    }

    explicit Workspace(int capacity)
        : few(capacity),
          buffers(tile_doubles),
          history(history_doubles(capacity)),
          sums(sum_doubles(capacity)),
          tree_memory(usual_rows * row_doubles(capacity)),
          carried_memory(2 * size_t(capacity)),
          decision_memory(size_t(scratch_length(capacity))),
          multiples_memory(2 * size_t(groups_of(capacity))),
          row_places(places_of(capacity)),
          row_slots(2 * size_t(capacity)),
          product_places(size_t(TileGram::products_of(capacity))) {
        double** names[] = {&x_tile,     &g_tile,  &s_tile,       &y_tile,      &lower_tile,
                            &upper_tile, &root,    &inverse_root, &moving_tile, &mask,
                            &breaks,     &carried, &descent,      &free_s,      &free_y};
        double* next = buffers.data();
        for (double** name : names) *name = next, next += tile;
        rows = history.data();
        gram_sums = sums.data();
        tile_sums = gram_sums + gram_doubles(size_t(capacity));
        carried_sums = carried_memory.data();
        multiples = multiples_memory.data();
        scratch = scratch_views(decision_memory.data(), capacity);
    }

    // The current tile: the caller's memory, or copies in the buffers below. The path leads along -`path`: h
    // g.
    const double *x, *g, *path, *lower, *upper, *s, *y, *moving;
    double *x_tile, *g_tile, *lower_tile, *upper_tile, *s_tile, *y_tile, *moving_tile;
    double *root, *inverse_root, *mask, *breaks, *carried, *descent;
    double *free_s, *free_y;       // s and y where a variable is free; steps (reduced_model.hpp)
    unsigned char free[tile / 8];  // of the current tile: a bit each variable
    Run runs[tile / lanes];        // of packs in which something moves or is free
    int run_count, picked;         // how many runs, and packs in them
    double own_y;                  // y · y of the current tile
    bool strays;                   // whether a variable has moved that is not free now
    double* rows;                  // stacked history rows of the tile, [Y; S] in order of age
    double* gram_sums;             // of a tile
    double* tile_sums;             // of a tile, [row, column]
    double* carried_sums;          // of few variables
    // Of a tile, what goes into the sums of a chunk (open_row).
    double *products, *row_sums, *row_carried, *row_whole;
    double* multiples;  // coefficients of the rows in a direction, as `places`
    Scratch scratch;
    ReducedModel few;
    Prefetcher prefetcher;
    std::vector<double> chunk_rows;  // what the chunks of a phase leave, in the first thread's workspace

    // The breakpoints of a walk; memory is taken by the first, and by longer lists.
    BreakList break_list(int pairs, int length = longest_list) {
        const size_t row = 2 * size_t(pairs) + 1, numbers = size_t(length) * row;
        breaks_listed.resize(std::max(breaks_listed.size(), size_t(length)));
        if (break_rows.size() < numbers + 2 * row) {
            std::vector<double>().swap(break_rows);  // nothing of an earlier list is wanted
            break_rows.resize(numbers + 2 * row);
        }
        return {breaks_listed.data(), break_rows.data(), break_rows.data() + numbers, length};
    }

    // Bytes held; lists of breakpoints and the rows of chunks grow with what they have to hold.
    int64_t bytes() const {
        const size_t doubles = buffers.capacity() + history.capacity() + sums.capacity() +
                               tree_memory.capacity() + carried_memory.capacity() +
                               decision_memory.capacity() + multiples_memory.capacity() +
                               break_rows.capacity() + chunk_rows.capacity() + few.doubles();
        return int64_t(sizeof(double) * doubles + sizeof(void*) * row_places.capacity() +
                       sizeof(int) * (row_slots.capacity() + product_places.capacity()) +
                       sizeof(Break) * breaks_listed.capacity());
    }

    bool is_free(int i) const { return free[i / lanes] >> i % lanes & 1; }
    // How many variables of the tile are free.
    int count_free(int packs) const {
        uint64_t bits[tile / 64] = {};
        std::memcpy(bits, free, size_t(packs));
        int count = 0;
        for (const uint64_t some : bits) count += __builtin_popcountll(some);
        return count;
    }
    Picks picks() const { return {runs, run_count}; }
    // work(pack) for all that are picked.
    template <class Work>
    void each_pick(const Work& work) const {
        for (int p = 0; p < run_count; ++p)
            for (int k = runs[p].begin; k < runs[p].end; ++k) work(k);
    }
    // Those with a bit.
    void pick_these(uint32_t bits) {
        static_assert(tile / lanes <= 32);
        run_count = 0;
        picked = __builtin_popcount(bits);
        for (int pack = 0; bits; ++run_count) {
            const int gap = __builtin_ctz(bits);
            const uint64_t rest = bits >> gap;
            const int length = __builtin_ctzll(~rest);
            runs[run_count] = {pack + gap, pack + gap + length};
            pack += gap + length;
            bits = uint32_t(rest >> length);
        }
    }
    void pick_all(int packs) {
        picked = packs;
        run_count = packs > 0;
        runs[0] = {0, packs};
    }

    double* tile_row(int index) { return rows + int64_t(index) * tile; }

    // Memory of TileSums for chunks of so many tiles, taken before threads begin.
    void hold_tiles(int64_t tiles, int capacity) {
        const size_t needed = size_t(TileSums::most_rows(tiles)) * row_doubles(size_t(capacity));
        if (tree_memory.size() < needed) tree_memory.resize(needed);
    }
    double* memory_of_tiles() { return tree_memory.data(); }

    // What the tiles of a chunk leave: products by slots, row_sums [row, column], those of carried variables,
    // and products of all s, the lower triangle by rows.
    int row_width(const SumLayout& layout) const {
        const int r = layout.rows;
        return (layout.gram ? product_count() : 0) + 2 * (columns + 1) * r +
               (layout.all_ss ? r * (r + 1) / 2 : 0);
    }
    void open_row(const SumLayout& layout, double* row) {
        products = row;
        row_sums = row + (layout.gram ? product_count() : 0);
        row_carried = row_sums + 2 * columns * layout.rows;
        row_whole = row_carried + 2 * layout.rows;
        std::fill(row_sums, row_whole, 0.0);
    }

    // Such a row into the order that the decisions expect.
    void collect(const SumLayout& layout, const double* row, double* sums) const {
        const int r = layout.rows;
        const double* by_row = row + (layout.gram ? product_count() : 0);
        for (int a = 0; a < r; ++a) {
            const double *y = by_row + a * columns, *s = by_row + (r + a) * columns;
            sums[layout.new_ss() + a] = s[0], sums[layout.new_sy() + a] = y[0];
            sums[layout.new_ys() + a] = s[1], sums[layout.new_yy() + a] = y[1];
        }
        const double* carried = by_row + 2 * columns * r;
        for (int j = 0; j < 2 * r; ++j) {
            sums[layout.q() + j] = by_row[j * columns + 2];
            sums[layout.carried() + j] = carried[j];
        }
        if (layout.gram) {
            double* out = sums + layout.free_gram();
            for (int p = 0; p < TileGram::products_of(r); ++p) out[p] = row[product_places[p]];
        }
        if (layout.all_ss) std::copy_n(carried + 2 * r, r * (r + 1) / 2, sums + layout.whole_ss());
    }

    // Where the rows of the current tile lie in the ring buffers, stacked as `rows`.
    template <class T>
    const T** places() {
        return reinterpret_cast<const T**>(row_places.data());
    }
    template <class T>
    const T* const* places() const {
        return reinterpret_cast<const T* const*>(row_places.data());
    }

    // Asks for what the first rows have there, so many bytes from their places.
    void prefetch_rows(int count, int64_t bytes) const {
        for (int row = 0; row < count; ++row)
            prefetch(static_cast<const unsigned char*>(row_places[size_t(row)]) + bytes);
    }

    // Where the stacked rows lie among products by slots.
    void set_slots(int rows, int head, int ring) {
        if (rows == placed.rows && head == placed.head && ring == placed.ring) return;
        placed = {rows, head, ring};
        for (int age = 0; age < rows; ++age) {
            row_slots[age] = slot_of(age, head, rows, ring);
            row_slots[rows + age] = ring + row_slots[age];
        }
        int* place = product_places.data();
        for (int i = 0; i < 2 * rows; ++i)
            for (int j = 0; j <= i; ++j) *place++ = product_of(row_slots[i], row_slots[j]);
    }
    // Of the products of the stacked rows, their lower triangle by rows.
    const int* places_of_products() const { return product_places.data(); }
    int slot_of_row(int row) const { return row_slots[row]; }
    int product_count() const { return TileGram::products_of(placed.ring); }
    static int product_of(int a, int b) { return a > b ? triangle(a, b) : triangle(b, a); }

private:
    struct {
        int rows = -1, head = -1, ring = 0;
    } placed;
    std::vector<Break> breaks_listed;
    std::vector<double> break_rows;
    std::vector<double> buffers, history, sums, tree_memory, carried_memory, decision_memory,
        multiples_memory;
    std::vector<const void*> row_places;
    std::vector<int> row_slots, product_places;
};

SW_END
