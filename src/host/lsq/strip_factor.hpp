// The Cholesky factor R of A_F' A_F + damping^2 I, of the free columns F of one system, and products with
// A_F. Columns stand in strips of eight, row after row, and so do those of R: every inner loop then reads
// memory in order and works on whole registers.
//
// A Gram matrix has the square of the condition of A_F. What R solves is therefore mended by A_F itself
// (corrected seminormal equations: Bjorck, Numerical Methods for Least Squares Problems, 2.4.5 and 6.6.5),
// until the mends are as small as rounding; where they do not shrink, the caller is told.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "host/common/pool.hpp"
#include "host/lsq/tile.hpp"

SW_BEGIN
namespace lsq {

class StripFactor {
    static constexpr double zeros[lanes] = {};

    // Four rows of a tile of A_F' A_F, from strips p and q, from row `half` of the tile on.
    auto from_columns() {
        return [this](int p, int q, int half, Tile& tile) {
            const int64_t from = std::max(reach_[p].from, reach_[q].from),
                          to = std::min(reach_[p].to, reach_[q].to);
            std::fill(tile[0], tile[0] + 4 * lanes, 0.0);
            if (from < to) add_products<1>(entry(p, from) + half, lanes, entry(q, from), to - from, tile);
        };
    }
    auto from_gram(const double* gram, int64_t stride, const std::vector<int32_t>& free) {
        return [this, gram, stride, &free](int p, int q, int half, Tile& tile) {
            std::fill(tile[0], tile[0] + 4 * lanes, 0.0);
            const int32_t* own = free.data() + lanes * p + half;
            for (int c = 0; c < std::min(4, width(p) - half); ++c)
                for (int d = 0; d < width(q); ++d) tile[c][d] = gram[own[c] * stride + free[lanes * q + d]];
        };
    }

public:
    // Factors the columns `free` (sorted) of a row-major matrix. Their products come from `gram`, which is
    // all columns', where it is given. False where a column depends on others too nearly.
    bool factor_columns(const double* a, int64_t rows, int64_t stride, const std::vector<int32_t>& free,
                        double damping, const double* gram, int threads) {
        arrange(free, rows, damping);
        for (int q = 0; q < strips_; ++q) {
            reach_[q] = {0, rows};
            for (int64_t i = 0; i < rows; ++i) {
                double* to = entry(q, i);
                for (int c = 0; c < width(q); ++c) to[c] = a[i * stride + free[lanes * q + c]];
                for (int c = width(q); c < lanes; ++c) to[c] = 0;
            }
        }
        return gram ? factor(from_gram(gram, stride, free), threads) : factor(from_columns(), threads);
    }

    // The same of a convolution, A[i, j] = pulse[i - j + origin].
    bool factor_pulses(const double* pulse, int length, int origin, int64_t rows,
                       const std::vector<int32_t>& free, double damping, int threads) {
        arrange(free, rows, damping);
        for (int q = 0; q < strips_; ++q) {
            const auto first = [&](int c) { return int64_t(free[lanes * q + c]) - origin; };
            const auto inside = [&](int64_t row) { return std::clamp<int64_t>(row, 0, rows); };
            reach_[q] = {inside(first(0)), inside(first(width(q) - 1) + length)};
            if (reach_[q].from < reach_[q].to)
                std::fill(entry(q, reach_[q].from), entry(q, reach_[q].to), 0.0);
            for (int c = 0; c < width(q); ++c)
                for (int64_t i = inside(first(c)); i < inside(first(c) + length); ++i)
                    entry(q, i)[c] = pulse[i - first(c)];
        }
        return factor(from_columns(), threads);
    }

    // The same where A' A is what is given: nothing is there to mend solutions by.
    bool factor_gram(const double* gram, int64_t stride, const std::vector<int32_t>& free, double damping,
                     int threads) {
        arrange(free, 0, damping);
        std::fill(reach_.begin(), reach_.end(), Reach{0, 0});
        return factor(from_gram(gram, stride, free), threads);
    }

    // u = (R'R)^-1 g, mended; g and u hold the free unknowns alone. False where that does not converge.
    bool solve(const double* g, double* u) {
        right_.assign(size(), 0.0);
        std::copy_n(g, count_, right_.begin());
        left_ = right_;
        solve_triangles(left_.data());
        // (By A' A alone there is nothing to mend.)
        bool good = rows_ == 0 || mend();
        std::copy_n(left_.begin(), count_, u);
        return good;
    }

private:
    struct Reach {
        int64_t from, to;  // rows in which columns of a strip may differ from zero
    };

    // A column depends on others where less of its square is left: an eighth of the digits.
    static constexpr double weak = 1e-12;
    // The first mend shows the quality of R: beyond this share of u another factor is called for.
    static constexpr double poor = 0.03;
    static constexpr int most_mends = 8;

    size_t size() const { return static_cast<size_t>(lanes) * strips_; }
    int width(int q) const { return std::min(lanes, count_ - lanes * q); }
    double* entry(int q, int64_t i) { return columns_.data() + (rows_ * q + i) * lanes; }
    // Row s of R within a strip.
    double* r_at(int q, int64_t s) { return r_.data() + (int64_t(lanes) * strips_ * q + s) * lanes; }

    void arrange(const std::vector<int32_t>& free, int64_t rows, double damping) {
        count_ = static_cast<int>(free.size());
        strips_ = (count_ + lanes - 1) / lanes;
        rows_ = rows;
        square_ = damping * damping;
        reach_.resize(static_cast<size_t>(strips_));
        first_.resize(static_cast<size_t>(strips_));
        norm_.resize(size());
        inverse_.resize(size());
        grow(columns_, static_cast<size_t>(rows) * size());
        grow(r_, size() * size());
    }

    static void grow(std::vector<double>& memory, size_t wanted) {
        if (memory.size() < wanted) memory.resize(wanted);
    }

    // R row by row of tiles: R_pq = R_pp^-T (G_pq - sum over s < p of R_sp' R_sq).
    template <class Products>
    bool factor(const Products& products, int threads) {
        find_overlaps();
        for (int p = 0; p < strips_; ++p) {
            take_tile(products, p, p);
            if (!factor_tile(p)) return false;
            const auto finish = [&](int k, int) {
                const int q = p + 1 + k;
                if (first_[q] > p) return;
                take_tile(products, p, q);
                substitute(p, q);
            };
            const int others = strips_ - p - 1;
            if (threads > 1) {
                Pool::instance().run(others, threads, finish);
            } else {
                for (int k = 0; k < others; ++k) finish(k, 0);
            }
        }
        return true;
    }

    // The first strip with rows in common, above which a strip of R is zero. (Of convolutions; free columns
    // are sorted, so that reaches are.)
    void find_overlaps() {
        for (int q = 0, p = 0; q < strips_; ++q) {
            while (rows_ > 0 && p < q && reach_[p].to <= reach_[q].from) ++p;
            first_[q] = p;
        }
    }

    template <class Products>
    void take_tile(const Products& products, int p, int q) {
        for (int half = 0; half < width(p); half += 4) {
            Tile tile;
            products(p, q, half, tile);
            if (p == q)
                for (int c = 0; c < 4; ++c) {
                    const int t = half + c;
                    tile[c][t] += square_;
                    norm_[lanes * p + t] = std::sqrt(tile[c][t]);
                }
            const int64_t from = int64_t(lanes) * std::max(first_[p], first_[q]);
            add_products<-1>(r_at(p, from) + half, lanes, r_at(q, from), int64_t(lanes) * p - from, tile);
            std::copy_n(tile[0], 4 * lanes, r_at(q, int64_t(lanes) * p + half));
        }
    }

    bool factor_tile(int p) {
        const int64_t base = int64_t(lanes) * p;
        for (int c = 0; c < width(p); ++c) {
            double* own = r_at(p, base + c);
            for (int s = 0; s < c; ++s) {
                const double* above = r_at(p, base + s);
                for (int d = c; d < lanes; ++d) own[d] -= above[c] * above[d];
            }
            const double norm = norm_[base + c];
            if (!(own[c] > weak * norm * norm)) return false;
            const double inverse = 1 / std::sqrt(own[c]);
            inverse_[base + c] = inverse;
            for (int d = 0; d < lanes; ++d) own[d] = d < c ? 0.0 : own[d] * inverse;
        }
        return true;
    }

    void substitute(int p, int q) {
        const int64_t base = int64_t(lanes) * p;
        for (int c = 0; c < lanes; ++c) {
            Eight row(r_at(q, base + c));
            for (int s = 0; s < c; ++s) row.add(-r_at(p, base + s)[c], r_at(q, base + s));
            row.multiply(inverse_[base + c]);
            row.keep(r_at(q, base + c));
        }
    }

    // z becomes (R'R)^-1 z.
    void solve_triangles(double* z) {
        for (int q = 0; q < strips_; ++q) {
            const int64_t base = int64_t(lanes) * q;
            Eight even(z + base), odd(zeros);
            for (int64_t s = int64_t(lanes) * first_[q]; s < base; s += 2) {
                even.add(-z[s], r_at(q, s));
                odd.add(-z[s + 1], r_at(q, s + 1));
            }
            for (int k = 0; k < Eight::parts; ++k) even.part[k] += odd.part[k];
            even.keep(z + base);
            for (int c = 0; c < width(q); ++c) {
                const double* row = r_at(q, base + c);
                const double found = z[base + c] *= inverse_[base + c];
                for (int d = c + 1; d < width(q); ++d) z[base + d] -= found * row[d];
            }
        }
        for (int q = strips_ - 1; q >= 0; --q) {
            const int64_t base = int64_t(lanes) * q;
            for (int c = width(q) - 1; c >= 0; --c) {
                const double* row = r_at(q, base + c);
                double rest = z[base + c];
                for (int d = c + 1; d < width(q); ++d) rest -= row[d] * z[base + d];
                z[base + c] = rest * inverse_[base + c];
            }
            const Eight own(z + base);
            for (int64_t s = int64_t(lanes) * first_[q]; s < base; ++s) {
                Eight product(zeros);
                product.add_products(own, r_at(q, s));
                z[s] -= product.sum();
            }
        }
    }

    // right - (A_F' A_F + damping^2 I) left, into rest_.
    void take_rest() {
        image_.assign(static_cast<size_t>(rows_), 0.0);
        for (int q = 0, next; q < strips_; q = next) {
            const Reach reach = reach_[q];
            for (next = q + 1; next < std::min(q + 8, strips_) && reach_[next].from == reach.from; ++next)
                if (reach_[next].to != reach.to) break;
            for (int64_t i = reach.from; i < reach.to; ++i) {
                Eight product(zeros);
                for (int k = q; k < next; ++k)
                    product.add_products(Eight(left_.data() + lanes * k), entry(k, i));
                image_[i] += product.sum();
            }
        }
        rest_.resize(size());
        for (int q = 0; q < strips_; ++q) {
            Eight even(right_.data() + lanes * q), odd(zeros);
            even.add(-square_, left_.data() + lanes * q);
            int64_t i = reach_[q].from;
            for (; i + 1 < reach_[q].to; i += 2) {
                even.add(-image_[i], entry(q, i));
                odd.add(-image_[i + 1], entry(q, i + 1));
            }
            if (i < reach_[q].to) even.add(-image_[i], entry(q, i));
            for (int k = 0; k < Eight::parts; ++k) even.part[k] += odd.part[k];
            even.keep(rest_.data() + lanes * q);
        }
    }

    // Adds to `left` what R finds of the rest, until that is rounding.
    bool mend() {
        double before = 0;
        for (int turn = 0; turn < most_mends; ++turn) {
            take_rest();
            solve_triangles(rest_.data());
            double added = 0, whole = 0;  // as long as the columns make them
            for (int t = 0; t < count_; ++t) {
                added = std::max(added, norm_[t] * std::abs(rest_[t]));
                whole = std::max(whole, norm_[t] * std::abs(left_[t]));
                if (std::isnan(rest_[t])) return false;
            }
            if (turn == 0) {
                if (!(added <= poor * whole)) return false;
                before = whole;
            } else if (added >= 0.3 * before) {
                return true;  // refinement has stagnated
            }
            for (size_t t = 0; t < size(); ++t) left_[t] += rest_[t];
            // Mends shrink by the same factor every time: would the next one be below rounding?
            if (added * added <= 1e-16 * whole * before) return true;
            before = added;
        }
        return true;
    }

    int count_ = 0, strips_ = 0;
    int64_t rows_ = 0;
    double square_ = 0;
    std::vector<Reach> reach_;
    std::vector<int> first_;
    std::vector<double> columns_, r_, norm_, inverse_, right_, left_, rest_, image_;
};

}  // namespace lsq
SW_END
