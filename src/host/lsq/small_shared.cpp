// Small systems that share a matrix of more columns than inverses are kept for, on the CPU, each by one
// thread; compiled once per instruction set.
#include "host/lsq/small_solve.hpp"

SW_BEGIN
namespace lsq {

SolveFunction solve_function_of_shared(const Job& job) {
    return job.constraints.penalized
               ? solve_function_of<small::one_matrix, small::shared_columns, true>(job)
               : solve_function_of<small::one_matrix, small::shared_columns, false>(job);
}

}  // namespace lsq
SW_END
