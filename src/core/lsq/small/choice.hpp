// Which systems the solver of small systems tries first, on the host and on a device. It depends on their
// shape alone, so that no answer depends on the batch it is in.
#pragma once

#include "core/lsq/small/tables.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// One matrix for all, or one of some: fewer unknowns than this, a slack included.
constexpr int shared_columns = 64;
// Normal equations, whose matrix each system keeps: at most so many.
constexpr int gram_columns = 32;
// At most so many columns are in a factor.
constexpr int most_positions = 40;

// Where the products of a batch's columns come from; no_source where another solver has to see to all of it.
constexpr int no_source = -1;
inline int source_of(const Job& job, bool form_gram) {
    const NnlsOptions& options = job.options;
    const Constraints& constraints = job.constraints;
    const int columns = job.columns + constraints.slack;
    if (options.update != lsq::gram || !options.guarded || options.chain || job.pulse_length || columns == 0)
        return no_source;
    if (constraints.gram) return columns <= gram_columns ? normal_equations : no_source;
    if (!shares_columns(job)) {
        const bool plain = !constraints.summed && !constraints.penalized && !constraints.weights;
        return plain && columns <= min_of(max_tabled_columns, job.rows) ? own_matrix : no_source;
    }
    const bool by_grid = constraints.rule == rule_gcv || constraints.rule == rule_lcurve;
    if (!form_gram || columns >= shared_columns || by_grid) return no_source;
    return constraints.which ? some_matrices : one_matrix;
}

}  // namespace small
}  // namespace lsq
SW_END
