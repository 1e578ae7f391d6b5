// A general problem of random numbers, for the programs that solve it with the branches of a device; and how
// far an answer is from optimal.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "lanes.hpp"

enum Feature { box, simplex, range, weighted, smooth, searched, normal_equations, features };

struct Problem {
    template <class Random>
    Problem(int m, int n, int feature, int update, Random& random)
        : system(m, n, {0.0, 3e-15, 0.0, 10 * n + 100, update, 1, 0}, random),
          lower(n),
          upper(n),
          weights(m, 1.0) {
        std::uniform_real_distribution<double> uniform(0, 1);
        for (double& value : system.a) value -= 0.3;
        const bool positive = feature == simplex || feature == range || feature == searched;
        for (int j = 0; j < n; ++j) {
            lower[j] = positive ? 0.0 : j % 4 == 3 ? -double_infinity : -0.2 * uniform(random);
            upper[j] = positive || j % 5 == 4 ? double_infinity : 0.2 * uniform(random);
        }
        Constraints& constraints = system.job.constraints;
        constraints.general = 1;
        constraints.lower = lower.data();
        constraints.upper = upper.data();
        if (feature == simplex || feature == range) {
            constraints.summed = 1;
            constraints.slack = feature == range;
            low = feature == range ? 0.2 : 1.0;
            constraints.sum_low = &low;
            constraints.sum_high = &high;
        }
        if (feature == weighted) {
            for (double& value : weights) value = 0.5 + uniform(random);
            constraints.weights = weights.data();
        }
        if (feature == smooth || feature == searched) {
            constraints.penalized = 1;
            constraints.penalty_rows = n;
            constraints.lam = &lam;
            constraints.rule = feature == searched ? rule_chi2 : rule_given;
            constraints.chi2 = 1.02;
        }
        if (feature == normal_equations) {
            const std::vector<double>& a = system.a;
            gram.resize(static_cast<size_t>(n) * n);
            linear.resize(n);
            for (int j = 0; j < n; ++j) {
                for (int i = 0; i < m; ++i) linear[j] += a[i * n + j] * system.b[i];
                for (int k = 0; k < n; ++k)
                    for (int i = 0; i < m; ++i) gram[j * n + k] += a[i * n + j] * a[i * n + k];
            }
            constraints.gram = gram.data();
            constraints.linear = linear.data();
            system.job.rows = 0;
        }
    }
    RandomSystem system;
    std::vector<double> lower, upper, weights, gram, linear;
    double low = 1.0, high = 1.0, lam = 0.3;
};

// The largest breach of the optimality conditions, scaled.
inline double breach(const Problem& problem, int m, int n, const std::vector<double>& x, double lambda,
                     double multiplier) {
    double worst = 0, size = 0;
    std::vector<double> r(problem.system.b);
    const std::vector<double>& a = problem.system.a;
    for (int i = 0; i < m; ++i) {
        size += r[i] * r[i];
        for (int j = 0; j < n; ++j) r[i] -= a[i * n + j] * x[j];
        r[i] *= problem.weights[i] * problem.weights[i];
    }
    size = std::sqrt(size) + std::fabs(multiplier);
    for (int j = 0; j < n; ++j) {
        double w = multiplier - lambda * lambda * x[j], norm = lambda * lambda + 1e-300;
        for (int i = 0; i < m; ++i) {
            w += a[i * n + j] * r[i];
            norm += a[i * n + j] * a[i * n + j];
        }
        w /= std::sqrt(norm);
        size += std::sqrt(norm) * std::fabs(x[j]);
        if (!(x[j] >= problem.lower[j] && x[j] <= problem.upper[j])) return 1e300;
        const bool below = x[j] <= problem.lower[j], above = x[j] >= problem.upper[j];
        worst = std::max(worst, below ? w : above ? -w : std::fabs(w));
    }
    return worst / size;
}
