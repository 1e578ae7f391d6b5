// General problems by the branches that a CUDA device takes (lanes.hpp): bounds, a bound sum, weights, a
// penalty with lambda given and searched for, and normal equations. Every answer is held against the
// optimality conditions.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "general_problem.hpp"

int main() {
    std::mt19937 random(5);
    int failures = 0, number = 0;
    // (Normal equations of many columns: several enter at once.)
    const int shapes[][2] = {{9, 3}, {26, 14}, {12, 20}, {200, 130}};
    const int teams[][2] = {{2, 3}, {1, 4}, {3, 1}};
    for (const auto& shape : shapes)
        for (int feature = 0; feature < features; ++feature)
            for (const int update : {int(gram), int(cgs2)}) {
                if (feature == normal_equations && (update == cgs2 || shape[0] < shape[1])) continue;
                if (shape[1] >= large_table && feature != normal_equations) continue;
                const int m = shape[0], n = shape[1];
                const Problem problem(m, n, feature, update, random);
                const auto& team = teams[number % 3];
                const int64_t fast[] = {0, 6000, 40000};
                OneSystem<Stacked<Dense<double>>> system(problem.system.job, team[0] * team[1],
                                                         fast[number % 3]);
                Floor floor(team[0], team[1]);
                std::vector<std::thread> threads;
                for (int rank = 0; rank < team[0] * team[1]; ++rank)
                    threads.emplace_back([&, rank] { system.solve(Lanes(floor, rank)); });
                for (std::thread& thread : threads) thread.join();
                const double worst = breach(problem, m, n, system.x, system.more[2], system.more[0]);
                if (system.counts[0] != converged || !(worst < 1e-10) || system.more[1] > 1e-13) {
                    std::printf("feature %d, update %d, %d x %d: status %d, breach %g, sum missed by %g\n",
                                feature, update, m, n, system.counts[0], worst, system.more[1]);
                    ++failures;
                }
                ++number;
            }
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
