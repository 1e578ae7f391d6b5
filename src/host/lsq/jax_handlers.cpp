// NNLS, and the solve that its derivatives need, as calls of XLA's programs on the CPU: no Python, no GIL.
// Built where the headers of an installed jaxlib are given (CMakeLists.txt, STEPWELL_JAX); nothing of it is
// linked.
//
// The answers are those of stepwell/derivatives/systems.py and normal_equations.py, which serve where
// these handlers are missing.
#include <nanobind/nanobind.h>

#include <cmath>
#include <vector>

#include "core/lsq/types.hpp"
#include "host/common/bindings.hpp"
#include "host/common/dispatch.hpp"
#include "host/lsq/choice.hpp"
#include "host/lsq/jax_jobs.hpp"
#include "host/lsq/kernels.hpp"
#include "host/lsq/normal_solve.hpp"

namespace nb = nanobind;

namespace stepwell {
namespace {

struct NnlsAttributes {
    int32_t rows, columns, origin;  // of a convolution; rows below zero: the matrix is dense
    int32_t method;                 // 0: chosen here, 1: Q and R, 2: the Gram factor
    int32_t update, guarded, chain, max_solves, threads;
    double tolerance, rounding;
};

template <class Scalar>
ffi::Error solve_nnls(const ffi::AnyBuffer& entries, const ffi::AnyBuffer& b, const ffi::AnyBuffer& lam,
                      const NnlsAttributes& given, ffi::AnyBuffer& x, ffi::AnyBuffer& dual,
                      ffi::AnyBuffer& in_factor, ffi::AnyBuffer& reals, ffi::AnyBuffer& counts) {
    const bool pulses = given.rows >= 0;
    const size_t core = pulses ? 1 : 2;
    const std::vector<int64_t> a_lead = lead_of(entries, core), b_lead = lead_of(b, 1),
                               lam_lead = lead_of(lam, 0);
    std::vector<int64_t> whole(b_lead.size(), 1);
    if (!stretch(whole, b_lead) || !stretch(whole, a_lead) || !stretch(whole, lam_lead))
        return ffi::Error::InvalidArgument("stepwell_nnls: leading axes do not fit together");
    const auto a_axes = entries.dimensions();
    const int64_t m = b.dimensions().back(), n = pulses ? given.columns : a_axes.back();
    const int64_t systems = product(whole), size = (pulses ? 1 : m) * a_axes.back();
    if (x.element_count() != static_cast<size_t>(systems * n))
        return ffi::Error::InvalidArgument("stepwell_nnls: the result has another shape");
    if (systems == 0) return ffi::Error::Success();
    const Blocks<Scalar> a(entries.typed_data<Scalar>(), size, whole, a_lead),
        rhs(b.typed_data<Scalar>(), m, whole, b_lead), dampings(lam.typed_data<Scalar>(), 1, whole, lam_lead);
    const JaxSystems<Scalar> all(a, rhs, m, n, size, pulses);

    std::vector<double> residual(static_cast<size_t>(systems)), violation(residual.size());
    std::vector<int32_t> tallies(6 * residual.size());
    std::vector<int64_t> spent(4 * residual.size());
    const auto solve = [&](int64_t first, int64_t number) {
        const double damping = dampings.data[first * dampings.stride];
        const bool gram = all.by_gram(given.method, number, damping > 0) &&
                          (given.method == 2 || given.update == lsq::cgs2);
        NnlsJob job = all.job(given, first, number, damping, gram ? int32_t(lsq::gram) : given.update);
        job.single = sizeof(Scalar) < sizeof(double);
        job.x = x.typed_data<Scalar>() + first * n;
        job.dual = dual.typed_data<Scalar>() + first * n;
        job.in_factor = reinterpret_cast<uint8_t*>(in_factor.typed_data<bool>()) + first * n;
        job.residual = residual.data() + first;
        job.violation = violation.data() + first;
        int32_t** fields[] = {&job.status, &job.insertions, &job.removals,
                              &job.solves, &job.passes,     &job.escalated};
        for (int k = 0; k < 6; ++k) *fields[k] = tallies.data() + k * systems + first;
        job.costs = spent.data() + 4 * first;
        const bool forms = gram && all.prepares(number) && nnls_gram_is_worth_forming(number, n, 1);
        SW_BEST(nnls_kernels)().solve({job, forms, given.threads});
    };
    // A lambda of each system's own is a call of its own.
    const bool together = dampings.stride == 0 && (all.shared || a.stride != 0);
    const int64_t number = together ? systems : 1;
    for (int64_t first = 0; first < systems; first += number) solve(first, number);

    Scalar* both = reals.typed_data<Scalar>();
    int32_t* counted = counts.typed_data<int32_t>();
    for (int64_t s = 0; s < systems; ++s) {
        both[2 * s] = static_cast<Scalar>(residual[static_cast<size_t>(s)]);
        both[2 * s + 1] = static_cast<Scalar>(violation[static_cast<size_t>(s)]);
        for (int k = 0; k < 6; ++k) counted[6 * s + k] = tallies[static_cast<size_t>(k * systems + s)];
    }
    return ffi::Error::Success();
}

ffi::Error nnls_call(ffi::AnyBuffer entries, ffi::AnyBuffer b, ffi::AnyBuffer lam,
                     ffi::Result<ffi::AnyBuffer> x, ffi::Result<ffi::AnyBuffer> dual,
                     ffi::Result<ffi::AnyBuffer> in_factor, ffi::Result<ffi::AnyBuffer> reals,
                     ffi::Result<ffi::AnyBuffer> counts, int32_t rows, int32_t columns, int32_t origin,
                     int32_t method, int32_t update, int32_t guarded, int32_t chain, int32_t max_solves,
                     int32_t threads, double tolerance, double rounding) {
    const NnlsAttributes given{rows,  columns,    origin,  method,    update,  guarded,
                               chain, max_solves, threads, tolerance, rounding};
    return by_type(
        b.element_type(),
        [&] { return solve_nnls<double>(entries, b, lam, given, *x, *dual, *in_factor, *reals, *counts); },
        [&] { return solve_nnls<float>(entries, b, lam, given, *x, *dual, *in_factor, *reals, *counts); });
}

XLA_FFI_DEFINE_HANDLER(nnls_handler, nnls_call,
                       ffi::Ffi::Bind()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Attr<int32_t>("rows")
                           .Attr<int32_t>("columns")
                           .Attr<int32_t>("origin")
                           .Attr<int32_t>("method")
                           .Attr<int32_t>("update")
                           .Attr<int32_t>("guarded")
                           .Attr<int32_t>("chain")
                           .Attr<int32_t>("max_solves")
                           .Attr<int32_t>("threads")
                           .Attr<double>("tolerance")
                           .Attr<double>("rounding"));

// u = (A_F'A_F + lambda^2 I)^-1 g on the free columns F. Axes that g alone has are right-hand sides of one
// system, which is factored once.
template <class Scalar>
ffi::Error solve_normal(const ffi::AnyBuffer& entries, const ffi::AnyBuffer& free, const ffi::AnyBuffer& lam,
                        const ffi::AnyBuffer& g, int32_t rows, int32_t origin, int32_t threads,
                        ffi::AnyBuffer& u) {
    const bool pulses = rows >= 0;
    const std::vector<int64_t> a_lead = lead_of(entries, pulses ? 1 : 2), free_lead = lead_of(free, 1),
                               lam_lead = lead_of(lam, 0), g_lead = lead_of(g, 1);
    std::vector<int64_t> ours(g_lead.size(), 1);
    bool fits = stretch(ours, free_lead) && stretch(ours, a_lead) && stretch(ours, lam_lead);
    std::vector<int64_t> whole = ours;
    fits = fits && stretch(whole, g_lead);
    const int64_t n = g.dimensions().back(), all = product(whole), systems = product(ours);
    if (!fits || u.element_count() != static_cast<size_t>(all * n))
        return ffi::Error::InvalidArgument("stepwell_normal_solve: axes do not fit together");
    if (all == 0 || n == 0) return ffi::Error::Success();
    const auto a_axes = entries.dimensions();
    const int64_t m = pulses ? rows : a_axes[a_axes.size() - 2];
    const int64_t size = (pulses ? 1 : m) * a_axes.back(), sides = all / systems;
    const Blocks<Scalar> a(entries.typed_data<Scalar>(), size, ours, a_lead),
        marks(free.typed_data<Scalar>(), n, ours, free_lead),
        dampings(lam.typed_data<Scalar>(), 1, ours, lam_lead);
    const Doubles<Scalar> matrix(a.data, a.stride == 0 ? size : systems * size),
        damping(dampings.data, dampings.stride == 0 ? 1 : systems);
    std::vector<uint8_t> inside(static_cast<size_t>(systems * n)), unsolved(static_cast<size_t>(systems));
    for (int64_t s = 0; s < systems; ++s)
        for (int64_t j = 0; j < n; ++j) {
            const Scalar mark = marks.data[s * marks.stride + j];
            inside[static_cast<size_t>(s * n + j)] = mark > 0;
            if (std::isnan(mark)) unsolved[static_cast<size_t>(s)] = 1;
        }
    // The place of each right-hand side among those of its system.
    std::vector<int64_t> place(static_cast<size_t>(all)), taken(static_cast<size_t>(systems));
    std::vector<double> right(static_cast<size_t>(all * n)), left(right.size());
    const Scalar* given = g.typed_data<Scalar>();
    for (int64_t k = 0; k < all; ++k) {
        const int64_t system = block_at(k, whole, ours);
        const int64_t at = system * sides + taken[static_cast<size_t>(system)]++;
        place[static_cast<size_t>(k)] = at;
        std::copy_n(given + block_at(k, whole, g_lead) * n, n, right.data() + at * n);
    }
    SW_BEST(normal_kernels)().solve({systems, sides, static_cast<int32_t>(m), static_cast<int32_t>(n),
                                     pulses ? static_cast<int32_t>(size) : 0, origin, matrix.data,
                                     a.stride == 0 ? 0 : size, inside.data(), damping.data,
                                     dampings.stride == 0 ? 0 : 1, right.data(), left.data(), threads});
    Scalar* out = u.typed_data<Scalar>();
    for (int64_t k = 0; k < all; ++k) {
        const int64_t at = place[static_cast<size_t>(k)];
        const bool lost = unsolved[static_cast<size_t>(at / sides)];
        for (int64_t j = 0; j < n; ++j)
            out[k * n + j] = lost ? static_cast<Scalar>(NAN) : static_cast<Scalar>(left[at * n + j]);
    }
    return ffi::Error::Success();
}

ffi::Error normal_call(ffi::AnyBuffer entries, ffi::AnyBuffer free, ffi::AnyBuffer lam, ffi::AnyBuffer g,
                       ffi::Result<ffi::AnyBuffer> u, int32_t rows, int32_t origin, int32_t threads) {
    return by_type(
        g.element_type(),
        [&] { return solve_normal<double>(entries, free, lam, g, rows, origin, threads, *u); },
        [&] { return solve_normal<float>(entries, free, lam, g, rows, origin, threads, *u); });
}

XLA_FFI_DEFINE_HANDLER(normal_handler, normal_call,
                       ffi::Ffi::Bind()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Attr<int32_t>("rows")
                           .Attr<int32_t>("origin")
                           .Attr<int32_t>("threads"));

}  // namespace

// jax_lsq_handler.cpp
XLA_FFI_Error* lsq_handler(XLA_FFI_CallFrame* frame);

void bind_jax_handlers(nb::module_& m) {
    nb::dict handlers;
    // A capsule of a function's address, as JAX wants it.
    XLA_FFI_Error* (*const functions[])(XLA_FFI_CallFrame*) = {
        +[](XLA_FFI_CallFrame* frame) { return (*nnls_handler)(frame); },
        +[](XLA_FFI_CallFrame* frame) { return (*normal_handler)(frame); }};
    handlers["stepwell_nnls"] = nb::capsule(reinterpret_cast<void*>(functions[0]));
    handlers["stepwell_normal_solve"] = nb::capsule(reinterpret_cast<void*>(functions[1]));
    handlers["stepwell_lsq"] = nb::capsule(reinterpret_cast<void*>(&lsq_handler));
    m.attr("JAX_HANDLERS") = handlers;
}

}  // namespace stepwell
