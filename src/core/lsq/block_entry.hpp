// Many columns enter the Gram factor at once, where normal equations are given: what columns that enter one
// after the other do with vectors is done with blocks of them, whose products a machine is far faster at.
//
// With R of the columns before, G_PB their products with a block B of new ones and G_BB those of the block:
//   R_PB = R^-T G_PB,   R_BB'R_BB = G_BB - R_PB'R_PB,   and Q'b of the block is R_BB^-T (c_B - R_PB'Q'b).
// The host keeps R. A device keeps S = R^-1 (inverse.hpp), whose new columns are -S R_PB R_BB^-1 and R_BB^-1.
#pragma once

#include "core/lsq/entry.hpp"

SW_BEGIN
namespace lsq {

// What is left of a column's square where it does not depend on the others: as in insert_by_gram().
SW_HD double least_square_of_new(const Setting& setting, int j) {
    return dependent_below(setting.extent.columns) * setting.norm_of(j) * setting.norm_of(j);
}

// A block of `width` columns at the most: host/lsq/block_entry.hpp, cuda/lsq/block_entry.cuh.
//   explicit BlockEntry(const Factor<Team>& factor);
//   bool enter(int first, int own) const;  // `own` columns at the positions from `first` on. False where one
//                                          // depends on others
template <class Team>
struct BlockEntry;

// The columns at `number` positions after the last. False where one depends on others to rounding; the factor
// is then as it was. Called on a copy, as insert_by_csne_or_qr() is.
template <class Team>
SW_CALL bool enter_in_blocks(const Factor<Team> factor, int number) {
    const BlockEntry<Team> entry(factor);
    constexpr int width = BlockEntry<Team>::width;
    const int last = factor.count + number;
    for (int first = factor.count; first < last; first += width) {
        const int own = min_of(width, last - first);
        if (!entry.enter(first, own)) return false;
        const int64_t k = first;
        factor.charge(own, own * (k * k + 4 * k));
    }
    return true;
}

}  // namespace lsq
SW_END
