// The solver of small systems (core/lsq/small) as a thread of a CPU runs it, on random systems: on each in
// memory of zeros and in memory of ones, so that what is read before it is written shows. What it solves is
// held against the optimality conditions; what asks for more care it leaves to the solver for all sizes.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <vector>

#include "core/lsq/small/solver.hpp"
#include "host/lsq/either_numbers.hpp"
#include "host/lsq/one_core.hpp"

using namespace stepwell;
using namespace stepwell::lsq;
using namespace stepwell::lsq::small;

namespace {

typedef std::vector<double> Numbers;
std::mt19937_64 generator(5);
std::normal_distribution<double> normal;
int wrong = 0;

// What the solver is told that rounding leaves of duals: as much as for 80 rows.
constexpr double rounding = 4e-15;

double uniform(double from, double to) {
    return std::uniform_real_distribution<double>(from, to)(generator);
}
int any_of(int from, int to) {  // both included
    return from + static_cast<int>(generator() % (to - from + 1));
}
double inner(const double* a, const double* b, int count) {
    return std::inner_product(a, a + count, b, 0.0);
}

// `lam` is the damping of x >= 0, or the lambda of a penalty |x|^2.
struct RandomSystem {
    RandomSystem(int rows, int columns, double lam, bool bounded, bool single)
        : m(rows), n(columns), lam(lam), a(m * n), b(m), lower(n), upper(n, double_infinity), norm(n) {
        enum { unlike, alike, of_many_sizes };
        const int look = any_of(unlike, of_many_sizes);
        const double width = uniform(0.05, 0.2), noise = std::pow(10, uniform(-6, 0));
        for (int j = 0; j < n; ++j) {
            const double size = std::pow(10, any_of(-2, 2)), share = any_of(0, 4) < 2 ? uniform(0, 1) : 0.0;
            for (int i = 0; i < m; ++i) {
                const double apart = (double(i) / m - double(j) / n) / width;
                double& entry = a[j * m + i];
                entry = look == unlike  ? normal(generator)
                        : look == alike ? std::exp(-apart * apart / 2)
                                        : size * uniform(0, 1);
                if (single) entry = float(entry);
                b[i] += share * entry;
            }
            norm[j] = std::sqrt(inner(column(j), column(j), m) + lam * lam);
            if (bounded && any_of(0, 4)) upper[j] = uniform(0.1, 1);
            if (bounded) lower[j] = any_of(0, 4) ? uniform(-0.3, 0) : -double_infinity;
        }
        for (double& entry : b) {
            entry += noise * normal(generator);
            if (single) entry = float(entry);
        }
    }
    const double* column(int j) const { return a.data() + j * m; }

    const int m, n;
    const double lam;
    Numbers a, b, lower, upper;  // (A by columns)
    Numbers norm;                // of columns, with lam beneath them
};

// What a thread has before it begins: products as they are, for a matrix of its own; and those of columns
// scaled by powers of two, in whole numbers of eights.
struct Prepared {
    Prepared(const RandomSystem& system, bool penalized)
        : table(table_length(system.n)),
          columns(padded(system.m) * system.n),
          gram(padded(system.n) * system.n) {
        const int m = system.m, n = system.n;
        const int64_t stride = padded(m), length = padded(n);
        for (Numbers* each : {&scale, &unit, &norm, &inverse_norm, &linear, &diagonal}) each->resize(length);
        for (int j = 0; j < n; ++j) {
            scale[j] = std::exp2(-std::ilogb(system.norm[j]));
            unit[j] = 1 / scale[j];
            norm[j] = system.norm[j] * scale[j];
            inverse_norm[j] = 1 / norm[j];
            diagonal[j] = scale[j] * scale[j];
            table[n * n + j] = inner(system.column(j), system.b.data(), m);
            linear[j] = table[n * n + j] * scale[j];
            for (int i = 0; i < m; ++i) columns[j * stride + i] = system.a[j * m + i] * scale[j];
            for (int i = 0; i <= j; ++i) {
                const double product = inner(system.column(i), system.column(j), m);
                const double beneath = i == j && !penalized ? system.lam * system.lam : 0.0;
                table[i * n + j] = table[j * n + i] = product;
                gram[i * length + j] = gram[j * length + i] = (product + beneath) * scale[i] * scale[j];
            }
        }
        products.squared_b = table[n * (n + 1)] = inner(system.b.data(), system.b.data(), m);
        products.shared.scale = scale.data();
        products.shared.columns = columns.data();
        products.shared.column_stride = stride;
        products.shared.gram_stride = products.stride = length;
        products.shared.gram = products.gram = gram.data();
        products.shared.norm = products.norm = norm.data();
        products.shared.inverse_norm = products.inverse_norm = inverse_norm.data();
        products.shared.penalty_diagonal = diagonal.data();
        products.unit = unit.data();
        products.linear = linear.data();
        products.table = table.data();
    }
    Prepared(const Prepared&) = delete;

    Numbers table, columns, gram, scale, unit, norm, inverse_norm, linear, diagonal;
    Products products;
};

// (By a pointer that might change: a compiler that knew what it does would leave it out, as an object has no
// values before its constructor.)
void* (*volatile fill)(void*, int, size_t) = std::memset;

template <class T>
struct Filled {
    explicit Filled(int byte) { fill(memory, byte, sizeof memory); }
    alignas(T) unsigned char memory[sizeof(T)];
};

template <class Scalar>
struct Answer {
    bool is_solved = false;
    std::vector<Scalar> x, dual;
    std::vector<uint8_t> in_factor;
    std::vector<int8_t> state;
    double residual = 0, violation = 0, of_sum[2] = {};
    int32_t counts[6] = {};
    int64_t costs[4] = {};
    bool operator==(const Answer&) const = default;
};

template <class Kind, class Scalar>
auto solve_in_memory_of(int byte, Job job, const Products& products) {
    typedef State<Kind, OneCore> Small;
    Answer<Scalar> answer;
    for (auto* each : {&answer.x, &answer.dual}) each->resize(job.columns);
    answer.in_factor.resize(job.columns);
    answer.state.resize(job.columns);
    job.x = answer.x.data();
    job.dual = answer.dual.data();
    job.in_factor = answer.in_factor.data();
    job.residual = &answer.residual;
    job.violation = &answer.violation;
    int32_t** const counts[] = {&job.status, &job.insertions, &job.removals,
                                &job.solves, &job.passes,     &job.escalated};
    for (int k = 0; k < 6; ++k) *counts[k] = answer.counts + k;
    job.costs = answer.costs;
    job.constraints.state = answer.state.data();
    job.constraints.multiplier = answer.of_sum;
    job.constraints.equality_error = answer.of_sum + 1;

    OneCore core;
    Filled<double[panel_rows]> rows(byte);
    Filled<double[(max_tabled_columns + 1) * panel_stride]> panel(byte);
    core.rows = reinterpret_cast<double*>(rows.memory);
    core.panel = reinterpret_cast<double*>(panel.memory);
    std::unique_ptr<KeptInverses> kept;
    if (Kind::capacity <= kept_columns) {
        kept = std::make_unique<KeptInverses>();
        fill(&kept->of(0), byte, sizeof(KeptInverses::Kept) << kept_columns);
    }
    core.kept = kept.get();
    Filled<Store<Kind, 1>> of_store(byte);
    Filled<Small> of_state(byte);
    auto* const store = new (of_store.memory) Store<Kind, 1>;
    auto* const state = new (of_state.memory) Small(job, 0, products, core, *store);
    for (bool goes_on = begin(*state); goes_on;) goes_on = iterate(*state);
    answer.is_solved = certify(*state);
    return answer;
}

// The solver takes a point as optimal where duals, as it finds them, are at most `rounding` of |a_j| times
// the size |b| + sum |a_j| |x_j|. They are n + 1 terms from products summed over m rows, or m terms from
// residuals summed over n columns: in any order within m + n + 1 half units of rounding of that size; four
// more are for lambda^2 x_j. Where x is rounded to float A x changes by as many half units of float as x
// does: one. (Sums here are of longer numbers.)
template <class Scalar>
void check_optimality(const char* what, const RandomSystem& system, const Answer<Scalar>& answer) {
    typedef long double Precise;
    const int m = system.m, n = system.n;
    const double of_dual = (m + n + 5) * 0x1p-53 + (sizeof(Scalar) < sizeof(double) ? 0x1p-24 : 0.0);
    std::vector<Precise> residual(system.b.begin(), system.b.end());
    double size = std::sqrt(inner(system.b.data(), system.b.data(), m));
    for (int j = 0; j < n; ++j) {
        size += system.norm[j] * std::fabs(double(answer.x[j]));
        for (int i = 0; i < m; ++i) residual[i] -= Precise(system.column(j)[i]) * answer.x[j];
    }
    for (int j = 0; j < n; ++j) {
        const double x = answer.x[j], low = system.lower[j], high = system.upper[j];
        const double unit = system.norm[j] * size;
        const double dual = std::inner_product(residual.begin(), residual.end(), system.column(j),
                                               -Precise(system.lam) * system.lam * x);
        const double gain = x <= low ? dual : x >= high ? -dual : std::fabs(dual);
        const bool is_between = low < x && x < high;
        if (low <= x && x <= high && (answer.in_factor[j] || !is_between) &&
            gain <= (rounding + of_dual) * unit && std::fabs(answer.dual[j] - dual) <= of_dual * unit)
            continue;
        std::printf(
            "%s, %d x %d, lam %g: x[%d] = %g in %g to %g, in the factor %d, dual %g, said %g, of %g\n", what,
            m, n, system.lam, j, x, low, high, answer.in_factor[j], dual, double(answer.dual[j]), unit);
        ++wrong;
    }
}

// True where it is solved.
template <class Kind, class Scalar = double>
bool check(const char* what, int m, int n, double lam) {
    const RandomSystem system(m, n, lam, Kind::bounded, sizeof(Scalar) < sizeof(double));
    const Prepared prepared(system, Kind::penalized);
    std::vector<Scalar> a(m * n), b(system.b.begin(), system.b.end());
    for (int i = 0; i < m * n; ++i) a[i] = Scalar(system.column(i % n)[i / n]);
    Job job{};
    job.systems = 1;
    job.rows = m;
    job.columns = n;
    job.single = sizeof(Scalar) < sizeof(double);
    job.a = a.data();
    job.row_stride = n;
    job.b = b.data();
    job.options = {0.0, rounding, Kind::penalized ? 0.0 : lam, 10 * n + 100, lsq::gram, 1, 0};
    job.constraints.general = Kind::bounded || Kind::penalized;
    job.constraints.nonnegative = !Kind::bounded;
    job.constraints.lower = system.lower.data();
    job.constraints.upper = system.upper.data();
    job.constraints.penalized = Kind::penalized;
    job.constraints.penalty_rows = n;
    job.constraints.lam = &system.lam;
    const auto with_zeros = solve_in_memory_of<Kind, Scalar>(0x00, job, prepared.products);
    const auto with_ones = solve_in_memory_of<Kind, Scalar>(0xff, job, prepared.products);
    if (!(with_zeros == with_ones)) {
        std::printf("%s, %d x %d, lam %g: the answer depends on what was in memory\n", what, m, n, lam);
        ++wrong;
    }
    if (with_zeros.is_solved) check_optimality(what, system, with_zeros);
    return with_zeros.is_solved;
}

}  // namespace

int main() {
    const int trials = 100;
    int solved[7] = {};
    for (int trial = 0; trial < trials; ++trial) {
        const int m = any_of(1, 80), n = any_of(1, 63), few = any_of(1, kept_columns),
                  own = any_of(1, max_tabled_columns);
        const double lam = std::pow(10, uniform(-4, 0));
        solved[0] += check<Kind<void, one_matrix, false, no_sum, false, 64, 40>>("double", m, n, lam);
        solved[1] += check<Kind<void, one_matrix, false, no_sum, false, 64, 40>, float>("float", m, n, lam);
        solved[2] += check<Kind<void, one_matrix, false, no_sum, true, 64, 40>>("penalty", m, n, lam);
        solved[3] += check<Kind<void, one_matrix, true, no_sum, false, 64, 40>>("box", m, n, 0);
        solved[4] += check<Kind<void, one_matrix, true, no_sum, true, 64, 40>>("box, penalty", m, n, lam);
        solved[5] += check<Kind<void, one_matrix, false, no_sum, false, 8, 8>>("few", m, few, lam);
        solved[6] += check<Kind<void, own_matrix, false, no_sum, false, 16, 16>>("own", own + m, own, lam);
    }
    // (More columns than there is room for are left, and fits that are nearly exact.)
    for (int count : solved) {
        std::printf("%d of %d solved\n", count, trials);
        if (2 * count < trials) ++wrong;
    }
    std::printf("%d wrong\n", wrong);
    return wrong > 0;
}
