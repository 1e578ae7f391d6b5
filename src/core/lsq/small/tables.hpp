// What a small system is compiled for, the products it works with, and the memory of its own.
#pragma once

#include "core/lsq/numbers.hpp"
#include "core/lsq/small/lanes.hpp"
#include "core/lsq/workspace.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// Where the products come from: a matrix of all systems; one of some, that each names; its own; or they are
// what is given.
enum Source { one_matrix, some_matrices, own_matrix, normal_equations };

// Of a matrix of its own: at most so many columns, and its products, columns x columns, with b, and b's with
// itself. They are formed beforehand.
constexpr int max_tabled_columns = 15;
SW_HD int64_t table_length(int64_t columns) {
    return columns * (columns + 1) + 1;
}

// Products of all systems in a block's shared memory: rows an odd number of pairs apart, so that threads that
// read pairs of different rows meet in different banks; then two numbers a column.
SW_HD int shared_row(int columns) {
    return 2 * (((columns + 1) / 2) | 1);
}
SW_HD int shared_products(int columns) {
    return columns * shared_row(columns) + 8;
}
// Then, where lanes share a system, A: an odd number of entries a row, so that its columns too are read
// without waiting.
SW_HD int shared_entries_row(int columns) {
    return columns | 1;
}
SW_HD int64_t shared_length(int columns, int rows, int width) {
    const int64_t entries = width > 1 ? static_cast<int64_t>(rows) * shared_entries_row(columns) : 0;
    return shared_products(columns) + 2 * padded(columns) + padded(entries);
}

// The sum of x: not bound; between bounds, which may take a slack column; or given, of columns whose bounds
// are 0 and infinity.
enum Sum { no_sum, any_sum, given_sum };

// What is compiled for: fewer than 64 columns, at most `capacity`, a slack column included; at most
// `positions` of them in the factor; the caller's numbers of a type. (By a type of lsq, such as the one that
// reads them, functions of the solver for all sizes would be looked up beside those of small: many have the
// same names.)
template <class Scalar, int from, bool has_bounds, int sum, bool has_penalty, int capacity_, int positions_>
struct Kind {
    typedef NumbersOf<Scalar> Numbers;
    static constexpr int source = from, capacity = capacity_, positions = positions_;
    static constexpr bool summed = sum != no_sum, has_slack = sum == any_sum, penalized = has_penalty;
    // Columns have bounds that are given; else theirs are 0 and infinity, and only a slack has others.
    static constexpr bool boxed = has_bounds, bounded = boxed || has_slack;
    static constexpr bool shares = from == one_matrix || from == some_matrices;
    // A system has norms of its own where they depend on more than the matrix of all.
    static constexpr bool own_norms = from != one_matrix || has_penalty || summed;
};

// Of the squared norm of a column: a smaller part outside the others is for another solver. With one matrix A
// itself refines what the products found; the other limits are those of entry.hpp.
template <class Kind>
SW_HD double smallest_pivot(int columns) {
    if (Kind::source == normal_equations) return dependent_below(columns);
    return Kind::shares ? 1e-14 : correct_below * correct_below;
}

// Below this part of the squared norm a column nearly depends on the others.
constexpr double near_pivot = 1e-8;
// Below this part products have lost digits of a pivot, and A refines the point: each time it is left with a
// part of its error that is about the rounding of one over the pivot's square. Where nothing is at a bound x
// is that of plain least squares, and as good as Q and R have it; else sets with a nearly dependent column of
// one matrix for all are refined once. (Of own matrices the solver for all sizes corrects these.)
template <class Kind>
SW_HD double weak_pivot(bool nothing_at_bounds, bool damped, int refinements) {
    if (!nothing_at_bounds) return refinements == 0 && Kind::shares ? near_pivot : 0.0;
    const double first = Kind::penalized || damped ? 1e-6 : 1e-3;
    return refinements == 0 ? first : refinements == 1 ? 1e-2 * first : refinements == 2 ? 1e-4 * first : 0.0;
}

// With at most so many columns a start tries all of them.
constexpr int guessed_columns = 16;

// Where the residual is at least so much of |b| + sum |a_j x_j|, squared, products formed once give it to
// eleven digits, and the dual as well as another pass over A would.
constexpr double large_residual = 1e-5;
// Of damped systems down to this much they give duals to a part of what rounding leaves of them, though not
// the residual.
constexpr double judged_residual = 1e-9;

// With at most so many columns of one matrix, a slack included, a host's thread keeps for all systems what
// solves on each set of them; there are 2^columns.
constexpr int kept_columns = 8;
// The part of a column outside others that it depends on: less than any solver asks for, and not 0.
constexpr double nothing_outside = 1e-300;

// What a host's thread keeps for a matrix of systems with bound sums, found with the first of them. Columns
// are the scaled ones, a whole number of eights.
struct KeptSum {
    double weight = 0;     // of the row of the sum; 0 where nothing is known yet
    uint64_t nothing = 0;  // columns that cannot enter
    double coefficients[64], inverse[64], inverse_norm[64], norm[64];  // inverse: of coefficients
    int pivot = 0;  // the column whose x changes Ax least for what it changes the sum
};

// What a host's thread finds for some systems at once: x on all columns, from which a system goes on.
struct Guess {
    double x[kept_columns];
    bool is_positive;  // all of x
};

// What systems with one matrix share: its scaled columns, and products that may lie in faster memory.
struct Products {
    Shared shared;
    const double* gram = nullptr;
    int64_t stride = 0;
    const double* inverse_norm = nullptr;  // a whole number of eights; null where each system has its own
    const double* unit = nullptr;          // 1 / scale, a power of two; or null
    // Entries of the scaled columns, for lanes that share a system.
    const double* entries = nullptr;
    int64_t row_step = 0, column_step = 0;
    const double* table = nullptr;  // of a matrix of its own
    // A'b of the system, a whole number of eights, so far apart, and b'b, where a host's thread has formed
    // them for some systems at once; and columns of zeros, where it has looked for them.
    const double* linear = nullptr;
    int64_t linear_step = 1;
    double squared_b = 0;
    uint64_t nothing = 0;
    const double* norm =
        nullptr;  // of columns, a whole number of eights, used by the SIMD (CPU) implementation
    KeptSum* sum = nullptr;
    Guess* guess = nullptr;  // of the system; or null
};

// What all lanes of a system read. L, a unit triangle, is there by rows, without its diagonal.
template <class Kind, int width>
struct Store {
    alignas(16) double x[Kind::capacity];
    double w[Kind::capacity];
    alignas(16) double table[Kind::shares ? 2 : Kind::capacity * Kind::capacity];
    double factor[Kind::positions * (Kind::positions - 1) / 2];
    alignas(16) double residual[width > 1 ? width : 2];  // of as many rows as there are lanes
    int32_t order[Kind::positions];                      // columns in the factor
};
// Its length in numbers.
SW_HD constexpr int64_t store_length(int capacity, int positions, bool shares, int width) {
    const int64_t table = shares ? 2 : capacity * capacity, triangle = positions * (positions - 1) / 2;
    return (2 * capacity + table + triangle + 1) / 2 * 2 + (width > 1 ? width : 2) + (positions + 3) / 4 * 2;
}

}  // namespace small
}  // namespace lsq
SW_END
