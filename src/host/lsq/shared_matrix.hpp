// What systems of a batch have in common: the scaled columns of their matrix, its norms and products.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "core/lsq/job.hpp"
#include "host/common/pool.hpp"
#include "host/lsq/either_matrix.hpp"
#include "host/lsq/kernels.hpp"
#include "host/lsq/lazy_buffer.hpp"
#include "host/lsq/sweeps.hpp"

SW_BEGIN
namespace lsq {

// A task with memory of its own.
struct OwnTask {
    OwnTask(const NnlsOptions& options, const Extent& extent, const Shared& shared)
        : memory(Workspace::bytes(extent)) {
        task.arrange(options, extent, shared, Arena{nullptr, 0, memory.get()});
    }
    LazyBuffer<char> memory;
    Task<EitherMatrix> task;
};

// The scaled columns of a matrix that systems share, their norms and, on request, their products.
class SharedMatrix {
public:
    SharedMatrix(const HostJob& host, EitherMatrix matrix)
        : job(host.job),
          matrix_(matrix),
          stride_(padded(matrix.rows)),
          numbers_(4 * padded(matrix.columns) + stride_ * matrix.columns + stride_),
          bounds_(2 * padded(matrix.columns) + 2 * stride_),
          gram_(host.form_gram ? padded(matrix.columns) * matrix.columns : 0),
          penalty_gram_(host.form_gram && job.constraints.penalty ? padded(matrix.columns) * matrix.columns
                                                                  : 0) {
        const int n = matrix.columns;
        double* scale = numbers_.get();
        double* norm = scale + padded(n);
        double* inverse = norm + padded(n);
        double* diagonal = inverse + padded(n);
        double* columns = diagonal + padded(n);
        int32_t* low = bounds_.get();
        int32_t* high = low + padded(n);
        const Envelope envelope{high + padded(n), high + padded(n) + stride_};
        const LazyBuffer<double> scratch(2 * padded(n) + padded(matrix.zeros_before()) + stride_ +
                                         padded(matrix.zeros_after()));
        const LazyBuffer<double> copy(matrix.pulse_length() + 2);
        matrix.keep_copy_in(copy.get());
        double* squares = scratch.get();
        double* sums = squares + padded(n);
        double* r = sums + padded(n) + padded(matrix.zeros_before());
        std::fill(sums, r + stride_ + padded(matrix.zeros_after()), 0.0);
        matrix.measure(Lone(), r, envelope, squares, sums);
        Pool::instance().run(n, host.threads, [&](int j, int) {
            // The module has refused a shared matrix that is not finite.
            if (job.constraints.general) {
                scale_stacked(matrix, j, squares[j], scale[j], norm[j]);
                diagonal[j] = square_in_penalty(matrix, j, scale[j]);
            } else {
                scale_column(matrix, j, squares[j], job.options.damping, scale[j], norm[j]);
            }
            inverse[j] = norm[j] > 0 ? 1.0 / norm[j] : 0.0;
            double* column = columns + j * stride_;
            matrix.gather(Lone(), envelope, j, scale[j], column, static_cast<int>(stride_));
            matrix.bounds(envelope, j, column, low[j], high[j]);
        });
        std::fill(norm + n, norm + padded(n), 0.0);
        std::fill(inverse + n, inverse + padded(n), 0.0);
        shared.scale = scale;
        shared.norm = norm;
        shared.inverse_norm = inverse;
        shared.columns = columns;
        shared.column_stride = stride_;
        shared.low = low;
        shared.high = high;
        shared.envelope = envelope;
        if (job.constraints.general) {
            shared.penalty_diagonal = diagonal;
            shared.top_norm = norm;
            if (extent_of(job, matrix, 1, false).metric) shared.norm = shared.inverse_norm = nullptr;
        }
        if (host.form_gram) form_gram(host.threads, columns, low, high);
    }

    Shared shared;

private:
    void form_gram(int threads, const double* columns, const int32_t* low, const int32_t* high) {
        double* gram = gram_.get();
        if (job.constraints.general) {
            multiply_columns(threads, columns, 0, matrix_.top.rows, gram);
            if (matrix_.penalty) {
                multiply_columns(threads, columns, matrix_.below + matrix_.summed, matrix_.rows,
                                 penalty_gram_.get());
                shared.penalty_gram = penalty_gram_.get();
            }
        } else {
            multiply_blocks(threads, columns, low, high, gram);
        }
        shared.gram = gram;
        shared.gram_stride = padded(matrix_.columns);
    }

    // Products of all pairs of columns within rows `from` to `to`.
    void multiply_columns(int threads, const double* columns, int from, int to, double* gram) const {
        const int n = matrix_.columns;
        const int64_t gram_stride = padded(n);
        Pool::instance().run(n, threads, [&](int i, int) {
            for (int j = i; j < n; ++j)
                gram[i * gram_stride + j] =
                    dot(columns + i * stride_ + from, columns + j * stride_ + from, to - from);
        });
        for (int i = 0; i < n; ++i) {
            for (int j = 0; j < i; ++j) gram[i * gram_stride + j] = gram[j * gram_stride + i];
            std::fill(gram + i * gram_stride + n, gram + (i + 1) * gram_stride, 0.0);
        }
    }

    // Products of all pairs of columns, four by four: the upper triangle by blocks, mirrored.
    void multiply_blocks(int threads, const double* columns, const int32_t* low, const int32_t* high,
                         double* gram) const {
        const int n = job.columns;
        const int64_t gram_stride = padded(n);
        const int blocks = (n + 3) / 4;
        Pool::instance().run(blocks, threads, [&](int block, int) {
            const int j = 4 * block, width = std::min(4, n - j);
            int from = job.rows, to = 0;
            for (int q = j; q < j + width; ++q) {
                from = std::min(from, static_cast<int>(low[q]));
                to = std::max(to, static_cast<int>(high[q]));
            }
            from &= ~(padding - 1);
            for (int i = j; i < n; ++i) {
                double products[4] = {0, 0, 0, 0};
                const int start = std::max(from, static_cast<int>(low[i]) & ~(padding - 1));
                const int end = static_cast<int>(padded(std::min(to, static_cast<int>(high[i]))));
                if (end > start) {
                    const double* four[4];
                    for (int q = 0; q < 4; ++q) four[q] = columns + std::min(j + q, n - 1) * stride_ + start;
                    dot_four(four, columns + i * stride_ + start, end - start, products);
                }
                for (int q = 0; q < width; ++q) {
                    gram[(j + q) * gram_stride + i] = products[q];
                    gram[i * gram_stride + j + q] = products[q];
                }
            }
        });
        for (int j = 0; j < n; ++j) {
            std::fill(gram + j * gram_stride + n, gram + (j + 1) * gram_stride, 0.0);
            const double below = job.options.damping * shared.scale[j];
            gram[j * gram_stride + j] += below * below;
        }
    }

    const NnlsJob& job;
    EitherMatrix matrix_;
    int64_t stride_;
    LazyBuffer<double> numbers_;
    LazyBuffer<int32_t> bounds_;
    LazyBuffer<double> gram_, penalty_gram_;
};

}  // namespace lsq
SW_END
