// Which method suits a batch of systems, where the caller leaves it to the library.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stepwell {

// Systems with fewer positive unknowns than this cost nothing: they get the most careful method, Q and R.
constexpr int64_t nnls_tiny = 8;
// The Gram matrix of a shared A costs n/2 products with A; a solve saves some tens of them.
constexpr int64_t nnls_gram_worth = 60;

inline bool nnls_is_tiny(int64_t rows, int64_t columns, bool damped) {
    return (damped ? columns : std::min(rows, columns)) < nnls_tiny;
}

inline bool nnls_gram_is_worth_forming(int64_t systems, int64_t columns, int64_t matrices) {
    return systems * nnls_gram_worth >= columns * matrices;
}

}  // namespace stepwell
