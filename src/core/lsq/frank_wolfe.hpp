// How far from the best an x is that has only to be non-negative and to have a given sum.
#pragma once

#include "core/lsq/types.hpp"

SW_BEGIN
namespace lsq {

// Of w, half the descent of f at x: the largest w_j / c_j of columns that take part, c the coefficients of
// the sum, and w'x. Where the sum is given the multiplier drops out, and the dual, which is nearly zero where
// x is positive, keeps its digits.
struct Ascent {
    double top, product;
};
template <class Numbers>
SW_HD Ascent ascent_of(const Numbers& numbers, const NnlsConstraints& constraints, int64_t system, int n,
                       const void* x, const void* dual, double multiplier) {
    const uint8_t* mask = constraints.mask ? constraints.mask + system * constraints.mask_stride : nullptr;
    double top = -double_infinity, product = 0;
    SW_ROLLED
    for (int j = 0; j < n; ++j) {
        const double c = constraints.coefficients ? constraints.coefficients[j] : 1.0;
        const double w = numbers.read(dual, j) - (constraints.slack ? multiplier * c : 0.0);
        if (!mask || mask[j]) top = max_of(top, constraints.coefficients ? w / c : w);
        product += w * numbers.read(x, j);
    }
    return {top, product};
}

// The gap of Frank and Wolfe: 2 (max w's - w'x) over the s that are allowed, whose sums are at least `least`
// and at most `most`. Numbers, or vectors of them.
template <class Number>
SW_HD Number frank_wolfe_gap(Number top, Number product, Number least, Number most) {
    const Number gap = 2 * (top * (top > 0 ? most : least) - product);
    return gap < 0 ? Number{} : gap;
}
SW_HD double frank_wolfe_gap(const NnlsConstraints& constraints, int64_t system, const Ascent& w) {
    return frank_wolfe_gap(w.top, w.product,
                           max_of(constraints.sum_low[system * constraints.sum_stride], 0.0),
                           constraints.sum_high[system * constraints.sum_stride]);
}

}  // namespace lsq
SW_END
