// R of the free columns by modified Gram-Schmidt, then two triangular solves: R is as good as that of
// Householder reflections (Bjorck, Numerical Methods for Least Squares Problems, 2.4.2), and its condition
// that of the columns, where a Gram matrix has the square of it. Q is thrown away.
#include "host/nnls/normal_solve.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <new>
#include <vector>

#include "core/nnls/dot.hpp"
#include "host/common/pool.hpp"
#include "host/common/subnormals.hpp"

SW_BEGIN
namespace nnls {
namespace {

// The factor of one system; its memory serves one after the other.
class FreeFactor {
public:
    void take(const NormalJob& job, int64_t system) {
        const uint8_t* free = job.free + system * job.columns;
        free_.clear();
        for (int32_t j = 0; j < job.columns; ++j)
            if (free[j]) free_.push_back(j);
        const int count = static_cast<int>(free_.size());
        if (count == 0) return;
        rows_ = static_cast<int>(padded(job.rows));
        damping_ = job.damping[system * job.damping_stride];
        if (job.gram) return factor_gram(job, job.a + system * job.a_stride);
        // Below A the rows of the damping, which fill up to the diagonal.
        length_ = rows_ + (damping_ != 0 ? padded(count) : 0);
        columns_.assign(static_cast<size_t>(length_) * count, 0.0);
        r_.assign(static_cast<size_t>(count) * count, 0.0);
        gather(job, job.a + system * job.a_stride);
        for (int first = 0; first < count; first += block) factor(first, std::min(block, count - first));
    }

    // u = (R'R)^-1 g on the free columns.
    void solve(const NormalJob& job, const double* g, double* u) {
        const int count = static_cast<int>(free_.size());
        std::fill(u, u + job.columns, 0.0);
        z_.resize(count);
        for (int t = 0; t < count; ++t) z_[t] = g[free_[t]];
        for (int t = 0; t < count; ++t) {
            z_[t] = dependent(t) ? 0.0 : z_[t] / r_at(t)[t];
            add_scaled(-z_[t], r_at(t) + t + 1, z_.data() + t + 1, count - t - 1);
        }
        for (int t = count - 1; t >= 0; --t) {
            const double rest = z_[t] - dot(r_at(t) + t + 1, z_.data() + t + 1, count - t - 1);
            z_[t] = dependent(t) ? 0.0 : rest / r_at(t)[t];
        }
        for (int t = 0; t < count; ++t) u[free_[t]] = z_[t];
    }

private:
    static constexpr int block = 4;  // columns that take the earlier ones out together

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
    std::vector<double> columns_, r_, z_;
    int rows_ = 0;
    int64_t length_ = 0;
    double damping_ = 0;
};

void solve(const NormalJob& job) {
    const int64_t work = int64_t(job.rows) * job.columns;
    const int64_t piece = std::clamp<int64_t>((1 << 14) / std::max<int64_t>(work, 1), 1, 64);
    const int pieces = static_cast<int>((job.systems + piece - 1) / piece);
    std::vector<FreeFactor> factors(std::max(1, std::min(job.threads, pieces)));
    std::atomic<bool> out_of_memory{false};
    Pool::instance().run(pieces, static_cast<int>(factors.size()), [&](int p, int thread) {
        const FlushSubnormals flush;
        try {
            for (int64_t s = p * piece; s < std::min(job.systems, (p + 1) * piece); ++s) {
                factors[thread].take(job, s);
                for (int64_t k = s * job.right_sides; k < (s + 1) * job.right_sides; ++k)
                    factors[thread].solve(job, job.g + k * job.columns, job.u + k * job.columns);
            }
        } catch (const std::bad_alloc&) {
            out_of_memory = true;
        }
    });
    if (out_of_memory) throw std::bad_alloc();
}

}  // namespace
}  // namespace nnls
SW_END

namespace stepwell {
namespace SW_ISA {
const NormalKernels& normal_kernels() {
    static const NormalKernels kernels{nnls::solve};
    return kernels;
}
}  // namespace SW_ISA
}  // namespace stepwell
