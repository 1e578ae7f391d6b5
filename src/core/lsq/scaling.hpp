// Scaling by powers of two, which is exact: columns to a norm in [1, 2), so that no threshold depends on
// their units.
#pragma once

#include "core/lsq/matrix.hpp"

SW_BEGIN
namespace lsq {

SW_HD double double_nan() {
    return double_infinity - double_infinity;
}

// 2^-e for value = 1.xxx * 2^e, exactly; value positive and normal.
SW_HD double power_below(double value) {
#if defined(__CUDACC__)
    int exponent;
    frexp(value, &exponent);
    return ldexp(1.0, 1 - exponent);
#else
    // By its bits: a call for every column would be a twentieth of what a small system takes.
    const int biased = static_cast<int>(__builtin_bit_cast(uint64_t, value) >> 52);
    if (biased > 0 && biased < 2046) return __builtin_bit_cast(double, uint64_t(2046 - biased) << 52);
    int exponent;
    std::frexp(value, &exponent);
    return std::ldexp(1.0, 1 - exponent);
#endif
}

// The smallest normal number. What is smaller counts as zero, as it does in the arithmetic of the solver;
// what an answer cannot hold for its size is told by its status.
constexpr double smallest_size = 2.2250738585072014e-308;
// What is smaller has a square of few digits.
constexpr double smallest_square_root = 1e-140;

// Column norms from sums of squares: the scale of each column and the norm after scaling. Over- and underflow
// of the squares is mended by a second pass over the column. False where the column holds NaN or infinity.
template <class Matrix>
SW_CALL bool scale_column(const Matrix& matrix, int j, double square, double damping, double& scale,
                          double& norm) {
    scale = norm = 0;
    if (!(square > 1e-200 && square < 1e200)) {
        const double magnitude = matrix.largest_in(j);
        if (!is_finite(magnitude)) return false;
        if (magnitude < smallest_size) return true;
        const double factor = power_below(magnitude > damping ? magnitude : damping);
        double s = 0;
        for (int i = 0; i < matrix.rows; ++i) {
            const double a = matrix.entry(i, j) * factor;
            s += a * a;
        }
        const double extra = damping * factor;
        norm = square_root(s + extra * extra);
        const double rest = power_below(norm);
        scale = factor * rest;
        norm *= rest;
        return true;
    }
    norm = square_root(square + damping * damping);
    scale = power_below(norm);
    norm *= scale;
    return true;
}

}  // namespace lsq
SW_END
