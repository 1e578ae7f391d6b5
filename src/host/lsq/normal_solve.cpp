// R of the free columns, then two triangular solves. R is Cholesky's where what it solves can be mended by
// the columns themselves (strip_factor.hpp): that takes a quarter of the time. Else it comes from modified
// Gram-Schmidt, as good as that of Householder reflections (Bjorck, Numerical Methods for Least Squares
// Problems, 2.4.2), and its condition is that of the columns, where a Gram matrix has the square of it. Q is
// thrown away.
#include "host/lsq/normal_solve.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <new>
#include <vector>

#include "core/lsq/packing.hpp"
#include "host/common/pool.hpp"
#include "host/common/subnormals.hpp"
#include "host/lsq/strip_factor.hpp"
#include "host/lsq/vectors.hpp"

SW_BEGIN
namespace lsq {
namespace {

// Products of all columns of a matrix that systems share, row-major; empty where they are not worth it: each
// system then multiplies its free columns alone.
std::vector<double> shared_products(const NormalJob& job) {
    if (job.gram || job.pulse_length || job.a_stride != 0 || job.systems < 2) return {};
    double own = 0;
    for (int64_t s = 0; s < job.systems; ++s) {
        const uint8_t* free = job.free + s * job.columns;
        const double count = static_cast<double>(std::count(free, free + job.columns, uint8_t(1)));
        own += count * count;
    }
    if (own <= static_cast<double>(job.columns) * job.columns) return {};
    const int64_t n = job.columns, stride = padded(job.rows);
    std::vector<double> columns(static_cast<size_t>(stride * n)), gram(static_cast<size_t>(n * n));
    for (int64_t i = 0; i < job.rows; ++i)
        for (int64_t j = 0; j < n; ++j) columns[j * stride + i] = job.a[i * n + j];
    Pool::instance().run(static_cast<int>((n + 3) / 4), job.threads, [&](int piece, int) {
        const int64_t first = 4 * piece;
        const double* four[4];
        for (int c = 0; c < 4; ++c) four[c] = columns.data() + std::min(first + c, n - 1) * stride;
        for (int64_t j = first; j < n; ++j) {
            double products[4];
            dot_four(four, columns.data() + j * stride, stride, products);
            for (int64_t c = 0; c < std::min<int64_t>(4, n - first); ++c)
                gram[(first + c) * n + j] = gram[j * n + first + c] = products[c];
        }
    });
    return gram;
}

// The factor of one system; its memory serves one after the other.
class FreeFactor {
public:
    void take(const NormalJob& job, int64_t system, const double* products, int threads) {
        const uint8_t* free = job.free + system * job.columns;
        free_.clear();
        for (int32_t j = 0; j < job.columns; ++j)
            if (free[j]) free_.push_back(j);
        damping_ = job.damping[system * job.damping_stride];
        a_ = job.a + system * job.a_stride;
        careful_ = free_.empty() || !take_strips(job, products, threads);
        if (careful_) take_carefully(job);
    }

    // u = (R'R)^-1 g on the free columns.
    void solve(const NormalJob& job, const double* g, double* u) {
        const int count = static_cast<int>(free_.size());
        std::fill(u, u + job.columns, 0.0);
        g_.resize(count);
        z_.resize(count);
        for (int t = 0; t < count; ++t) g_[t] = g[free_[t]];
        if (!careful_ && !strips_.solve(g_.data(), z_.data())) {
            careful_ = true;
            take_carefully(job);
        }
        if (careful_) solve_carefully();
        for (int t = 0; t < count; ++t) u[free_[t]] = z_[t];
    }

private:
    static constexpr int block = 4;  // columns that take the earlier ones out together

    bool take_strips(const NormalJob& job, const double* products, int threads) {
        if (job.gram) return strips_.factor_gram(a_, job.columns, free_, damping_, threads);
        if (job.pulse_length)
            return strips_.factor_pulses(a_, job.pulse_length, job.pulse_origin, job.rows, free_, damping_,
                                         threads);
        return strips_.factor_columns(a_, job.rows, job.columns, free_, damping_, products, threads);
    }

    void take_carefully(const NormalJob& job) {
        const int count = static_cast<int>(free_.size());
        if (count == 0) return;
        if (job.gram) return factor_gram(job, a_);
        rows_ = static_cast<int>(padded(job.rows));
        // Below A the rows of the damping, which fill up to the diagonal.
        length_ = rows_ + (damping_ != 0 ? padded(count) : 0);
        columns_.assign(static_cast<size_t>(length_) * count, 0.0);
        r_.assign(static_cast<size_t>(count) * count, 0.0);
        gather(job, a_);
        for (int first = 0; first < count; first += block) factor(first, std::min(block, count - first));
    }

    void solve_carefully() {
        const int count = static_cast<int>(free_.size());
        std::copy(g_.begin(), g_.end(), z_.begin());
        for (int t = 0; t < count; ++t) {
            z_[t] = dependent(t) ? 0.0 : z_[t] / r_at(t)[t];
            add_scaled(-z_[t], r_at(t) + t + 1, z_.data() + t + 1, count - t - 1);
        }
        for (int t = count - 1; t >= 0; --t) {
            const double rest = z_[t] - dot(r_at(t) + t + 1, z_.data() + t + 1, count - t - 1);
            z_[t] = dependent(t) ? 0.0 : rest / r_at(t)[t];
        }
    }

    double* column(int t) { return columns_.data() + static_cast<int64_t>(t) * length_; }
    double* r_at(int t) { return r_.data() + static_cast<int64_t>(t) * static_cast<int64_t>(free_.size()); }
    bool dependent(int t) { return r_at(t)[t] == 0; }

    void gather(const NormalJob& job, const double* a) {
        const int count = static_cast<int>(free_.size());
        if (job.pulse_length) {
            for (int t = 0; t < count; ++t) {
                const int start = free_[t] - job.pulse_origin;  // the row of the pulse's first sample
                const int from = std::max(0, start), to = std::min(job.rows, start + job.pulse_length);
                for (int i = from; i < to; ++i) column(t)[i] = a[i - start];
            }
        } else {
            for (int i = 0; i < job.rows; ++i)
                for (int t = 0; t < count; ++t)
                    column(t)[i] = a[static_cast<int64_t>(i) * job.columns + free_[t]];
        }
        if (damping_ != 0)
            for (int t = 0; t < count; ++t) column(t)[rows_ + t] = damping_;
    }

    // R of a matrix that is given as A' A: Cholesky's, row by row.
    void factor_gram(const NormalJob& job, const double* gram) {
        const int count = static_cast<int>(free_.size());
        r_.assign(static_cast<size_t>(count) * count, 0.0);
        for (int t = 0; t < count; ++t) {
            double* own = r_at(t);
            const double* row = gram + static_cast<int64_t>(free_[t]) * job.columns;
            for (int s = t; s < count; ++s) own[s] = row[free_[s]];
            own[t] += damping_ * damping_;
            const double whole = own[t];
            for (int s = 0; s < t; ++s) add_scaled(-r_at(s)[t], r_at(s) + t, own + t, count - t);
            // What depends on the others to rounding has no say.
            if (!(own[t] > 1e-15 * count * whole)) {
                std::fill(own + t, own + count, 0.0);
                continue;
            }
            const double pivot = std::sqrt(own[t]);
            for (int s = t; s < count; ++s) own[s] /= pivot;
        }
    }

    // Entries of a column that may differ from zero, a multiple of `padding`.
    int64_t reach(int t) const { return damping_ != 0 ? rows_ + padded(t + 1) : rows_; }

    void factor(int first, int width) {
        double* own[block];
        double norm[block], product[block];
        for (int c = 0; c < block; ++c) own[c] = column(first + std::min(c, width - 1));
        for (int c = 0; c < width; ++c) norm[c] = std::sqrt(dot(own[c], own[c], length_));
        for (int t = 0; t < first; ++t) {
            if (dependent(t)) continue;
            const double* q = column(t);
            dot_four(own, q, reach(t), product);
            for (int c = 0; c < width; ++c) {
                r_at(t)[first + c] = product[c];
                add_scaled(-product[c], q, own[c], reach(t));
            }
        }
        for (int c = 0; c < width; ++c) {
            const int t = first + c;
            for (int s = first; s < t; ++s) {
                if (dependent(s)) continue;
                const double overlap = dot(column(s), own[c], reach(s));
                r_at(s)[t] = overlap;
                add_scaled(-overlap, column(s), own[c], reach(s));
            }
            const double left = std::sqrt(dot(own[c], own[c], length_));
            // What rounding leaves of a column that depends on the others: it has no say, as in a solution
            // that leaves it out.
            if (!(left > 1e-15 * std::sqrt(static_cast<double>(length_)) * norm[c])) continue;
            r_at(t)[t] = left;
            for (int64_t i = 0; i < reach(t); ++i) own[c][i] /= left;
        }
    }

    std::vector<int32_t> free_;
    StripFactor strips_;
    bool careful_ = false;  // by Gram-Schmidt, or by a Cholesky factor that leaves columns out
    const double* a_ = nullptr;
    std::vector<double> columns_, r_, g_, z_;
    int rows_ = 0;
    int64_t length_ = 0;
    double damping_ = 0;
};

// What flows back, in one pass over A: what is written is as large as A, and nearly all there is to do.
void pull_back(const NormalJob& job, int64_t s) {
    const int64_t m = job.rows, n = job.columns;
    const double *a = job.a + s * m * n, *x = job.x + s * n;
    double *u = job.u + s * n, *to_a = job.to_a + s * m * n;
    // (A system that was not solved has no derivatives.)
    if (std::any_of(x, x + n, [](double value) { return std::isnan(value); }))
        std::fill(u, u + n, std::nan(""));
    for (int64_t i = 0; i < m; ++i, a += n, to_a += n) {
        const double image = dot(a, u, n), rest = job.b[s * m + i] - dot(a, x, n);
        job.to_b[s * m + i] = image;
        for (int64_t j = 0; j < n; ++j) to_a[j] = rest * u[j] - image * x[j];
    }
}

// One system, whose factor serves all its right-hand sides.
void solve_system(const NormalJob& job, int64_t s, const double* products, int threads, FreeFactor& factor) {
    factor.take(job, s, products, threads);
    for (int64_t k = s * job.right_sides; k < (s + 1) * job.right_sides; ++k)
        factor.solve(job, job.g + k * job.columns, job.u + k * job.columns);
    if (job.to_a) pull_back(job, s);
}

// From this many entries on, threads share a system where there are fewer systems than threads.
constexpr int64_t worth_a_team = int64_t(1) << 15;

void solve(const NormalJob& job) {
    const int64_t work = int64_t(job.rows) * job.columns;
    const std::vector<double> products = shared_products(job);
    const double* known = products.empty() ? nullptr : products.data();
    if (job.systems < job.threads && work >= worth_a_team) {
        const FlushSubnormals flush;
        FreeFactor factor;
        for (int64_t s = 0; s < job.systems; ++s) solve_system(job, s, known, job.threads, factor);
        return;
    }
    const int64_t piece = std::clamp<int64_t>((1 << 14) / std::max<int64_t>(work, 1), 1, 64);
    const int pieces = static_cast<int>((job.systems + piece - 1) / piece);
    std::vector<FreeFactor> factors(std::max(1, std::min(job.threads, pieces)));
    std::atomic<bool> out_of_memory{false};
    Pool::instance().run(pieces, static_cast<int>(factors.size()), [&](int p, int thread) {
        const FlushSubnormals flush;
        try {
            for (int64_t s = p * piece; s < std::min(job.systems, (p + 1) * piece); ++s)
                solve_system(job, s, known, 1, factors[thread]);
        } catch (const std::bad_alloc&) {
            out_of_memory = true;
        }
    });
    if (out_of_memory) throw std::bad_alloc();
}

void solve_with_kept(const double* factor, const int32_t* order, int32_t n, const double* g, double* u) {
    const FlushSubnormals flush;
    const int count = *order++;
    std::fill(u, u + n, count < 0 ? std::nan("") : 0.0);
    std::vector<double> z(static_cast<size_t>(std::max(count, 0)));
    const auto row = [&](int t) { return factor + packed_row(count, t); };
    for (int t = 0; t < count; ++t) z[t] = g[order[t]];
    for (int t = 0; t < count; ++t) {
        z[t] /= row(t)[t];
        add_scaled(-z[t], row(t) + t + 1, z.data() + t + 1, count - t - 1);
    }
    for (int t = count - 1; t >= 0; --t)
        z[t] = (z[t] - dot(row(t) + t + 1, z.data() + t + 1, count - t - 1)) / row(t)[t];
    for (int t = 0; t < count; ++t) u[order[t]] = z[t];
}

}  // namespace
}  // namespace lsq
SW_END

namespace stepwell {
namespace SW_ISA {
const NormalKernels& normal_kernels() {
    static const NormalKernels kernels{lsq::solve, lsq::solve_with_kept};
    return kernels;
}
}  // namespace SW_ISA
}  // namespace stepwell
