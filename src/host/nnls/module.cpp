// Bindings of NNLS: arrays in, arrays filled. All checking of values is done at the Python door.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <stdexcept>

#include "host/common/bindings.hpp"
#include "host/common/dispatch.hpp"
#include "host/nnls/kernels.hpp"

namespace nb = nanobind;

namespace stepwell {
namespace {

const NnlsKernels& kernels() {
    return SW_BEST(nnls_kernels)();
}

using Read = nb::ndarray<nb::ro, nb::device::cpu>;
using Marks = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Write = nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Column = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Table = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void check(bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
}

void solve(Read a, Read b, bool convolution, int32_t rows, int32_t columns, int32_t origin, double tolerance,
           double rounding, double damping, int32_t most_solves, int32_t update, bool guarded, bool form_gram,
           bool chain, int32_t threads, std::optional<Read> warm_values, std::optional<Marks> warm_marks,
           Write x, Write dual, Table<uint8_t> active, Table<double> reals, Table<int32_t> counts,
           Table<int64_t> costs) {
    HostJob host{};
    NnlsJob& job = host.job;
    job.systems = static_cast<int64_t>(b.shape(0));
    job.rows = rows;
    job.columns = columns;
    host.single = b.dtype() == nb::dtype<float>();
    check(a.dtype() == b.dtype() && x.dtype() == b.dtype() && dual.dtype() == b.dtype(), "dtypes differ");
    check(b.ndim() == 2 && b.shape(1) == static_cast<size_t>(rows) && (rows == 1 || b.stride(1) == 1), "b");
    const size_t inner = convolution ? 1 : 2;  // dimensions of one matrix or pulse
    check(a.ndim() == inner || a.ndim() == inner + 1, "a");
    check(a.shape(a.ndim() - 1) <= 1 || a.stride(a.ndim() - 1) == 1, "a is not contiguous");
    const bool shared = a.ndim() == inner;
    check(shared || a.shape(0) == b.shape(0), "a and b differ in length");
    job.a = a.data();
    job.a_stride = shared ? 0 : a.stride(0);
    if (convolution) {
        job.pulse_length = static_cast<int32_t>(a.shape(a.ndim() - 1));
        job.pulse_origin = origin;
    } else {
        check(a.shape(a.ndim() - 2) == static_cast<size_t>(rows), "rows of a");
        check(a.shape(a.ndim() - 1) == static_cast<size_t>(columns), "columns of a");
        job.row_stride = a.stride(a.ndim() - 2);
    }
    job.b = b.data();
    job.b_stride = b.stride(0);
    job.options = {tolerance, rounding, damping, most_solves, update, guarded, chain};
    host.form_gram = form_gram;
    host.threads = threads;
    const size_t systems = b.shape(0), n = static_cast<size_t>(columns);
    if (warm_values) {
        check(warm_values->dtype() == b.dtype() && warm_values->ndim() == 2 && warm_values->shape(1) == n,
              "warm x");
        job.warm_values = warm_values->data();
        job.warm_stride = warm_values->shape(0) == 1 ? 0 : static_cast<int64_t>(n);
    }
    if (warm_marks) {
        check(warm_marks->shape(1) == n, "warm marks");
        job.warm_marks = warm_marks->data();
        job.warm_stride = warm_marks->shape(0) == 1 ? 0 : static_cast<int64_t>(n);
    }
    check(x.shape(0) == systems && x.shape(1) == n && dual.shape(0) == systems && dual.shape(1) == n,
          "x, dual");
    check(active.shape(0) == systems && active.shape(1) == n, "active");
    check(reals.shape(0) == 2 && reals.shape(1) == systems && counts.shape(0) == 6 &&
              counts.shape(1) == systems && costs.shape(0) == systems && costs.shape(1) == 4,
          "results");
    job.x = x.data();
    job.dual = dual.data();
    job.active = active.data();
    job.residual = reals.data();
    job.violation = reals.data() + systems;
    int32_t* count = counts.data();
    job.status = count;
    job.insertions = count + systems;
    job.removals = count + 2 * systems;
    job.solves = count + 3 * systems;
    job.passes = count + 4 * systems;
    job.escalated = count + 5 * systems;
    job.costs = costs.data();
    const nb::gil_scoped_release release;
    kernels().solve(host);
}

nb::tuple try_factor(Table<const double> a, int32_t update, Column<const int32_t> moves) {
    FactorTrial trial{};
    trial.rows = static_cast<int32_t>(a.shape(0));
    trial.columns = static_cast<int32_t>(a.shape(1));
    trial.update = update;
    trial.a = a.data();
    trial.moves = moves.data();
    trial.move_count = static_cast<int64_t>(moves.shape(0));
    kernels().try_factor(trial);
    return nb::make_tuple(trial.orthogonality, trial.backward_error, trial.count, trial.rejected,
                          nb::make_tuple(trial.costs[0], trial.costs[1], trial.costs[2], trial.costs[3]));
}

}  // namespace

void bind_nnls(nb::module_& m) {
    m.attr("NNLS_CHAIN") = nnls_chain_length;
    m.def("nnls_solve", &solve, nb::kw_only(), nb::arg("a"), nb::arg("b"), nb::arg("convolution"),
          nb::arg("rows"), nb::arg("columns"), nb::arg("origin"), nb::arg("tolerance"), nb::arg("rounding"),
          nb::arg("damping"), nb::arg("most_solves"), nb::arg("update"), nb::arg("guarded"),
          nb::arg("form_gram"), nb::arg("chain"), nb::arg("threads"), nb::arg("warm_values").none(),
          nb::arg("warm_marks").none(), nb::arg("x").noconvert(), nb::arg("dual").noconvert(),
          nb::arg("active").noconvert(), nb::arg("reals").noconvert(), nb::arg("counts").noconvert(),
          nb::arg("costs").noconvert(), "Solve a batch of NNLS systems.");
    m.def(
        "nnls_device_workspace_bytes",
        [](int32_t rows, int32_t columns, int32_t pulse_length, int32_t pulse_origin, int32_t update,
           int32_t members, bool damped, bool shared) {
            return kernels().device_workspace_bytes(
                {rows, columns, pulse_length, pulse_origin, update, members, damped, shared});
        },
        nb::kw_only(), nb::arg("rows"), nb::arg("columns"), nb::arg("pulse_length"), nb::arg("pulse_origin"),
        nb::arg("update"), nb::arg("members"), nb::arg("damped"), nb::arg("shared"),
        "Bytes that one team of a CUDA device needs.");
    m.def("nnls_try_factor", &try_factor, nb::arg("a"), nb::arg("update"), nb::arg("moves"),
          "Insert and remove columns; report orthogonality, backward error, count, rejections and costs.");
}

}  // namespace stepwell
