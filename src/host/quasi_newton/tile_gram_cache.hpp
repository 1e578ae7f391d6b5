// Products of all pairs over the free variables of each tile, kept from one sweep to the next. While the free
// variables of a tile stay the same, only the products with the new pair are formed: 4 a variable and pair in
// place of 2 m. When sums are taken again for a Cauchy point, tiles of which nothing is carried to a bound
// need not be read at all. What is kept is what would be computed again, to the last bit: nothing depends on
// it but time.
#pragma once

#include "core/common/simd.hpp"
#include "core/quasi_newton/options.hpp"
#include "host/quasi_newton/chunks.hpp"

SW_BEGIN

// Of one tile. Rows are numbered by their slots, [Y; S], so that they stay where they are as pairs grow
// older.
struct TileGram {
    unsigned char free[tile / 8];  // a bit each variable
    uint64_t slots;                // a bit each slot whose products with those others are here
    double* products() { return reinterpret_cast<double*>(this + 1); }
    // Rows times the gradient of the last sweep over the free variables.
    double* gradient_sums(int slots) { return products() + products_of(slots); }

    static constexpr int products_of(int slots) { return slots * (2 * slots + 1); }  // lower triangle by rows
    static constexpr int64_t doubles_of(int slots) {
        return int64_t(sizeof(TileGram) / sizeof(double)) + products_of(slots) + 2 * slots;
    }
};

// Those of one problem lie in their order. Small problems have little to save, and in large ones the memory
// takes longer than the products.
struct TileGramCache {
    static constexpr int64_t min_size = 2048, max_size = int64_t(1) << 24;
    static constexpr int max_capacity = 20;

    static bool pay(const Options& o, int64_t n) {
        return o.bounded && !o.weighted && o.capacity <= max_capacity && n >= min_size && n <= max_size;
    }
    static int64_t doubles_of(const Options& o, const Chunks& chunks) {
        if (!pay(o, chunks.n)) return 0;
        const int64_t last = chunks.begin(chunks.count - 1);
        return (chunks.tiles_before(last) + quotient_up(chunks.n - last, tile)) *
               TileGram::doubles_of(o.slots);
    }
};

SW_END
