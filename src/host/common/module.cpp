// The Python module stepwell._core: each solver's bindings live beside its host code and are registered here.
#include <nanobind/nanobind.h>

#include "host/common/bindings.hpp"
#include "host/common/dispatch.hpp"

namespace nb = nanobind;

#if defined(__GNUC__) && !defined(__clang__)
#define SW_COMPILER "GCC " __VERSION__
#else
#define SW_COMPILER __VERSION__  // says its name
#endif

NB_MODULE(_core, m) {
    m.doc() = "Compiled core of stepwell.";
    // Somebody who keeps a point until Python ends, in a class say, keeps its memory: no mistake of theirs or
    // ours.
    nb::set_leak_warnings(false);
    m.def("isa", [] { return stepwell::isa_name(stepwell::best_isa()); }, "Instruction set in use.");
    m.def("compiler", [] { return SW_COMPILER; }, "The C++ compiler that built this module.");
    stepwell::bind_quasi_newton(m);
    stepwell::bind_krylov(m);
    stepwell::bind_nnls(m);
    stepwell::bind_normal_solve(m);
    stepwell::bind_tv(m);
    stepwell::bind_voronoi(m);
    stepwell::bind_fit(m);
    stepwell::bind_fit_models(m);
#if defined(SW_JAX_HANDLERS)
    stepwell::bind_jax_handlers(m);
#endif
}
