#include "host/lsq/wide/system.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/lsq/types.hpp"

namespace stepwell::wide {
namespace {

constexpr int nothing = -100000;  // the exponent of zero
constexpr double infinity = std::numeric_limits<double>::infinity();

int exponent_of(double value) {
    if (value == 0) return nothing;
    int exponent;
    std::frexp(value, &exponent);
    return exponent;
}

// a b 2^-exponent
Wide scaled_product(double a, double b, int exponent) {
    if (a == 0 || b == 0) return {};
    int first, second;
    const Wide product = exact_product(std::frexp(a, &first), std::frexp(b, &second));
    const int power = first + second - exponent;
    return power < -1000 ? Wide() : scaled(product, power);
}

}  // namespace

bool is_feasible(const NnlsJob& job) {
    const int64_t rows = job.constraints.gram ? 1 : job.rows, n = job.columns;
    const int64_t more = job.constraints.penalized ? job.constraints.penalty_rows : 0;
    return n <= 256 && (rows + more) * n * n <= int64_t(1) << 26;
}

System::System(const NnlsJob& job, int64_t system, bool single, const double* a)
    : job(job),
      system(system),
      single(single),
      n(job.columns),
      rows(job.constraints.gram ? 0 : job.rows),
      a(a) {
    const NnlsConstraints& constraints = job.constraints;
    if (!constraints.general)
        lam_ = job.options.damping;
    else if (constraints.penalized)
        lam_ = constraints.rule == 0 ? constraints.lam[system * constraints.lam_stride]
                                     : constraints.used_lam[system];
    find_exponents();
    read_rows();
    form_products();
}

double System::lower(int j) const {
    if (is_masked(j)) return 0;
    return job.constraints.general ? job.constraints.lower[system * job.constraints.lower_stride + j] : 0.0;
}

double System::upper(int j) const {
    if (is_masked(j)) return 0;
    return job.constraints.general ? job.constraints.upper[system * job.constraints.upper_stride + j]
                                   : infinity;
}

bool System::is_masked(int j) const {
    const NnlsConstraints& constraints = job.constraints;
    return constraints.general && constraints.mask && !constraints.mask[system * constraints.mask_stride + j];
}

double System::weight(int i) const {
    const NnlsConstraints& constraints = job.constraints;
    if (!constraints.general || !constraints.weights) return 1;
    const double own = constraints.weights[system * constraints.weights_stride + i];
    return own > 0 ? own : 0.0;
}

double System::given_b(int i) const {
    const int64_t place = system * job.b_stride + i;
    return single ? double(static_cast<const float*>(job.b)[place])
                  : static_cast<const double*>(job.b)[place];
}

double System::start(int j) const {
    const int64_t place = system * n + j;
    const double value =
        single ? double(static_cast<const float*>(job.x)[place]) : static_cast<const double*>(job.x)[place];
    return std::isfinite(value) ? value : 0.0;
}

double System::coefficient(int j) const {
    return job.constraints.coefficients ? job.constraints.coefficients[j] : 1.0;
}

double System::sum_low() const {
    return job.constraints.sum_low[system * job.constraints.sum_stride];
}

double System::sum_high() const {
    return job.constraints.sum_high[system * job.constraints.sum_stride];
}

int System::penalty_rows() const {
    if (!(lam() > 0)) return 0;
    return job.constraints.general && job.constraints.penalty ? job.constraints.penalty_rows : n;
}

double System::penalty(int i, int j) const {
    const bool given = job.constraints.general && job.constraints.penalty;
    return given ? job.constraints.penalty[int64_t(i) * n + j] : i == j ? 1.0 : 0.0;
}

void System::find_exponents() {
    const NnlsConstraints& constraints = job.constraints;
    exponents.assign(n, nothing);
    b_exponent = nothing;
    for (int i = 0; i < rows; ++i) {
        const double own = weight(i);
        if (own == 0) continue;
        ++rows_that_count;
        const int power = exponent_of(own);
        b_exponent = std::max(b_exponent, power + exponent_of(given_b(i)));
        for (int j = 0; j < n; ++j) {
            const double entry = a[int64_t(i) * n + j];
            if (entry != 0) exponents[j] = std::max(exponents[j], power + exponent_of(entry));
        }
    }
    if (constraints.gram) {
        const double* gram = constraints.gram + system * constraints.gram_stride;
        for (int j = 0; j < n; ++j) {
            const double square = gram[int64_t(j) * n + j];
            if (square > 0) exponents[j] = (exponent_of(square) + 1) / 2;
        }
    }
    const int power = lam() > 0 ? exponent_of(lam()) : 0;
    for (int i = 0; i < penalty_rows(); ++i)
        for (int j = 0; j < n; ++j)
            if (penalty(i, j) != 0) exponents[j] = std::max(exponents[j], power + exponent_of(penalty(i, j)));
    if (constraints.gram) {
        const double* given = constraints.linear + system * constraints.linear_stride;
        for (int j = 0; j < n; ++j)
            if (given[j] != 0 && exponents[j] > nothing)
                b_exponent = std::max(b_exponent, exponent_of(given[j]) - exponents[j]);
    }
    // What bounds keep from zero, and the sum, by the column that takes least of it.
    for (int j = 0; j < n; ++j) {
        const double nearest = std::clamp(0.0, lower(j), std::max(lower(j), upper(j)));
        if (nearest != 0 && exponents[j] > nothing && std::isfinite(nearest))
            b_exponent = std::max(b_exponent, exponent_of(nearest) + exponents[j]);
    }
    if (constraints.general && constraints.summed) {
        const double sum = lsq::range_of_sum(sum_low(), sum_high()).sum;
        int least = -nothing;
        for (int j = 0; j < n; ++j)
            if (exponents[j] > nothing && !is_masked(j))
                least = std::min(least, exponents[j] - exponent_of(coefficient(j)));
        if (sum != 0 && least < -nothing) b_exponent = std::max(b_exponent, exponent_of(sum) + least);
    }
    if (b_exponent < nothing / 2) b_exponent = 0;
    if (!(constraints.general && constraints.summed)) {
        for (int& exponent : exponents)
            if (exponent == nothing) exponent = 0;
        return;
    }
    sum_exponent = nothing;
    for (int j = 0; j < n; ++j)
        if (exponents[j] > nothing && !is_masked(j))
            sum_exponent = std::max(sum_exponent, exponent_of(coefficient(j)) - exponents[j]);
    if (sum_exponent == nothing) sum_exponent = 0;
    for (int j = 0; j < n; ++j)
        if (exponents[j] == nothing) exponents[j] = exponent_of(coefficient(j)) - sum_exponent;
}

void System::read_rows() {
    K.assign(size_t(rows) * n, Wide());
    b.assign(rows, Wide());
    double square = 0;
    for (int i = 0; i < rows; ++i) {
        const double own = weight(i);
        if (own == 0) continue;
        b[i] = scaled_product(own, given_b(i), b_exponent);
        square += double(b[i]) * double(b[i]);
        for (int j = 0; j < n; ++j)
            K[size_t(i) * n + j] = scaled_product(own, a[int64_t(i) * n + j], exponents[j]);
    }
    b_norm = std::sqrt(square);
    L.assign(size_t(penalty_rows()) * n, Wide());
    for (int i = 0; i < penalty_rows(); ++i)
        for (int j = 0; j < n; ++j) L[size_t(i) * n + j] = scaled_product(lam(), penalty(i, j), exponents[j]);
}

void System::form_products() {
    const NnlsConstraints& constraints = job.constraints;
    const auto gram_of = [this](const std::vector<Wide>& matrix, int count) {
        std::vector<Wide> out(size_t(n) * n);
        for (int i = 0; i < count; ++i) {
            const Wide* row = matrix.data() + size_t(i) * n;
            for (int j = 0; j < n; ++j) {
                if (row[j].high == 0) continue;
                for (int k = 0; k <= j; ++k) out[size_t(j) * n + k] += row[j] * row[k];
            }
        }
        for (int j = 0; j < n; ++j)
            for (int k = 0; k < j; ++k) out[size_t(k) * n + j] = out[size_t(j) * n + k];
        return out;
    };
    linear.assign(n, Wide());
    penalty_gram = gram_of(L, penalty_rows());
    if (constraints.gram) {
        const double *gram = constraints.gram + system * constraints.gram_stride,
                     *given = constraints.linear + system * constraints.linear_stride;
        fit_gram.assign(size_t(n) * n, Wide());
        for (int j = 0; j < n; ++j) {
            linear[j] = std::ldexp(given[j], -exponents[j] - b_exponent);
            b_norm = std::max(b_norm, std::abs(double(linear[j])));
            for (int k = 0; k < n; ++k)
                fit_gram[size_t(j) * n + k] =
                    std::ldexp(gram[int64_t(j) * n + k], -exponents[j] - exponents[k]);
        }
        if (constraints.squared_b) {
            const double square = constraints.squared_b[system * constraints.squared_b_stride];
            if (square > 0) b_norm = std::ldexp(std::sqrt(square), -b_exponent);
        }
        return;
    }
    fit_gram = gram_of(K, rows);
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < n; ++j) linear[j] += K[size_t(i) * n + j] * b[i];
}

ActiveSet System::problem(double factor) const {
    const NnlsConstraints& constraints = job.constraints;
    const bool summed = constraints.general && constraints.summed;
    const double low = summed ? sum_low() : 0.0, high = summed ? sum_high() : 0.0;
    // A range of the sum is one more column, of zeros, that takes what is between.
    const bool ranges = summed && low < high;
    ActiveSet set;
    set.n = n + ranges;
    set.G.assign(size_t(set.n) * set.n, Wide());
    set.f.assign(set.n, Wide());
    set.x.assign(set.n, Wide());
    set.lower.assign(set.n, 0.0);
    set.upper.assign(set.n, 0.0);
    set.b_norm = b_norm;
    if (constraints.gram) set.dependence = lsq::dependent_below(n);
    for (int j = 0; j < n; ++j) {
        set.f[j] = linear[j];
        for (int k = 0; k < n; ++k) {
            const size_t from = size_t(j) * n + k;
            set.G[size_t(j) * set.n + k] =
                penalty_rows() ? fit_gram[from] + penalty_gram[from] * factor : fit_gram[from];
        }
        set.lower[j] = scaled_x(j, lower(j));
        set.upper[j] = scaled_x(j, upper(j));
        set.x[j] = scaled_x(j, start(j));
    }
    set.place.assign(set.n, Place::free);
    for (int j = 0; j < n; ++j)
        if (is_masked(j)) set.place[j] = Place::fixed;
    if (!summed) return set;
    set.c.assign(set.n, Wide());
    for (int j = 0; j < n; ++j)
        if (!is_masked(j)) set.c[j] = std::ldexp(coefficient(j), -exponents[j] - sum_exponent);
    const auto in_units = [&](double value) { return std::ldexp(value, -b_exponent - sum_exponent); };
    if (!ranges) {
        set.target = in_units(low);
        return set;
    }
    set.c[n] = -1.0;
    set.lower[n] = in_units(low);
    set.upper[n] = in_units(high);
    for (int j = 0; j < n; ++j) set.x[n] += set.c[j] * set.x[j];
    return set;
}

std::vector<Wide> System::residual(const std::vector<Wide>& x) const {
    std::vector<Wide> r = b;
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < n; ++j) r[i] -= K[size_t(i) * n + j] * x[j];
    return r;
}

std::vector<Wide> System::penalized(const std::vector<Wide>& x) const {
    std::vector<Wide> out(penalty_rows());
    for (size_t i = 0; i < out.size(); ++i)
        for (int j = 0; j < n; ++j) out[i] += L[i * n + j] * x[j];
    return out;
}

}  // namespace stepwell::wide
