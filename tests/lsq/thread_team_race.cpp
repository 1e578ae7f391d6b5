// Solves a few systems with a team of real threads, as a thread block would, and compares with a lone thread.
// Built with ThreadSanitizer, a missing sync() is reported; built with the address and undefined sanitizers,
// a stray index.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "host/common/thread_team.hpp"
#include "one_system.hpp"

template <class Matrix>
struct Solved : OneSystem<Matrix> {
    Solved(const Job& job, int members) : OneSystem<Matrix>(job, members) {
        if (members == 1)
            this->solve(Lone());
        else
            run_thread_team(members, [&](const ThreadTeam& team) { this->solve(team); });
    }
};

// Whether a team's answer is that of a lone thread.
template <class Matrix>
bool agree(const Job& job, int members) {
    const Solved<Matrix> alone(job, 1), together(job, members);
    const double* b = static_cast<const double*>(job.b);
    double scale = 1e-300;
    for (int i = 0; i < job.rows; ++i) scale += b[i] * b[i];
    const double error = std::fabs(alone.residual - together.residual) / std::sqrt(scale);
    if (error < 1e-9 && alone.counts[0] != limit && together.counts[0] != limit) return true;
    std::printf("%d x %d, update %d: residuals %.17g %.17g\n", job.rows, job.columns, job.options.update,
                alone.residual, together.residual);
    return false;
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
                const double damping = variant == 1 && update != rotations ? 0.3 : 0.0;
                RandomSystem system(m, n, {0.0, 3e-15, damping, 10 * n + 100, update, variant != 0, 0},
                                    random);
                if (variant == 2)  // nearly equal columns
                    for (int i = 0; i < m; ++i)
                        for (int j = 1; j < n; j += 2)
                            system.a[i * n + j] = system.a[i * n + j - 1] + 1e-9 * uniform(random);
                if (variant == 3) {
                    for (double& value : system.b) value -= 0.3;
                    system.job.warm_values = system.start.data();
                }
                failures += !agree<Dense<double>>(system.job, 3);
            }
    // Many columns that leave at once.
    RandomSystem wrong(80, 69, {0.0, 3e-15, 0.0, 1000, gram, 1, 0}, random);
    for (double& value : wrong.start) value += 0.5;
    wrong.job.warm_values = wrong.start.data();
    failures += !agree<Dense<double>>(wrong.job, 3);
    std::vector<double> pulse = {0.1, 0.6, 1.0, 0.5, 0.2, 0.1}, b(90);
    for (double& value : b) value = uniform(random);
    failures += !agree<Convolution<double>>(pulse_job(pulse, 2, b), 4);
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
