// Problems whose vectors are in a device's memory, as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace stepwell {

void bind_device_problem(nanobind::module_& m);

}  // namespace stepwell
