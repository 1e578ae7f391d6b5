// What NNLS asks of a matrix: A'r with its column norms (measure), A'r alone (multiply), one column (gather).
// Two kinds: dense.hpp and convolution.hpp.
//
// Leading and trailing zeros are found once and never read again: the envelope. CPU threads walk along rows,
// eight at a time (each member its own range of columns), so theirs is kept by eights of rows; a thread of a
// block owns columns, so its is by column.
#pragma once

#include "core/lsq/vectors.hpp"

SW_BEGIN
namespace lsq {

constexpr int rows_at_once = 8;

struct Envelope {
    int32_t* low;
    int32_t* high;
};

SW_HD int64_t envelope_length(int64_t rows, int members) {
    return (rows + rows_at_once - 1) / rows_at_once * members;
}

}  // namespace lsq
SW_END
