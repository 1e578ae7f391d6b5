// A batch of systems: a queue over all threads, or one large system on all of them. Each way is compiled by
// itself.
#pragma once

#include <vector>

#include "host/common/subnormals.hpp"
#include "host/lsq/either_matrix.hpp"
#include "host/lsq/either_numbers.hpp"
#include "host/lsq/shared_matrix.hpp"
#include "host/lsq/wide/system.hpp"

SW_BEGIN
namespace lsq {

// Every system by one thread.
void solve_by_one_thread_each(const HostJob& host);
// One system after the other, each by all threads.
void solve_by_all_threads(const HostJob& host);

// Reads the matrices of a batch. A pulse of floats is handed on as double numbers, exactly, in memory of this
// reader: the solver works with these anyway, and one kind of convolution serves both.
class MatrixReader {
public:
    explicit MatrixReader(const HostJob& host) : job_(host.job), single_(host.job.single) {}

    EitherMatrix read(int64_t index) {
        return EitherMatrix(job_.pulse_length ? EitherTop(read_pulse(index)) : EitherTop(read_dense(index)),
                            job_.constraints);
    }

private:
    EitherDense read_dense(int64_t index) const {
        const Dense<float>* narrow = nullptr;
        const Dense<double>* wide = nullptr;
        return single_ ? EitherDense(matrix_of(job_, index, narrow)) : matrix_of(job_, index, wide);
    }

    Convolution<double> read_pulse(int64_t index) {
        const Convolution<double>* wide = nullptr;
        if (!single_) return matrix_of(job_, index, wide);
        const Convolution<float>* given = nullptr;
        const Convolution<float> narrow = matrix_of(job_, index, given);
        if (index != index_) samples_.assign(narrow.pulse, narrow.pulse + narrow.length);
        index_ = index;
        return {samples_.data(), narrow.length, narrow.origin, narrow.rows, narrow.columns, nullptr};
    }

    const Job& job_;
    bool single_;
    std::vector<double> samples_;
    int64_t index_ = -1;
};

// Solves a system whose b and x are of the batch's numbers.
template <class Team>
void solve_one(const Team& team, const HostJob& host, int64_t system, Task<EitherMatrix>& task) {
    solve_system<EitherNumbers>(team, host.job, system, task);
}

// A system that was left without a certificate is solved in twice the precision, by one thread.
inline void mend(const HostJob& host, int64_t system, const EitherMatrix& matrix) {
    const Job& job = host.job;
    const int32_t status = job.status[system];
    if ((status != stalled && status != dependent) || !wide::is_feasible(job)) return;
    std::vector<double> a;
    if (!job.constraints.gram) {
        a.resize(static_cast<size_t>(job.rows) * job.columns);
        for (int i = 0; i < job.rows; ++i)
            for (int j = 0; j < job.columns; ++j)
                a[static_cast<size_t>(i) * job.columns + j] = matrix.entry(i, j);
    }
    wide::solve(job, system, job.single, job.constraints.gram ? nullptr : a.data());
}

}  // namespace lsq
SW_END
