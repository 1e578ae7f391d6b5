// lambda of a small system by a level of its fit: the search of level.hpp, each lambda tried with tables
// alone.
#pragma once

#include "core/lsq/small/answer.hpp"
#include "core/lsq/small/start.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// tr A'A / tr L'L over the columns that take part: where both terms count alike.
template <class State>
SW_HD double trace_ratio(const State& s) {
    double a = 0, l = 0;
    s.each_column([&](int j, int) {
        const double scale = s.scale(j);
        if (s.is_masked(j) || !(scale > 0)) return;
        if (s.excluded & bit_of(j) && State::bounded) return;
        a += s.gram(j, j) / (scale * scale);
        l += s.penalty(j, j) / (scale * scale);
    });
    a = s.lanes.sum(a);
    l = s.lanes.sum(l);
    return a > 0 && l > 0 ? a / l : 1.0;
}

// phi = T, with T a multiple of phi at nu = 0, or what the noise makes of it. False where there is no
// other lambda to solve with; the last is solved with twice, the second time from A.
template <class State>
SW_HD bool next_lambda(State& s) {
    const Constraints& constraints = s.job.constraints;
    if (s.search.evaluations > 0 && !s.trusting) return false;
    if (s.search.evaluations == 0) {
        s.search.unpenalized = s.squared_fit;
        s.search.level = constraints.chi2 * s.search.unpenalized;
        if (constraints.rule == rule_discrepancy) {
            const double noise = constraints.noise[s.system * constraints.noise_stride];
            s.search.level = LevelSearch::level_of_noise(s.job.rows, noise);
        }
        const double rounding = s.job.options.rounding * s.b_norm;
        // (Of a fit to rounding a factor is one of rounding; noise that is given is not.)
        const bool nothing_left =
            constraints.rule == rule_chi2 && s.search.unpenalized <= rounding * rounding;
        const bool is_zero = s.count == 0 && !s.nonzero;
        if (!(s.search.level > s.search.unpenalized) || nothing_left || is_zero) {
            s.search.at_end = -1;
            return false;
        }
        s.search.unfit = has_false_level(s);
        if (s.search.unfit) return false;
        const double unit = trace_ratio(s), q = curvature_of_path(s);
        if (!(unit > 1e-250 && unit < 1e250)) {  // squares beyond the range of numbers
            s.search.unfit = true;
            return false;
        }
        const double wanted = s.search.level - s.search.unpenalized;
        s.search.along = LevelSearch(unit, LevelSearch::first_guess(wanted, q, unit));
        s.trusting = true;
    } else {
        s.squared_fit = residual_of_rows<false>(s, true);
        const double missing = s.search.level - s.search.unpenalized;
        // (The fit without lambda was not the least then.)
        s.search.unfit = constraints.rule == rule_chi2 &&
                         LevelSearch::falls_below(s.squared_fit, s.search.unpenalized, missing);
        if (s.search.unfit) return false;
        const bool met = LevelSearch::meets(s.squared_fit, s.search.level, missing);
        if (met || s.search.evaluations == LevelSearch::max_steps ||
            !s.search.along.next(s.squared_fit - s.search.unpenalized, 2 * s.nu * s.nu * curvature_of_path(s),
                                 missing)) {
            s.search.at_end = met ? 0 : s.search.along.at_end;
            s.trusting = false;
            find_norms_again(s);
            return true;
        }
    }
    ++s.search.evaluations;
    s.nu = exponential(s.search.along.s);
    s.factored = 0;
    s.settled = s.count == 0;
    s.from_table = true;
    return true;
}

// Whether a level that was found with tables is missed by what A made of the point, or none was looked
// for.
template <class State>
SW_HD bool misses_level(const State& s) {
    if (s.search.unfit) return true;
    if (s.search.evaluations == 0 || s.search.at_end != 0) return false;
    return LevelSearch::misses(s.squared_fit, s.search.level, s.search.level - s.search.unpenalized);
}

// Whether the fit without lambda, which makes a level, may not be the least.
template <class State>
SW_HD_RARE bool has_false_level(State& s) {
    if (is_beyond_far_bounds(s)) return true;
    if (s.job.constraints.rule != rule_chi2 || !has_weak_pivot(s)) return false;
    const double off = doubtful_decrement(s);
    return off * off > LevelSearch::tolerance * (s.search.level - s.search.unpenalized);
}

// (Where lambda is only tried those without it will do.)
template <class State>
SW_HD void find_norms_again(State& s) {
    find_norms(s);
    s.has_norms = false;
}

// q of search.hpp: (L'L x)_P' B^-1 (L'L x)_P
template <class State>
SW_HD double curvature_of_path(State& s) {
    if (!complete_factor(s)) return 0;
    s.each_position(s.count, [&](int p, int t) { s.step[t] = penalty_product(s, s.order[p]); });
    return square_in_factor(s);
}

}  // namespace small
}  // namespace lsq
SW_END
