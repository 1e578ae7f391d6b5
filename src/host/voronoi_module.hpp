// Registers the bindings of the discrete Voronoi diagram.
#pragma once

#include <nanobind/nanobind.h>

namespace stepwell {

void bind_voronoi(nanobind::module_& m);

}  // namespace stepwell
