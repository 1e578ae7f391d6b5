// Few long rows (kept directions) against one vector: inner products with all rows, and combinations of them.
// Bound by memory, so each is one pass; on the package's own threads, as a library's threads that wait in a
// loop for more would take the cores from the sparse product that follows.
#pragma once

#include <cstdint>

#include "host/common/dispatch.hpp"

namespace stepwell {

// R is rows x length, row-major. Results depend neither on the number of threads nor on timing.
template <class Value>
struct RowsProduct {
    // out = R v
    void (*dots)(std::int64_t rows, std::int64_t length, const Value* R, const Value* v, Value* out,
                 int threads);
    // out = base + Rᵀ c, where rows with c = 0 are not read; and, where v is not null, overlaps = R v in the
    // same pass. out may be base, but not v.
    void (*combine)(std::int64_t rows, std::int64_t length, const Value* R, const Value* c, const Value* base,
                    Value* out, const Value* v, Value* overlaps, int threads);
};

struct RowsKernels {
    RowsProduct<double> d;
    RowsProduct<float> f;
};

SW_FOR_EACH_ISA(extern const RowsKernels rows_kernels;)

}  // namespace stepwell
