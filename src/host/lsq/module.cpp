// Bindings of NNLS: a job in, its arrays filled. All checking is done in Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstring>

#include "core/lsq/launch.hpp"
#include "core/lsq/small/choice.hpp"
#include "host/common/bindings.hpp"
#include "host/common/dispatch.hpp"
#include "host/common/layout.hpp"
#include "host/common/watch.hpp"
#include "host/lsq/choice.hpp"
#include "host/lsq/kernels.hpp"

namespace nb = nanobind;

namespace stepwell {

SW_KIND(NnlsOptions, "NnlsOptions")
SW_KIND(NnlsConstraints, "NnlsConstraints")
SW_KIND(NnlsJob, "NnlsJob")
SW_KIND(lsq::Envelope, "NnlsEnvelope")
SW_KIND(lsq::Shared, "NnlsShared")

namespace {

const NnlsKernels& kernels() {
    return SW_BEST(nnls_kernels)();
}

template <class T>
using Column = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Table = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void solve(const nb::bytes& job, bool single, bool form_gram, int32_t threads) {
    HostJob host{job_from<NnlsJob>(job), form_gram, threads};
    host.job.single = single;
    Watch watch(has_signal);
    host.job.options.interrupted = &Watch::look_at;
    host.job.options.watch = &watch;
    {
        const nb::gil_scoped_release release;
        kernels().solve(host);
    }
    if (watch.has_ended()) throw nb::python_error();
}

void bind_layouts(nb::module_& m) {
    StructLayout options(m, "NnlsOptions", sizeof(NnlsOptions));
    SW_FIELD(options, NnlsOptions, tolerance);
    SW_FIELD(options, NnlsOptions, rounding);
    SW_FIELD(options, NnlsOptions, damping);
    SW_FIELD(options, NnlsOptions, max_solves);
    SW_FIELD(options, NnlsOptions, update);
    SW_FIELD(options, NnlsOptions, guarded);
    SW_FIELD(options, NnlsOptions, chain);
    SW_FIELD(options, NnlsOptions, interrupted);
    SW_FIELD(options, NnlsOptions, watch);
    StructLayout constraints(m, "NnlsConstraints", sizeof(NnlsConstraints));
    SW_FIELD(constraints, NnlsConstraints, general);
    SW_FIELD(constraints, NnlsConstraints, nonnegative);
    SW_FIELD(constraints, NnlsConstraints, lower);
    SW_FIELD(constraints, NnlsConstraints, upper);
    SW_FIELD(constraints, NnlsConstraints, lower_stride);
    SW_FIELD(constraints, NnlsConstraints, upper_stride);
    SW_FIELD(constraints, NnlsConstraints, mask);
    SW_FIELD(constraints, NnlsConstraints, mask_stride);
    SW_FIELD(constraints, NnlsConstraints, weights);
    SW_FIELD(constraints, NnlsConstraints, weights_stride);
    SW_FIELD(constraints, NnlsConstraints, which);
    SW_FIELD(constraints, NnlsConstraints, matrices);
    SW_FIELD(constraints, NnlsConstraints, summed);
    SW_FIELD(constraints, NnlsConstraints, slack);
    SW_FIELD(constraints, NnlsConstraints, penalized);
    SW_FIELD(constraints, NnlsConstraints, sum_low);
    SW_FIELD(constraints, NnlsConstraints, sum_high);
    SW_FIELD(constraints, NnlsConstraints, sum_stride);
    SW_FIELD(constraints, NnlsConstraints, coefficients);
    SW_FIELD(constraints, NnlsConstraints, penalty);
    SW_FIELD(constraints, NnlsConstraints, penalty_rows);
    SW_FIELD(constraints, NnlsConstraints, has_states);
    SW_FIELD(constraints, NnlsConstraints, lam);
    SW_FIELD(constraints, NnlsConstraints, lam_stride);
    SW_FIELD(constraints, NnlsConstraints, rule);
    SW_FIELD(constraints, NnlsConstraints, own_spectra);
    SW_FIELD(constraints, NnlsConstraints, chi2);
    SW_FIELD(constraints, NnlsConstraints, noise);
    SW_FIELD(constraints, NnlsConstraints, noise_stride);
    SW_FIELD(constraints, NnlsConstraints, spectrum);
    SW_FIELD(constraints, NnlsConstraints, spectrum_stride);
    SW_FIELD(constraints, NnlsConstraints, pencil);
    SW_FIELD(constraints, NnlsConstraints, state);
    SW_FIELD(constraints, NnlsConstraints, multiplier);
    SW_FIELD(constraints, NnlsConstraints, equality_error);
    SW_FIELD(constraints, NnlsConstraints, gap);
    SW_FIELD(constraints, NnlsConstraints, used_lam);
    SW_FIELD(constraints, NnlsConstraints, fit);
    SW_FIELD(constraints, NnlsConstraints, seminorm);
    SW_FIELD(constraints, NnlsConstraints, unpenalized);
    SW_FIELD(constraints, NnlsConstraints, at_end);
    SW_FIELD(constraints, NnlsConstraints, evaluations);
    SW_FIELD(constraints, NnlsConstraints, passive);
    SW_FIELD(constraints, NnlsConstraints, deviation);
    SW_FIELD(constraints, NnlsConstraints, gram);
    SW_FIELD(constraints, NnlsConstraints, gram_stride);
    SW_FIELD(constraints, NnlsConstraints, linear);
    SW_FIELD(constraints, NnlsConstraints, linear_stride);
    SW_FIELD(constraints, NnlsConstraints, squared_b);
    SW_FIELD(constraints, NnlsConstraints, squared_b_stride);
    SW_FIELD(constraints, NnlsConstraints, factor);
    SW_FIELD(constraints, NnlsConstraints, factor_order);
    StructLayout job(m, "NnlsJob", sizeof(NnlsJob));
    SW_FIELD(job, NnlsJob, systems);
    SW_FIELD(job, NnlsJob, systems_in_batch);
    SW_FIELD(job, NnlsJob, rows);
    SW_FIELD(job, NnlsJob, columns);
    SW_FIELD(job, NnlsJob, single);
    SW_FIELD(job, NnlsJob, a);
    SW_FIELD(job, NnlsJob, a_stride);
    SW_FIELD(job, NnlsJob, row_stride);
    SW_FIELD(job, NnlsJob, pulse_length);
    SW_FIELD(job, NnlsJob, pulse_origin);
    SW_FIELD(job, NnlsJob, b);
    SW_FIELD(job, NnlsJob, b_stride);
    SW_FIELD(job, NnlsJob, tables);
    SW_FIELD(job, NnlsJob, options);
    SW_FIELD(job, NnlsJob, constraints);
    SW_FIELD(job, NnlsJob, warm_values);
    SW_FIELD(job, NnlsJob, warm_marks);
    SW_FIELD(job, NnlsJob, warm_stride);
    SW_FIELD(job, NnlsJob, x);
    SW_FIELD(job, NnlsJob, dual);
    SW_FIELD(job, NnlsJob, in_factor);
    SW_FIELD(job, NnlsJob, residual);
    SW_FIELD(job, NnlsJob, violation);
    SW_FIELD(job, NnlsJob, status);
    SW_FIELD(job, NnlsJob, insertions);
    SW_FIELD(job, NnlsJob, removals);
    SW_FIELD(job, NnlsJob, solves);
    SW_FIELD(job, NnlsJob, passes);
    SW_FIELD(job, NnlsJob, escalated);
    SW_FIELD(job, NnlsJob, costs);
    StructLayout envelope(m, "NnlsEnvelope", sizeof(lsq::Envelope));
    SW_FIELD(envelope, lsq::Envelope, low);
    SW_FIELD(envelope, lsq::Envelope, high);
    StructLayout shared(m, "NnlsShared", sizeof(lsq::Shared));
    SW_FIELD(shared, lsq::Shared, scale);
    SW_FIELD(shared, lsq::Shared, norm);
    SW_FIELD(shared, lsq::Shared, inverse_norm);
    SW_FIELD(shared, lsq::Shared, top_norm);
    SW_FIELD(shared, lsq::Shared, columns);
    SW_FIELD(shared, lsq::Shared, low);
    SW_FIELD(shared, lsq::Shared, high);
    SW_FIELD(shared, lsq::Shared, gram);
    SW_FIELD(shared, lsq::Shared, penalty_gram);
    SW_FIELD(shared, lsq::Shared, penalty_diagonal);
    SW_FIELD(shared, lsq::Shared, envelope);
    SW_FIELD(shared, lsq::Shared, column_stride);
    SW_FIELD(shared, lsq::Shared, gram_stride);
    StructLayout launch(m, "NnlsLaunch", sizeof(lsq::Launch));
    SW_FIELD(launch, lsq::Launch, job);
    SW_FIELD(launch, lsq::Launch, shared);
    SW_FIELD(launch, lsq::Launch, dictionary);
    SW_FIELD(launch, lsq::Launch, matrix);
    SW_FIELD(launch, lsq::Launch, first_row);
    SW_FIELD(launch, lsq::Launch, last_row);
    SW_FIELD(launch, lsq::Launch, products);
    SW_FIELD(launch, lsq::Launch, queue);
    SW_FIELD(launch, lsq::Launch, handed);
    SW_FIELD(launch, lsq::Launch, list);
    SW_FIELD(launch, lsq::Launch, slow);
    SW_FIELD(launch, lsq::Launch, slow_bytes);
    SW_FIELD(launch, lsq::Launch, fast_bytes);
}

}  // namespace

void bind_nnls(nb::module_& m) {
    bind_layouts(m);
    m.attr("NNLS_CHAIN") = nnls_chain_length;
    m.attr("NNLS_LARGE_TABLE") = lsq::large_table;
    nb::dict sources;
    sources["one_matrix"] = int(lsq::small::one_matrix);
    sources["some_matrices"] = int(lsq::small::some_matrices);
    sources["own_matrix"] = int(lsq::small::own_matrix);
    sources["normal_equations"] = int(lsq::small::normal_equations);
    m.attr("NNLS_SMALL_SOURCES") = sources;
    m.attr("NNLS_SMALL_POSITIONS") = lsq::small::most_positions;
    m.def(
        "nnls_small_source",
        [](const nb::bytes& job, bool form_gram) {
            return lsq::small::source_of(job_from<NnlsJob>(job), form_gram);
        },
        nb::arg("job"), nb::arg("form_gram"),
        "Where small systems have the products of their columns from, a number of NNLS_SMALL_SOURCES; -1 "
        "where "
        "systems are not for that solver.");
    m.def("nnls_table_length", &lsq::small::table_length, nb::arg("columns"),
          "Numbers in the table of a small system with a matrix of its own.");
    m.def("nnls_small_shared_length", &lsq::small::shared_length, nb::arg("columns"), nb::arg("rows"),
          nb::arg("width"),
          "Numbers that a block keeps in shared memory of the one matrix of small systems.");
    m.def("nnls_small_store_length", &lsq::small::store_length, nb::arg("capacity"), nb::arg("positions"),
          nb::arg("shares"), nb::arg("width"), "Numbers that a small system keeps while it is solved.");
    nb::dict statuses, updates;
    statuses["CONVERGED"] = int(lsq::converged);
    statuses["LIMIT"] = int(lsq::limit);
    statuses["STALLED"] = int(lsq::stalled);
    statuses["DEPENDENT"] = int(lsq::dependent);
    statuses["NON_FINITE"] = int(lsq::non_finite);
    statuses["INFEASIBLE"] = int(lsq::infeasible);
    m.attr("NNLS_STATUS") = statuses;
    updates["cgs2"] = int(lsq::cgs2);
    updates["mgs"] = int(lsq::mgs);
    updates["rotations"] = int(lsq::rotations);
    updates["csne"] = int(lsq::csne);
    updates["gram"] = int(lsq::gram);
    nb::dict rules;
    rules["chi2"] = int(lsq::rule_chi2);
    rules["discrepancy"] = int(lsq::rule_discrepancy);
    rules["gcv"] = int(lsq::rule_gcv);
    rules["lcurve"] = int(lsq::rule_lcurve);
    m.attr("NNLS_RULES") = rules;
    m.attr("NNLS_UPDATES") = updates;
    m.def(
        "nnls_solve", &solve, nb::arg("job"), nb::arg("single"), nb::arg("form_gram"), nb::arg("threads"),
        "Solve a batch of NNLS systems: the bytes of a job, whose addresses are the caller's to vouch for.");
    m.def("nnls_is_tiny", &nnls_is_tiny, nb::arg("rows"), nb::arg("columns"), nb::arg("damped"),
          "Whether a system is so small that the most careful method costs nothing.");
    m.def("nnls_gram_is_worth_forming", &nnls_gram_is_worth_forming, nb::arg("systems"), nb::arg("columns"),
          nb::arg("matrices"), "Whether so many systems repay the Gram matrices of so many matrices.");
    m.def(
        "nnls_shares_columns",
        [](const nb::bytes& job) { return lsq::shares_columns(job_from<NnlsJob>(job)); }, nb::arg("job"),
        "Whether the one matrix of all systems is prepared once, with its columns stored.");
    m.def(
        "nnls_stacked_rows",
        [](const nb::bytes& job) { return kernels().stacked_rows(job_from<NnlsJob>(job)); }, nb::arg("job"),
        "Rows of a general problem's columns: A's, and those beneath.");
    m.def(
        "nnls_device_workspace_bytes",
        [](const nb::bytes& job, int32_t members) {
            return kernels().device_workspace_bytes(job_from<NnlsJob>(job), members);
        },
        nb::arg("job"), nb::arg("members"), "Bytes that one team of a CUDA device needs.");
}

}  // namespace stepwell
