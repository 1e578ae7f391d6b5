// lambda of a small system by a level of its fit: the search of level.hpp, each lambda tried with tables
// alone.
#pragma once

#include "core/lsq/level.hpp"
#include "core/lsq/small/answer.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// A search for lambda, where there may be one: else nothing that a system would begin with.
template <bool penalized>
struct Searching {
    LevelSearch along;
};
template <>
struct Searching<false> {};
template <class Kind, class Lanes>
struct Search : Answer<Kind, Lanes>, private Searching<Kind::penalized> {
    using Base = Answer<Kind, Lanes>;
    using Base::at_end;
    using Base::b_norm;
    using Base::count;
    using Base::evaluations;
    using Base::from_table;
    using Base::job;
    using Base::lanes;
    using Base::nu;
    using Base::order;
    using Base::squared_fit;
    using Base::system;
    using Base::unpenalized;

    bool settled = true;    // x is a solution on the columns in the factor, but for rounding
    bool trusting = false;  // with a lambda that is only tried, tables will do
    double level = 0;       // what phi has to be
    bool unfit = false;     // squares are beyond the range of numbers

    SW_HD Search(const Job& job, int64_t system, const Products& products, const Lanes& lanes,
                 Store<Kind, Lanes::width>& store)
        : Base(job, system, products, lanes, store) {}

protected:
    // phi = T, with T a multiple of phi at nu = 0, or what the noise makes of it. False where there is no
    // other lambda to solve with; the last is solved with twice, the second time from A.
    SW_HD bool next_lambda() {
        const Constraints& constraints = job.constraints;
        if (evaluations > 0 && !trusting) return false;
        if (evaluations == 0) {
            unpenalized = squared_fit;
            level = constraints.chi2 * unpenalized;
            if (constraints.rule == rule_discrepancy) {
                const double noise = constraints.noise[system * constraints.noise_stride];
                level = min_of(job.rows * noise * noise, LevelSearch::highest);
            }
            const double rounding = job.options.rounding * b_norm;
            // (Of a fit to rounding a factor is one of rounding; noise that is given is not.)
            const bool nothing_left = constraints.rule == rule_chi2 && unpenalized <= rounding * rounding;
            const bool is_zero = count == 0 && !this->nonzero;
            if (!(level > unpenalized) || nothing_left || is_zero) {
                at_end = -1;
                return false;
            }
            unfit = has_false_level();
            if (unfit) return false;
            const double unit = trace_ratio(), q = curvature_of_path();
            if (!(unit > 1e-250 && unit < 1e250)) {  // squares beyond the range of numbers
                unfit = true;
                return false;
            }
            this->along = LevelSearch(unit, max_of(0.5 * logarithm(q > 0 ? (level - unpenalized) / q : unit),
                                                   logarithm(1e-7 * unit)));
            trusting = true;
        } else {
            squared_fit = this->template residual_of_rows<false>(true);
            const double missing = level - unpenalized;
            // (The fit without lambda was not the least then.)
            unfit =
                constraints.rule == rule_chi2 && squared_fit < unpenalized - LevelSearch::tolerance * missing;
            if (unfit) return false;
            const bool met = absolute(squared_fit - level) <= LevelSearch::tolerance * missing;
            if (met || evaluations == LevelSearch::max_steps ||
                !this->along.next(squared_fit - unpenalized, 2 * nu * nu * curvature_of_path(), missing)) {
                at_end = met ? 0 : this->along.at_end;
                trusting = false;
                find_norms_again();
                return true;
            }
        }
        ++evaluations;
        nu = exponential(this->along.s);
        this->factored = 0;
        settled = count == 0;
        from_table = true;
        return true;
    }

    // Whether a level that was found with tables is missed by what A made of the point, or none was looked
    // for.
    SW_HD bool misses_level() const {
        if (unfit) return true;
        if (evaluations == 0 || at_end != 0) return false;
        return absolute(squared_fit - level) > 10 * LevelSearch::tolerance * (level - unpenalized);
    }

    // Whether the fit without lambda, which makes a level, may not be the least.
    SW_HD bool has_false_level() {
        if (this->is_beyond_far_bounds()) return true;
        if (job.constraints.rule != rule_chi2 || !this->has_weak_pivot()) return false;
        const double off = this->doubtful_decrement();
        return off * off > LevelSearch::tolerance * (level - unpenalized);
    }

    // (Where lambda is only tried those without it will do.)
    SW_HD void find_norms_again() {
        this->find_norms();
        this->has_norms = false;
    }

    // tr A'A / tr L'L over the columns that take part: where both terms count alike.
    SW_HD double trace_ratio() const {
        double a = 0, l = 0;
        this->each_column([&](int j, int) {
            const double scale = this->scale(j);
            if (this->is_masked(j) || !(scale > 0)) return;
            if (this->excluded & bit_of(j) && Kind::bounded) return;
            a += this->gram(j, j) / (scale * scale);
            l += this->penalty(j, j) / (scale * scale);
        });
        a = lanes.sum(a);
        l = lanes.sum(l);
        return a > 0 && l > 0 ? a / l : 1.0;
    }

    // q of search.hpp: (L'L x)_P' B^-1 (L'L x)_P
    SW_HD double curvature_of_path() {
        if (!this->complete_factor()) return 0;
        this->each_position(count, [&](int p, int t) { this->step[t] = this->penalty_product(order[p]); });
        return this->square_in_factor();
    }
};

}  // namespace small
}  // namespace lsq
SW_END
