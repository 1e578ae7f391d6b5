// A matrix of dense rows; products with it are in host/lsq/matrices.hpp and cuda/lsq/matrices.cuh.
#pragma once

#include "core/lsq/matrix.hpp"

SW_BEGIN
namespace lsq {

template <class Scalar>
struct Dense {
    static constexpr bool shifts = false;
    static constexpr bool general = false, plain = true;

    const Scalar* values;
    int64_t stride;
    int rows, columns;

    // Zeros the product reads before and after the vector it is multiplied with.
    SW_HD int zeros_before() const { return 0; }
    SW_HD int zeros_after() const { return 0; }
    SW_HD int pulse_length() const { return 0; }
    SW_HD int pulse_origin() const { return 0; }
    SW_HD void keep_copy_in(double*) {}
    template <class Team>
    SW_HD void prepare(const Team&) const {}

    // squares[j] = |a_j|^2, sums[j] = a_j . r, and the envelope. Ends in a sync.
    template <class Team>
    SW_CALL void measure(const Team& team, const double* r, Envelope envelope, double* squares,
                         double* sums) const;

    // sums[j] = a_j . r. Ends in a sync.
    template <class Team>
    SW_CALL void multiply(const Team& team, const double* r, Envelope envelope, double* sums,
                          double* scratch) const;

    // out = scale a_j: on a device where it is not zero, else padded to `length` with zeros. By one group; no
    // sync.
    template <class Team>
    SW_CALL void gather(const Team& team, Envelope envelope, int j, double scale, double* out,
                        int length) const;

    // The largest magnitude in a column, NaN if it holds one.
    SW_CALL double largest_in(int j) const {
        double magnitude = 0;
        for (int i = 0; i < rows; ++i) {
            const double a = absolute(values[i * stride + j]);
            if (!is_finite(a)) return a;
            magnitude = max_of(magnitude, a);
        }
        return magnitude;
    }

    SW_HD double entry(int i, int j) const { return values[i * stride + j]; }

    // The rows within which column j, gathered in `column`, is not zero.
    SW_HD void bounds(Envelope envelope, int j, const double* column, int32_t& low, int32_t& high) const;

private:
    // Of a device: the part of a_j . r that every so many rows from `first` on have.
    SW_HD double slice_of_product(const double* r, int j, int first, int last, int slices) const;

    // Of a CPU: the envelope that a member has for its columns; squares and sums of four rows, and sums of
    // eight, from column `from` to `to`.
    Envelope own(Envelope all, int rank) const;
    void measure_rows(const Scalar* a, const double* r, int from, int to, double* squares,
                      double* sums) const;
    void add_rows(const Scalar* a, const double* r, int from, int to, double* sums) const;
};

}  // namespace lsq
SW_END
