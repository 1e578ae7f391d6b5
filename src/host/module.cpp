// The Python module stepwell._core: each solver's bindings live beside its host code and are registered here.
#include <nanobind/nanobind.h>
#include <omp.h>

#include "host/dispatch.hpp"

namespace nb = nanobind;

namespace stepwell {
void bind_nnls(nb::module_& m);
}

NB_MODULE(_core, m) {
    m.doc() = "Compiled core of stepwell.";
    m.def("isa", [] { return stepwell::isa_name(stepwell::best_isa()); }, "Instruction set in use.");
    m.def("compiler", [] { return __VERSION__; }, "Version of the C++ compiler that built this module.");
    m.def("max_threads", [] { return omp_get_max_threads(); }, "Threads that parallel regions use by default.");
    stepwell::bind_nnls(m);
}
