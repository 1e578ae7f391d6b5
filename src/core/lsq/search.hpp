// lambda of each system by a rule, found inside its solve. With nu = lambda^2, phi = |Ax - b|^2 and psi =
// |Lx|^2 never fall and never rise with nu. On one set of columns P, with B = A_P'A_P + nu L_P'L_P:
//   q = (L'Lx)_P' B^-1 (L'Lx)_P,   d phi / d nu = 2 nu q,   d psi / d nu = -2 q.
#pragma once

#include "core/lsq/brent.hpp"
#include "core/lsq/general_set.hpp"
#include "core/lsq/level.hpp"

SW_BEGIN
namespace lsq {

template <class Team, class Matrix, class Numbers>
struct Search : GeneralSet<Team, Matrix, Numbers> {
    using Base = GeneralSet<Team, Matrix, Numbers>;
    using Base::b_norm;
    using Base::b_scale;
    using Base::factor;
    using Base::fresh;
    using Base::from_gram;
    using Base::tally;
    using Base::task;
    using Base::team;
    using Base::ws;
    using Pending = typename Base::Pending;

    int at_end = 0;       // -1, 1: lambda is at an end of its range; 2: an L-curve without a corner
    int evaluations = 0;  // solutions with some lambda
    double unpenalized = double_nan();  // phi at nu = 0

    SW_HD Search(const Team& team, const Task<Matrix>& task) : Base(team, task) {}

    // Solves with the lambda that is given or, where `near` is, found from there.
    SW_HD void solve(const Job& job, int64_t system, const void* b, WarmStart warm, double near) {
        this->numbers = Numbers(job);
        const Constraints& constraints = job.constraints;
        const bool given = constraints.rule == rule_given && constraints.penalized;
        const double lam = given ? constraints.lam[system * constraints.lam_stride] : 0.0;
        team.each(this->columns(), [&](int j) { ws.kept_bounds[j] = 0; });
        team.sync();
        for (beyond = true; beyond;) {
            beyond = false;
            tally.status = this->begin_general(job, system, b, lam * lam);
            if (tally.status != converged) return;
            solve_once(job, system, b, warm, near);
            if (beyond) this->empty_factor(task.options.update);
        }
        this->mend_sum();
        leave_at_bounds();
        this->finish();
    }

    // The standard deviation of x where entries of b have deviation one and the set is what it is, in the
    // caller's units: its square may be no number. With M = R^-1 (I - v v'/v'v) R^-T it is |A_P M e_p| for
    // the unknown at p, which is M_pp^(1/2) without a penalty, and zero for those at bounds.
    SW_CALL void deviations(double* out, bool known) {
        const Matrix& matrix = task.matrix;
        const int n = matrix.top.columns, count = known ? factor.count : 0;
        const double missing = known ? 0.0 : double_nan();
        team.each(n, [&](int j) { out[j] = missing; });
        team.sync();
        double *y = ws.z, *image = ws.v;
        const double* sum = ws.triangle.sum;
        for (int p = 0; p < count; ++p) {
            const int j = ws.order[p];
            team.each_short(count, [&](int q) { y[q] = q == p ? 1.0 : 0.0; });
            team.sync();
            factor.solve_with_r_transposed(y, y);
            double along = 0, size = 0, square = 0;
            if (sum) {
                team.lane_each(count, [&](int q) {
                    along += y[q] * sum[q];
                    size += sum[q] * sum[q];
                });
                along = team.lane_sum(along);
                size = team.lane_sum(size);
                team.sync();
                team.each_short(count, [&](int q) { y[q] -= along / size * sum[q]; });
                team.sync();
            }
            if (factor.penalty > 0 && !task.extent.gram_only) {
                const int length = task.extent.row_length();
                factor.solve_with_r(y, y);
                team.each(length, [&](int i) { image[i] = 0; });
                team.sync();
                subtract_columns(team, factor.positive(), count, y, image, length);
                team.each(matrix.top.rows, [&](int i) { square += ws.metric[i] * image[i] * image[i]; });
                square = team.sum(square);
            } else {
                team.lane_each(count, [&](int q) { square += y[q] * y[q]; });
                square = team.lane_sum(square);
            }
            team.sync();
            const double scale = task.scale_of(j);
            if (team.rank() == 0 && j < n) out[j] = square_root(square) * scale;
        }
        team.sync();
    }

private:
    bool beyond = false;           // a far bound that does not count would have to
    double level = 0;              // what phi has to be
    double factor_of_level = 0;    // over the fit without lambda; 0 where that does not make it
    bool is_cut = false;           // the search for it met the limit on solutions
    bool has_false_level = false;  // the fit without lambda, of which it is a multiple, may not be the least

    // What a solution happens to have exactly at a bound is out of the factor at the end.
    SW_HD void leave_at_bounds() {
        if (ws.sum_of) return;
        for (int p = factor.count - 1; p >= 0; --p) {
            const int j = ws.order[p];
            const bool leaves = !(ws.x[p] > task.least_of(j) && ws.x[p] < task.most_of(j));
            team.sync();
            if (!leaves) continue;
            this->leave_at_bound(p);
            fresh = false;
        }
    }

    // With the bounds that count. Ends early where others would have to.
    SW_HD void solve_once(const Job& job, int64_t system, const void* b, WarmStart warm, double near) {
        const Constraints& constraints = job.constraints;
        at_end = 0;
        level = 0;
        is_cut = has_false_level = this->lacks_level = false;
        // At lambda = 0 the problem is at its worst: it is solved as it would be by itself. Rules by a grid
        // begin at its upper end.
        const double unit = constraints.rule != rule_given ? trace_ratio() : 1.0;
        const bool by_grid = (constraints.rule == rule_gcv || constraints.rule == rule_lcurve) && unit > 0;
        if (by_grid) this->begin_general(job, system, b, unit * exponential(grid_high));
        tally.status = this->iterate_called(this->start_general(job, system, b, warm, factor.penalty));
        if (tally.status == limit) return;
        has_false_level = tally.status != converged;
        beyond = this->keep_met_bounds();
        if (constraints.rule == rule_given || beyond) return;
        if (unit == 0) {
            at_end = -1;  // no lambda but 0 has a square
            return;
        }
        this->trusting = true;
        search(job, system, unit, near * near);
        this->trusting = false;
        if (beyond) return;
        tally.status = this->iterate_called(Pending::nothing);
        if (tally.status != limit && misses_level()) {
            reach_level(unit, logarithm(factor.penalty));
            if (beyond) return;
            tally.status = this->iterate_called(Pending::nothing);
            this->lacks_level = misses_level();
        }
        if (constraints.rule == rule_chi2 && (has_false_level || sum_hides_columns()))
            this->lacks_level = true;
        if (is_cut) tally.status = limit;
        if (tally.status != limit) beyond = this->keep_met_bounds();
    }

    // Whether the row of a sum is so heavy beside a column that the fit without lambda, which sets the level,
    // has lost its digits. (Twice the precision has them.)
    SW_HD bool sum_hides_columns() const {
        if (!ws.sum_of) return false;
        double any = 0;
        team.each(this->columns(), [&](int j) {
            const double sum = factor.row_weight * ws.sum_of[j] * ws.sum_of[j];
            if (ws.square[j] > 0 && sum > 1e16 * ws.square[j]) any = 1;
        });
        return team.max(any) > 0;
    }

    // A point of the path of solutions: phi, its derivative by ln nu, and psi.
    struct Point {
        double phi, slope, psi;
    };

    SW_CALL void search(const Job& job, int64_t system, double unit, double near) {
        if (job.constraints.rule == rule_gcv) return by_cross_validation(job, system, unit);
        if (job.constraints.rule == rule_lcurve) return by_corner(unit);
        by_level(job, system, unit, near);
    }

    // tr A'A / tr L'L over the columns that take part: where both terms count alike.
    // 0 where that is no number whose neighbours are.
    SW_HD double trace_ratio() const {
        double a = 0, l = 0, largest = 0;
        team.each(this->columns(), [&](int j) {
            if (ws.square[j] > 0) largest = max_of(largest, 1 / task.scale_of(j));
        });
        largest = team.max(largest);
        team.each(this->columns(), [&](int j) {
            const double scale = task.scale_of(j), share = 1 / (scale * largest);
            if ((ws.state[j] & excluded) || !(scale > 0)) return;
            if (ws.square[j] > 0) a += ws.square[j] * share * share;
            l += ws.penalty_square[j] * share * share;
        });
        a = team.sum(a);
        l = team.sum(l);
        if (!(a > 0 && l > 0)) return 1.0;
        const double ratio = a / l;
        return ratio > 1e-250 && ratio < 1e250 ? ratio : 0.0;
    }

    // Solves with another nu, from the set that there is.
    SW_CALL Point evaluate(double nu) {
        ++evaluations;
        this->refactor(nu);
        this->iterate_called(factor.count > 0 ? Pending::solution : Pending::nothing);
        if (this->keep_met_bounds()) beyond = true;
        if (tally.solves >= task.options.max_solves) is_cut = true;
        Point point;
        point.phi = this->squared_fit();
        // ws.r is now -L x in the rows of the penalty.
        const Matrix& matrix = task.matrix;
        const int first = matrix.below + matrix.summed, rows = matrix.penalty_rows;
        double psi = 0;
        team.each(rows, [&](int i) { psi += ws.r[first + i] * ws.r[first + i]; });
        point.psi = team.sum(psi);
        point.slope = 2 * nu * nu * curvature_of_path(first, rows);
        return point;
    }

    // q
    SW_CALL double curvature_of_path(int first, int rows) {
        const Columns columns = factor.positive();
        const int count = factor.count;
        if (count == 0) return 0.0;
        double* g = ws.g;
        if (task.matrix.penalty) {
            for (int p = team.row(); p < count; p += team.rows()) {
                const double part = lane_dot(team, columns.at(p) + first, ws.r + first, rows);
                if (team.lane() == 0) g[p] = -part;
            }
        } else {
            team.each_short(count, [&](int p) {
                const int j = ws.order[p];
                g[p] = j < rows ? -task.scale_of(j) * ws.r[first + j] : 0.0;
            });
        }
        team.sync();
        return this->square_in_factor();
    }

    // phi = T, with T a multiple of phi at nu = 0, or what the noise makes of it.
    SW_HD void by_level(const Job& job, int64_t system, double unit, double near) {
        const Constraints& constraints = job.constraints;
        unpenalized = this->squared_fit();
        factor_of_level = constraints.rule == rule_chi2 ? constraints.chi2 : 0.0;
        level = constraints.chi2 * unpenalized;
        if (constraints.rule == rule_discrepancy) {
            const double noise = constraints.noise[system * constraints.noise_stride] * b_scale;
            double rows = 0;
            team.each(task.matrix.top.rows, [&](int i) { rows += ws.metric[i] > 0 ? 1.0 : 0.0; });
            level = min_of(team.sum(rows) * noise * noise, LevelSearch::highest);
        }
        const double wanted = level - unpenalized,
                     rounding = task.options.rounding * (b_norm + this->reference_size);
        fresh = false;
        // (Of a fit to rounding a factor is one of rounding; noise that is given is not.)
        const bool nothing_left = constraints.rule == rule_chi2 && unpenalized <= rounding * rounding;
        if (!(wanted > 0) || nothing_left || stays_zero()) {
            at_end = -1;
            return;
        }
        const double off = constraints.rule == rule_chi2 ? this->decrement() : 0.0;
        has_false_level =
            has_false_level || off * off > LevelSearch::tolerance * wanted || has_few_digits(unpenalized);
        // A first guess from this set alone, which is too small where its columns are nearly dependent.
        const Matrix& matrix = task.matrix;
        const double q = curvature_of_path(matrix.below + matrix.summed, matrix.penalty_rows);
        const double guess = max_of(0.5 * logarithm(q > 0 ? wanted / q : unit), logarithm(1e-7 * unit));
        reach_level(unit, near > 0 ? logarithm(near) : guess);
    }

    // Whether the level is a multiple of a fit without lambda that the terms beside a sum cancel in. (Twice
    // the precision has its digits.)
    SW_HD bool has_few_digits(double fit) const {
        const double least = ws.sum_of && factor_of_level > 0 ? cancelled * this->size : 0.0;
        return fit < least * least;
    }

    // Whether x is zero whatever lambda is. (Columns of L alone count in no size without lambda.)
    SW_HD bool stays_zero() const {
        double any = factor.count > 0 ? 1.0 : 0.0;
        team.each(this->columns(), [&](int j) {
            if (task.reference_of(j) != 0) any = 1;
        });
        return team.max(any) == 0;
    }

    SW_CALL void reach_level(double unit, double start) {
        double wanted = level - unpenalized;
        LevelSearch along(unit, start);
        at_end = 0;
        for (int step = 0; step < LevelSearch::max_steps; ++step) {
            const Point point = evaluate(exponential(along.s));
            if (factor_of_level > 0 && point.phi < unpenalized - LevelSearch::tolerance * wanted &&
                lowers_level()) {
                wanted = level - unpenalized;
                along = LevelSearch(unit, along.s);
                continue;
            }
            if (absolute(point.phi - level) <= LevelSearch::tolerance * wanted) return;
            if (is_cut) return;
            if (along.next(point.phi - unpenalized, point.slope, wanted)) continue;
            at_end = along.at_end;
            return;
        }
    }

    // Whether the point fits better than that without lambda, by A itself: then the latter was not the least,
    // and is looked for from here.
    SW_CALL bool lowers_level() {
        const bool trusted = this->trusting;
        const double room = LevelSearch::tolerance * (level - unpenalized);
        this->trusting = false;
        this->iterate_called(Pending::nothing);
        const double phi = this->squared_fit();
        const bool lowers = phi < unpenalized - room;
        if (lowers) {
            const double least = evaluate(0.0).phi;
            unpenalized = min_of(least, phi);
            has_false_level = least > phi + room || has_few_digits(unpenalized);
            level = factor_of_level * unpenalized;
        }
        this->trusting = trusted;
        return lowers;
    }

    // Whether a level that was found with tables is missed by what A made of the point.
    SW_HD bool misses_level() {
        if (!(level > unpenalized) || at_end != 0) return false;
        return absolute(this->squared_fit() - level) > 10 * LevelSearch::tolerance * (level - unpenalized);
    }

    // Lambdas of the two rules by a grid lie from e^-8 to e^2 times sqrt(tr A'A / tr L'L).
    static constexpr double grid_low = -16, grid_high = 4;  // of ln nu

    // The least of phi / (m - tr A (A'A + nu L'L)^-1 A')^2. The trace is that of all columns that take part,
    // by the eigenvalues t of A'A in the pencil with H = A'A + alpha L'L: sum of alpha t / (alpha t + nu (1 -
    // t)). A grid from large nu to small, whose warm starts are cheap, then Brent's method.
    SW_HD void by_cross_validation(const Job& job, int64_t system, double unit) {
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
                value[k] = cross_validation(low + k * spacing, spectrum, alpha);
            if (!this->trusting || tables_have_digits()) break;
            this->trusting = false;
        }
        // About each least of the grid, as there may be several where the set of columns changes.
        double best = double_infinity, best_s = high, last = low;
        for (int k = points - 1; k >= 0; --k) {
            if ((k > 0 && value[k - 1] < value[k]) || (k < points - 1 && !(value[k] < value[k + 1])))
                continue;
            const double s = low + k * spacing;
            double x = s, least = value[k];
            last = brent(max_of(low, s - spacing), x, min_of(high, s + spacing), least,
                         [&](double u) { return cross_validation(u, spectrum, alpha); });
            if (!(least < best)) continue;
            best = least;
            best_s = x;
            at_end = k == 0 ? -1 : k == points - 1 ? 1 : 0;
        }
        if (last != best_s) evaluate(exponential(best_s));
    }

    // Whether the solution with the smallest lambda of a grid, which is the last, fits as well as tables of
    // products say: it is held against A.
    SW_CALL bool tables_have_digits() {
        const double before = this->squared_fit();
        this->trusting = false;
        this->iterate_called(Pending::nothing);
        this->trusting = true;
        return absolute(this->squared_fit() - before) <= 1e-3 * before;
    }

    SW_CALL double cross_validation(double s, const double* spectrum, double alpha) {
        const double nu = exponential(s);
        const double phi = evaluate(nu).phi;
        double part = 0;
        team.each(task.matrix.top.columns, [&](int j) {
            const double t = spectrum[j];
            if (t > 0) part += alpha * t / (alpha * t + nu * (1 - t));
        });
        const double rest = task.matrix.top.rows - team.sum(part);
        return phi / (rest * rest);
    }

    // The corner of the curve (ln phi, ln psi): the point of a fixed grid where the circle through it and its
    // two neighbours is the smallest. Points of the curve itself have a curvature that jumps with every
    // change of the set.
    SW_HD void by_corner(double unit) {
        constexpr int points = 21;
        const double low = logarithm(unit) + grid_low, spacing = (grid_high - grid_low) / (points - 1);
        double x[3] = {0, 0, 0}, y[3] = {0, 0, 0}, sharpest = 0;
        int corner = -1;
        for (int k = points - 1; k >= 0; --k) {
            const Point point = evaluate(exponential(low + k * spacing));
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
        at_end = corner < 0 ? 2 : corner == 1 ? -1 : corner == points - 2 ? 1 : 0;
        evaluate(exponential(low + (corner < 0 ? points / 2 : corner) * spacing));
    }
};

}  // namespace lsq
SW_END
