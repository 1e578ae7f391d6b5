// The answer of a system in twice the precision: x is rounded first, and measured then.
#include <algorithm>
#include <cmath>

#include "core/lsq/frank_wolfe.hpp"
#include "core/lsq/judge.hpp"
#include "core/lsq/level.hpp"
#include "core/lsq/numbers.hpp"
#include "host/lsq/wide/system.hpp"

namespace stepwell::wide {
namespace {

double square_of(const std::vector<Wide>& v) {
    Wide sum;
    for (const Wide& entry : v) sum += entry * entry;
    return double(sum);
}

// A system that is solved with lambda^2 times `factor`.
struct Solution {
    ActiveSet set;
    double factor;
};

bool solve_with(const System& system, double factor, const ActiveSet* near, Solution& out) {
    out.set = system.problem(factor);
    out.factor = factor;
    if (near) out.set.x = near->x;
    return out.set.begin() && out.set.solve();
}

bool finds_level(const NnlsJob& job) {
    const int rule = job.constraints.general && job.constraints.penalized ? job.constraints.rule : 0;
    return rule == lsq::rule_chi2 || rule == lsq::rule_discrepancy;
}

// lambda is such that the squared residual is what its rule says. False where that is not found.
bool reach_level(const System& system, Solution& at) {
    const NnlsConstraints& constraints = system.job.constraints;
    const auto phi = [&](const Solution& solution) { return square_of(system.residual(solution.set.x)); };
    Solution without;
    if (!solve_with(system, 0, &at.set, without)) return false;
    const double unpenalized = phi(without);
    double level = constraints.chi2 * unpenalized;
    if (constraints.rule == lsq::rule_discrepancy) {
        const double noise =
            std::ldexp(constraints.noise[system.system * constraints.noise_stride], -system.b_exponent);
        level = system.rows_that_count * noise * noise;
    }
    constraints.unpenalized[system.system] = std::ldexp(unpenalized, 2 * system.b_exponent);
    const double wanted = level - unpenalized;
    if (!(wanted > 0)) {
        at = without;
        constraints.at_end[system.system] = -1;
        return true;
    }
    const auto is_met = [&](double value) {
        return std::abs(value - level) <= lsq::LevelSearch::tolerance * wanted;
    };
    if (is_met(phi(at))) return true;
    lsq::LevelSearch along(1.0, 0.0);
    for (int step = 0; step < lsq::LevelSearch::max_steps; ++step) {
        const ActiveSet near = at.set;
        if (!solve_with(system, std::exp(along.s), &near, at)) return false;
        if (is_met(phi(at))) return true;
        if (along.next(phi(at) - unpenalized, double_infinity, wanted)) continue;
        constraints.at_end[system.system] = along.at_end;
        return true;
    }
    return true;
}

class Answer {
public:
    Answer(const System& system, const Solution& solution)
        : s_(system), set_(solution.set), factor_(solution.factor), n_(system.n) {}

    template <class Scalar>
    bool write() {
        std::vector<Scalar> x(n_);
        for (int j = 0; j < n_; ++j) {
            const double value = s_.given_x(j, double(set_.x[j]));
            x[j] = Scalar(std::clamp(value, s_.lower(j), s_.upper(j)));
            if (!std::isfinite(x[j])) return false;
        }
        measure(x);
        const NnlsJob& job = s_.job;
        if (!std::isfinite(residual_)) return false;
        if (lsq::judged_status(job, measured_, s_.single, lsq::converged) != lsq::converged) return false;
        const int64_t row = s_.system * n_;
        Scalar *out = static_cast<Scalar*>(job.x) + row, *dual = static_cast<Scalar*>(job.dual) + row;
        for (int j = 0; j < n_; ++j) {
            out[j] = x[j];
            dual[j] = Scalar(std::ldexp(dual_[j], s_.exponents[j] + s_.b_exponent));
            const bool between =
                set_.place[j] == Place::free && double(x[j]) > s_.lower(j) && double(x[j]) < s_.upper(j);
            if (job.in_factor) job.in_factor[row + j] = between;
            if (job.constraints.general)
                job.constraints.state[row + j] = between || set_.place[j] == Place::free
                                                     ? state_of(j, double(x[j]))
                                                 : set_.place[j] == Place::fixed ? 2
                                                 : set_.place[j] == Place::upper ? 1
                                                                                 : -1;
        }
        job.residual[s_.system] = std::ldexp(residual_, s_.b_exponent);
        job.violation[s_.system] = lsq::violation_of(job, measured_);
        job.status[s_.system] = lsq::converged;
        job.escalated[s_.system] = 1;
        if (job.constraints.general) write_more(out, dual);
        return true;
    }

private:
    const System& s_;
    const ActiveSet& set_;
    const double factor_;
    const int n_;
    lsq::Measured measured_{};
    std::vector<double> dual_;
    // seminorm_: with the lambda that the system came with; penalty_: with that of the solution.
    double residual_ = 0, seminorm_ = 0, penalty_ = 0, multiplier_ = 0;

    int state_of(int j, double x) const { return !(x > s_.lower(j)) ? -1 : !(x < s_.upper(j)) ? 1 : 0; }

    template <class Scalar>
    void measure(const std::vector<Scalar>& given) {
        const NnlsJob& job = s_.job;
        const bool summed = set_.c.size() > 0;
        std::vector<Wide> x(n_);
        for (int j = 0; j < n_; ++j) x[j] = s_.scaled_x(j, double(given[j]));
        const std::vector<Wide> r = s_.residual(x), image = s_.penalized(x);
        residual_ = std::sqrt(square_of(r));
        seminorm_ = std::sqrt(square_of(image));
        penalty_ = std::sqrt(factor_) * seminorm_;
        measured_.b_norm = measured_.size = measured_.given = s_.b_norm;
        dual_.assign(n_, 0.0);
        Wide sum;
        for (int j = 0; j < n_; ++j) {
            Wide w;
            if (job.constraints.gram) {
                w = s_.linear[j];
                for (int k = 0; k < n_; ++k) w -= s_.fit_gram[size_t(j) * n_ + k] * x[k];
            }
            for (int i = 0; i < s_.rows; ++i) w += s_.K[size_t(i) * n_ + j] * r[i];
            Wide below;
            for (size_t i = 0; i < image.size(); ++i) below += s_.L[i * n_ + j] * image[i];
            dual_[j] = double(w - below * factor_);
            const double part = set_.norm(j) * std::abs(double(x[j]));
            measured_.size += part;
            if (set_.place[j] != Place::free) measured_.given += part;
            if (!summed) {
                const double norm = set_.norm(j);
                if (!s_.is_masked(j) && norm > 0)
                    measured_.breach = std::max(measured_.breach,
                                                lsq::breach_of(double(given[j]), double(Scalar(s_.lower(j))),
                                                               double(Scalar(s_.upper(j))), dual_[j]) /
                                                    norm);
                continue;
            }
            if (s_.is_masked(j)) continue;
            sum += Wide(s_.coefficient(j)) * Wide(double(given[j]));
            measured_.sum_size += s_.coefficient(j) * std::abs(double(given[j]));
        }
        measured_.task = job.constraints.gram ? measured_.size : measured_.given + residual_;
        if (summed) measure_sum(given, double(sum));
        if (!summed && !job.constraints.gram) {
            measured_.objective = std::hypot(residual_, penalty_);
            measured_.named = s_.b_norm;
            for (int j = 0; j < n_; ++j)
                if (!s_.is_masked(j))
                    measured_.named += set_.norm(j) * std::abs(s_.scaled_x(
                                                          j, lsq::nearest_to_zero(s_.lower(j), s_.upper(j))));
        }
    }

    template <class Scalar>
    void measure_sum(const std::vector<Scalar>& given, double sum) {
        const double low = s_.sum_low(), high = s_.sum_high();
        measured_.sum_error = std::max(0.0, std::max(low - sum, sum - high));
        measured_.sum_size += std::abs(std::isfinite(high) ? high : low);
        if (!s_.job.constraints.gram)
            measured_.task = s_.b_norm + residual_ + penalty_ + size_of_way(low, high);
        // The dual with the multiplier of the solution, whose sign is the other way round.
        multiplier_ = -double(set_.multiplier);
        for (int j = 0; j < n_; ++j) dual_[j] += multiplier_ * double(set_.c[j]);
        double shift;
        measured_.breach = lsq::least_breach(
            Lone(), n_,
            [&](int j) {
                const double norm = set_.norm(j), x = double(given[j]);
                const bool out = s_.is_masked(j);
                return lsq::SummedColumn{dual_[j], double(set_.c[j]), norm > 0 ? 1 / norm : 0.0,
                                         !out && x < double(Scalar(s_.upper(j))),
                                         !out && x > double(Scalar(s_.lower(j)))};
            },
            lsq::allowed_shifts(sum, low, high, lsq::rounding_of_sum(s_.single) * measured_.sum_size,
                                multiplier_),
            shift);
        for (int j = 0; j < n_; ++j) dual_[j] += shift * double(set_.c[j]);
        multiplier_ += shift;
    }

    double size_of_way(double low, double high) const {
        double nearest = 0;
        for (int j = 0; j < n_; ++j)
            nearest += s_.coefficient(j) * lsq::nearest_to_zero(s_.lower(j), s_.upper(j));
        lsq::WayToSum way(nearest, low, high);
        for (int j = 0; j < n_; ++j)
            if (!s_.is_masked(j))
                way.add(s_.lower(j), s_.upper(j), s_.scaled_x(j, set_.norm(j)), s_.coefficient(j));
        return way.length();
    }

    template <class Scalar>
    void write_more(const Scalar* x, const Scalar* dual) const {
        const NnlsConstraints& constraints = s_.job.constraints;
        const int64_t system = s_.system;
        const double multiplier = std::ldexp(multiplier_, s_.b_exponent - s_.sum_exponent);
        constraints.multiplier[system] = multiplier;
        constraints.equality_error[system] = measured_.sum_error;
        if (constraints.summed && constraints.gap)
            constraints.gap[system] = lsq::frank_wolfe_gap(
                constraints, system,
                lsq::ascent_of(lsq::NumbersOf<Scalar>(), constraints, system, n_, x, dual, multiplier));
        if (constraints.used_lam) {
            const double lam = s_.lam() * std::sqrt(factor_);
            constraints.used_lam[system] = lam;
            constraints.fit[system] = std::ldexp(residual_ * residual_, 2 * s_.b_exponent);
            constraints.seminorm[system] =
                s_.lam() > 0 ? std::ldexp(seminorm_, s_.b_exponent) / s_.lam() : norm_of_penalty(x);
            constraints.passive[system] = static_cast<int32_t>(set_.columns.size()) - constraints.summed;
        }
        if (constraints.deviation) write_deviations(constraints.deviation + system * n_);
    }

    // |L x| where lambda is zero.
    template <class Scalar>
    double norm_of_penalty(const Scalar* x) const {
        double square = 0;
        const NnlsConstraints& constraints = s_.job.constraints;
        for (int i = 0; i < (constraints.penalized ? constraints.penalty_rows : 0); ++i) {
            double entry = 0;
            for (int j = 0; j < n_; ++j) entry += s_.penalty(i, j) * double(x[j]);
            square += entry * entry;
        }
        return std::sqrt(square);
    }

    // Of x where entries of b have deviation one and the set is what it is: the root of y'K'K y, y = M e_p.
    void write_deviations(double* out) const {
        std::fill(out, out + n_, 0.0);
        const size_t count = set_.columns.size();
        for (size_t p = 0; p < count; ++p) {
            const int j = set_.columns[p];
            if (j >= n_) continue;
            std::vector<Wide> unit(count);
            unit[p] = 1.0;
            const std::vector<Wide> y = set_.apply_inverse(unit);
            Wide square;
            for (size_t q = 0; q < count; ++q)
                for (size_t t = 0; t < count; ++t)
                    if (set_.columns[q] < n_ && set_.columns[t] < n_)
                        square += y[q] * s_.fit_gram[size_t(set_.columns[q]) * n_ + set_.columns[t]] * y[t];
            out[j] = std::ldexp(std::sqrt(std::max(0.0, double(square))), -s_.exponents[j]);
        }
    }
};

}  // namespace

bool solve(const NnlsJob& job, int64_t number, bool single, const double* a) {
    const System system(job, number, single, a);
    Solution solution;
    if (!solve_with(system, 1, nullptr, solution)) return false;
    if (finds_level(job) && job.constraints.at_end[number] == 0 && system.lam() > 0 &&
        !reach_level(system, solution))
        return false;
    Answer answer(system, solution);
    return single ? answer.write<float>() : answer.write<double>();
}

}  // namespace stepwell::wide
