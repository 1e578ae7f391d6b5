// Registers the NNLS bindings.
#pragma once

#include <nanobind/nanobind.h>

namespace stepwell {

void bind_nnls(nanobind::module_& m);

}  // namespace stepwell
