// The branches of the solver that a CUDA device takes, without a device: rows of lanes are real threads,
// whose lane_sync() and sync() are real barriers. Built with ThreadSanitizer, a missing one is reported.
// Every answer is held against the optimality conditions.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#define __CUDACC__
static double rsqrt(double value) {
    return 1.0 / std::sqrt(value);
}
#define __host__
#define __device__
#undef __noinline__
#define __noinline__ __attribute__((noinline))
#include "one_system.hpp"

class Barrier {
public:
    explicit Barrier(int size) : size_(size) {}
    void wait() {
        const unsigned turn = turn_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
            arrived_.store(0, std::memory_order_relaxed);
            turn_.store(turn + 1, std::memory_order_release);
            return;
        }
        while (turn_.load(std::memory_order_acquire) == turn) std::this_thread::yield();
    }

private:
    const int size_;
    std::atomic<int> arrived_{0};
    std::atomic<unsigned> turn_{0};
};

struct Floor {
    Floor(int rows, int lanes)
        : rows(rows), lanes(lanes), all(rows * lanes), value(2 * rows * lanes), index(2 * rows * lanes) {
        for (int row = 0; row < rows; ++row) row_barriers.push_back(std::make_unique<Barrier>(lanes));
    }
    int rows, lanes;
    Barrier all;
    std::vector<std::unique_ptr<Barrier>> row_barriers;
    std::vector<double> value;
    std::vector<int64_t> index;
};

class Lanes {
public:
    Lanes(Floor& floor, int rank) : floor_(&floor), rank_(rank) {}
    int rank() const { return rank_; }
    int size() const { return floor_->rows * floor_->lanes; }
    int row() const { return rank_ / floor_->lanes; }
    int rows() const { return floor_->rows; }
    int lane() const { return rank_ % floor_->lanes; }
    int lanes() const { return floor_->lanes; }
    void sync() const { floor_->all.wait(); }
    void lane_sync() const { floor_->row_barriers[row()]->wait(); }

    double lane_sum(double value) const {
        lane_sync();
        floor_->value[rank_] = value;
        lane_sync();
        double total = 0;
        for (int lane = 0; lane < lanes(); ++lane) total += floor_->value[row() * lanes() + lane];
        lane_sync();
        return total;
    }
    template <class T>
    T lane_pick(T value, int lane) const {
        lane_sync();
        floor_->value[rank_] = value;
        lane_sync();
        const double picked = floor_->value[row() * lanes() + lane % lanes()];
        lane_sync();
        return static_cast<T>(picked);
    }
    double lane_max(double value) const {
        lane_sync();
        floor_->value[rank_] = value;
        lane_sync();
        double* const first = floor_->value.data() + row() * lanes();
        const double highest = *std::max_element(first, first + lanes());
        lane_sync();
        return highest;
    }
    int lane_max_int(int value) const { return static_cast<int>(lane_max(value)); }
    unsigned lane_votes(bool yes) const {
        return static_cast<unsigned>(lane_sum(yes ? static_cast<double>(1u << lane()) : 0.0));
    }
    int lane_min_int(int value) const { return -lane_max_int(-value); }
    double sum(double value) const {
        double* slots = floor_->value.data() + size();
        sync();
        slots[rank_] = value;
        sync();
        double total = 0;
        for (int member = 0; member < size(); ++member) total += slots[member];
        sync();
        return total;
    }
    double max(double value) const {
        argmax(value, rank_);
        return value;
    }
    int64_t argmax(double& value, int64_t index) const {
        double* slots = floor_->value.data() + size();
        sync();
        slots[rank_] = value;
        floor_->index[rank_] = index;
        sync();
        int64_t where = floor_->index[0];
        value = slots[0];
        for (int member = 1; member < size(); ++member)
            if (slots[member] > value || (slots[member] == value && floor_->index[member] < where)) {
                value = slots[member];
                where = floor_->index[member];
            }
        sync();
        return where;
    }
    int place(bool yes, int& all) const {
        double* slots = floor_->value.data() + size();
        sync();
        slots[rank_] = yes;
        sync();
        int before = 0;
        all = 0;
        for (int member = 0; member < size(); ++member) {
            if (member < rank_) before += slots[member] > 0;
            all += slots[member] > 0;
        }
        sync();
        return before;
    }
    template <class Body>
    void each(int count, Body body) const {
        for (int i = rank_; i < count; i += size()) body(i);
    }
    template <class Body>
    void each_short(int count, Body body) const {
        each(count, body);
    }
    template <class Body>
    void lane_each(int count, Body body) const {
        for (int i = lane(); i < count; i += lanes()) body(i);
    }

private:
    Floor* floor_;
    int rank_;
};

// Solves one system; returns the scaled violation, recomputed from A.
template <class Matrix>
double violation(int rows, int lanes, const Job& job, int64_t fast_bytes, const Shared& shared = Shared()) {
    const int m = job.rows, n = job.columns;
    OneSystem<Matrix> system(job, rows * lanes, fast_bytes, shared);
    const Matrix& matrix = system.matrix;
    const std::vector<double>& x = system.x;
    Floor floor(rows, lanes);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < rows * lanes; ++rank)
        threads.emplace_back([&, rank] { system.solve(Lanes(floor, rank)); });
    for (std::thread& thread : threads) thread.join();
    const double* b = static_cast<const double*>(job.b);
    const double damping = job.options.damping;
    double worst = 0, size = 0, square_b = 0;
    std::vector<double> r(b, b + m);
    for (int i = 0; i < m; ++i) square_b += b[i] * b[i];
    for (int j = 0; j < n; ++j) {
        double norm = damping * damping;
        for (int i = 0; i < m; ++i) {
            norm += matrix.entry(i, j) * matrix.entry(i, j);
            r[i] -= matrix.entry(i, j) * x[j];
        }
        size += std::sqrt(norm) * x[j];
    }
    for (int j = 0; j < n; ++j) {
        double w = -damping * damping * x[j], norm = damping * damping;
        for (int i = 0; i < m; ++i) {
            w += matrix.entry(i, j) * r[i];
            norm += matrix.entry(i, j) * matrix.entry(i, j);
        }
        w /= std::sqrt(norm);
        worst = std::max(worst, x[j] > 0 ? std::fabs(w) : w);
        if (x[j] < 0 || !(x[j] == x[j])) return 1e300;
    }
    if (system.counts[0] == limit) return 1e200;
    return worst / (std::sqrt(square_b) + size);
}

// What systems with one matrix share, as the kernels of src/cuda/nnls/nnls.cu prepare it.
template <class Matrix>
struct Prepared {
    Prepared(const Matrix& matrix, double damping)
        : numbers(3 * matrix.columns),
          columns(padded(matrix.rows) * matrix.columns),
          products(padded(matrix.columns) * matrix.columns),
          bounds(2 * matrix.columns + 2) {
        const int m = matrix.rows, n = matrix.columns;
        const int64_t stride = padded(m), gram_stride = padded(n);
        double *scale = numbers.data(), *norm = scale + n, *inverse = norm + n;
        int32_t *low = bounds.data(), *high = low + n + 1;
        for (int j = 0; j < n; ++j) {
            double square = 0;
            low[j] = high[j] = 0;
            for (int i = 0; i < m; ++i) {
                const double a = matrix.entry(i, j);
                square += a * a;
                if (a == 0) continue;
                if (high[j] == 0) low[j] = i;
                high[j] = i + 1;
            }
            scale_column(matrix, j, square, damping, scale[j], norm[j]);
            inverse[j] = norm[j] > 0 ? 1 / norm[j] : 0;
            for (int i = 0; i < m; ++i) columns[j * stride + i] = scale[j] * matrix.entry(i, j);
        }
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < n; ++j) {
                double& sum = products[i * gram_stride + j];
                for (int t = 0; t < m; ++t) sum += columns[i * stride + t] * columns[j * stride + t];
                if (i == j) sum += damping * scale[j] * damping * scale[j];
            }
        shared.scale = scale;
        shared.norm = norm;
        shared.inverse_norm = inverse;
        shared.columns = columns.data();
        shared.low = low;
        shared.high = high;
        shared.gram = products.data();
        shared.envelope = {low, high};
        shared.column_stride = stride;
        shared.gram_stride = gram_stride;
    }
    std::vector<double> numbers, columns, products;
    std::vector<int32_t> bounds;
    Shared shared;
};

int main() {
    std::mt19937 random(1);
    std::uniform_real_distribution<double> uniform(0, 1);
    int failures = 0;
    const auto expect_optimal = [&](double worst, const char* what, int number) {
        if (worst < 1e-12) return;
        std::printf("%s %d: violation %g\n", what, number, worst);
        ++failures;
    };
    const int shapes[][2] = {{1, 1}, {9, 3}, {5, 9}, {26, 21}, {30, 40}};
    const int updates[] = {cgs2, mgs, rotations, csne, gram};
    const int teams[][2] = {{2, 3}, {1, 4}, {3, 1}};
    int number = 0;
    for (const auto& shape : shapes)
        for (const int update : updates)
            for (int variant = 0; variant < 4; ++variant, ++number) {
                const int m = shape[0], n = shape[1];
                const double damping = variant == 1 && update != rotations ? 0.3 : 0.0;
                RandomSystem system(m, n, {0.0, 3e-15, damping, 10 * n + 100, update, variant != 0, 0},
                                    random);
                if (variant == 2)  // a band, with nearly equal columns
                    for (int i = 0; i < m; ++i)
                        for (int j = 0; j < n; ++j) {
                            double* a = &system.a[i * n + j];
                            if (j % 2) a[0] = a[-1] * (1 + 1e-9 * uniform(random));
                            if (std::abs(i - j) > 8) a[0] = 0;
                        }
                if (variant == 3) {
                    for (double& value : system.b) value -= 0.3;
                    system.job.warm_values = system.start.data();
                }
                const auto& team = teams[number % 3];
                // Fast memory for nothing, for some, or for nearly all of it: R then moves as it grows.
                const int64_t fast[] = {0, 6000, 40000};
                expect_optimal(violation<Dense<double>>(team[0], team[1], system.job, fast[number % 3]),
                               "system", number);
            }
    // More columns above the threshold than there may be candidates; then one matrix for all.
    for (int variant = 0; variant < 3; ++variant) {
        const RandomSystem system(40, 200, {0.0, 3e-15, variant == 2 ? 0.3 : 0.0, 2100, gram, 1, 0}, random);
        const Dense<double>* kind = nullptr;
        const Prepared<Dense<double>> prepared(matrix_of(system.job, 0, kind), system.job.options.damping);
        expect_optimal(
            violation<Dense<double>>(2, 3, system.job, 20000, variant == 0 ? Shared() : prepared.shared),
            "many columns", variant);
    }
    // Shifts of a pulse: most whole, those at the ends cut; then longer than the rows, so that all are cut.
    std::vector<double> b(50);
    for (double& value : b) value = uniform(random);
    for (int variant = 0; variant < 3; ++variant) {
        std::vector<double> pulse = {0, 0.1, 0.6, 1.0, 0.5, 0.2, 0.1, 0, 0};
        if (variant == 1) pulse.resize(70, 0.01);
        if (variant == 2)
            for (double& sample : pulse) sample *= 1e150;
        Job job = pulse_job(pulse, 3, b);
        if (variant == 2) job.options.damping = 1e149;
        expect_optimal(violation<nnls::Convolution<double>>(2, 2, job, 4000), "convolution", variant);
    }
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
