// Some systems with one matrix of few columns at once, a system a lane: the solution on all columns, which
// for many is the answer, and what judges it. What is done with it is for each system to say
// (core/nnls/small).
#pragma once

#include "core/common/simd.hpp"
#include "core/nnls/small/tables.hpp"
#include "host/nnls/kept_inverses.hpp"

SW_BEGIN
namespace nnls {
namespace small {

constexpr int systems_at_once = 4;

// Nothing goes across lanes: the numbers of a system do not depend on the others.
class Guesses {
public:
    // From A'b, a row of `stride` numbers each, and the sums that are wanted.
    template <bool summed>
    static void find(const KeptInverses::Kept& kept, const Products& products, int columns,
                     const double* linear, int stride, const double* sums, Guess* found) {
        const double* const inverse_norm = summed ? products.sum->inverse_norm : products.inverse_norm;
        const double* const norm = summed ? products.sum->norm : products.norm;
        const double* const s = summed ? products.sum->coefficients : nullptr;
        Systems c[kept_columns], x[kept_columns], w[kept_columns], wanted;
        for (int k = 0; k < group; ++k) {
            wanted.of(k) = summed ? sums[k] : 0.0;
            for (int j = 0; j < kept_columns; ++j) c[j].of(k) = linear[k * stride + j];
        }
        for (int i = 0; i < columns; i += block) {
            for (int q = i; q < i + block; ++q) x[q] = summed ? wanted * kept.along[q] : Systems();
            add_products<1>(kept.inverse[0] + i, kept_columns, c, columns, x + i);
        }
        Systems missed = wanted, multiplier, slope, sizes, inside, product, least, top;
        if (summed) {
            // (What rounding has left of the sum is made up for once.)
            for (int i = 0; i < columns; ++i) missed.add(x[i], -s[i]);
            for (int i = 0; i < columns; ++i) x[i].add(missed, kept.along[i]);
            missed = wanted;
            for (int i = 0; i < columns; ++i) missed.add(x[i], -s[i]);
        }
        least = x[0];
        for (int i = 0; i < columns; ++i) {
            least.take_less(x[i]);
            sizes.add(x[i].size(), norm[i]);
        }
        // (Where all have something to leave at zero, nobody reads the rest.)
        bool holds = false;
        for (int k = 0; k < group; ++k) holds = holds || least.of(k) > 0;
        const int judged = holds ? columns : 0;
        for (int i = 0; i < judged; i += block) {
            for (int q = i; q < i + block; ++q) w[q] = c[q];
            add_products<-1>(products.gram + i, products.stride, x, columns, w + i);
        }
        if (summed && holds) {
            for (int i = 0; i < columns; ++i) multiplier.add(w[i], kept.multiplier[i]);
            for (int i = 0; i < columns; ++i) w[i].add(multiplier, s[i]);
            top = w[0] * products.sum->inverse[0];
            for (int i = 1; i < columns; ++i) top.take_more(w[i] * products.sum->inverse[i]);
        }
        for (int i = 0; i < judged; ++i) {
            slope.take_more(w[i].size() * inverse_norm[i]);
            inside.add_product(x[i], c[i]);
            product.add_product(x[i], w[i]);
        }
        for (int k = 0; k < group; ++k) {
            Guess& own = found[k];
            for (int j = 0; j < kept_columns; ++j) {
                own.x[j] = j < columns ? x[j].of(k) : 0.0;
                own.w[j] = j < columns ? w[j].of(k) : 0.0;
            }
            own.least = least.of(k);
            own.deficit = missed.of(k);
            own.multiplier = multiplier.of(k);
            own.slope = slope.of(k);
            own.sizes = sizes.of(k);
            own.ascent = {top.of(k), product.of(k)};
            own.inside = inside.of(k) + product.of(k);
        }
    }

private:
    static constexpr int group = systems_at_once;
    static constexpr int block = 4;  // rows of a product at work at a time
    static constexpr int side = min_of(group, register_lanes<double>), parts = group / side;
    typedef VectorOf<double, side>::aligned Side;
    typedef VectorOf<int64_t, side>::aligned Bits;

    // A number of each system.
    struct Systems {
        Side part[parts] = {};
        double& of(int k) { return reinterpret_cast<double*>(part)[k]; }
        void add(const Systems& other, double factor) {
            for (int p = 0; p < parts; ++p) part[p] += other.part[p] * factor;
        }
        void add_product(const Systems& a, const Systems& b) {
            for (int p = 0; p < parts; ++p) part[p] += a.part[p] * b.part[p];
        }
        void take_less(const Systems& other) {
            for (int p = 0; p < parts; ++p) part[p] = other.part[p] < part[p] ? other.part[p] : part[p];
        }
        void take_more(const Systems& other) {
            for (int p = 0; p < parts; ++p) part[p] = other.part[p] > part[p] ? other.part[p] : part[p];
        }
        Systems size() const {
            Systems found;
            for (int p = 0; p < parts; ++p) found.part[p] = Side(Bits(part[p]) & INT64_MAX);
            return found;
        }
        Systems operator*(double factor) const {
            Systems found;
            for (int p = 0; p < parts; ++p) found.part[p] = part[p] * factor;
            return found;
        }
    };

    // A block of entries of to +- T from, T symmetric and given by the columns of that block.
    template <int sign>
    static void add_products(const double* table, int64_t stride, const Systems* from, int columns,
                             Systems* to) {
        Systems sum[block];
        for (int q = 0; q < block; ++q) sum[q] = to[q];
        for (int j = 0; j < columns; ++j, table += stride)
            for (int q = 0; q < block; ++q) sum[q].add(from[j], sign * table[q]);
        for (int q = 0; q < block; ++q) to[q] = sum[q];
    }
};

}  // namespace small
}  // namespace nnls
SW_END
