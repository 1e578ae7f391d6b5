// Registers the sparse product with the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace stepwell {
void register_spmm(nanobind::module_& m);
}
