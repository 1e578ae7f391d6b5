// lambda of each system by a rule, found inside its solve. With nu = lambda^2, phi = |Ax - b|^2 and psi =
// |Lx|^2 never fall and never rise with nu. On one set of columns P, with B = A_P'A_P + nu L_P'L_P:
//   q = (L'Lx)_P' B^-1 (L'Lx)_P,   d phi / d nu = 2 nu q,   d psi / d nu = -2 q.
#pragma once

#include "core/lsq/brent.hpp"
#include "core/lsq/general_set.hpp"
#include "core/lsq/judge.hpp"
#include "core/lsq/level.hpp"

SW_BEGIN
namespace lsq {

// A point of the path of solutions: phi, its derivative by ln nu, and psi.
struct Point {
    double phi, slope, psi;
};

// Lambdas of the two rules by a grid lie from e^-8 to e^2 times sqrt(tr A'A / tr L'L).
constexpr double grid_low = -16, grid_high = 4;  // of ln nu

template <class State>
SW_CALL void search_lambda(State& s, const Job& job, int64_t system, double unit, double near) {
    if (job.constraints.rule == rule_gcv) return by_cross_validation(s, job, system, unit);
    if (job.constraints.rule == rule_lcurve) return by_corner(s, unit);
    by_level(s, job, system, unit, near);
}

// tr A'A / tr L'L over the columns that take part: where both terms count alike.
// 0 where that is no number whose neighbours are.
template <class State>
SW_HD double trace_ratio(const State& s) {
    double a = 0, l = 0, largest = 0;
    s.team.each(s.columns(), [&](int j) {
        if (s.ws.square[j] > 0) largest = max_of(largest, 1 / s.task.scale_of(j));
    });
    largest = s.team.max(largest);
    s.team.each(s.columns(), [&](int j) {
        const double scale = s.task.scale_of(j), share = 1 / (scale * largest);
        if ((s.ws.state[j] & excluded) || !(scale > 0)) return;
        if (s.ws.square[j] > 0) a += s.ws.square[j] * share * share;
        l += s.ws.penalty_square[j] * share * share;
    });
    a = s.team.sum(a);
    l = s.team.sum(l);
    double entry = 0;  // of L, where the squares of all of them are below the smallest number
    if (l == 0) {
        s.team.each(s.columns(), [&](int j) {
            if (!(s.ws.state[j] & excluded) && s.task.scale_of(j) > 0)
                entry = max_of(entry, largest_in_penalty(s.task.matrix, j));
        });
        entry = s.team.max(entry);
    }
    if (!(a > 0 && (l > 0 || entry > 0))) return 1.0;
    const double ratio = a / l;
    return ratio > 1e-250 && ratio < 1e250 ? ratio : 0.0;
}

// Solves with another nu, from the set that there is.
template <class State>
SW_CALL Point evaluate(State& s, double nu) {
    ++s.search.evaluations;
    refactor(s, nu);
    iterate_called(s, s.factor.count > 0 ? Pending::solution : Pending::nothing);
    if (keep_met_bounds(s)) s.search.beyond = true;
    if (s.tally.solves >= s.task.options.max_solves) s.search.is_cut = true;
    Point point;
    point.phi = squared_fit(s);
    // ws.r is now -L x in the rows of the penalty.
    const auto& matrix = s.task.matrix;
    const int first = matrix.below + matrix.summed, rows = matrix.penalty_rows;
    double psi = 0;
    s.team.each(rows, [&](int i) { psi += s.ws.r[first + i] * s.ws.r[first + i]; });
    point.psi = s.team.sum(psi);
    point.slope = 2 * nu * nu * curvature_of_path(s, first, rows);
    return point;
}

// q
template <class State>
SW_CALL double curvature_of_path(State& s, int first, int rows) {
    const Columns columns = s.factor.positive();
    const int count = s.factor.count;
    if (count == 0) return 0.0;
    double* g = s.ws.g;
    if (s.task.matrix.penalty) {
        for (int p = s.team.row(); p < count; p += s.team.rows()) {
            const double part = lane_dot(s.team, columns.at(p) + first, s.ws.r + first, rows);
            if (s.team.lane() == 0) g[p] = -part;
        }
    } else {
        s.team.each_short(count, [&](int p) {
            const int j = s.ws.order[p];
            g[p] = j < rows ? -s.task.scale_of(j) * s.ws.r[first + j] : 0.0;
        });
    }
    s.team.sync();
    return square_in_factor(s);
}

// Digits of level - phi_0 that a level is worth, and roundings of the terms of A x that a fit may be off by.
constexpr double level_digits = 1e-4, roundings_of_fit = 16;

// phi = T, with T a multiple of phi at nu = 0, or what the noise makes of it.
template <class State>
SW_HD void by_level(State& s, const Job& job, int64_t system, double unit, double near) {
    const Constraints& constraints = job.constraints;
    s.search.unpenalized = squared_fit(s);
    s.search.factor_of_level = constraints.rule == rule_chi2 ? constraints.chi2 : 0.0;
    s.search.level = constraints.chi2 * s.search.unpenalized;
    if (constraints.rule == rule_discrepancy) {
        const double noise = constraints.noise[system * constraints.noise_stride] * s.b_scale;
        double rows = 0;
        s.team.each(s.task.matrix.top.rows, [&](int i) { rows += s.ws.metric[i] > 0 ? 1.0 : 0.0; });
        s.search.level = LevelSearch::level_of_noise(s.team.sum(rows), noise);
    }
    // (Of a fit to rounding a factor is one of rounding; noise that is given is not.)
    double rounding = s.task.options.rounding * (s.b_norm + s.reference_size);
    const auto nothing_left = [&] {
        return constraints.rule == rule_chi2 && s.search.unpenalized <= rounding * rounding;
    };
    if (constraints.rule == rule_chi2 && !nothing_left() && is_rounded(s)) {
        const double hidden = roundings_of_fit * double_epsilon * s.size;
        if (!finds_fit_with_digits(s, unit)) {
            rounding = max_of(rounding, hidden);
            if (!nothing_left()) s.search.has_false_level = true;
        }
    }
    const double wanted = s.search.level - s.search.unpenalized;
    s.fresh = false;
    if (!(wanted > 0) || nothing_left() || stays_zero(s)) {
        s.search.at_end = -1;
        return;
    }
    const double off = constraints.rule == rule_chi2 ? decrement(s) : 0.0;
    s.search.has_false_level = s.search.has_false_level || off * off > LevelSearch::tolerance * wanted ||
                               has_few_digits(s, s.search.unpenalized);
    const auto& matrix = s.task.matrix;
    const double q = curvature_of_path(s, matrix.below + matrix.summed, matrix.penalty_rows);
    const double guess = LevelSearch::first_guess(wanted, q, unit);
    reach_level(s, unit, near > 0 ? logarithm(near) : guess);
}

// What rounding of A x makes of phi_0.
template <class State>
SW_HD double hidden_in_fit(const State& s) {
    const double error = double_epsilon * s.size;
    return error * (2 * square_root(s.search.unpenalized) + error);
}

// Whether x is so large that rounding of A x hides phi_0 beside what the level adds to it.
template <class State>
SW_HD bool is_rounded(const State& s) {
    return hidden_in_fit(s) > level_digits * (s.search.level - s.search.unpenalized);
}

// Nearly dependent columns have such an x. Any other with the same fit will do for phi_0: that of the least
// nu whose x, which is no larger than |b| / (2 lambda), keeps the digits. False, and nu is 0, where that is
// not the same fit: phi still falls towards nu = 0, or is above phi_0 by more than rounding.
template <class State>
SW_CALL bool finds_fit_with_digits(State& s, double unit) {
    const double wanted = s.search.level - s.search.unpenalized;
    const double lambda = double_epsilon * s.b_norm * square_root(s.search.level) / (level_digits * wanted);
    const double nu = unit * clamp_to(lambda * lambda, exponential(-46), 1.0);
    const double phi = s.search.unpenalized, hidden = hidden_in_fit(s);
    const Point point = evaluate(s, nu);
    const double level = s.search.factor_of_level * point.phi;
    if (point.slope > level_digits * (level - point.phi) || point.phi - phi > roundings_of_fit * hidden) {
        evaluate(s, 0.0);
        return false;
    }
    s.search.unpenalized = point.phi;
    s.search.level = level;
    return true;
}

// Whether the level is a multiple of a fit without lambda that the terms beside a sum cancel in. (Twice
// the precision has its digits.)
template <class State>
SW_HD bool has_few_digits(const State& s, double fit) {
    const double least = s.ws.sum_of && s.search.factor_of_level > 0 ? cancelled * s.size : 0.0;
    return fit < least * least;
}

// Whether x is zero whatever lambda is. (Columns of L alone count in no size without lambda.)
template <class State>
SW_HD bool stays_zero(const State& s) {
    double any = s.factor.count > 0 ? 1.0 : 0.0;
    s.team.each(s.columns(), [&](int j) {
        if (s.task.reference_of(j) != 0) any = 1;
    });
    return s.team.max(any) == 0;
}

template <class State>
SW_CALL void reach_level(State& s, double unit, double start) {
    double wanted = s.search.level - s.search.unpenalized;
    LevelSearch along(unit, start);
    s.search.at_end = 0;
    for (int step = 0; step < LevelSearch::max_steps; ++step) {
        const Point point = evaluate(s, exponential(along.s));
        if (s.search.factor_of_level > 0 &&
            LevelSearch::falls_below(point.phi, s.search.unpenalized, wanted) && lowers_level(s)) {
            wanted = s.search.level - s.search.unpenalized;
            along = LevelSearch(unit, along.s);
            continue;
        }
        if (LevelSearch::meets(point.phi, s.search.level, wanted)) return;
        if (s.search.is_cut) return;
        if (along.next(point.phi - s.search.unpenalized, point.slope, wanted)) continue;
        s.search.at_end = along.at_end;
        return;
    }
}

// Whether the point fits better than that without lambda, by A itself: then the latter was not the least,
// and is looked for from here.
template <class State>
SW_CALL bool lowers_level(State& s) {
    const bool trusted = s.trusting;
    const double room = LevelSearch::tolerance * (s.search.level - s.search.unpenalized);
    s.trusting = false;
    iterate_called(s, Pending::nothing);
    const double phi = squared_fit(s);
    const bool lowers = phi < s.search.unpenalized - room;
    if (lowers) {
        const double least = evaluate(s, 0.0).phi;
        s.search.unpenalized = min_of(least, phi);
        s.search.has_false_level = least > phi + room || has_few_digits(s, s.search.unpenalized);
        s.search.level = s.search.factor_of_level * s.search.unpenalized;
    }
    s.trusting = trusted;
    return lowers;
}

// Whether a level that was found with tables is missed by what A made of the point.
template <class State>
SW_HD bool misses_level(State& s) {
    if (!(s.search.level > s.search.unpenalized) || s.search.at_end != 0) return false;
    return LevelSearch::misses(squared_fit(s), s.search.level, s.search.level - s.search.unpenalized);
}

// The least of phi / (m - tr A (A'A + nu L'L)^-1 A')^2. The trace is that of all columns that take part,
// by the eigenvalues t of A'A in the pencil with H = A'A + alpha L'L: sum of alpha t / (alpha t + nu (1 -
// t)). A grid from large nu to small, whose warm starts are cheap, then Brent's method.
template <class State>
SW_HD void by_cross_validation(State& s, const Job& job, int64_t system, double unit) {
    const Constraints& constraints = job.constraints;
    const int64_t row = constraints.own_spectra ? system : matrix_number(job, system);
    const int64_t index = constraints.spectrum_stride ? row : 0;
    const double* spectrum = constraints.spectrum + index * constraints.spectrum_stride;
    const double alpha = constraints.pencil[index];
    const double centre = logarithm(unit), low = centre + grid_low, high = centre + grid_high;
    constexpr int points = 16;
    const double spacing = (high - low) / (points - 1);
    double value[points];
    for (int turn = 0; turn < 2; ++turn) {
        for (int k = points - 1; k >= 0; --k)
            value[k] = cross_validation(s, low + k * spacing, spectrum, alpha);
        if (!s.trusting || tables_have_digits(s)) break;
        s.trusting = false;
    }
    // About each least of the grid, as there may be several where the set of columns changes.
    double best = double_infinity, best_at = high, last = low;
    for (int k = points - 1; k >= 0; --k) {
        if ((k > 0 && value[k - 1] < value[k]) || (k < points - 1 && !(value[k] < value[k + 1]))) continue;
        const double at = low + k * spacing;
        double x = at, least = value[k];
        last = brent(max_of(low, at - spacing), x, min_of(high, at + spacing), least,
                     [&](double u) { return cross_validation(s, u, spectrum, alpha); });
        if (!(least < best)) continue;
        best = least;
        best_at = x;
        s.search.at_end = k == 0 ? -1 : k == points - 1 ? 1 : 0;
    }
    if (last != best_at) evaluate(s, exponential(best_at));
}

// Whether the solution with the smallest lambda of a grid, which is the last, fits as well as tables of
// products say: it is held against A.
template <class State>
SW_CALL bool tables_have_digits(State& s) {
    const double before = squared_fit(s);
    s.trusting = false;
    iterate_called(s, Pending::nothing);
    s.trusting = true;
    return absolute(squared_fit(s) - before) <= 1e-3 * before;
}

template <class State>
SW_CALL double cross_validation(State& s, double at, const double* spectrum, double alpha) {
    const double nu = exponential(at);
    const double phi = evaluate(s, nu).phi;
    double part = 0;
    s.team.each(s.task.matrix.top.columns, [&](int j) {
        const double t = spectrum[j];
        if (t > 0) part += alpha * t / (alpha * t + nu * (1 - t));
    });
    const double rest = s.task.matrix.top.rows - s.team.sum(part);
    return phi / (rest * rest);
}

// The corner of the curve (ln phi, ln psi): the point of a fixed grid where the circle through it and its
// two neighbours is the smallest. Points of the curve itself have a curvature that jumps with every
// change of the set.
template <class State>
SW_HD void by_corner(State& s, double unit) {
    constexpr int points = 21;
    const double low = logarithm(unit) + grid_low, spacing = (grid_high - grid_low) / (points - 1);
    double x[3] = {0, 0, 0}, y[3] = {0, 0, 0}, sharpest = 0;
    int corner = -1;
    for (int k = points - 1; k >= 0; --k) {
        const Point point = evaluate(s, exponential(low + k * spacing));
        x[0] = x[1], y[0] = y[1], x[1] = x[2], y[1] = y[2];
        x[2] = logarithm(max_of(point.phi, 1e-300));
        y[2] = logarithm(max_of(point.psi, 1e-300));
        if (k > points - 3) continue;
        // Down the grid ln phi falls and ln psi rises; towards the corner it turns upwards, to the right.
        const double ax = x[1] - x[0], ay = y[1] - y[0], bx = x[2] - x[1], by = y[2] - y[1];
        const double cx = x[2] - x[0], cy = y[2] - y[0];
        const double size = square_root((ax * ax + ay * ay) * (bx * bx + by * by) * (cx * cx + cy * cy));
        const double sharp = size > 0 ? -2 * (ax * by - ay * bx) / size : 0.0;
        if (sharp > sharpest) {
            sharpest = sharp;
            corner = k + 1;
        }
    }
    s.search.at_end = corner < 0 ? 2 : corner == 1 ? -1 : corner == points - 2 ? 1 : 0;
    evaluate(s, exponential(low + (corner < 0 ? points / 2 : corner) * spacing));
}

}  // namespace lsq
SW_END
