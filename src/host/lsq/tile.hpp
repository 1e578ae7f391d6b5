// Products of strips of eight columns in the registers of a CPU: tiles of four by eight numbers, of which
// Cholesky factors are made.
#pragma once

#include "core/common/simd.hpp"

SW_BEGIN
namespace lsq {

// Eight numbers in registers.
struct Eight {
    typedef Register<double> Numbers;
    static constexpr int parts = lanes / register_lanes<double>;
    Numbers part[parts];

    explicit Eight(const double* p) {
        for (int k = 0; k < parts; ++k) part[k] = register_at(p + k * register_lanes<double>);
    }
    void keep(double* p) const {
        for (int k = 0; k < parts; ++k) register_at(p + k * register_lanes<double>) = part[k];
    }
    void add(double factor, const double* row) {
        for (int k = 0; k < parts; ++k) part[k] += factor * register_at(row + k * register_lanes<double>);
    }
    void add_products(const Eight& other, const double* row) {
        for (int k = 0; k < parts; ++k)
            part[k] += other.part[k] * register_at(row + k * register_lanes<double>);
    }
    void multiply(double factor) {
        for (int k = 0; k < parts; ++k) part[k] *= factor;
    }
    double sum() const {
        Numbers all = part[0];
        for (int k = 1; k < parts; ++k) all += part[k];
        double whole = all[0];
        for (int k = 1; k < register_lanes<double>; ++k) whole += all[k];
        return whole;
    }
};

typedef double Tile[4][lanes];

// tile[c] += sign * left[i][c] * right[i], over rows: of `right` eight numbers one after the other, of `left`
// four, `stride` from one row to the next. Rows of `left` that are far apart no machine fetches by itself.
template <int sign>
inline void add_products(const double* left, int64_t stride, const double* right, int64_t rows, Tile& tile) {
    constexpr int64_t ahead = 12;
    const bool apart = stride > 8 * lanes;
    Eight a(tile[0]), b(tile[1]), c(tile[2]), d(tile[3]);
    for (int64_t i = 0; i < rows; ++i, left += stride, right += lanes) {
        if (apart) __builtin_prefetch(left + ahead * stride, 0, 3);
        a.add(sign * left[0], right);
        b.add(sign * left[1], right);
        c.add(sign * left[2], right);
        d.add(sign * left[3], right);
    }
    a.keep(tile[0]);
    b.keep(tile[1]);
    c.keep(tile[2]);
    d.keep(tile[3]);
}

}  // namespace lsq
SW_END
