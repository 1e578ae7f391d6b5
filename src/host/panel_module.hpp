// Registers the panel product with the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace stepwell {
void bind_panel(nanobind::module_& m);
}
