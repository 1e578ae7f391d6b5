// What systems with one matrix of few columns have in common: with each set of columns that are between their
// bounds goes one matrix that solves, whoever needs it, and the same sets come up again and again.
#pragma once

#include "core/lsq/small/tables.hpp"
#include "host/lsq/lazy_buffer.hpp"

SW_BEGIN
namespace lsq {
namespace small {

class KeptInverses {
public:
    struct Kept {
        double inverse[kept_columns][kept_columns];  // zero outside the set
        // Of a bound sum: the step of x for each unit that x misses of it; and what each dual is multiplied
        // with in the sum that is its multiplier.
        double along[kept_columns];
        double multiplier[kept_columns];
    };

    KeptInverses() : sets_(1 << kept_columns) {}
    Kept& of(uint64_t columns) const { return sets_.get()[columns]; }

    // The smallest part of a column's square outside those before it; 0 where the set has not come up. (Apart
    // from the inverses, which are memory only where they are used.)
    double outside[1 << kept_columns] = {};

private:
    LazyBuffer<Kept> sets_;
};

}  // namespace small
}  // namespace lsq
SW_END
