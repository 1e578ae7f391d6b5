// A sum that keeps what rounding loses (Knuth's sum and error, without a comparison): the slope of a line
// search is a difference of large terms near a minimum, and decides which step is taken.
#pragma once

#include "core/common/config.hpp"

SW_BEGIN

struct CarefulSum {
    double sum = 0, lost = 0;

    SW_HD void add(double value) {
        const double total = sum + value, added = total - sum;
        lost += (sum - (total - added)) + (value - added);
        sum = total;
    }
    SW_HD void add(const CarefulSum& other) {
        add(other.sum);
        lost += other.lost;
    }
    // Not finite if a value was not: the correction would then be NaN whatever the sum.
    SW_HD double value() const { return is_finite(sum) ? sum + lost : sum; }
};

SW_END
