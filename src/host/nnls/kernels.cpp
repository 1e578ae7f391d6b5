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

// The scaled columns of a matrix that all systems share, their norms and, on request, their products.
template <class Matrix>
class SharedMatrix {
public:
    SharedMatrix(const HostJob& host, Matrix matrix)
        : job(host.job),
          stride_(padded(job.rows)),
          numbers_(3 * padded(job.columns) + stride_ * job.columns + padded(job.rows)),
          bounds_(2 * padded(job.columns) + 2 * padded(job.rows)),
          gram_(host.form_gram ? padded(job.columns) * job.columns : 0) {
        const int n = job.columns;
        double* scale = numbers_.get();
        double* norm = scale + padded(n);
        double* inverse = norm + padded(n);
        double* columns = inverse + padded(n);
        int32_t* low = bounds_.get();
        int32_t* high = low + padded(n);
        const Envelope envelope{high + padded(n), high + padded(n) + padded(job.rows)};
        const LazyBuffer<double> scratch(2 * padded(n) + padded(matrix.zeros_before()) + padded(job.rows) +
                                         padded(matrix.zeros_after()));
        const LazyBuffer<double> copy(matrix.pulse_length() + 2);
        matrix.keep_copy_in(copy.get());
        double* squares = scratch.get();
        double* sums = squares + padded(n);
        double* r = sums + padded(n) + padded(matrix.zeros_before());
        std::fill(sums, r + padded(job.rows) + padded(matrix.zeros_after()), 0.0);
        matrix.measure(Lone(), r, envelope, squares, sums);
        Pool::instance().run(n, host.threads, [&](int j, int) {
            // The door has refused a shared matrix that is not finite.
            scale_column(matrix, j, squares[j], job.options.damping, scale[j], norm[j]);
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
        if (host.form_gram) form_gram(host.threads, columns, low, high);
    }

    Shared shared;

private:
    // Products of all pairs of columns, four by four: the upper triangle by blocks, mirrored.
    void form_gram(int threads, const double* columns, const int32_t* low, const int32_t* high) {
        const int n = job.columns;
        const int64_t gram_stride = padded(n);
        double* gram = gram_.get();
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
        shared.gram = gram;
        shared.gram_stride = gram_stride;
    }

    const NnlsJob& job;
    int64_t stride_;
    LazyBuffer<double> numbers_;
    LazyBuffer<int32_t> bounds_;
    LazyBuffer<double> gram_;
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
            own.task.take(matrix_of(job, system, kind));
            run_thread_team(host.threads, [&](const ThreadTeam& team) {
                const FlushSubnormals flush;
                solve_system<Scalar>(team, job, system, own.task);
            });
        }
        return;
    }
    const bool share = shares_columns(job);
    std::unique_ptr<SharedMatrix<Matrix>> common;
    if (share) common = std::make_unique<SharedMatrix<Matrix>>(host, first);
    const Shared shared = common ? common->shared : Shared();
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
            own->task.take(matrix_of(job, system, kind));
            solve_system<Scalar>(Lone(), job, system, own->task);
        }
    });
    if (out_of_memory) throw std::bad_alloc();
}

void solve(const HostJob& host) {
    const bool pulses = host.job.pulse_length != 0;
    if (host.single) {
        pulses ? solve_batch<float, Convolution<float>>(host) : solve_batch<float, Dense<float>>(host);
    } else {
        pulses ? solve_batch<double, Convolution<double>>(host) : solve_batch<double, Dense<double>>(host);
    }
}

int64_t device_workspace_bytes(const NnlsJob& job, int32_t members) {
    const Convolution<double>* convolution = nullptr;
    const Dense<double>* dense = nullptr;
    const bool gathers = !shares_columns(job);
    Extent extent = job.pulse_length ? extent_of(job, matrix_of(job, 0, convolution), members, gathers)
                                     : extent_of(job, matrix_of(job, 0, dense), members, gathers);
    extent.by_column = true;
    return Workspace::bytes(extent);
}

}  // namespace
}  // namespace nnls
SW_END

namespace stepwell {
namespace SW_ISA {
const NnlsKernels& nnls_kernels() {
    static const NnlsKernels kernels{nnls::solve, nnls::device_workspace_bytes};
    return kernels;
}
}  // namespace SW_ISA
}  // namespace stepwell
