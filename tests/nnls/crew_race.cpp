// Solves a few systems with a crew of real threads, as a thread block would, and compares with a lone thread.
// Built with ThreadSanitizer, a missing sync() is reported; built with the address and undefined sanitizers,
// a stray index.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "core/nnls/job.hpp"
#include "host/crew.hpp"

using namespace stepwell;
using namespace stepwell::nnls;

struct Answer {
    std::vector<double> x, dual;
    std::vector<uint8_t> active;
    double residual = 0, violation = 0;
    int32_t counts[6] = {};
    int64_t costs[4] = {};
};

template <class Matrix>
Answer solve(int members, Job job) {
    const int n = job.columns;
    Answer answer{std::vector<double>(n), std::vector<double>(n), std::vector<uint8_t>(n)};
    job.systems = 1;
    job.x = answer.x.data();
    job.dual = answer.dual.data();
    job.active = answer.active.data();
    job.residual = &answer.residual;
    job.violation = &answer.violation;
    int32_t** fields[] = {&job.status, &job.insertions, &job.removals,
                          &job.solves, &job.passes,     &job.escalated};
    for (int k = 0; k < 6; ++k) *fields[k] = answer.counts + k;
    job.costs = answer.costs;
    const Matrix* kind = nullptr;
    const Matrix matrix = matrix_of(job, 0, kind);
    const Extent extent = extent_of(job, matrix, members, true);
    std::vector<char> bytes(static_cast<size_t>(Workspace::bytes(extent)) + 64);
    Task<Matrix> task;
    task.arrange(job.options, extent, Shared(),
                 Arena{nullptr, 0,
                       reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64)});
    task.matrix = matrix;
    if (members == 1)
        solve_system<double>(Lone(), job, 0, task);
    else
        run_crew(members, [&](const Crew& crew) { solve_system<double>(crew, job, 0, task); });
    return answer;
}

int main() {
    std::mt19937 random(1);
    std::uniform_real_distribution<double> uniform(0, 1);
    int failures = 0;
    const int shapes[][2] = {{1, 1}, {5, 9}, {33, 21}};
    const int updates[] = {cgs2, mgs, rotations, csne, gram};
    for (const auto& shape : shapes)
        for (const int update : updates)
            for (int variant = 0; variant < 4; ++variant) {
                const int m = shape[0], n = shape[1];
                std::vector<double> a(static_cast<size_t>(m) * n), b(m), start(n);
                for (double& value : a) value = uniform(random);
                for (double& value : b) value = uniform(random) - (variant == 3 ? 0.3 : 0.0);
                for (double& value : start) value = uniform(random) - 0.5;
                if (variant == 2)  // nearly equal columns
                    for (int i = 0; i < m; ++i)
                        for (int j = 1; j < n; j += 2)
                            a[i * n + j] = a[i * n + j - 1] + 1e-9 * uniform(random);
                Job job{};
                job.rows = m;
                job.columns = n;
                job.a = a.data();
                job.row_stride = n;
                job.b = b.data();
                job.b_stride = m;
                job.options = {3e-15,        variant == 1 && update != rotations ? 0.3 : 0.0,
                               10 * n + 100, update,
                               variant != 0, 0};
                if (variant == 3) job.warm_values = start.data();
                const Answer alone = solve<Dense<double>>(1, job);
                const Answer together = solve<Dense<double>>(3, job);
                double scale = 1e-300;
                for (double value : b) scale += value * value;
                const double error = std::fabs(alone.residual - together.residual) / std::sqrt(scale);
                if (!(error < 1e-9) || alone.counts[0] == limit || together.counts[0] == limit) {
                    std::printf("%d x %d, update %d, variant %d: residuals %.17g %.17g\n", m, n, update,
                                variant, alone.residual, together.residual);
                    ++failures;
                }
            }
    std::vector<double> pulse = {0.1, 0.6, 1.0, 0.5, 0.2, 0.1}, b(90);
    for (double& value : b) value = uniform(random);
    Job job{};
    job.rows = job.columns = 90;
    job.a = pulse.data();
    job.pulse_length = 6;
    job.pulse_origin = 2;
    job.b = b.data();
    job.options = {3e-15, 0.0, 1000, gram, 1, 0};
    const double alone = solve<Convolution<double>>(1, job).residual;
    const double together = solve<Convolution<double>>(4, job).residual;
    if (!(std::fabs(alone - together) < 1e-9)) ++failures;
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
