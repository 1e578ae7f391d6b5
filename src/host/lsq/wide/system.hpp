// A system of a batch in twice the precision: for those few that faster solvers leave, as their columns
// nearly depend on each other or their scales lie far apart. Normal equations in twice the precision have
// the digits that a factor of A has in one.
#pragma once

#include <cstdint>
#include <vector>

#include "core/lsq/batch.hpp"
#include "host/lsq/wide/active_set.hpp"

namespace stepwell::wide {

// Whether a system of this size is solved so: its products take up to a second.
bool is_feasible(const NnlsJob& job);

// Solves a system with the lambda that was found for it and writes all of its answer, if that is certified;
// false where it is not. `a` has the matrix by rows; it is null where normal equations are given.
bool solve(const NnlsJob& job, int64_t system, bool single, const double* a);

// The system in scaled units: column j by 2^-exponents[j], b by 2^-b_exponent.
class System {
public:
    System(const NnlsJob& job, int64_t system, bool single, const double* a);

    const NnlsJob& job;
    const int64_t system;
    const bool single;
    const int n, rows;  // columns and rows of A
    const double* const a;

    std::vector<int> exponents;
    int b_exponent = 0, sum_exponent = 0;
    std::vector<Wide> K, b;      // rows times their weights, and b
    std::vector<Wide> L;         // lambda L, its rows
    std::vector<Wide> fit_gram;  // K'K
    std::vector<Wide> penalty_gram;
    std::vector<Wide> linear;  // K'b
    double b_norm = 0;
    int rows_that_count = 0;

    // With lambda^2 times `factor`.
    ActiveSet problem(double factor) const;
    // Into scaled units and back.
    double scaled_x(int j, double value) const { return std::ldexp(value, exponents[j] - b_exponent); }
    double given_x(int j, double value) const { return std::ldexp(value, b_exponent - exponents[j]); }
    double lower(int j) const;
    double upper(int j) const;
    bool is_masked(int j) const;
    double weight(int i) const;
    double given_b(int i) const;
    double start(int j) const;
    double coefficient(int j) const;
    double sum_low() const;
    double sum_high() const;
    double lam() const { return lam_; }
    int penalty_rows() const;
    double penalty(int i, int j) const;
    // b - A x, weighed, and L x, of x in scaled units.
    std::vector<Wide> residual(const std::vector<Wide>& x) const;
    std::vector<Wide> penalized(const std::vector<Wide>& x) const;

private:
    double lam_ = 0;  // as it was given or found

    void find_exponents();
    void read_rows();
    void form_products();
};

}  // namespace stepwell::wide
