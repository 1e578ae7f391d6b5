// What a bound sum asks for, in numbers of one column or one system: the small and the general solver hold
// their columns in different ways, and call these.
#pragma once

#include "core/common/config.hpp"

SW_BEGIN
namespace lsq {

// How much less the squared residual is with a column filled as far as it can be: to what is `missing` of
// the sum, or by all its room on that side. w is its dual without the sum's multiplier; `upwards` where
// nothing is missing, and the column could only move up.
SW_HD double value_of_filling(double coefficient, double room, double missing, double w, double square,
                              bool upwards) {
    if (!(coefficient > 0) || (missing > 0 ? !(room > 0) : missing < 0 ? !(room < 0) : false))
        return -double_infinity;
    const double d = missing > 0   ? min_of(room, missing / coefficient)
                     : missing < 0 ? max_of(room, missing / coefficient)
                                   : 0.0;
    return d == 0 ? (upwards ? w : -w) : d * (2 * w - d * square);
}

// Whether a column has room for all that is missing: it is the last one then.
SW_HD bool takes_all(double missing, double wanted, double room) {
    return missing > 0 ? wanted < room : missing < 0 ? wanted > room : true;
}

// A power of four near the mean square of the largest column's entries, over the largest coefficient's:
// the row of the sum then counts as much as one of A.
SW_HD double weight_of_row(double highest_square, int rows, double largest_coefficient) {
    const double root = highest_square > 0
                            ? square_root(highest_square / max_of(rows, 1)) / largest_coefficient
                            : 1 / largest_coefficient;
    const double power = power_below(root);
    return 1 / (power * power);
}

}  // namespace lsq
SW_END
