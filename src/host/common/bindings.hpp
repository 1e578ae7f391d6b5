// What each solver adds to the Python module stepwell._core, whose module.cpp defines it; and what several of
// these need.
#pragma once

#include <nanobind/nanobind.h>

#include <cstring>

namespace stepwell {

// Whether a signal has come whose handler raised; its exception is then set.
inline bool has_signal() {
    const nanobind::gil_scoped_acquire acquire;
    return PyErr_CheckSignals() != 0;
}

// A job's bytes, as Python has filled them.
template <class Job>
Job job_from(const nanobind::bytes& given) {
    Job job;
    if (given.size() != sizeof job) throw nanobind::value_error("a job has another size");
    std::memcpy(&job, given.data(), sizeof job);
    return job;
}

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
