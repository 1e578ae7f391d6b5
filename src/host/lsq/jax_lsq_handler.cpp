// Least squares within bounds as a call of XLA's programs on the CPU: bounds, a sum, weights, a mask and one
// lambda, or one a system, of dense matrices and of convolutions. What is not here (L, equalities, rules for
// lambda, warm starts, normal equations) takes the callback, whose answers these are: stepwell/derivatives/
// bounded_systems.py.
#include <cmath>
#include <string>

#include "core/lsq/types.hpp"
#include "host/common/dispatch.hpp"
#include "host/lsq/choice.hpp"
#include "host/lsq/jax_jobs.hpp"
#include "host/lsq/kernels.hpp"

namespace stepwell {
namespace {

typedef std::vector<int64_t> Axes;

struct LsqAttributes {
    int32_t rows, columns, origin;  // of a convolution; rows below zero: the matrix is dense
    int32_t summed, weighted, masked;
    int32_t method, guarded, chain, max_solves, threads;
    double tolerance, rounding;
};

// An argument as doubles in the order of all systems, a row for all or one for each.
template <class Scalar>
struct Rows {
    Blocks<Scalar> given;
    Doubles<Scalar> numbers;
    int64_t stride, count;

    Rows(const ffi::AnyBuffer& array, size_t core, const Axes& whole)
        : given(array.typed_data<Scalar>(), core ? array.dimensions().back() : 1, whole,
                lead_of(array, core)),
          numbers(given.data, (given.stride ? product(whole) : 1) * (core ? array.dimensions().back() : 1)),
          stride(given.stride),
          count((stride ? product(whole) : 1) * (core ? array.dimensions().back() : 1)) {}

    template <class Good>
    bool all(const Good& good) const {
        return std::all_of(numbers.data, numbers.data + count, good);
    }
};

ffi::Error wrong(const char* what) {
    return ffi::Error::InvalidArgument(std::string("stepwell_lsq: ") + what);
}

// The arguments, in this order: those that always are there, then what attributes say is.
struct LsqArguments {
    std::vector<ffi::AnyBuffer> all;  // entries, b, lower, upper, lam
    int sum = -1, weights = -1, mask = -1;
};

struct LsqResults {
    ffi::AnyBuffer x, dual, state, reals, counts;
};

template <class Scalar>
ffi::Error solve_lsq(const LsqArguments& from, const LsqAttributes& given, LsqResults& to) {
    const ffi::AnyBuffer &entries = from.all[0], &b = from.all[1];
    const bool pulses = given.rows >= 0;
    const size_t core = pulses ? 1 : 2;
    Axes whole(b.dimensions().size() - 1, 1);
    const auto takes = [&](int which, size_t own) {
        return which < 0 || stretch(whole, lead_of(from.all[static_cast<size_t>(which)], own));
    };
    if (!takes(1, 1) || !takes(0, core) || !takes(2, 1) || !takes(3, 1) || !takes(4, 0) ||
        !takes(from.sum, 0) || (from.sum >= 0 && !takes(from.sum + 1, 0)) || !takes(from.weights, 1) ||
        !takes(from.mask, 1))
        return wrong("leading axes do not fit together");
    const auto a_axes = entries.dimensions();
    const int64_t m = b.dimensions().back(), n = from.all[2].dimensions().back();
    const int64_t systems = product(whole), size = (pulses ? 1 : m) * a_axes.back();
    if (to.x.element_count() != static_cast<size_t>(systems * n))
        return wrong("the result has another shape");
    if (systems == 0) return ffi::Error::Success();

    const Blocks<Scalar> a(entries.typed_data<Scalar>(), size, whole, lead_of(entries, core)),
        rhs(b.typed_data<Scalar>(), m, whole, lead_of(b, 1));
    const Rows<Scalar> lower(from.all[2], 1, whole), upper(from.all[3], 1, whole), lam(from.all[4], 0, whole);
    constexpr double infinity = HUGE_VAL;
    if (!lower.all([](double v) { return v == v && v != infinity; }))
        return wrong("bounds (lower) has NaN or inf; allowed: numbers, or -inf for none");
    if (!upper.all([](double v) { return v == v && v != -infinity; }))
        return wrong("bounds (upper) has NaN or -inf; allowed: numbers, or inf for none");
    if (!lam.all([](double v) { return v >= 0 && v < infinity; }))
        return wrong("lam is not a finite number of at least 0");

    NnlsConstraints constraints{};
    constraints.general = 1;
    constraints.lower = lower.numbers.data;
    constraints.upper = upper.numbers.data;
    constraints.lower_stride = lower.stride;
    constraints.upper_stride = upper.stride;
    constraints.penalized = lam.stride != 0 || lam.numbers.data[0] != 0;
    constraints.penalty_rows = static_cast<int32_t>(n);
    constraints.lam = constraints.penalized ? lam.numbers.data : nullptr;
    constraints.lam_stride = lam.stride != 0;
    constraints.chi2 = 1.02;
    std::vector<double> ends[2];
    if (from.sum >= 0) {
        const Rows<Scalar> low(from.all[from.sum], 0, whole), high(from.all[from.sum + 1], 0, whole);
        if (!low.all([](double v) { return v == v && v != infinity; }) ||
            !high.all([](double v) { return v == v && v != -infinity; }))
            return wrong("sum_bounds has NaN; allowed: numbers, or inf for none");
        const bool own = low.stride || high.stride;
        for (int64_t s = 0; s < (own ? systems : 1); ++s) {
            ends[0].push_back(low.numbers.data[s * low.stride]);
            ends[1].push_back(high.numbers.data[s * high.stride]);
            constraints.slack = constraints.slack || ends[0].back() != ends[1].back();
        }
        constraints.summed = 1;
        constraints.sum_low = ends[0].data();
        constraints.sum_high = ends[1].data();
        constraints.sum_stride = own;
    }
    std::vector<double> weights;
    if (from.weights >= 0) {
        const Rows<Scalar> rows(from.all[from.weights], 1, whole);
        if (!rows.all([](double v) { return v >= 0 && v < infinity; }))
            return wrong("weights are not finite numbers of at least 0");
        weights.assign(rows.numbers.data, rows.numbers.data + rows.count);
        constraints.weights = weights.data();
        constraints.weights_stride = rows.stride;
    }
    std::vector<uint8_t> mask;
    if (from.mask >= 0) {
        const ffi::AnyBuffer& marks = from.all[from.mask];
        const Blocks<uint8_t> rows(reinterpret_cast<const uint8_t*>(marks.typed_data<bool>()), n, whole,
                                   lead_of(marks, 1));
        mask.assign(rows.data, rows.data + (rows.stride ? systems * n : n));
        constraints.mask = mask.data();
        constraints.mask_stride = rows.stride;
    }

    const JaxSystems<Scalar> all(a, rhs, m, n, size, pulses);
    const size_t count = static_cast<size_t>(systems);
    std::vector<double> numbers(8 * count);
    std::vector<int32_t> tallies(9 * count);
    std::vector<int64_t> spent(4 * count);
    std::vector<uint8_t> in_factor(count * static_cast<size_t>(n));
    const auto solve = [&](int64_t first, int64_t number) {
        const bool gram = all.by_gram(given.method, number, constraints.penalized);
        NnlsJob job = all.job(given, first, number, 0.0, int32_t(gram ? lsq::gram : lsq::cgs2));
        job.constraints = constraints;
        NnlsConstraints& own = job.constraints;
        own.lower += first * own.lower_stride;
        own.upper += first * own.upper_stride;
        if (own.lam) own.lam += first * own.lam_stride;
        if (own.summed) {
            own.sum_low += first * own.sum_stride;
            own.sum_high += first * own.sum_stride;
        }
        if (own.weights) own.weights += first * own.weights_stride;
        if (own.mask) own.mask += first * own.mask_stride;
        job.single = sizeof(Scalar) < sizeof(double);
        job.x = to.x.typed_data<Scalar>() + first * n;
        job.dual = to.dual.typed_data<Scalar>() + first * n;
        job.in_factor = in_factor.data() + first * n;
        own.state = to.state.typed_data<int8_t>() + first * n;
        double** reals[] = {&job.residual,   &job.violation, &own.equality_error, &own.used_lam,
                            &own.multiplier, &own.fit,       &own.seminorm,       &own.unpenalized};
        for (int k = 0; k < 8; ++k) *reals[k] = numbers.data() + k * systems + first;
        int32_t** fields[] = {&job.status,    &job.insertions, &job.removals,    &job.solves, &job.passes,
                              &job.escalated, &own.at_end,     &own.evaluations, &own.passive};
        for (int k = 0; k < 9; ++k) *fields[k] = tallies.data() + k * systems + first;
        job.costs = spent.data() + 4 * first;
        const bool forms =
            gram && all.prepares(number) && nnls_gram_is_worth_forming(number, n, 1) && !own.weights;
        SW_BEST(nnls_kernels)().solve({job, forms, given.threads});
    };
    const int64_t number = all.shared || a.stride != 0 ? systems : 1;
    for (int64_t first = 0; first < systems; first += number) solve(first, number);

    Scalar* reals = to.reals.typed_data<Scalar>();
    int32_t* counted = to.counts.typed_data<int32_t>();
    const int64_t width = 4 + (constraints.summed ? 1 : 0);
    for (int64_t s = 0; s < systems; ++s) {
        for (int64_t k = 0; k < width; ++k)
            reals[width * s + k] = static_cast<Scalar>(numbers[static_cast<size_t>(k * systems + s)]);
        for (int k = 0; k < 6; ++k) counted[6 * s + k] = tallies[static_cast<size_t>(k * systems + s)];
    }
    return ffi::Error::Success();
}

ffi::Error lsq_call(ffi::RemainingArgs arguments, ffi::Result<ffi::AnyBuffer> x,
                    ffi::Result<ffi::AnyBuffer> dual, ffi::Result<ffi::AnyBuffer> state,
                    ffi::Result<ffi::AnyBuffer> reals, ffi::Result<ffi::AnyBuffer> counts, int32_t rows,
                    int32_t columns, int32_t origin, int32_t summed, int32_t weighted, int32_t masked,
                    int32_t method, int32_t guarded, int32_t chain, int32_t max_solves, int32_t threads,
                    double tolerance, double rounding) {
    LsqArguments from;
    for (size_t k = 0; k < arguments.size(); ++k) {
        const auto one = arguments.get<ffi::AnyBuffer>(k);
        if (!one.has_value()) return wrong("an argument is no array");
        from.all.push_back(one.value());
    }
    int next = 5;
    if (summed) from.sum = next, next += 2;
    if (weighted) from.weights = next++;
    if (masked) from.mask = next++;
    if (from.all.size() != static_cast<size_t>(next)) return wrong("another number of arguments");
    const LsqAttributes given{rows,    columns, origin,     summed,  weighted,  masked,  method,
                              guarded, chain,   max_solves, threads, tolerance, rounding};
    LsqResults to{*x, *dual, *state, *reals, *counts};
    return by_type(
        from.all[1].element_type(), [&] { return solve_lsq<double>(from, given, to); },
        [&] { return solve_lsq<float>(from, given, to); });
}

XLA_FFI_DEFINE_HANDLER(handler, lsq_call,
                       ffi::Ffi::Bind()
                           .RemainingArgs()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Attr<int32_t>("rows")
                           .Attr<int32_t>("columns")
                           .Attr<int32_t>("origin")
                           .Attr<int32_t>("summed")
                           .Attr<int32_t>("weighted")
                           .Attr<int32_t>("masked")
                           .Attr<int32_t>("method")
                           .Attr<int32_t>("guarded")
                           .Attr<int32_t>("chain")
                           .Attr<int32_t>("max_solves")
                           .Attr<int32_t>("threads")
                           .Attr<double>("tolerance")
                           .Attr<double>("rounding"));

}  // namespace

XLA_FFI_Error* lsq_handler(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* lsq_handler(XLA_FFI_CallFrame* frame) {
    return (*handler)(frame);
}

}  // namespace stepwell
