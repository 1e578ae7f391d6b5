// Matrices told apart at run time, so that the solver is compiled once for them: dense ones of doubles or of
// floats and convolutions, plain or with rows stacked beneath.
#pragma once

#include "core/lsq/convolution.hpp"
#include "core/lsq/dense.hpp"
#include "core/lsq/stacked.hpp"

SW_BEGIN
namespace lsq {

struct EitherDense {
    const void* values;
    int64_t stride;
    int rows, columns;
    bool single;

    EitherDense() {}
    template <class Scalar>
    EitherDense(const Dense<Scalar>& dense)
        : values(dense.values),
          stride(dense.stride),
          rows(dense.rows),
          columns(dense.columns),
          single(sizeof(Scalar) < sizeof(double)) {}

    template <class Scalar>
    Dense<Scalar> as() const {
        return {static_cast<const Scalar*>(values), stride, rows, columns};
    }

    int zeros_before() const { return 0; }
    int zeros_after() const { return 0; }
    int pulse_length() const { return 0; }
    int pulse_origin() const { return 0; }
    void keep_copy_in(double*) {}
    template <class Team>
    void prepare(const Team&) const {}

    template <class Team>
    void measure(const Team& team, const double* r, Envelope envelope, double* squares, double* sums) const {
        single ? as<float>().measure(team, r, envelope, squares, sums)
               : as<double>().measure(team, r, envelope, squares, sums);
    }

    template <class Team>
    void multiply(const Team& team, const double* r, Envelope envelope, double* sums, double* scratch) const {
        single ? as<float>().multiply(team, r, envelope, sums, scratch)
               : as<double>().multiply(team, r, envelope, sums, scratch);
    }

    template <class Team>
    void gather(const Team& team, Envelope envelope, int j, double scale, double* out, int length) const {
        single ? as<float>().gather(team, envelope, j, scale, out, length)
               : as<double>().gather(team, envelope, j, scale, out, length);
    }

    double largest_in(int j) const { return single ? as<float>().largest_in(j) : as<double>().largest_in(j); }
    double entry(int i, int j) const { return single ? as<float>().entry(i, j) : as<double>().entry(i, j); }

    // By the column as gathered, which is of doubles.
    void bounds(Envelope envelope, int j, const double* column, int32_t& low, int32_t& high) const {
        as<double>().bounds(envelope, j, column, low, high);
    }
};

// What is as the caller gives it: the matrix above the rows of a general problem.
struct EitherTop {
    EitherDense dense;
    Convolution<double> pulse;
    bool is_dense;
    int rows, columns;

    EitherTop() {}
    EitherTop(const EitherDense& matrix)
        : dense(matrix), is_dense(true), rows(matrix.rows), columns(matrix.columns) {}
    EitherTop(const Convolution<double>& matrix)
        : pulse(matrix), is_dense(false), rows(matrix.rows), columns(matrix.columns) {}

    int zeros_before() const { return is_dense ? 0 : pulse.zeros_before(); }
    int zeros_after() const { return is_dense ? 0 : pulse.zeros_after(); }
    int pulse_length() const { return is_dense ? 0 : pulse.pulse_length(); }
    int pulse_origin() const { return is_dense ? 0 : pulse.pulse_origin(); }
    void keep_copy_in(double* memory) {
        if (!is_dense) pulse.keep_copy_in(memory);
    }
    template <class Team>
    void prepare(const Team& team) const {
        if (!is_dense) pulse.prepare(team);
    }

    template <class Team>
    void measure(const Team& team, const double* r, Envelope envelope, double* squares, double* sums) const {
        is_dense ? dense.measure(team, r, envelope, squares, sums)
                 : pulse.measure(team, r, envelope, squares, sums);
    }

    template <class Team>
    void multiply(const Team& team, const double* r, Envelope envelope, double* sums, double* scratch) const {
        is_dense ? dense.multiply(team, r, envelope, sums, scratch)
                 : pulse.multiply(team, r, envelope, sums, scratch);
    }

    template <class Team>
    void gather(const Team& team, Envelope envelope, int j, double scale, double* out, int length) const {
        is_dense ? dense.gather(team, envelope, j, scale, out, length)
                 : pulse.gather(team, envelope, j, scale, out, length);
    }

    double largest_in(int j) const { return is_dense ? dense.largest_in(j) : pulse.largest_in(j); }
    double entry(int i, int j) const { return is_dense ? dense.entry(i, j) : pulse.entry(i, j); }

    void bounds(Envelope envelope, int j, const double* column, int32_t& low, int32_t& high) const {
        is_dense ? dense.bounds(envelope, j, column, low, high)
                 : pulse.bounds(envelope, j, column, low, high);
    }
};

inline double row_product(const EitherTop& matrix, int i, const double* x) {
    if (!matrix.is_dense) return row_product(matrix.pulse, i, x);
    const EitherDense& dense = matrix.dense;
    return dense.single ? row_product(dense.as<float>(), i, x) : row_product(dense.as<double>(), i, x);
}

// The matrix of any problem: a plain one has no rows beneath.
struct EitherMatrix : Stacked<EitherTop> {
    static constexpr bool shifts = true;
    static constexpr bool general = true, plain = true;

    EitherMatrix() {}
    EitherMatrix(const EitherTop& matrix, const Constraints& constraints)
        : Stacked<EitherTop>(matrix, constraints) {}

    // Of a plain problem's pulse.
    template <class Team>
    void describe(const Team& team, Envelope envelope, const double* scale, double* factor, int32_t* low,
                  int32_t* high, double* lags) const {
        top.pulse.describe(team, envelope, scale, factor, low, high, lags);
    }
};

}  // namespace lsq
SW_END
