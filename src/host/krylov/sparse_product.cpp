// Compiled once per instruction set. The block's columns are copied into panels of equal width, padded and
// aligned, so that a panel's row is a few whole cache lines; the sums of one row of A for one panel stay in
// registers.
#include "host/krylov/sparse_product.hpp"

#include <algorithm>
#include <utility>

#include "host/common/pool.hpp"
#include "host/krylov/panels.hpp"

namespace stepwell {
namespace SW_ISA {
namespace {

constexpr int max_vectors = register_bytes == 64 ? 13 : 12;
constexpr std::int64_t stretch = 32;  // rows that a thread claims at a time, at the least
constexpr std::int64_t max_claims = 1024;

// Calls work(first, last) for stretches of rows until all are done.
template <class Work>
void for_rows(std::int64_t rows, int threads, const Work& work) {
    const std::int64_t length = std::max(stretch, (rows + max_claims - 1) / max_claims);
    const int claims = int((rows + length - 1) / length);
    Pool::instance().run(claims, threads,
                         [&](int claim, int) { work(claim * length, std::min(rows, (claim + 1) * length)); });
}

// The block as panels: all rows of the first panel, then all rows of the next.
template <class Value>
struct Panels : PanelCut {
    Aligned<Value> values;

    Panels(std::int64_t rows, std::int64_t columns, const Value* block, int threads)
        : PanelCut(cut_into_panels<Value>(columns, max_vectors)),
          values(aligned<Value>(count * width * rows)) {
        for_rows(rows, threads, [&](std::int64_t first, std::int64_t last) {
            for (std::int64_t row = first; row < last; ++row)
                for (std::int64_t panel = 0; panel < count; ++panel) {
                    Value* to = values.get() + (panel * rows + row) * width;
                    const Value* from = block + row * columns + panel * width;
                    const std::int64_t taken = filled(panel);
                    std::copy(from, from + taken, to);
                    std::fill(to + taken, to + width, Value(0));
                }
        });
    }
};

template <int vectors, class Value, class Index>
void rows_times_panel(std::int64_t first, std::int64_t last, const Index* indptr, const Index* indices,
                      const Value* data, const Value* panel, std::int64_t filled, std::int64_t stride,
                      Value* y) {
    typedef AlignedRegister<Value> Vector;
    constexpr std::int64_t width = std::int64_t(vectors) * register_lanes<Value>;
    for (std::int64_t row = first; row < last; ++row) {
        Vector sums[vectors] = {};
        for (std::int64_t k = indptr[row]; k < indptr[row + 1]; ++k) {
            const Value a = data[k];
            const Vector* from = reinterpret_cast<const Vector*>(panel + std::int64_t(indices[k]) * width);
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) sums[v] += a * from[v];
        }
        const Value* held = reinterpret_cast<const Value*>(sums);
        std::copy(held, held + filled, y + row * stride);
    }
}

// One column: four partial sums, so that additions do not wait for each other.
template <class Value, class Index>
void dot(std::int64_t first, std::int64_t last, const Index* indptr, const Index* indices, const Value* data,
         const Value* x, Value* y) {
    for (std::int64_t row = first; row < last; ++row) {
        Value sums[4] = {};
        std::int64_t k = indptr[row];
        for (; k + 4 <= indptr[row + 1]; k += 4)
            for (int s = 0; s < 4; ++s) sums[s] += data[k + s] * x[indices[k + s]];
        for (; k < indptr[row + 1]; ++k) sums[0] += data[k] * x[indices[k]];
        y[row] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
}

template <class Value, class Index>
using RowsTimesPanel = void (*)(std::int64_t, std::int64_t, const Index*, const Index*, const Value*,
                                const Value*, std::int64_t, std::int64_t, Value*);

template <class Value, class Index, int... vectors>
RowsTimesPanel<Value, Index> kernel_for(std::int64_t wanted, std::integer_sequence<int, vectors...>) {
    static constexpr RowsTimesPanel<Value, Index> kernels[] = {
        rows_times_panel<vectors + 1, Value, Index>...};
    return kernels[wanted - 1];
}

template <class Value, class Index>
void product(std::int64_t rows, std::int64_t inner, std::int64_t columns, const Index* indptr,
             const Index* indices, const Value* data, const Value* x, Value* y, int threads) {
    if (!rows || !columns) return;
    if (columns == 1) {
        for_rows(rows, threads, [&](std::int64_t first, std::int64_t last) {
            dot(first, last, indptr, indices, data, x, y);
        });
        return;
    }
    const Panels<Value> panels(inner, columns, x, threads);
    const auto multiply = kernel_for<Value, Index>(panels.width / register_lanes<Value>,
                                                   std::make_integer_sequence<int, max_vectors>());
    for_rows(rows, threads, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t panel = 0; panel < panels.count; ++panel)
            multiply(first, last, indptr, indices, data, panels.values.get() + panel * inner * panels.width,
                     panels.filled(panel), columns, y + panel * panels.width);
    });
}

}  // namespace

extern const SparseKernels sparse_kernels;
const SparseKernels sparse_kernels{{product<double, std::int32_t>},
                                   {product<double, std::int64_t>},
                                   {product<float, std::int32_t>},
                                   {product<float, std::int64_t>}};

}  // namespace SW_ISA
}  // namespace stepwell
