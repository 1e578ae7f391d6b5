// What each solver adds to the Python module stepwell._core; its module.cpp defines it.
#pragma once

#include <nanobind/nanobind.h>

namespace stepwell {

void bind_quasi_newton(nanobind::module_& m);
void bind_nnls(nanobind::module_& m);
void bind_normal_solve(nanobind::module_& m);
void bind_jax_handlers(nanobind::module_& m);  // where they are built
void bind_fit_models(nanobind::module_& m);
void bind_krylov(nanobind::module_& m);
void bind_tv(nanobind::module_& m);
void bind_voronoi(nanobind::module_& m);
void bind_fit(nanobind::module_& m);

}  // namespace stepwell
