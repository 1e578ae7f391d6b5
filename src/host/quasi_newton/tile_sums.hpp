// Rows of sums of the tiles of one chunk, added while they come, by a fixed binary tree: whoever has whole
// nodes of it (sum_tree.hpp) finds what the sweep over the whole chunk finds there, to the last bit.
#pragma once

#include <algorithm>
#include <bit>

#include "core/common/config.hpp"
#include "host/quasi_newton/history_rows.hpp"

SW_BEGIN

class TileSums {
public:
    static constexpr int most_levels = 48;

    // How many rows are held at a time, at most, of a chunk of so many tiles.
    static int most_rows(int64_t tiles) { return tiles > 1 ? std::bit_width(uint64_t(tiles - 1)) + 1 : 1; }

    TileSums(double* memory, int width) : memory(memory), width(width) { place[0] = 0; }

    // The row of the next tile, to be written as a whole before it is added.
    double* row() const { return memory + int64_t(place[live]) * width; }
    void add() { push(false); }
    // A tile whose row would be zeros.
    void add_nothing() { push(true); }

    // Of all tiles; of none, zeros. Never -0, which nothing and zeros would differ by.
    const double* total() {
        for (; live > 1; --live) join(live - 2, live - 1);
        if (live == 0) is_nothing[0] = true;
        double* sum = memory + int64_t(place[0]) * width;
        if (is_nothing[0]) {
            std::fill_n(sum, width, 0.0);
        } else {
            for (int i = 0; i < width; ++i) sum[i] += 0.0;
        }
        return sum;
    }

private:
    double* const memory;
    const int width;
    int live = 0;        // rows that are held: the bits of the number of tiles so far
    uint64_t count = 0;  // tiles
    // Rows change places, not their numbers, where one of two is nothing.
    int place[most_levels];
    int made = 1;  // places so far
    bool is_nothing[most_levels];

    void push(bool nothing) {
        is_nothing[live++] = nothing;
        for (uint64_t rest = ++count; rest % 2 == 0; rest /= 2, --live) join(live - 2, live - 1);
        if (live == made) place[made] = made, ++made;
    }

    void join(int first, int second) {
        if (is_nothing[second]) return;
        if (is_nothing[first]) {
            std::swap(place[first], place[second]);
            is_nothing[first] = false;
            return;
        }
        double* a = memory + int64_t(place[first]) * width;
        const double* b = memory + int64_t(place[second]) * width;
        SW_APART
        for (int i = 0; i < width; ++i) a[i] += b[i];
    }
};

SW_END
