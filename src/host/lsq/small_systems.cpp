// Small systems on the CPU, each by one thread, compiled once per instruction set: what a thread keeps, and
// which solver a batch takes.
#include "host/lsq/small_systems.hpp"

#include <algorithm>

#include "host/lsq/small_solve.hpp"

SW_BEGIN
namespace lsq {
namespace {

// Of systems that share a matrix, or some, of more columns than inverses are kept for.
SolveFunction solve_function_of_shared(const Job& job) {
    return job.constraints.penalized
               ? solve_function_of<small::one_matrix, small::shared_columns, true>(job)
               : solve_function_of<small::one_matrix, small::shared_columns, false>(job);
}

SolveFunction solve_function_for(const Job& job, int source) {
    switch (source) {
        case small::one_matrix:
            if (keeps_inverses(job))
                return solve_function_of<small::one_matrix, small::kept_columns, false>(job);
            [[fallthrough]];
        case small::some_matrices:
            return solve_function_of_shared(job);
        case small::own_matrix:
            return solve_function_of<small::own_matrix, 16, false>(job);
        case small::normal_equations:
            return solve_function_of<small::normal_equations, small::gram_columns, false>(job);
    }
    return nullptr;
}

}  // namespace

SmallSystems::SmallSystems(const HostJob& host)
    : job(host.job),
      rows(max_of<int64_t>(padded(host.job.rows), small::panel_rows)),
      panel((small::max_tabled_columns + 1) * small::panel_stride),
      table(small::table_length(small::max_tabled_columns)),
      units(padded(host.job.columns + 1)),
      linear(small::OneCore::group * (linear_length(host.job) + 1)) {
    std::fill_n(linear.get(), small::OneCore::group * (linear_length(job) + 1), 0.0);
    const int source = small::source_of(job, host.form_gram);
    if (source == small::one_matrix && keeps_inverses(job)) kept = std::make_unique<small::KeptInverses>();
    solve_ = solve_function_for(job, source);
}

}  // namespace lsq
SW_END
