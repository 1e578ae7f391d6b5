// Bindings of fits by compiled models: a job in, its arrays filled. All checking is done in Python.
#include <nanobind/nanobind.h>

#include "core/fit/models/launch.hpp"
#include "host/common/bindings.hpp"
#include "host/common/layout.hpp"
#include "host/fit/compiled.hpp"

namespace nb = nanobind;

namespace stepwell {

SW_KIND(std::int8_t, "int8")
SW_KIND(FitOptions, "FitOptions")
SW_KIND(FitModelJob, "FitModelJob")

namespace {

void fit(const nb::bytes& given, int32_t threads) {
    Watch watch(has_signal);
    const HostFitJob host{job_from<FitModelJob>(given), threads, &watch};
    {
        const nb::gil_scoped_release release;
        SW_BEST(fit_compiled)(host);
    }
    if (watch.has_ended()) throw nb::python_error();
}

void rows(const nb::bytes& given, std::uintptr_t out) {
    const FitModelJob job = job_from<FitModelJob>(given);
    const nb::gil_scoped_release release;
    SW_BEST(fit_rows)(job, reinterpret_cast<void*>(out));
}

void bind_layouts(nb::module_& m) {
    StructLayout options(m, "FitOptions", sizeof(FitOptions));
    SW_FIELD(options, FitOptions, ftol);
    SW_FIELD(options, FitOptions, gtol);
    SW_FIELD(options, FitOptions, xtol);
    SW_FIELD(options, FitOptions, epsilon);
    SW_FIELD(options, FitOptions, max_iterations);
    SW_FIELD(options, FitOptions, max_evaluations);
    SW_FIELD(options, FitOptions, single);
    SW_FIELD(options, FitOptions, secant);
    SW_FIELD(options, FitOptions, accuracy);
    StructLayout job(m, "FitModelJob", sizeof(FitModelJob));
    SW_FIELD(job, FitModelJob, problems);
    SW_FIELD(job, FitModelJob, points);
    SW_FIELD(job, FitModelJob, parameters);
    SW_FIELD(job, FitModelJob, variables);
    SW_FIELD(job, FitModelJob, model);
    SW_FIELD(job, FitModelJob, count);
    SW_FIELD(job, FitModelJob, flag);
    SW_FIELD(job, FitModelJob, across);
    SW_FIELD(job, FitModelJob, x);
    SW_FIELD(job, FitModelJob, x_stride);
    SW_FIELD(job, FitModelJob, y);
    SW_FIELD(job, FitModelJob, y_stride);
    SW_FIELD(job, FitModelJob, weights);
    SW_FIELD(job, FitModelJob, weights_stride);
    SW_FIELD(job, FitModelJob, start);
    SW_FIELD(job, FitModelJob, start_stride);
    SW_FIELD(job, FitModelJob, low);
    SW_FIELD(job, FitModelJob, high);
    SW_FIELD(job, FitModelJob, low_stride);
    SW_FIELD(job, FitModelJob, high_stride);
    SW_FIELD(job, FitModelJob, options);
    SW_FIELD(job, FitModelJob, loss);
    SW_FIELD(job, FitModelJob, loss_scale);
    SW_FIELD(job, FitModelJob, unit_variance);
    SW_FIELD(job, FitModelJob, program);
    SW_FIELD(job, FitModelJob, constants);
    SW_FIELD(job, FitModelJob, outputs);
    SW_FIELD(job, FitModelJob, instructions);
    SW_FIELD(job, FitModelJob, registers);
    SW_FIELD(job, FitModelJob, constant_count);
    SW_FIELD(job, FitModelJob, uniform);
    SW_FIELD(job, FitModelJob, values);
    SW_FIELD(job, FitModelJob, variances);
    SW_FIELD(job, FitModelJob, covariance);
    SW_FIELD(job, FitModelJob, reals);
    SW_FIELD(job, FitModelJob, counts);
    SW_FIELD(job, FitModelJob, active);
    StructLayout launch(m, "FitLaunch", sizeof(FitLaunch));
    SW_FIELD(launch, FitLaunch, job);
    SW_FIELD(launch, FitLaunch, queue);
}

}  // namespace

void bind_fit_models(nb::module_& m) {
    bind_layouts(m);
    m.def("fit_compiled", &fit, nb::arg("job"), nb::arg("threads"), "Fit all problems of a job.");
    m.def("fit_rows", &rows, nb::arg("job"), nb::arg("out"),
          "Write derivatives and value at every point of every problem's start, (problems, points, n + 1).");
    nb::dict models;
    models["exponentials"] = int(FitModel::exponentials);
    models["ivim"] = int(FitModel::ivim);
    models["gaussians"] = int(FitModel::gaussians);
    models["lorentzians"] = int(FitModel::lorentzians);
    models["pseudo_voigts"] = int(FitModel::pseudo_voigts);
    models["polynomial_peak"] = int(FitModel::polynomial_peak);
    models["spot"] = int(FitModel::spot);
    models["grid_spot"] = int(FitModel::grid_spot);
    models["tofts"] = int(FitModel::tofts);
    models["program"] = int(FitModel::program);
    m.attr("FIT_MODELS") = models;
    const char* operations[] = {"add",  "subtract", "multiply", "divide",   "power", "negative", "exp",
                                "log",  "sqrt",     "sin",      "cos",      "tan",   "sinh",     "cosh",
                                "tanh", "arctan",   "erf",      "absolute", "sign",  "step"};
    nb::dict codes;
    for (int k = 0; k <= int(FitOperation::step); ++k) codes[operations[k]] = k;
    m.attr("FIT_OPERATIONS") = codes;
}

}  // namespace stepwell
