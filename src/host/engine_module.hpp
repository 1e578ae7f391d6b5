// Registers the quasi-Newton engine with the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace stepwell {
void bind_quasi_newton(nanobind::module_& m);
}
