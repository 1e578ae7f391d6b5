// General problems by the branches that a CUDA device takes (lanes.hpp): bounds, a bound sum, weights, a
// penalty with lambda given and searched for, and normal equations. Every answer is held against the
// optimality conditions.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "general_problem.hpp"

// Runs a function of a team's member by all members.
template <class Work>
static void by_all(int rows, int lanes, Work work) {
    Floor floor(rows, lanes);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < rows * lanes; ++rank)
        threads.emplace_back([&, rank] { work(Lanes(floor, rank)); });
    for (std::thread& thread : threads) thread.join();
}

// A sum of columns by a wide team, whose rows of lanes share an entry.
static int wrong_sums(std::mt19937& random) {
    constexpr int length = 9, count = 21, rows = 37, lanes = 2;
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<double> table(30 * length), f(count), v(length), scratch(rows * lanes), wanted;
    std::vector<int32_t> slot(count);
    for (auto* values : {&table, &f, &v})
        for (double& value : *values) value = uniform(random);
    for (int p = 0; p < count; ++p) slot[p] = 29 - p;
    wanted = v;
    for (int i = 0; i < length; ++i)
        for (int p = 0; p < count; ++p) wanted[i] -= f[p] * table[slot[p] * length + i];
    const Columns columns{table.data(), length, slot.data(), nullptr, nullptr, nullptr, length};
    by_all(rows, lanes, [&](const Lanes& team) {
        subtract_in_slices(team, columns, count, f.data(), v.data(), length, scratch.data());
    });
    int wrong = 0;
    for (int i = 0; i < length; ++i) wrong += !(std::abs(v[i] - wanted[i]) < 1e-14 * count);
    return wrong;
}

int main() {
    std::mt19937 random(5);
    int failures = wrong_sums(random), number = 0;
    // (Normal equations of many columns: several enter at once.)
    const int shapes[][2] = {{9, 3}, {26, 14}, {12, 20}, {200, 130}, {200, 130}};
    const int teams[][2] = {{2, 3}, {1, 4}, {3, 1}};
    for (const auto& shape : shapes)
        for (int feature = 0; feature < features; ++feature)
            for (const int update : {int(gram), int(cgs2)}) {
                if (feature == normal_equations && (update == cgs2 || shape[0] < shape[1])) continue;
                if (shape[1] >= large_table && feature != normal_equations) continue;
                const int m = shape[0], n = shape[1];
                const Problem problem(m, n, feature, update, random);
                // (A wide team has more rows than a block, with which a large system goes other ways.)
                const int wide[] = {33, 1};
                const auto& team = n >= large_table && number % 2 ? wide : teams[number % 3];
                const int64_t fast[] = {0, 6000, 40000};
                OneSystem<Stacked<Dense<double>>> system(problem.system.job, team[0] * team[1],
                                                         fast[number % 3]);
                by_all(team[0], team[1], [&](const Lanes& member) { system.solve(member); });
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
