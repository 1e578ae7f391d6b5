// Binding of the panel product.
#include <nanobind/ndarray.h>

#include "host/common/bindings.hpp"
#include "host/common/dispatch.hpp"
#include "host/common/panel.hpp"

namespace nb = nanobind;

namespace stepwell {
namespace {

PanelProduct kernel() {
    return SW_BEST(panel_product);
}

template <class T>
using Panel = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void product(Panel<const double> left, Panel<const double> right, Panel<double> out, int threads) {
    if (left.shape(1) != right.shape(1) || out.shape(0) != left.shape(0) || out.shape(1) != right.shape(0) ||
        left.shape(0) > panel_most_rows || right.shape(0) > panel_most_rows || threads < 1)
        throw nb::value_error(
            "panel_product: left (r, n), right (c, n) and out (r, c) must fit together, r and c at most 16");
    nb::gil_scoped_release release;
    kernel()(int(left.shape(0)), int(right.shape(0)), std::int64_t(left.shape(1)), left.data(), right.data(),
             out.data(), threads);
}

}  // namespace

void bind_panel(nb::module_& m) {
    m.def("panel_product", &product, nb::arg("left").noconvert(), nb::arg("right").noconvert(),
          nb::arg("out").noconvert(), nb::arg("threads"), "Write left rightᵀ to out; rows are long and few.");
}

}  // namespace stepwell
