// NNLS on the CPU, compiled once per instruction set: a queue of systems over all threads, or one large
// system on all of them.
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "core/nnls/job.hpp"
#include "host/crew.hpp"
#include "host/nnls.hpp"
#include "host/subnormals.hpp"

SW_BEGIN
namespace nnls {
namespace {

// Aligned memory that is not touched before it is used: Q and the panel are sized for the worst case.
template <class T>
class Room {
public:
    explicit Room(int64_t count)
        : memory_(static_cast<T*>(
              std::aligned_alloc(64, (static_cast<size_t>(count) * sizeof(T) + 127) / 64 * 64))) {
        if (!memory_) throw std::bad_alloc();
    }
    T* get() const { return memory_.get(); }

private:
    struct Free {
        void operator()(T* p) const { std::free(p); }
    };
    std::unique_ptr<T[], Free> memory_;
};

struct OwnWorkspace {
    explicit OwnWorkspace(const Extent& extent) : memory(Workspace::bytes(extent)) {
        Arena arena{nullptr, 0, memory.get()};
        workspace.carve(extent, arena);
    }
    Room<char> memory;
    Workspace workspace;
};

Job job_of(const NnlsJob& host) {
    Job job{};
    job.systems = host.systems;
    job.rows = host.rows;
    job.columns = host.columns;
    job.a = host.a;
    job.a_stride = host.a_stride;
    job.row_stride = host.row_stride;
    job.pulse_length = host.pulse_length;
    job.pulse_origin = host.pulse_origin;
    job.b = host.b;
    job.b_stride = host.b_stride;
    job.options = {host.tolerance, host.damping, host.most_solves, host.update, host.guarded};
    job.warm_values = host.warm_values;
    job.warm_marks = host.warm_marks;
    job.warm_stride = host.warm_stride;
    job.chain = host.chain;
    job.x = host.x;
    job.dual = host.dual;
    job.active = host.active;
    job.residual = host.residual;
    job.violation = host.violation;
    job.status = host.status;
    job.insertions = host.insertions;
    job.removals = host.removals;
    job.solves = host.solves;
    job.passes = host.passes;
    job.escalated = host.escalated;
    job.costs = host.costs;
    return job;
}

// The scaled columns of a matrix that all systems share, their norms and, on request, their products.
template <class Matrix>
class SharedMatrix {
public:
    SharedMatrix(const NnlsJob& job, const Matrix& matrix)
        : stride_(padded(job.rows)),
          numbers_(3 * padded(job.columns) + stride_ * job.columns + padded(job.rows)),
          bounds_(2 * padded(job.columns) + 2 * padded(job.rows)),
          gram_(job.form_gram ? padded(job.columns) * job.columns : 0) {
        const int n = job.columns;
        double* scale = numbers_.get();
        double* norm = scale + padded(n);
        double* inverse = norm + padded(n);
        double* columns = inverse + padded(n);
        int32_t* low = bounds_.get();
        int32_t* high = low + padded(n);
        const Envelope envelope{high + padded(n), high + padded(n) + padded(job.rows)};
        const Room<double> scratch(2 * padded(n) + padded(matrix.zeros_before()) + padded(job.rows) +
                                   padded(matrix.zeros_after()));
        double* squares = scratch.get();
        double* sums = squares + padded(n);
        double* r = sums + padded(n) + padded(matrix.zeros_before());
        std::fill(sums, r + padded(job.rows) + padded(matrix.zeros_after()), 0.0);
        matrix.measure(Lone(), r, envelope, squares, sums);
#pragma omp parallel for schedule(static) num_threads(job.threads)
        for (int j = 0; j < n; ++j) {
            // The door has refused a shared matrix that is not finite.
            scale_column(matrix, j, squares[j], job.damping, scale[j], norm[j]);
            inverse[j] = norm[j] > 0 ? 1.0 / norm[j] : 0.0;
            double* column = columns + j * stride_;
            matrix.gather(Lone(), envelope, j, scale[j], column, static_cast<int>(stride_));
            matrix.bounds(envelope, j, column, low[j], high[j]);
        }
        shared.scale = scale;
        shared.norm = norm;
        shared.inverse_norm = inverse;
        shared.columns = columns;
        shared.column_stride = stride_;
        shared.low = low;
        shared.high = high;
        shared.envelope = envelope;
        if (job.form_gram) form_gram(job, columns, low, high);
    }

    Shared shared;

private:
    // Products of all pairs of columns, four by four: the upper triangle by blocks, mirrored.
    void form_gram(const NnlsJob& job, const double* columns, const int32_t* low, const int32_t* high) {
        const int n = job.columns;
        const int64_t gram_stride = padded(n);
        double* gram = gram_.get();
        const int blocks = (n + 3) / 4;
#pragma omp parallel for schedule(dynamic, 4) num_threads(job.threads)
        for (int block = 0; block < blocks; ++block) {
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
        }
        for (int j = 0; j < n; ++j) {
            std::fill(gram + j * gram_stride + n, gram + (j + 1) * gram_stride, 0.0);
            const double below = job.damping * shared.scale[j];
            gram[j * gram_stride + j] += below * below;
        }
        shared.gram = gram;
        shared.gram_stride = gram_stride;
    }

    int64_t stride_;
    Room<double> numbers_;
    Room<int32_t> bounds_;
    Room<double> gram_;
};

// From this many entries on, a product with A costs so much more than a barrier that threads share one
// system.
constexpr int64_t large_system = int64_t(1) << 22;

template <class Scalar, class Matrix>
void solve_batch(const NnlsJob& host) {
    const Job job = job_of(host);
    const Matrix* kind = nullptr;
    const Matrix first = matrix_of(job, 0, kind);
    const int64_t work = int64_t(job.rows) * job.columns;
    // Fewer systems than threads, each large: the threads work on one system together.
    if (job.systems < host.threads && work >= large_system) {
        const Extent extent = extent_of(job, first, host.threads, true);
        OwnWorkspace own(extent);
        for (int64_t system = 0; system < job.systems; ++system) {
            const Matrix matrix = matrix_of(job, system, kind);
            run_crew(host.threads, [&](const Crew& crew) {
                const FlushSubnormals flush;
                Workspace mine = own.workspace;
                solve_system<Scalar>(crew, job, system, matrix, extent, Shared(), mine);
            });
        }
        return;
    }
    const bool share =
        job.a_stride == 0 && job.systems > 1 && (job.pulse_length == 0 || work <= int64_t(1) << 22);
    std::unique_ptr<SharedMatrix<Matrix>> common;
    if (share) common = std::make_unique<SharedMatrix<Matrix>>(host, first);
    const Shared shared = common ? common->shared : Shared();
    const Extent extent = extent_of(job, first, 1, !share);
    const int64_t piece =
        job.chain ? chain_length : std::clamp<int64_t>((1 << 17) / std::max<int64_t>(work, 1), 1, 64);
    const int64_t pieces = (job.systems + piece - 1) / piece;
    const int threads = static_cast<int>(std::min<int64_t>(host.threads, pieces));
    bool out_of_memory = false;
#pragma omp parallel num_threads(threads)
    {
        const FlushSubnormals flush;
        std::unique_ptr<OwnWorkspace> own;
        try {
            own = std::make_unique<OwnWorkspace>(extent);
        } catch (const std::bad_alloc&) {
#pragma omp atomic write
            out_of_memory = true;
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t p = 0; p < pieces; ++p) {
            if (!own) continue;
            for (int64_t system = p * piece; system < std::min(job.systems, (p + 1) * piece); ++system)
                solve_system<Scalar>(Lone(), job, system, matrix_of(job, system, kind), extent, shared,
                                     own->workspace);
        }
    }
    if (out_of_memory) throw std::bad_alloc();
}

void solve(const NnlsJob& job) {
    if (job.single) {
        job.pulse_length ? solve_batch<float, Convolution<float>>(job)
                         : solve_batch<float, Dense<float>>(job);
    } else {
        job.pulse_length ? solve_batch<double, Convolution<double>>(job)
                         : solve_batch<double, Dense<double>>(job);
    }
}

int64_t device_workspace_bytes(const DeviceExtent& sizes) {
    Job job{};
    job.rows = sizes.rows;
    job.columns = sizes.columns;
    job.pulse_length = sizes.pulse_length;
    job.pulse_origin = sizes.pulse_origin;
    job.options.update = sizes.update;
    job.options.damping = sizes.damped;
    const Convolution<double>* convolution = nullptr;
    const Dense<double>* dense = nullptr;
    Extent extent = sizes.pulse_length
                        ? extent_of(job, matrix_of(job, 0, convolution), sizes.members, !sizes.shared)
                        : extent_of(job, matrix_of(job, 0, dense), sizes.members, !sizes.shared);
    extent.by_column = true;
    return Workspace::bytes(extent);
}

void try_factor(FactorTrial& trial) {
    const Lone team;
    const Dense<double> matrix{trial.a, trial.columns, trial.rows, trial.columns};
    Job job{};
    job.rows = trial.rows;
    job.columns = trial.columns;
    job.options.update = trial.update;
    const Extent extent = extent_of(job, matrix, 1, true);
    OwnWorkspace own(extent);
    Workspace& ws = own.workspace;
    const int length = extent.row_length();
    std::fill(ws.r, ws.r + length, 0.0);
    std::fill(ws.b, ws.b + length, 0.0);
    matrix.measure(team, ws.r, ws.envelope, ws.score, ws.w);
    for (int j = 0; j < trial.columns; ++j) {
        scale_column(matrix, j, ws.score[j], 0.0, ws.scale[j], ws.norm[j]);
        ws.inverse_norm[j] = ws.norm[j] > 0 ? 1.0 / ws.norm[j] : 0.0;
    }
    for (int p = 0; p <= extent.most_columns; ++p) ws.slot[p] = p;
    if (extent.square_q)
        for (int64_t c = 0; c < length; ++c)
            for (int i = 0; i < length; ++i) ws.q[c * length + i] = i == c;
    Tally tally;
    Factor<Lone> factor{team, ws, tally, extent, Shared(), 0.0, trial.update};
    trial.rejected = 0;
    for (int64_t move = 0; move < trial.move_count; ++move) {
        const int32_t j = trial.moves[move];
        if (j < 0) {
            factor.leave(-1 - j);
            continue;
        }
        const int slot = ws.slot[factor.count];
        double* column = ws.panel + static_cast<int64_t>(slot) * length;
        matrix.gather(team, ws.envelope, j, ws.scale[j], column, length);
        matrix.bounds(ws.envelope, j, column, ws.low[slot], ws.high[slot]);
        trial.rejected += factor.enter(j, ws.b, 0.0, 0) != Entry::entered;
    }
    trial.count = factor.count;
    trial.orthogonality = trial.backward_error = 0;
    for (int p = 0; p < factor.count; ++p) {
        const double* q = ws.q + static_cast<int64_t>(p) * length;
        const double* column = factor.positive().at(p);
        if (factor.keeps_q())
            for (int s = 0; s <= p; ++s)
                trial.orthogonality =
                    std::max(trial.orthogonality,
                             absolute(dot(ws.q + static_cast<int64_t>(s) * length, q, length) - (s == p)));
        // a_p = Q R e_p, or, without Q, a_s . a_p = (R e_s) . (R e_p).
        if (factor.keeps_q()) {
            for (int i = 0; i < trial.rows; ++i) {
                double sum = 0;
                for (int s = 0; s <= p; ++s)
                    sum += ws.q[static_cast<int64_t>(s) * length + i] * ws.triangle.row(s)[p];
                trial.backward_error = std::max(trial.backward_error, absolute(sum - column[i]));
            }
        } else {
            for (int s = 0; s <= p; ++s) {
                double sum = 0;
                for (int t = 0; t <= s; ++t) sum += ws.triangle.row(t)[s] * ws.triangle.row(t)[p];
                trial.backward_error = std::max(trial.backward_error,
                                                absolute(sum - dot(factor.positive().at(s), column, length)));
            }
        }
    }
    trial.costs[0] = tally.update_accesses;
    trial.costs[1] = tally.update_flops;
    trial.costs[2] = tally.downdate_accesses;
    trial.costs[3] = tally.downdate_flops;
}

}  // namespace
}  // namespace nnls
SW_END

namespace stepwell {
namespace SW_ISA {
const NnlsKernels& nnls_kernels() {
    static const NnlsKernels kernels{nnls::solve, nnls::device_workspace_bytes, nnls::try_factor};
    return kernels;
}
}  // namespace SW_ISA
}  // namespace stepwell
