// Bindings of what many right-hand sides need of the host: the sparse product, products with kept directions
// and of blocks, and independent combinations of columns. Index bounds are the caller's promise: SciPy checks
// them when a matrix is made.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>

#include "host/common/bindings.hpp"
#include "host/common/dispatch.hpp"
#include "host/krylov/blocks.hpp"
#include "host/krylov/pivoted_cholesky.hpp"
#include "host/krylov/rows.hpp"
#include "host/krylov/sparse_product.hpp"

namespace nb = nanobind;

namespace stepwell {
namespace {

const SparseKernels& kernels() {
    return SW_BEST(sparse_kernels);
}

const RowsKernels& row_kernels() {
    return SW_BEST(rows_kernels);
}

const BlockKernels& blocks() {
    return SW_BEST(block_kernels);
}

const GramKernels& small_kernels() {
    return SW_BEST(gram_kernels);
}

template <class T>
using Line = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Block = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class Value, class Index>
void define(nb::module_& m, SparseProduct<Value, Index> SparseKernels::* product) {
    m.def(
        "csr_times_block",
        [product](Line<Index> indptr, Line<Index> indices, Line<Value> data, Block<const Value> x,
                  Block<Value> y, int threads) {
            if (indptr.shape(0) != y.shape(0) + 1 || x.shape(1) != y.shape(1) ||
                indices.shape(0) != data.shape(0))
                throw nb::value_error("csr_times_block: shapes of the matrix, x and y do not fit together");
            nb::gil_scoped_release release;
            (kernels().*product)
                .run(std::int64_t(y.shape(0)), std::int64_t(x.shape(0)), std::int64_t(y.shape(1)),
                     indptr.data(), indices.data(), data.data(), x.data(), y.data(), threads);
        },
        nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("data").noconvert(),
        nb::arg("x").noconvert(), nb::arg("y").noconvert(), nb::arg("threads"),
        "Write A x to y; A is CSR, x and y are C-ordered blocks.");
}

template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class Value>
void define_rows(nb::module_& m, RowsProduct<Value> RowsKernels::* product) {
    m.def(
        "rows_dots",
        [product](Block<const Value> R, Line<Value> v, Vector<Value> out, int threads) {
            if (v.shape(0) != R.shape(1) || out.shape(0) != R.shape(0))
                throw nb::value_error("rows_dots: R (k, n), v (n) and out (k) do not fit together");
            nb::gil_scoped_release release;
            (row_kernels().*product)
                .dots(std::int64_t(R.shape(0)), std::int64_t(R.shape(1)), R.data(), v.data(), out.data(),
                      threads);
        },
        nb::arg("R").noconvert(), nb::arg("v").noconvert(), nb::arg("out").noconvert(), nb::arg("threads"),
        "Write R v to out; rows are long and few.");
    m.def(
        "rows_combine",
        [product](Block<const Value> R, Line<Value> c, Line<Value> base, Vector<Value> out, int threads) {
            if (base.shape(0) != R.shape(1) || out.shape(0) != R.shape(1) || c.shape(0) != R.shape(0))
                throw nb::value_error(
                    "rows_combine: R (k, n), c (k), base (n) and out (n) do not fit together");
            nb::gil_scoped_release release;
            (row_kernels().*product)
                .combine(std::int64_t(R.shape(0)), std::int64_t(R.shape(1)), R.data(), c.data(), base.data(),
                         out.data(), nullptr, nullptr, threads);
        },
        nb::arg("R").noconvert(), nb::arg("c").noconvert(), nb::arg("base").noconvert(),
        nb::arg("out").noconvert(), nb::arg("threads"),
        "Write base + Rᵀ c to out; rows with c = 0 are not read.");
    m.def(
        "rows_combine_and_dots",
        [product](Block<const Value> R, Line<Value> c, Line<Value> base, Vector<Value> out, Line<Value> v,
                  Vector<Value> overlaps, int threads) {
            if (base.shape(0) != R.shape(1) || out.shape(0) != R.shape(1) || c.shape(0) != R.shape(0) ||
                v.shape(0) != R.shape(1) || overlaps.shape(0) != R.shape(0) || out.data() == v.data())
                throw nb::value_error(
                    "rows_combine_and_dots: R (k, n), c (k), base (n), out (n), v (n) and overlaps (k) do "
                    "not fit "
                    "together");
            nb::gil_scoped_release release;
            (row_kernels().*product)
                .combine(std::int64_t(R.shape(0)), std::int64_t(R.shape(1)), R.data(), c.data(), base.data(),
                         out.data(), v.data(), overlaps.data(), threads);
        },
        nb::arg("R").noconvert(), nb::arg("c").noconvert(), nb::arg("base").noconvert(),
        nb::arg("out").noconvert(), nb::arg("v").noconvert(), nb::arg("overlaps").noconvert(),
        nb::arg("threads"), "Write base + Rᵀ c to out and R v to overlaps, in one pass.");
}

template <class Value>
void define_blocks(nb::module_& m, BlockProduct<Value> BlockKernels::* product) {
    m.def(
        "block_gram",
        [product](Block<const Value> left, Block<const Value> right, Block<Value> out, int threads) {
            if (left.shape(0) != right.shape(0) || out.shape(0) != left.shape(1) ||
                out.shape(1) != right.shape(1))
                throw nb::value_error(
                    "block_gram: left (n, j), right (n, k) and out (j, k) do not fit together");
            nb::gil_scoped_release release;
            (blocks().*product)
                .gram(std::int64_t(left.shape(0)), std::int64_t(left.shape(1)), std::int64_t(right.shape(1)),
                      left.data(), right.data(), out.data(), threads);
        },
        nb::arg("left").noconvert(), nb::arg("right").noconvert(), nb::arg("out").noconvert(),
        nb::arg("threads"), "Write leftᵀ right to out; blocks are long and narrow.");
    m.def(
        "block_combine",
        [product](Block<const Value> left, Block<const Value> right, std::optional<Block<const Value>> base,
                  double sign, Block<Value> out, int threads) {
            if (left.shape(1) != right.shape(0) || out.shape(0) != left.shape(0) ||
                out.shape(1) != right.shape(1) ||
                (base && (base->shape(0) != out.shape(0) || base->shape(1) != out.shape(1))))
                throw nb::value_error(
                    "block_combine: left (n, j), right (j, k), base and out (n, k) do not fit together");
            nb::gil_scoped_release release;
            (blocks().*product)
                .combine(std::int64_t(left.shape(0)), std::int64_t(left.shape(1)),
                         std::int64_t(right.shape(1)), left.data(), right.data(),
                         base ? base->data() : nullptr, Value(sign), out.data(), threads);
        },
        nb::arg("left").noconvert(), nb::arg("right").noconvert(), nb::arg("base").noconvert().none(),
        nb::arg("sign"), nb::arg("out").noconvert(), nb::arg("threads"),
        "Write base + sign left right to out; None for no base.");
}

}  // namespace

void bind_krylov(nb::module_& m) {
    define<double, std::int32_t>(m, &SparseKernels::d32);
    define<double, std::int64_t>(m, &SparseKernels::d64);
    define<float, std::int32_t>(m, &SparseKernels::f32);
    define<float, std::int64_t>(m, &SparseKernels::f64);
    define_rows<double>(m, &RowsKernels::d);
    define_rows<float>(m, &RowsKernels::f);
    define_blocks<double>(m, &BlockKernels::d);
    define_blocks<float>(m, &BlockKernels::f);
    m.def(
        "independent_combinations",
        [](Block<const double> gram, double cut, Block<double> mix) {
            const std::size_t k = gram.shape(0);
            if (gram.shape(1) != k || mix.shape(0) != k || mix.shape(1) != k)
                throw nb::value_error("independent_combinations: gram and mix must be square and alike");
            return small_kernels().combine(gram.data(), int(k), cut, mix.data());
        },
        nb::arg("gram").noconvert(), nb::arg("cut"), nb::arg("mix").noconvert(),
        "Write combinations of columns, orthonormal in the Gram matrix, to the first columns of mix; return "
        "their number, or -1 where the Gram matrix is not finite.");
}

}  // namespace stepwell
