// The branches of the solver that a CUDA device takes, without a device: rows of lanes are real threads,
// whose lane_sync() and sync() are real barriers. Built with ThreadSanitizer, a missing one is reported.
// Every answer is held against the optimality conditions.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "lanes.hpp"
#include "prepared.hpp"

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
    // Many columns that leave at once: a start with most signs wrong; then little damping, approached from
    // more.
    for (int variant = 0; variant < 4; ++variant) {
        const int update = variant % 2 ? cgs2 : gram;
        RandomSystem system(70, 90, {0.0, 3e-15, variant < 2 ? 0.0 : 1e-3, 1000, update, 1, 0}, random);
        if (variant < 2) {
            for (int j = 0; j < 90; ++j) system.start[j] += 0.5;
            system.job.columns = system.job.row_stride = 69;
            system.job.warm_values = system.start.data();
        } else {
            for (int i = 0; i < 70; ++i) {
                system.b[i] = 0;
                for (int j = 0; j < 90; ++j) {
                    system.a[i * 90 + j] -= 0.5;
                    system.b[i] += system.a[i * 90 + j] * std::max(0.0, system.start[j]);
                }
            }
        }
        expect_optimal(violation<Dense<double>>(2, 3, system.job, 20000), "many at once", variant);
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
        expect_optimal(violation<lsq::Convolution<double>>(2, 2, job, 4000), "convolution", variant);
    }
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
