// Registers the sparse product with the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace stepwell {
void bind_spmm(nanobind::module_& m);
}
