// Long, narrow blocks of columns: their inner products and their combinations. On the package's own threads,
// as a library's threads that wait in a loop for more would take the cores from the sparse product that
// follows.
#pragma once

#include <cstdint>

#include "host/common/dispatch.hpp"

namespace stepwell {

// Blocks are row-major. Results depend neither on the number of threads nor on timing.
template <class Value>
struct BlockProduct {
    // gram (left_columns x right_columns) = leftᵀ right, for blocks of so many rows. Where both are the same
    // memory half of the sums are formed, and gram is symmetric to the last bit.
    void (*gram)(std::int64_t rows, std::int64_t left_columns, std::int64_t right_columns, const Value* left,
                 const Value* right, Value* gram, int threads);
    // out = base + sign left right, for left of rows x inner and right of inner x columns; without a base
    // sign left right. out may be base.
    void (*combine)(std::int64_t rows, std::int64_t inner, std::int64_t columns, const Value* left,
                    const Value* right, const Value* base, Value sign, Value* out, int threads);
};

struct BlockKernels {
    BlockProduct<double> d;
    BlockProduct<float> f;
};

SW_FOR_EACH_ISA(extern const BlockKernels block_kernels;)

}  // namespace stepwell
