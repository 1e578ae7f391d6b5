// Bindings of what many right-hand sides need of the host: the sparse product, and independent combinations
// of columns. Index bounds are the caller's promise: SciPy checks them when a matrix is made.
#include "host/spmm_module.hpp"

#include <nanobind/ndarray.h>
#include <omp.h>

#include "host/dispatch.hpp"
#include "host/gram_factor.hpp"
#include "host/spmm.hpp"

namespace nb = nanobind;

namespace stepwell {
namespace {

const SparseKernels& kernels() {
    return SW_BEST(sparse_kernels);
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
                  Block<Value> y) {
            if (indptr.shape(0) != y.shape(0) + 1 || x.shape(1) != y.shape(1) ||
                indices.shape(0) != data.shape(0))
                throw nb::value_error("csr_times_block: shapes of the matrix, x and y do not fit together");
            const int threads = omp_get_max_threads();  // as OMP_NUM_THREADS and threadpoolctl say
            nb::gil_scoped_release release;
            (kernels().*product)
                .run(std::int64_t(y.shape(0)), std::int64_t(x.shape(0)), std::int64_t(y.shape(1)),
                     indptr.data(), indices.data(), data.data(), x.data(), y.data(), threads);
        },
        nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("data").noconvert(),
        nb::arg("x").noconvert(), nb::arg("y").noconvert(),
        "Write A x to y; A is CSR, x and y are C-ordered blocks.");
}

}  // namespace

void bind_spmm(nb::module_& m) {
    define<double, std::int32_t>(m, &SparseKernels::d32);
    define<double, std::int64_t>(m, &SparseKernels::d64);
    define<float, std::int32_t>(m, &SparseKernels::f32);
    define<float, std::int64_t>(m, &SparseKernels::f64);
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
