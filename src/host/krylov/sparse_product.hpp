// Sparse matrix (CSR) times dense block (row-major): the one product that block conjugate gradients spend
// their time in.
#pragma once

#include <cstdint>

#include "host/common/dispatch.hpp"

namespace stepwell {

// Y (rows x columns, row-major) = A X, A in CSR with `rows` rows, on at most `threads` threads of the pool.
// Value is float or double, Index int32 or int64.
template <class Value, class Index>
struct SparseProduct {
    void (*run)(std::int64_t rows, std::int64_t inner, std::int64_t columns, const Index* indptr,
                const Index* indices, const Value* data, const Value* x, Value* y, int threads);
};

struct SparseKernels {
    SparseProduct<double, std::int32_t> d32;
    SparseProduct<double, std::int64_t> d64;
    SparseProduct<float, std::int32_t> f32;
    SparseProduct<float, std::int64_t> f64;
};

SW_FOR_EACH_ISA(extern const SparseKernels sparse_kernels;)

}  // namespace stepwell
