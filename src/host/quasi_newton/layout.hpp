// Bindings of layouts; see layout.cpp.
#pragma once

#include <nanobind/nanobind.h>

namespace stepwell {

void bind_state_layout(nanobind::module_& m);
void bind_device_layout(nanobind::module_& m);

}  // namespace stepwell
