// A batch of systems: a queue over all threads, or one large system on all of them. Each way is compiled by
// itself, once for every kind of matrix: what depends on the team alone, most of the solver, is then compiled
// once.
#pragma once

#include <vector>

#include "host/common/subnormals.hpp"
#include "host/nnls/shared_matrix.hpp"

SW_BEGIN
namespace nnls {

// Every system by one thread.
void solve_side_by_side(const HostJob& host);
// One system after the other, each by all threads.
void solve_together(const HostJob& host);

// Reads the matrices of a batch. A pulse of floats is handed on as double numbers, exactly, in memory of this
// reader: the solver works with these anyway, and one kind of convolution serves both.
template <class Scalar>
class MatrixReader {
public:
    explicit MatrixReader(const Job& job) : job_(job) {}

    Dense<Scalar> read(int64_t index, const Dense<Scalar>* kind) { return matrix_of(job_, index, kind); }

    Convolution<double> read(int64_t index, const Convolution<double>* kind) {
        if constexpr (sizeof(Scalar) == sizeof(double)) {
            return matrix_of(job_, index, kind);
        } else {
            const Convolution<Scalar>* given = nullptr;
            const Convolution<Scalar> narrow = matrix_of(job_, index, given);
            if (index != index_) samples_.assign(narrow.pulse, narrow.pulse + narrow.length);
            index_ = index;
            return {samples_.data(), narrow.length, narrow.origin, narrow.rows, narrow.columns, nullptr};
        }
    }

    template <class Top>
    Stacked<Top> read(int64_t index, const Stacked<Top>*) {
        const Top* kind = nullptr;
        return Stacked<Top>(read(index, kind), job_.family);
    }

private:
    const Job& job_;
    std::vector<double> samples_;
    int64_t index_ = -1;
};

// Calls Way::solve<Scalar, Matrix>(host) with the kinds that a batch is of.
template <class Way, class Scalar, class Matrix>
void solve_of_kind(const HostJob& host) {
    host.job.family.general ? Way::template solve<Scalar, Stacked<Matrix>>(host)
                            : Way::template solve<Scalar, Matrix>(host);
}

template <class Way, class Scalar>
void solve_of_scalar(const HostJob& host) {
    host.job.pulse_length ? solve_of_kind<Way, Scalar, Convolution<double>>(host)
                          : solve_of_kind<Way, Scalar, Dense<Scalar>>(host);
}

template <class Way>
void solve_by(const HostJob& host) {
    host.single ? solve_of_scalar<Way, float>(host) : solve_of_scalar<Way, double>(host);
}

}  // namespace nnls
SW_END
