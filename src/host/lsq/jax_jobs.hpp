// Systems of XLA's programs as jobs of the NNLS solver: what the handlers of `nnls` and `lsq_linear` share.
#pragma once

#include <cmath>

#include "host/lsq/choice.hpp"
#include "host/lsq/jax_blocks.hpp"
#include "host/lsq/kernels.hpp"

namespace stepwell {

template <class Scalar>
struct JaxSystems {
    const Blocks<Scalar>&a, &b;
    int64_t rows, columns;
    int64_t size;  // numbers of a matrix, or of a pulse
    bool pulses;
    // One matrix for all is prepared once, unless it is not finite: that is a status of each system.
    bool shared;

    JaxSystems(const Blocks<Scalar>& a, const Blocks<Scalar>& b, int64_t rows, int64_t columns, int64_t size,
               bool pulses)
        : a(a), b(b), rows(rows), columns(columns), size(size), pulses(pulses), shared(a.stride == 0) {
        for (int64_t k = 0; shared && k < size; ++k) shared = std::isfinite(a.data[k]);
    }

    bool prepares(int64_t number) const { return shared && number > 1; }

    // Whether the Gram factor solves them; method 0 leaves the choice to us, 2 asks for it.
    bool by_gram(int method, int64_t number, bool damped) const {
        const bool tiny = !prepares(number) && nnls_is_tiny(rows, columns, damped);
        return method == 2 || (method == 0 && !tiny);
    }

    // Some systems in a row; answers are left to the caller.
    template <class Attributes>
    NnlsJob job(const Attributes& given, int64_t first, int64_t number, double damping,
                int32_t update) const {
        NnlsJob job{};
        job.systems = job.systems_in_batch = number;
        job.rows = static_cast<int32_t>(rows);
        job.columns = static_cast<int32_t>(columns);
        job.a = a.data + first * a.stride;
        // (Of one system alone no stride counts but that it is none of a shared matrix.)
        job.a_stride = a.stride == 0 ? (shared ? 0 : size) : a.stride;
        job.row_stride = pulses ? 0 : columns;
        job.pulse_length = pulses ? static_cast<int32_t>(size) : 0;
        job.pulse_origin = pulses ? given.origin : 0;
        job.b = b.data + first * b.stride;
        job.b_stride = b.stride;
        job.options = {given.tolerance, given.rounding, damping,    given.max_solves,
                       update,          given.guarded,  given.chain};
        return job;
    }
};

}  // namespace stepwell
