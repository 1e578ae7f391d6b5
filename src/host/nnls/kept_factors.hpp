// Factors that systems with one matrix have in common. With few columns the same sets of them come up again
// and again, and what a factor is depends on its columns and their order alone: a thread keeps those of
// columns in ascending order, where a start has them.
#pragma once

#include "core/nnls/small/lanes.hpp"
#include "host/nnls/lazy_buffer.hpp"

SW_BEGIN
namespace nnls {
namespace small {

class KeptFactors {
public:
    // There are 2^columns sets.
    static constexpr int most_columns = 8;

    struct Kept {
        double factor[most_columns * (most_columns - 1) / 2], inverse_pivot[most_columns], sum[most_columns];
    };

    KeptFactors() : sets_(1 << most_columns) {}
    Kept& of(uint64_t columns) const { return sets_.get()[columns]; }

    // What the pivots of a set's factor have been held against; 0 where none is kept. (Apart from the
    // factors, which are memory only where they are used.)
    double least[1 << most_columns] = {};

private:
    LazyBuffer<Kept> sets_;
};

}  // namespace small
}  // namespace nnls
SW_END
