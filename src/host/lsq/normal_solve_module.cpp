// Binding of the normal equations of free columns. Shapes are checked here, values in Python.
#include <nanobind/ndarray.h>

#include <vector>

#include "core/lsq/free_solve.hpp"
#include "host/common/bindings.hpp"
#include "host/common/dispatch.hpp"
#include "host/common/layout.hpp"
#include "host/lsq/normal_solve.hpp"

namespace nb = nanobind;

namespace stepwell {
namespace {

template <class T, int Axes>
using Block = nb::ndarray<T, nb::ndim<Axes>, nb::c_contig, nb::device::cpu>;

void solve(Block<const double, 3> a, int32_t rows, int32_t origin, bool pulses, Block<const uint8_t, 2> free,
           Block<const double, 1> damping, Block<const double, 3> g, Block<double, 3> u, int32_t threads,
           bool gram) {
    const size_t systems = free.shape(0), columns = free.shape(1);
    const auto fits = [&](size_t count) { return count == 1 || count == systems; };
    const bool good = fits(a.shape(0)) && fits(damping.shape(0)) && g.shape(0) == systems &&
                      g.shape(2) == columns && u.shape(0) == systems && u.shape(1) == g.shape(1) &&
                      u.shape(2) == columns && !(pulses && gram) && (!gram || size_t(rows) == columns) &&
                      (pulses ? a.shape(1) == 1 : a.shape(1) == size_t(rows) && a.shape(2) == columns);
    if (!good) throw nb::value_error("nnls_normal_solve: shapes do not fit together");
    const NormalJob job{
        int64_t(systems),
        int64_t(g.shape(1)),
        rows,
        int32_t(columns),
        pulses ? int32_t(a.shape(2)) : 0,
        origin,
        a.data(),
        a.shape(0) == 1 ? 0 : int64_t(a.shape(1) * a.shape(2)),
        free.data(),
        damping.data(),
        damping.shape(0) == 1 ? 0 : 1,
        g.data(),
        u.data(),
        threads,
        gram,
    };
    const nb::gil_scoped_release release;
    SW_BEST(normal_kernels)().solve(job);
}

void pull_back(Block<const double, 3> a, Block<const double, 2> b, double damping, Block<const double, 2> x,
               Block<const double, 2> g, Block<double, 3> to_a, Block<double, 2> to_b, int32_t threads) {
    const size_t systems = a.shape(0), rows = a.shape(1), columns = a.shape(2);
    const auto is = [&](const auto& block, size_t length) {
        return block.shape(0) == systems && block.shape(1) == length;
    };
    const bool good = is(b, rows) && is(x, columns) && is(g, columns) && is(to_b, rows) && is(to_a, rows) &&
                      to_a.shape(2) == columns;
    if (!good) throw nb::value_error("nnls_pull_back: shapes do not fit together");
    if (systems == 0) return;
    const nb::gil_scoped_release release;
    const size_t numbers = systems * columns;
    std::vector<uint8_t> free(numbers);
    for (size_t k = 0; k < numbers; ++k) free[k] = x.data()[k] > 0;
    std::vector<double> u(numbers);
    NormalJob job{};
    job.systems = int64_t(systems);
    job.right_sides = 1;
    job.rows = int32_t(rows);
    job.columns = int32_t(columns);
    job.a = a.data();
    job.a_stride = int64_t(rows * columns);
    job.free = free.data();
    job.damping = &damping;
    job.g = g.data();
    job.u = u.data();
    job.threads = threads;
    job.b = b.data();
    job.x = x.data();
    job.to_a = to_a.data();
    job.to_b = to_b.data();
    SW_BEST(normal_kernels)().solve(job);
}

// With the factor that a solve has kept: R'R u = g on its columns.
void solve_with_kept(Block<const double, 2> factor, Block<const int32_t, 2> order, Block<const double, 3> g,
                     Block<double, 3> u) {
    const int64_t systems = int64_t(order.shape(0)), n = int64_t(order.shape(1)) - 1;
    const bool good = factor.shape(0) == order.shape(0) && int64_t(factor.shape(1)) == n * (n + 1) / 2 &&
                      int64_t(g.shape(0)) == systems && int64_t(g.shape(2)) == n &&
                      u.shape(0) == g.shape(0) && u.shape(1) == g.shape(1) && u.shape(2) == g.shape(2);
    if (!good) throw nb::value_error("nnls_kept_solve: shapes do not fit together");
    const nb::gil_scoped_release release;
    for (int64_t s = 0; s < systems; ++s)
        for (size_t k = 0; k < g.shape(1); ++k) {
            const int64_t side = s * int64_t(g.shape(1)) + int64_t(k);
            SW_BEST(normal_kernels)().solve_with_kept(factor.data() + s * (n * (n + 1) / 2),
                                                      order.data() + s * (n + 1), int32_t(n),
                                                      g.data() + side * n, u.data() + side * n);
        }
}

}  // namespace

void bind_normal_solve(nb::module_& m) {
    StructLayout kept(m, "NnlsKeptLaunch", sizeof(lsq::KeptLaunch));
    SW_FIELD(kept, lsq::KeptLaunch, systems);
    SW_FIELD(kept, lsq::KeptLaunch, columns);
    SW_FIELD(kept, lsq::KeptLaunch, right_sides);
    SW_FIELD(kept, lsq::KeptLaunch, factor);
    SW_FIELD(kept, lsq::KeptLaunch, order);
    SW_FIELD(kept, lsq::KeptLaunch, g);
    SW_FIELD(kept, lsq::KeptLaunch, u);
    SW_FIELD(kept, lsq::KeptLaunch, slow);
    m.def("nnls_kept_solve", &solve_with_kept, nb::arg("factor").noconvert(), nb::arg("order").noconvert(),
          nb::arg("g").noconvert(), nb::arg("u").noconvert(),
          "Write to u the solutions of R'R u = g with the factors that a solve has kept.");
    StructLayout launch(m, "NnlsFreeLaunch", sizeof(lsq::FreeLaunch));
    SW_FIELD(launch, lsq::FreeLaunch, systems);
    SW_FIELD(launch, lsq::FreeLaunch, rows);
    SW_FIELD(launch, lsq::FreeLaunch, columns);
    SW_FIELD(launch, lsq::FreeLaunch, right_sides);
    SW_FIELD(launch, lsq::FreeLaunch, a_stride);
    SW_FIELD(launch, lsq::FreeLaunch, marks_stride);
    SW_FIELD(launch, lsq::FreeLaunch, damping_stride);
    SW_FIELD(launch, lsq::FreeLaunch, a);
    SW_FIELD(launch, lsq::FreeLaunch, marks);
    SW_FIELD(launch, lsq::FreeLaunch, damping);
    SW_FIELD(launch, lsq::FreeLaunch, fixed_damping);
    SW_FIELD(launch, lsq::FreeLaunch, g);
    SW_FIELD(launch, lsq::FreeLaunch, u);
    SW_FIELD(launch, lsq::FreeLaunch, b);
    SW_FIELD(launch, lsq::FreeLaunch, image);
    SW_FIELD(launch, lsq::FreeLaunch, residual);
    SW_FIELD(launch, lsq::FreeLaunch, to_a);
    SW_FIELD(launch, lsq::FreeLaunch, overlap);
    SW_FIELD(launch, lsq::FreeLaunch, slow);
    SW_FIELD(launch, lsq::FreeLaunch, slow_bytes);
    SW_FIELD(launch, lsq::FreeLaunch, fast_bytes);
    m.def("nnls_free_solve_bytes", &lsq::free_solve_bytes, nb::arg("rows"), nb::arg("columns"),
          nb::arg("damped"), nb::arg("groups"), "Bytes that one team of a CUDA device needs at the most.");
    m.def("nnls_normal_solve", &solve, nb::arg("a").noconvert(), nb::arg("rows"), nb::arg("origin"),
          nb::arg("pulses"), nb::arg("free").noconvert(), nb::arg("damping").noconvert(),
          nb::arg("g").noconvert(), nb::arg("u").noconvert(), nb::arg("threads"), nb::arg("gram") = false,
          "Write to u the solutions of (A_F' A_F + damping^2 I) u_F = g_F of each system's free columns F; "
          "`gram` "
          "says that a is A' A.");
    m.def("nnls_pull_back", &pull_back, nb::arg("a").noconvert(), nb::arg("b").noconvert(),
          nb::arg("damping"), nb::arg("x").noconvert(), nb::arg("g").noconvert(), nb::arg("to_a").noconvert(),
          nb::arg("to_b").noconvert(), nb::arg("threads"),
          "Solve (A_F' A_F + damping^2 I) u_F = g_F where x is positive; write A u to to_b and "
          "(b - A x) u' - (A u) x' to to_a. Of systems with a matrix each.");
}

}  // namespace stepwell
