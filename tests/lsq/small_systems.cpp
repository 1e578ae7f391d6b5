// The solver of small systems (core/lsq/small), which a CUDA device runs a thread or a warp a system, on the
// host: by one thread, or by some that share a system. What it solves is held against the optimality
// conditions and against the solver for all sizes; what asks for more care it leaves to that.
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "general_problem.hpp"
#include "prepared.hpp"
//
#include "core/lsq/small/solver.hpp"

using small::Kind;
using small::one_matrix;
using small::own_matrix;
using small::some_matrices;

static int failures = 0, left = 0, solved = 0;

// Four that share a system, as the lanes of a warp do, each with a stack of its own. They take turns: who
// waits for the others lets the next one go on, so that all have arrived when it is its own turn again.
class Turns {
public:
    static constexpr int width = 4;
    int64_t slots[width];

    template <class Body>
    void run(Body body) {
        struct Start {
            Turns* turns;
            Body* body;
            int lane;
        } starts[width];
        for (int lane = 0; lane < width; ++lane) {
            starts[lane] = {this, &body, lane};
            getcontext(&contexts[lane]);
            contexts[lane].uc_stack.ss_sp = stacks[lane].data();
            contexts[lane].uc_stack.ss_size = stacks[lane].size();
            contexts[lane].uc_link = lane + 1 < width ? &contexts[lane + 1] : &outside;
            // (Numbers of an int are what such a function takes.)
            const uintptr_t at = reinterpret_cast<uintptr_t>(&starts[lane]);
            void (*begin)(unsigned, unsigned) = [](unsigned high, unsigned low) {
                const Start* start = reinterpret_cast<const Start*>(static_cast<uintptr_t>(high) << 32 | low);
                (*start->body)(start->lane);
            };
            makecontext(&contexts[lane], reinterpret_cast<void (*)()>(begin), 2,
                        static_cast<unsigned>(static_cast<uint64_t>(at) >> 32), static_cast<unsigned>(at));
        }
        swapcontext(&outside, &contexts[0]);
    }
    void wait(int lane) { swapcontext(&contexts[lane], &contexts[(lane + 1) % width]); }

private:
    ucontext_t contexts[width], outside;
    std::vector<std::vector<char>> stacks = std::vector<std::vector<char>>(width, std::vector<char>(1 << 18));
};

struct FourLanes {
    static constexpr int width = Turns::width;
    static constexpr bool has_sweeps = false;
    Turns* turns;
    int rank;
    int lane() const { return rank; }
    void sync() const { turns->wait(rank); }
    double sum(double value) const {
        return over(value, [](double all, double other) { return all + other; });
    }
    double most(double value) const {
        return over(value, [](double all, double other) { return std::max(all, other); });
    }
    double least(double value) const { return -most(-value); }
    int place_of_most(double& value, int place) const {
        const double highest = most(value);
        const unsigned with = votes(value == highest);
        value = highest;
        return static_cast<int>(pick(place, lowest_bit(with)));
    }
    uint64_t join(uint64_t bits) const {
        return over(bits, [](uint64_t all, uint64_t other) { return all | other; });
    }
    bool any(bool yes) const { return votes(yes) != 0; }
    unsigned votes(bool yes) const { return static_cast<unsigned>(join(uint64_t(yes) << rank)); }
    double pick(double value, int lane) const {
        tell(value);
        const double picked = told<double>(lane);
        sync();
        return picked;
    }

private:
    template <class T>
    void tell(T value) const {
        std::memcpy(&turns->slots[rank], &value, sizeof value);
        sync();
    }
    template <class T>
    T told(int lane) const {
        T value;
        std::memcpy(&value, &turns->slots[lane], sizeof value);
        return value;
    }
    template <class T, class Combine>
    T over(T value, Combine combine) const {
        tell(value);
        T all = told<T>(0);
        for (int lane = 1; lane < width; ++lane) all = combine(all, told<T>(lane));
        sync();
        return all;
    }
};

template <class Chosen, class Team>
bool solve_small(const Job& job, const small::Products& products, const Team& team,
                 small::Store<Chosen, Team::width>& store) {
    small::State<Chosen, Team> state(job, 0, products, team, store);
    for (bool goes_on = begin(state); goes_on;) goes_on = iterate(state);
    return certify(state);
}

template <class Chosen>
bool solve_by_lanes(const Job& job, const small::Products& products) {
    static Turns turns;
    small::Store<Chosen, FourLanes::width> store;
    bool done[FourLanes::width] = {};
    turns.run(
        [&](int lane) { done[lane] = solve_small<Chosen>(job, products, FourLanes{&turns, lane}, store); });
    for (bool each : done)
        if (each != done[0]) {
            std::printf("lanes do not agree whether a system is solved\n");
            ++failures;
        }
    return done[0];
}

static small::Products products_of(const Shared& shared) {
    small::Products products;
    products.shared = shared;
    products.gram = shared.gram;
    products.stride = shared.gram_stride;
    products.entries = shared.columns;
    products.row_step = 1;
    products.column_step = shared.column_stride;
    return products;
}

// Solves by both; where the small solver does not leave it, the answers have to agree. `expected`: 1 solve, 0
// leave, -1 either.
template <class Chosen, class Full>
bool compare_one(Full& full, const Shared& shared, double within, const char* what, int number, int expected,
                 bool by_lanes) {
    Full answer(full.job, 1, 0, shared);
    small::Products products = products_of(shared);
    products.table = full.job.tables;
    std::vector<double> inverse(padded(full.job.columns + 1));
    if (!Chosen::own_norms) {
        for (int j = 0; j < full.job.columns + full.job.constraints.slack; ++j) {
            const double square = shared.gram[j * shared.gram_stride + j];
            inverse[j] = square > 0 ? 1 / std::sqrt(square) : 0.0;
        }
        products.inverse_norm = inverse.data();
    }
    bool done = false;
    if (by_lanes) {
        done = solve_by_lanes<Chosen>(answer.job, products);
    } else {
        small::Store<Chosen, 1> store;
        done = solve_small<Chosen>(answer.job, products, small::OneLane(), store);
    }
    (done ? solved : left) += 1;
    if (expected >= 0 && done != (expected == 1)) {
        std::printf("%s %d: %s\n", what, number, done ? "solved" : "left");
        ++failures;
    }
    if (!done) return false;
    double size = 0, apart = 0;
    for (size_t j = 0; j < answer.x.size(); ++j) {
        size = std::max(size, std::fabs(full.x[j]));
        apart = std::max(apart, std::fabs(answer.x[j] - full.x[j]));
        if (answer.in_factor[j] != full.in_factor[j] ||
            (full.job.constraints.general && answer.state[j] != full.state[j])) {
            std::printf("%s %d: column %zu in the factor %d, %d\n", what, number, j, answer.in_factor[j],
                        full.in_factor[j]);
            ++failures;
        }
        if (full.job.constraints.general &&
            !(std::fabs(answer.deviation[j] - full.deviation[j]) <= 1e-6 * std::fabs(full.deviation[j]))) {
            std::printf("%s %d: deviations %g, %g\n", what, number, answer.deviation[j], full.deviation[j]);
            ++failures;
        }
    }
    if (answer.counts[0] != full.counts[0] || !(apart <= within * size)) {
        std::printf("%s %d: status %d and %d, x apart by %g of %g\n", what, number, answer.counts[0],
                    full.counts[0], apart, size);
        ++failures;
    }
    if (!(std::fabs(answer.residual - full.residual) <= 1e-12 * (1 + full.residual)) && full.job.rows > 0) {
        std::printf("%s %d: residuals %g and %g\n", what, number, answer.residual, full.residual);
        ++failures;
    }
    if (full.job.constraints.general)
        for (int k = 0; k < 6; ++k) {
            // (The fit of normal equations is found elsewhere.)
            if (full.job.rows == 0 && k >= 3) continue;
            const double a = answer.more[k], b = full.more[k];
            const double slack = k < 2 ? 1e-9 : 1e-6 * std::fabs(b) + 1e-12;
            if (!(std::fabs(a - b) <= slack) && !(a != a && b != b)) {
                std::printf("%s %d: field %d is %g, %g\n", what, number, k, a, b);
                ++failures;
            }
        }
    return true;
}

// By one thread, and by lanes.
template <class Chosen, class Full>
bool compare(Full& full, const Shared& shared, double within, const char* what, int number, int expected) {
    Floor floor(1, 1);
    full.solve(Lanes(floor, 0));
    compare_one<Chosen>(full, shared, within, what, number, expected, true);
    return compare_one<Chosen>(full, shared, within, what, number, expected, false);
}

// Products of a system's columns, and with b.
static std::vector<double> table_of(const RandomSystem& system) {
    const int m = system.job.rows, n = system.job.columns;
    std::vector<double> table(small::table_length(n));
    for (int t = 0; t < m; ++t)
        for (int i = 0; i <= n; ++i)
            for (int j = 0; j <= n; ++j) {
                const double one = i < n ? system.a[t * n + i] : system.b[t];
                const double other = j < n ? system.a[t * n + j] : system.b[t];
                if (i < n && j < n) table[i * n + j] += one * other;
                if (i < n && j == n) table[n * n + i] += one * other;
                if (i == n && j == n) table[n * (n + 1)] += one * other;
            }
    return table;
}

typedef Dense<double> Plain;
typedef Stacked<Dense<double>> General;

template <class Matrix>
static Prepared<Matrix> prepare(const Job& job) {
    const Matrix* kind = nullptr;
    return Prepared<Matrix>(matrix_of(job, 0, kind), job.options.damping);
}

int main() {
    std::mt19937 random(3);
    std::normal_distribution<double> normal(0, 1);
    int number = 0;
    // x >= 0 with one matrix, with and without damping; from a start too.
    const int shapes[][2] = {{9, 3}, {30, 8}, {26, 21}, {56, 40}, {8, 20}};
    for (const auto& shape : shapes)
        for (int variant = 0; variant < 30; ++variant, ++number) {
            const int m = shape[0], n = shape[1];
            const double damping = variant % 3 == 1 ? 0.3 : 0.0;
            RandomSystem system(m, n, {0.0, 3e-15, damping, 10 * n + 100, gram, 1, 0}, random);
            for (double& value : system.b) value -= 0.3;
            if (variant % 3 == 2) system.job.warm_values = system.start.data();
            const Prepared<Plain> prepared = prepare<Plain>(system.job);
            OneSystem<Plain> full(system.job, 1, 0, prepared.shared);
            compare<Kind<double, one_matrix, false, false, false, 64, 32>>(full, prepared.shared, 1e-10,
                                                                           "system", number, m >= n ? 1 : -1);
        }
    // More positive columns than it has room for.
    for (int variant = 0; variant < 2; ++variant) {
        const int m = 60, n = 40;
        RandomSystem system(m, n, {0.0, 3e-15, 0.0, 500, gram, 1, 0}, random);
        for (int i = 0; i < m; ++i) {
            system.b[i] = 0.01 * normal(random);
            for (int j = 0; j < n; ++j) system.b[i] += system.a[i * n + j] * (1 + 0.1 * j);
        }
        const Prepared<Plain> prepared = prepare<Plain>(system.job);
        OneSystem<Plain> full(system.job, 1, 0, prepared.shared);
        if (variant == 0)
            compare<Kind<double, one_matrix, false, false, false, 64, 48>>(full, prepared.shared, 1e-8,
                                                                           "many positive", variant, 1);
        else
            compare<Kind<double, one_matrix, false, false, false, 64, 16>>(full, prepared.shared, 1e-8,
                                                                           "too many positive", variant, 0);
    }
    // Decays: nearly dependent columns, noisy, are solved; a fit to rounding is left.
    int decays_left = 0;
    for (int variant = 0; variant < 400; ++variant) {
        const int m = 56, n = 40;
        const double damping = variant % 2 ? 0.05 : 0.0;
        RandomSystem system(m, n, {0.0, 3.6e-15, damping, 500, gram, 1, 0}, random);
        const bool exact = variant % 40 == 38;
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j)
                system.a[i * n + j] = std::exp(-7e-3 * (i + 1) / (0.01 * std::pow(200.0, j / 39.0)));
        const int first = 5 + variant * 7 % 30, second = 5 + variant * 11 % 30;
        for (int i = 0; i < m; ++i)
            system.b[i] = 0.7 * system.a[i * n + first] + 0.3 * system.a[i * n + second] +
                          (exact ? 0.0 : 5e-3 * normal(random));
        const Prepared<Plain> prepared = prepare<Plain>(system.job);
        OneSystem<Plain> full(system.job, 1, 0, prepared.shared);
        const bool done = compare<Kind<double, one_matrix, false, false, false, 64, 32>>(
            full, prepared.shared, 1e-6, "decay", variant, exact && damping == 0 ? 0 : -1);
        if (!exact && !done) ++decays_left;
    }
    // General problems: with one matrix, or by normal equations. (Weights have no table of products.) With a
    // mask, with free columns, with rows of differences, and from a start.
    const int general[][2] = {{9, 3}, {26, 14}, {12, 20}};
    for (const auto& shape : general)
        for (int feature = 0; feature < features; ++feature)
            for (int twist = 0; twist < 25; ++twist, ++number) {
                const int m = shape[0], n = shape[1];
                if (feature == weighted || (feature == normal_equations && m < n)) continue;
                if (twist % 5 == 2 && feature != smooth && feature != searched) continue;
                Problem problem(m, n, feature, gram, random);
                Job& job = problem.system.job;
                std::vector<uint8_t> mask(n, 1);
                std::vector<double> differences(n * (n - 1));
                std::vector<int8_t> states(n);
                for (int j = 0; j < n; ++j) {
                    if (twist % 5 == 0) mask[j] = j % 3 != 1;
                    if (twist % 5 == 1 && j > n - 3) problem.lower[j] = -double_infinity;
                    if (twist % 5 == 1 && j > n - 3) problem.upper[j] = double_infinity;
                    if (j < n - 1) differences[j * n + j] = -1;
                    if (j < n - 1) differences[j * n + j + 1] = 1;
                    states[j] = static_cast<int8_t>(j % 2 - 1);
                }
                if (twist % 5 == 0) job.constraints.mask = mask.data();
                if (twist % 5 == 2) {
                    job.constraints.penalty = differences.data();
                    job.constraints.penalty_rows = n - 1;
                }
                if (twist % 5 == 3) {
                    job.constraints.has_states = 1;
                    job.warm_marks = reinterpret_cast<const uint8_t*>(states.data());
                }
                if (twist % 5 == 4 && feature == normal_equations) {
                    job.constraints.summed = 1;
                    job.constraints.sum_low = &problem.low;
                    job.constraints.sum_high = &problem.high;
                }
                const Prepared<General> prepared = prepare<General>(job);
                const Shared shared = feature == normal_equations ? Shared() : prepared.shared;
                OneSystem<General> full(job, 1, 0, shared);
                const int what = 1000 * n + 100 * twist + feature;
                if (feature == box)
                    compare<Kind<double, one_matrix, true, false, false, 64, 32>>(full, shared, 1e-8, "box",
                                                                                  what, -1);
                else if (feature == simplex || feature == range)
                    compare<Kind<double, one_matrix, true, true, false, 32, 24>>(full, shared, 1e-8, "sum",
                                                                                 what, -1);
                else if (feature == smooth)
                    compare<Kind<double, some_matrices, true, false, true, 32, 24>>(full, shared, 1e-8,
                                                                                    "penalty", what, -1);
                else if (feature == searched)
                    compare<Kind<double, one_matrix, true, false, true, 32, 24>>(full, shared, 1e-5, "search",
                                                                                 what, -1);
                else if (twist % 5 == 4)
                    compare<Kind<double, small::normal_equations, true, true, false, 32, 24>>(
                        full, shared, 1e-8, "normal equations, sum", what, -1);
                else
                    compare<Kind<double, small::normal_equations, true, false, false, 32, 24>>(
                        full, shared, 1e-8, "normal equations", what, -1);
                if (feature != box || m < n) continue;
                const std::vector<double> table = table_of(problem.system);
                job.tables = table.data();
                OneSystem<General> own(job, 1, 0);
                compare<Kind<double, own_matrix, true, false, false, 16, 16>>(own, Shared(), 1e-8, "own box",
                                                                              what, -1);
            }
    // Matrices of one system each, with tables: x >= 0, damped; in units that have no products to work with.
    const int own[][2] = {{9, 3}, {30, 8}, {26, 14}, {40, 15}};
    for (const auto& shape : own)
        for (int variant = 0; variant < 24; ++variant, ++number) {
            const int m = shape[0], n = shape[1];
            const double damping = variant % 3 == 1 ? 0.3 : 0.0;
            RandomSystem system(m, n, {0.0, 3e-15, damping, 10 * n + 100, gram, 1, 0}, random);
            const bool tiny = variant == 23;
            for (double& value : system.b) value -= 0.3;
            if (tiny)
                for (double& value : system.a) value *= 1e-150;
            // Fits that are nearly exact are looked at with A itself.
            if (variant % 4 == 3)
                for (int i = 0; i < m; ++i)
                    system.b[i] = system.a[i * n] + system.a[i * n + n - 1] + 1e-4 * normal(random);
            if (variant % 3 == 2) system.job.warm_values = system.start.data();
            const std::vector<double> table = table_of(system);
            system.job.tables = table.data();
            OneSystem<Plain> full(system.job, 1, 0);
            compare<Kind<double, own_matrix, false, false, false, 16, 16>>(
                full, Shared(), 1e-10, "own matrix", number, tiny ? 0 : 1);
        }
    std::printf("%d solved, %d left, %d of the decays\n", solved, left, decays_left);
    if (solved < 5 * left || decays_left > 4) ++failures;
    if (failures) std::printf("%d failures\n", failures);
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
