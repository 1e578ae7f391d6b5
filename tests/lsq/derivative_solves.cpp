// The solve that derivatives need, as a device's teams do it: rows of lanes are real threads. Every answer is
// held against (A_F'A_F + damping^2 I) u = g, multiplied out, and what flows back against its formulas.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "lanes.hpp"

// After it: as a device's compiler reads it.
#include "cuda/lsq/free_solve.cuh"

namespace {

struct Problem {
    int m, n, sides;
    double damping;
    std::vector<double> a, b, x, g, u, image, residual, to_a;
    double overlap = 0;
};

void solve(Problem& p, int rows, int lanes, int64_t fast_bytes, bool own) {
    const int64_t bytes = free_solve_bytes(p.m, p.n, p.damping != 0, rows);
    std::vector<double> slow(bytes / 8 + 8), fast(fast_bytes / 8 + 8);
    const auto aligned = [](std::vector<double>& memory) {
        return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    };
    FreeLaunch launch{};
    launch.systems = 1;
    launch.rows = p.m;
    launch.columns = p.n;
    launch.right_sides = p.sides;
    launch.a = p.a.data();
    launch.marks = p.x.data();
    launch.fixed_damping = p.damping;
    launch.g = p.g.data();
    launch.u = p.u.data();
    if (p.sides == 1) {
        launch.b = p.b.data();
        launch.image = p.image.data();
        launch.residual = p.residual.data();
        if (own) launch.to_a = p.to_a.data();
        launch.overlap = &p.overlap;
    }
    Floor floor(rows, lanes);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < rows * lanes; ++rank)
        threads.emplace_back([&, rank] {
            const Lanes team(floor, rank);
            FreeSolve<double, Lanes>(team, launch, 0).run(Arena{aligned(fast), fast_bytes, aligned(slow)});
        });
    for (std::thread& thread : threads) thread.join();
}

// The largest deviation, over what there is to round.
double deviation(const Problem& p) {
    const int m = p.m, n = p.n;
    double worst = 0;
    for (int side = 0; side < p.sides; ++side) {
        const double *u = p.u.data() + side * n, *g = p.g.data() + side * n;
        std::vector<double> image(m, 0.0);
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j) image[i] += p.a[i * n + j] * u[j];
        for (int j = 0; j < n; ++j) {
            if (!(p.x[j] > 0)) {
                worst = std::max(worst, u[j] == 0 ? 0.0 : 1.0);
                continue;
            }
            double sum = p.damping * p.damping * u[j] - g[j];
            for (int i = 0; i < m; ++i) sum += p.a[i * n + j] * image[i];
            worst = std::max(worst, std::fabs(sum));
        }
        if (p.sides > 1) continue;
        double overlap = 0;
        for (int j = 0; j < n; ++j) overlap += u[j] * p.x[j];
        worst = std::max(worst, std::fabs(overlap - p.overlap));
        for (int i = 0; i < m; ++i) {
            double rest = p.b[i];
            for (int j = 0; j < n; ++j) rest -= p.a[i * n + j] * p.x[j];
            worst = std::max({worst, std::fabs(image[i] - p.image[i]), std::fabs(rest - p.residual[i])});
            for (int j = 0; j < n; ++j) {
                const double wanted = rest * u[j] - image[i] * p.x[j];
                worst = std::max(worst, std::fabs(wanted - p.to_a[i * n + j]));
            }
        }
    }
    return worst;
}

}  // namespace

int main() {
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    int failures = 0;
    const int shapes[][3] = {{1, 1, 1}, {9, 3, 1}, {20, 8, 1}, {26, 21, 1}, {20, 8, 3}, {40, 30, 5}};
    const int teams[][2] = {{1, 1}, {1, 4}, {3, 2}};
    for (const auto& shape : shapes)
        for (const auto& team : teams)
            for (int kind = 0; kind < 4; ++kind) {
                Problem p{shape[0], shape[1], shape[2], kind % 2 ? 0.5 : 0.0, {}, {}, {}, {}, {}, {}, {}, {}};
                const int m = p.m, n = p.n;
                const auto fill = [&](std::vector<double>& v, int count) {
                    v.resize(count);
                    for (double& value : v) value = normal(random);
                };
                fill(p.a, m * n);
                fill(p.b, m);
                fill(p.x, n);
                fill(p.g, p.sides * n);
                for (double& value : p.x) value = std::max(value, 0.0);
                if (kind == 3) std::fill(p.x.begin(), p.x.end(), 0.0);  // nothing is free
                p.u.assign(p.sides * n, 7.0);
                p.image.assign(m, 7.0);
                p.residual.assign(m, 7.0);
                p.to_a.assign(m * n, 7.0);
                solve(p, team[0], team[1], kind < 2 ? 0 : 1 << 16, true);
                const double worst = deviation(p);
                if (worst < 1e-9) continue;
                std::printf("%d x %d, %d sides, team %d x %d, kind %d: %g\n", m, n, p.sides, team[0], team[1],
                            kind, worst);
                ++failures;
            }
    // Two columns alike: one of them has no say, and nothing is infinite. No number: none comes out.
    Problem p{4,
              2,
              1,
              0.0,
              {1, 1, 2, 2, 0, 0, 1, 1},
              {1, 2, 3, 4},
              {1, 1},
              {1, 1},
              {7, 7},
              {7, 7, 7, 7},
              {7, 7, 7, 7},
              {}};
    p.to_a.assign(8, 7.0);
    solve(p, 1, 2, 0, true);
    if (std::fabs(p.u[0] + p.u[1] - 1.0 / 6) > 1e-14)
        ++failures, std::printf("alike: %g %g\n", p.u[0], p.u[1]);
    p.x[1] = std::nan("");
    solve(p, 1, 2, 0, true);
    for (double value : {p.u[0], p.u[1], p.image[3], p.residual[0], p.to_a[7], p.overlap})
        if (value == value) ++failures, std::printf("not a number: %g\n", value);
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
