// Compiled once per instruction set. Rows are taken a few at a time, and each row is multiplied with as many
// columns as the registers hold sums for: measured on projection matrices, wide panels beat blocking for the
// cache.
#include <algorithm>
#include <type_traits>

#include "host/spmm.hpp"

namespace stepwell {
namespace SW_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64, most_vectors = 13;
#elif defined(__AVX__)
constexpr int vector_bytes = 32, most_vectors = 12;
#else
constexpr int vector_bytes = 16, most_vectors = 12;
#endif
constexpr std::int64_t stretch = 8;  // rows a thread takes at a time

template <class Value, int lanes>
struct Vector {
    // Loads and stores need no more than the alignment of one value.
    typedef Value type
        __attribute__((vector_size(lanes * sizeof(Value)), aligned(alignof(Value)), may_alias));
};

template <int lanes, int vectors, class Value, class Index>
void panel(std::int64_t first, std::int64_t last, std::int64_t columns, const Index* indptr,
           const Index* indices, const Value* data, const Value* x, Value* y) {
    using Lane = typename Vector<Value, lanes>::type;
    for (std::int64_t row = first; row < last; ++row) {
        Lane sums[vectors] = {};
        for (std::int64_t k = indptr[row]; k < indptr[row + 1]; ++k) {
            const Value a = data[k];
            const Value* from = x + std::int64_t(indices[k]) * columns;
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) sums[v] += a * *reinterpret_cast<const Lane*>(from + v * lanes);
        }
#pragma GCC unroll 16
        for (int v = 0; v < vectors; ++v) *reinterpret_cast<Lane*>(y + row * columns + v * lanes) = sums[v];
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
void stretch_of_rows(std::int64_t first, std::int64_t last, std::int64_t columns, const Index* indptr,
                     const Index* indices, const Value* data, const Value* x, Value* y) {
    constexpr int lanes = vector_bytes / int(sizeof(Value));
    if (columns == 1) return dot(first, last, indptr, indices, data, x, y);
    std::int64_t c = 0;
    const auto cover = [&](auto width, auto vectors) {
        constexpr std::int64_t span = decltype(width)::value * decltype(vectors)::value;
        for (; c + span <= columns; c += span)
            panel<decltype(width)::value, decltype(vectors)::value>(first, last, columns, indptr, indices,
                                                                    data, x + c, y + c);
    };
    const auto whole = std::integral_constant<int, lanes>();
    cover(whole, std::integral_constant<int, most_vectors>());
    cover(whole, std::integral_constant<int, 4>());
    cover(whole, std::integral_constant<int, 1>());
    if (c < columns &&
        columns >= lanes) {  // the last vector may overlap its neighbour: both write the same sums
        c = columns - lanes;
        cover(whole, std::integral_constant<int, 1>());
    }
    cover(std::integral_constant<int, 2>(), std::integral_constant<int, 1>());
    cover(std::integral_constant<int, 1>(), std::integral_constant<int, 1>());
}

template <class Value, class Index>
void product(std::int64_t rows, std::int64_t columns, const Index* indptr, const Index* indices,
             const Value* data, const Value* x, Value* y) {
#pragma omp parallel for schedule(dynamic, 4)
    for (std::int64_t first = 0; first < rows; first += stretch)
        stretch_of_rows(first, std::min(rows, first + stretch), columns, indptr, indices, data, x, y);
}

}  // namespace

extern const SparseKernels sparse_kernels;
const SparseKernels sparse_kernels{{product<double, std::int32_t>},
                                   {product<double, std::int64_t>},
                                   {product<float, std::int32_t>},
                                   {product<float, std::int64_t>}};

}  // namespace SW_ISA
}  // namespace stepwell
