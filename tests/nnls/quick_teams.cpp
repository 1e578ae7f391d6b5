// Quick teams of a CUDA device, without one: lanes are real threads (lanes.hpp). What they solve is held
// against the optimality conditions and against a team that is not quick; what asks for more care they hand
// over.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "general_problem.hpp"
#include "prepared.hpp"

class QuickLanes : public Lanes {
public:
    using Lanes::Lanes;
};
namespace stepwell {
inline namespace SW_ISA {
namespace nnls {
template <>
constexpr bool is_quick<QuickLanes> = true;
}
}  // namespace SW_ISA
}  // namespace stepwell

static int failures = 0, handed = 0, solved = 0;

template <class Team, class System>
bool solve_by(System& system, int lanes) {
    Floor floor(1, lanes);
    std::vector<std::thread> threads;
    std::vector<char> done(lanes);
    for (int rank = 0; rank < lanes; ++rank)
        threads.emplace_back([&, rank] { done[rank] = system.solve(Team(floor, rank)); });
    for (std::thread& thread : threads) thread.join();
    for (int rank = 1; rank < lanes; ++rank)
        if (done[rank] != done[0]) {
            std::printf("members disagree\n");
            ++failures;
        }
    return done[0];
}

// Solves by both kinds of team; where the quick one does not hand over, the answers have to agree. Where it
// has to do which, `expected` says so: 1 solve, 0 hand over, -1 either.
template <class Quick, class Full>
bool compare(Quick& quick, Full& full, int lanes, double within, const char* what, int number, int expected) {
    const bool done = solve_by<QuickLanes>(quick, lanes);
    (done ? solved : handed) += 1;
    solve_by<Lanes>(full, 2);
    if (expected >= 0 && done != (expected == 1)) {
        std::printf("%s %d: %s\n", what, number, done ? "solved" : "handed over");
        ++failures;
    }
    if (!done) return false;
    double size = 0, apart = 0;
    for (size_t j = 0; j < quick.x.size(); ++j) {
        size = std::max(size, std::fabs(full.x[j]));
        apart = std::max(apart, std::fabs(quick.x[j] - full.x[j]));
    }
    if (quick.counts[0] != full.counts[0] || !(apart <= within * size)) {
        std::printf("%s %d: status %d and %d, x apart by %g of %g\n", what, number, quick.counts[0],
                    full.counts[0], apart, size);
        ++failures;
    }
    if (!(std::fabs(quick.residual - full.residual) <= 1e-12 * (1 + full.residual)) && full.job.rows > 0) {
        std::printf("%s %d: residuals %g and %g\n", what, number, quick.residual, full.residual);
        ++failures;
    }
    return true;
}

// Products of a system's columns, and with b.
static std::vector<double> table_of(const RandomSystem& system) {
    const int m = system.job.rows, n = system.job.columns;
    std::vector<double> table(table_length(n));
    for (int t = 0; t < m; ++t)
        for (int i = 0; i <= n; ++i)
            for (int j = 0; j <= n; ++j) {
                const double left = i < n ? system.a[t * n + i] : system.b[t];
                const double right = j < n ? system.a[t * n + j] : system.b[t];
                if (i < n && j < n) table[i * n + j] += left * right;
                if (i < n && j == n) table[n * n + i] += left * right;
                if (i == n && j == n) table[n * (n + 1)] += left * right;
            }
    return table;
}

// A team of one thread has its steps and the rest in local memory, and room for a larger triangle elsewhere:
// nothing may lie beyond.
static void check_memory() {
    std::mt19937 random(1);
    std::vector<char> memory(1 << 20);
    for (int n = 1; n < 64; ++n)
        for (const int m : {5, 56, 200})
            for (int feature = -1; feature < features; ++feature) {
                if (feature == weighted) continue;
                const Problem problem(m, n, std::max(feature, 0), gram, random);
                Job job = problem.system.job;
                if (feature < 0) job.family = Family();
                const Stacked<Dense<double>>* stacked = nullptr;
                const Dense<double>* dense = nullptr;
                const bool own = feature == normal_equations;
                const Extent e = feature < 0 ? extent_of(job, matrix_of(job, 0, dense), 1, own, true)
                                             : extent_of(job, matrix_of(job, 0, stacked), 1, own, true);
                const Workspace::QuickBytes bytes = Workspace::quick_bytes(e);
                Arena arena{memory.data(), bytes.steps + bytes.rest, memory.data() + (1 << 19)};
                Workspace workspace;
                workspace.carve(e, arena);
                if (arena.used_slow > bytes.more || bytes.steps + bytes.rest > (1 << 19)) {
                    std::printf("%d x %d, feature %d: %lld bytes beside %lld\n", m, n, feature,
                                static_cast<long long>(arena.used_slow), static_cast<long long>(bytes.more));
                    ++failures;
                }
                if (workspace.triangle.near_capacity < 16) ++failures;
            }
}

int main() {
    check_memory();
    std::mt19937 random(3);
    std::normal_distribution<double> normal(0, 1);
    int number = 0;
    const int64_t fast[] = {0, 3000, 20000};
    // x >= 0 with one matrix, with and without damping; from a start too.
    const int shapes[][2] = {{9, 3}, {30, 8}, {26, 21}, {56, 40}, {8, 20}};
    for (const auto& shape : shapes)
        for (int variant = 0; variant < 3; ++variant, ++number) {
            const int m = shape[0], n = shape[1];
            RandomSystem system(m, n, {0.0, 3e-15, variant == 1 ? 0.3 : 0.0, 10 * n + 100, gram, 1, 0},
                                random);
            for (double& value : system.b) value -= 0.3;
            if (variant == 2) system.job.warm_values = system.start.data();
            typedef Dense<double> Matrix;
            const Matrix* kind = nullptr;
            const Prepared<Matrix> prepared(matrix_of(system.job, 0, kind), system.job.options.damping);
            const int lanes = 1 + number % 4;
            OneSystem<Matrix> quick(system.job, lanes, fast[number % 3], prepared.shared, true);
            OneSystem<Matrix> full(system.job, 2, 0, prepared.shared);
            compare(quick, full, lanes, 1e-10, "system", number, m >= n ? 1 : -1);
        }
    // More columns than the first triangle has room for.
    for (int variant = 0; variant < 3; ++variant, ++number) {
        const int m = 60, n = 40, lanes = 1 + variant;
        RandomSystem system(m, n, {0.0, 3e-15, variant == 1 ? 0.3 : 0.0, 500, gram, 1, 0}, random);
        for (int i = 0; i < m; ++i) {
            system.b[i] = 0;
            for (int j = 0; j < n; ++j) system.b[i] += system.a[i * n + j] * (1 + 0.1 * j);
        }
        for (double& value : system.b) value += 0.01 * normal(random);
        typedef Dense<double> Matrix;
        const Matrix* kind = nullptr;
        const Prepared<Matrix> prepared(matrix_of(system.job, 0, kind), system.job.options.damping);
        OneSystem<Matrix> quick(system.job, lanes, variant == 2 ? 0 : 8192, prepared.shared, true);
        OneSystem<Matrix> full(system.job, 2, 0, prepared.shared);
        compare(quick, full, lanes, 1e-8, "many positive", variant, 1);
        if (std::count(quick.active.begin(), quick.active.end(), 1) <= 24) ++failures;
    }
    // Decays: nearly dependent columns, noisy, are solved; a fit to rounding is handed over.
    for (int variant = 0; variant < 4; ++variant) {
        const int m = 56, n = 40;
        RandomSystem system(m, n, {0.0, 3e-15, 0.0, 500, gram, 1, 0}, random);
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j)
                system.a[i * n + j] = std::exp(-7e-3 * (i + 1) / (0.01 * std::pow(200.0, j / 39.0)));
        for (int i = 0; i < m; ++i)
            system.b[i] = 0.2 * system.a[i * n + 20] + 0.5 * system.a[i * n + 24] +
                          0.3 * system.a[i * n + 28] + (variant < 3 ? 5e-3 * normal(random) : 0.0);
        typedef Dense<double> Matrix;
        const Matrix* kind = nullptr;
        const Prepared<Matrix> prepared(matrix_of(system.job, 0, kind), 0.0);
        OneSystem<Matrix> quick(system.job, 4, 5000, prepared.shared, true),
            full(system.job, 2, 0, prepared.shared);
        compare(quick, full, 4, 1e-6, "decay", variant, variant < 3 ? 1 : 0);
    }
    // General problems: with one matrix, or by normal equations. (Weights have no table of products.)
    const int general[][2] = {{9, 3}, {26, 14}, {12, 20}};
    for (const auto& shape : general)
        for (int feature = 0; feature < features; ++feature, ++number) {
            if (feature == weighted || (feature == normal_equations && shape[0] < shape[1])) continue;
            const int m = shape[0], n = shape[1];
            const Problem problem(m, n, feature, gram, random);
            typedef Stacked<Dense<double>> Matrix;
            const Matrix* kind = nullptr;
            const Prepared<Matrix> prepared(matrix_of(problem.system.job, 0, kind), 0.0);
            const Shared shared = feature == normal_equations ? Shared() : prepared.shared;
            const int lanes = 1 + number % 4;
            OneSystem<Matrix> quick(problem.system.job, lanes, fast[number % 3], shared, true);
            OneSystem<Matrix> full(problem.system.job, 2, 0, shared);
            const bool done = compare(quick, full, lanes, 1e-8, "feature", 100 * n + feature, -1);
            const OneSystem<Matrix>* best = done ? &quick : &full;
            const double worst = breach(problem, m, n, best->x, best->more[2], best->more[0]);
            if (best->counts[0] != converged || !(worst < 1e-10) || best->more[1] > 1e-13) {
                std::printf("feature %d, %d x %d: status %d, breach %g, sum missed by %g\n", feature, m, n,
                            best->counts[0], worst, best->more[1]);
                ++failures;
            }
        }
    // The same with a mask, with free columns, with rows of differences, and from a start.
    for (int feature = 0; feature < features; ++feature)
        for (int twist = 0; twist < 4; ++twist, ++number) {
            const int m = 26, n = 14, lanes = 1 + number % 4;
            if (feature == weighted || (twist == 2 && feature != smooth && feature != searched)) continue;
            Problem problem(m, n, feature, gram, random);
            Job& job = problem.system.job;
            std::vector<uint8_t> mask(n, 1);
            std::vector<double> differences(n * (n - 1));
            std::vector<int8_t> states(n);
            for (int j = 0; j < n; ++j) {
                if (twist == 0) mask[j] = j % 3 != 1;
                if (twist == 1 && j > n - 3) problem.lower[j] = -double_infinity;
                if (twist == 1 && j > n - 3) problem.upper[j] = double_infinity;
                if (j < n - 1) differences[j * n + j] = -1;
                if (j < n - 1) differences[j * n + j + 1] = 1;
                states[j] = static_cast<int8_t>(j % 2 - 1);
            }
            if (twist == 0) job.family.mask = mask.data();
            if (twist == 2) {
                job.family.penalty = differences.data();
                job.family.penalty_rows = n - 1;
            }
            if (twist == 3) {
                job.family.has_states = 1;
                job.warm_marks = reinterpret_cast<const uint8_t*>(states.data());
            }
            typedef Stacked<Dense<double>> Matrix;
            const Matrix* kind = nullptr;
            const Prepared<Matrix> prepared(matrix_of(job, 0, kind), 0.0);
            const Shared shared = feature == normal_equations ? Shared() : prepared.shared;
            OneSystem<Matrix> quick(job, lanes, fast[number % 3], shared, true), full(job, 2, 0, shared);
            compare(quick, full, lanes, 1e-8, "twist", 100 * twist + feature, -1);
            if (feature != box) continue;
            const std::vector<double> table = table_of(problem.system);
            job.tables = table.data();
            OneSystem<Stacked<Tabled<double>>> own(job, lanes, fast[number % 3], Shared(), true);
            OneSystem<Matrix> plain(job, 2, 0);
            compare(own, plain, lanes, 1e-8, "twist of own", twist, -1);
        }
    // Matrices of one system each, with tables: x >= 0, damped, and between bounds.
    const int own[][2] = {{9, 3}, {30, 8}, {26, 14}, {40, 15}};
    for (const auto& shape : own)
        for (int variant = 0; variant < 4; ++variant, ++number) {
            const int m = shape[0], n = shape[1], lanes = 1 + number % 4;
            if (variant < 3) {
                RandomSystem system(m, n, {0.0, 3e-15, variant == 1 ? 0.3 : 0.0, 10 * n + 100, gram, 1, 0},
                                    random);
                for (double& value : system.b) value -= 0.3;
                if (variant == 2) system.job.warm_values = system.start.data();
                const std::vector<double> table = table_of(system);
                system.job.tables = table.data();
                OneSystem<Tabled<double>> quick(system.job, lanes, fast[number % 3], Shared(), true);
                OneSystem<Dense<double>> full(system.job, 2, 0);
                compare(quick, full, lanes, 1e-10, "own matrix", number, 1);
            } else {
                Problem problem(m, n, box, gram, random);
                const std::vector<double> table = table_of(problem.system);
                problem.system.job.tables = table.data();
                OneSystem<Stacked<Tabled<double>>> quick(problem.system.job, lanes, fast[number % 3],
                                                         Shared(), true);
                OneSystem<Stacked<Dense<double>>> full(problem.system.job, 2, 0);
                compare(quick, full, lanes, 1e-10, "own bounds", number, 1);
            }
        }
    // Columns of the units 1e-150: their products are no numbers to work with.
    {
        RandomSystem system(20, 8, {0.0, 3e-15, 0.0, 180, gram, 1, 0}, random);
        for (double& value : system.a) value *= 1e-150;
        const std::vector<double> table = table_of(system);
        system.job.tables = table.data();
        OneSystem<Tabled<double>> quick(system.job, 3, 3000, Shared(), true);
        OneSystem<Dense<double>> full(system.job, 2, 0);
        compare(quick, full, 3, 1e-10, "small units", 0, 0);
    }
    std::printf("%d solved, %d handed over\n", solved, handed);
    if (solved < 5 * handed) ++failures;
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
