// NNLS on the CPU, compiled once per instruction set: a queue of systems over all threads, or one large
// system on all of them.
#include "host/nnls/kernels.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "core/nnls/job.hpp"
#include "host/common/pool.hpp"
#include "host/common/subnormals.hpp"
#include "host/common/thread_team.hpp"
#include "host/nnls/lazy_buffer.hpp"

SW_BEGIN
namespace nnls {
namespace {

// A task with memory of its own.
template <class Matrix>
struct OwnTask {
    OwnTask(const Options& options, const Extent& extent, const Shared& shared)
        : memory(Workspace::bytes(extent)) {
        task.arrange(options, extent, shared, Arena{nullptr, 0, memory.get()});
    }
    LazyBuffer<char> memory;
    Task<Matrix> task;
};

// The scaled columns of a matrix that systems share, their norms and, on request, their products.
template <class Matrix>
class SharedMatrix {
public:
    SharedMatrix(const HostJob& host, Matrix matrix)
        : job(host.job),
          matrix_(matrix),
          stride_(padded(matrix.rows)),
          numbers_(4 * padded(matrix.columns) + stride_ * matrix.columns + stride_),
          bounds_(2 * padded(matrix.columns) + 2 * stride_),
          gram_(host.form_gram ? padded(matrix.columns) * matrix.columns : 0),
          penalty_gram_(host.form_gram && job.family.penalty ? padded(matrix.columns) * matrix.columns : 0) {
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
            // The door has refused a shared matrix that is not finite.
            if constexpr (Matrix::general) {
                scale_stacked(matrix, j, squares[j], scale[j], norm[j]);
                diagonal[j] = scale[j] * scale[j] * square_in_penalty(matrix, j);
            } else {
                scale_column(matrix, j, squares[j], job.options.damping, scale[j], norm[j]);
            }
            inverse[j] = norm[j] > 0 ? 1.0 / norm[j] : 0.0;
            double* column = columns + j * stride_;
            matrix.gather(Lone(), envelope, j, scale[j], column, static_cast<int>(stride_));
            matrix.bounds(envelope, j, column, low[j], high[j]);
        });
        shared.scale = scale;
        shared.norm = norm;
        shared.inverse_norm = inverse;
        shared.columns = columns;
        shared.column_stride = stride_;
        shared.low = low;
        shared.high = high;
        shared.envelope = envelope;
        if constexpr (Matrix::general) {
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
        if constexpr (Matrix::general) {
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
    Matrix matrix_;
    int64_t stride_;
    LazyBuffer<double> numbers_;
    LazyBuffer<int32_t> bounds_;
    LazyBuffer<double> gram_, penalty_gram_;
};

// From this many entries on, a product with A costs so much more than a barrier that threads share one
// system.
constexpr int64_t large_system = int64_t(1) << 22;

template <class Scalar, class Matrix>
void solve_batch(const HostJob& host) {
    const Job& job = host.job;
    const Matrix* kind = nullptr;
    const Matrix first = matrix_of(job, 0, kind);
    const int64_t work = int64_t(job.rows) * job.columns;
    // Fewer systems than threads, each large: the threads work on one system together.
    if (job.systems < host.threads && work >= large_system) {
        OwnTask<Matrix> own(job.options, extent_of(job, first, host.threads, true), Shared());
        for (int64_t system = 0; system < job.systems; ++system) {
            own.task.take(matrix_of(job, matrix_number(job, system), kind));
            run_thread_team(host.threads, [&](const ThreadTeam& team) {
                const FlushSubnormals flush;
                solve_system<Scalar>(team, job, system, own.task);
            });
        }
        return;
    }
    const bool share = shares_columns(job);
    // One matrix, or those of a dictionary.
    std::vector<std::unique_ptr<SharedMatrix<Matrix>>> common(share ? std::max(1, job.family.matrices) : 0);
    for (size_t k = 0; k < common.size(); ++k)
        common[k] =
            std::make_unique<SharedMatrix<Matrix>>(host, matrix_of(job, static_cast<int64_t>(k), kind));
    const Shared shared = share ? common[0]->shared : Shared();
    const Extent extent = extent_of(job, first, 1, !share);
    const int64_t piece = job.options.chain
                              ? nnls_chain_length
                              : std::clamp<int64_t>((1 << 17) / std::max<int64_t>(work, 1), 1, 64);
    const int pieces = static_cast<int>((job.systems + piece - 1) / piece);
    const int threads = std::min(host.threads, pieces);
    std::vector<std::unique_ptr<OwnTask<Matrix>>> tasks(threads);
    std::atomic<bool> out_of_memory{false};
    Pool::instance().run(pieces, threads, [&](int p, int thread) {
        const FlushSubnormals flush;
        std::unique_ptr<OwnTask<Matrix>>& own = tasks[thread];
        try {
            if (!own) own = std::make_unique<OwnTask<Matrix>>(job.options, extent, shared);
        } catch (const std::bad_alloc&) {
            out_of_memory = true;
            return;
        }
        for (int64_t system = p * piece; system < std::min(job.systems, (p + 1) * piece); ++system) {
            const int64_t index = matrix_number(job, system);
            own->task.take(matrix_of(job, index, kind));
            if (job.family.which) own->task.share(common[static_cast<size_t>(index)]->shared);
            solve_system<Scalar>(Lone(), job, system, own->task);
        }
    });
    if (out_of_memory) throw std::bad_alloc();
}

template <class Scalar, class Matrix>
void solve_either(const HostJob& host) {
    host.job.family.general ? solve_batch<Scalar, Stacked<Matrix>>(host) : solve_batch<Scalar, Matrix>(host);
}

void solve(const HostJob& host) {
    const bool pulses = host.job.pulse_length != 0;
    if (host.single) {
        pulses ? solve_either<float, Convolution<float>>(host) : solve_either<float, Dense<float>>(host);
    } else {
        pulses ? solve_either<double, Convolution<double>>(host) : solve_either<double, Dense<double>>(host);
    }
}

template <class Matrix>
int64_t workspace_of(const NnlsJob& job, int32_t members) {
    const Matrix* kind = nullptr;
    Extent extent = extent_of(job, matrix_of(job, 0, kind), members, !shares_columns(job));
    extent.by_column = true;
    return Workspace::bytes(extent);
}

int32_t stacked_rows(const NnlsJob& job) {
    const Stacked<Convolution<double>>* convolution = nullptr;
    const Stacked<Dense<double>>* dense = nullptr;
    return job.pulse_length ? matrix_of(job, 0, convolution).rows : matrix_of(job, 0, dense).rows;
}

int64_t device_workspace_bytes(const NnlsJob& job, int32_t members) {
    if (job.family.general)
        return job.pulse_length ? workspace_of<Stacked<Convolution<double>>>(job, members)
                                : workspace_of<Stacked<Dense<double>>>(job, members);
    return job.pulse_length ? workspace_of<Convolution<double>>(job, members)
                            : workspace_of<Dense<double>>(job, members);
}

}  // namespace
}  // namespace nnls
SW_END

namespace stepwell {
namespace SW_ISA {
const NnlsKernels& nnls_kernels() {
    static const NnlsKernels kernels{nnls::solve, nnls::device_workspace_bytes, nnls::stacked_rows};
    return kernels;
}
}  // namespace SW_ISA
}  // namespace stepwell
