// A small system from its start to its answer: an active set (Lawson & Hanson) on the normal
// equations, certified from A. What asks for more care than that is left to the solver for all sizes.
#pragma once

#include "core/lsq/small/search.hpp"

SW_BEGIN
namespace lsq {
namespace small {

template <class Kind, class Lanes>
struct Solver : Search<Kind, Lanes> {
    using Base = Search<Kind, Lanes>;
    using Base::count;
    using Base::from_table;
    using Base::in_factor;
    using Base::job;
    using Base::lanes;
    using Base::n;
    using Base::nu;
    using Base::numbers;
    using Base::settled;
    using Base::size;
    using Base::slack;
    using Base::slope;
    using Base::squared_fit;
    using Base::system;
    using Base::top;
    using Base::trusting;
    using Base::w;
    using Base::width;
    using Base::x;

    SW_HD Solver(const Job& job, int64_t system, const Products& products, const Lanes& lanes,
                 Store<Kind, width>& store)
        : Base(job, system, products, lanes, store) {}

    // After begin(), iterate() as long as it says so, then certify(): threads of a warp, a system each, take
    // their steps together. False of certify(): the solver for all sizes has to see to it.
    SW_HD bool begin() {
        const Constraints& constraints = job.constraints;
        if (Kind::penalized && constraints.rule == rule_given) {
            const double lam = constraints.lam[system * constraints.lam_stride];
            nu = lam * lam;
        }
        if (!this->read()) return false;
        this->passes = 1;
        if constexpr (Kind::summed)
            if (!this->has_sum()) return false;
        // (Normal equations that are given are often such that little of the guess holds.)
        const bool guesses =
            n <= guessed_columns && Kind::source != normal_equations && !job.warm_values && !job.warm_marks;
        settled = guesses && take_guess();
        if constexpr (Kind::summed) {
            if (!settled && !(projects && count > 0)) {
                if (!this->fill_up()) return false;
                if (guesses) enter_all();
            }
        } else if (!guesses) {
            take_start();
        }
        settled = settled || count == 0;
        begin_set();
        return true;
    }

    // A dual and a solution, or one of them.
    SW_HD bool iterate() {
        if (--turns_left < 0) return false;
        if (!this->on_the_way) {
            const Verdict verdict = judge_point();
            if (verdict == Verdict::recompute_from_A) return true;
            if (verdict == Verdict::hand_over) return false;
            if (verdict == Verdict::optimal) {
                if constexpr (Kind::penalized) {
                    if (job.constraints.rule != rule_given && this->next_lambda()) {
                        begin_set();
                        return true;
                    }
                    if (this->misses_level()) return false;
                }
                solved = true;
                return false;
            }
        }
        return this->advance(limit);
    }

    // For a host's thread, before there are guesses: false where there are none with this matrix. Then it is
    // counted what a system takes that one of them solves.
    SW_HD bool keep_inverse_of_all() {
        static_assert(Base::sweeps_signs);
        if constexpr (Base::keeps_sum)
            if (!(this->products.sum->weight > 0)) this->keep_sum(*this->products.sum);
        this->excluded = ~(bit_of(n) - 1);
        if ((Base::keeps_sum ? this->products.sum->nothing : this->products.nothing) || !enter_all())
            return false;
        this->solves = this->passes = 1;
        return true;
    }

    SW_HD bool certify() {
        if (!solved) return false;
        if constexpr (Kind::summed)
            if (!this->mend_sum()) return false;
        if (numbers.rounds) this->round_answer();
        return is_finite(squared_fit) && this->answer();
    }

private:
    enum class Verdict { optimal, hand_over, recompute_from_A, step };
    bool solved = false;
    int refinements = 0, looks = 0, limit = 0;
    int turns_left = 0;  // with this lambda: few of them solve nothing
    // Projected steps that there may be; after them every step ends where a bound is met, so that nothing
    // goes to and fro.
    int projections_left = 0;

    SW_HD void begin_set() {
        refinements = looks = 0;
        projections_left = 6;
        limit = min_of(job.options.max_solves, this->solves + 5 * n + 50);
        turns_left = 2 * (limit - this->solves) + max_idle_turns;
    }

    SW_HD Verdict judge_point() {
        // (The step after a projected one is none of refinement.)
        bool was_projected = false;
        if constexpr (Lanes::has_sweeps) {
            if (this->was_projected) {
                was_projected = true;
                settled = this->was_projected = false;
                --projections_left;
            }
        }
        // Where nothing can enter, and tables are not enough, A itself has the next word.
        if (from_table && settled && Kind::shares && !Base::certifies && !trusting && !this->out_of_factor())
            from_table = false;
        // (All threads of a warp judge: few of them would be ready to leave it out.)
        if (Lanes::has_sweeps && from_table && !settled && count > 0) {
            this->template dual_from_table<false>();
            refinements += !was_projected;
            settled = true;
            this->set_out(0, this->none);
            return Verdict::step;
        }
        if (!from_table)
            this->dual_from_rows();
        else
            this->dual_from_table();
        const bool nothing_left = top <= slack, steep = slope > slack;
        // Where products have few digits of a pivot, A refines the point whatever the dual says.
        const bool wanted = !settled || (!from_table && this->has_weak_pivot(refinements));
        const bool refines =
            count > 0 && (wanted || (steep && (nothing_left || slope > 0.1 * top) && refinements < 3));
        double inward = 0;
        uint64_t entering = this->none;
        if (refines) {
            refinements += !was_projected;
        } else if (nothing_left) {
            if (trusting) return Verdict::optimal;
            const bool at_rest = !steep || (refinements >= 3 && (Kind::source == normal_equations ||
                                                                 (Kind::summed && slope <= 256 * slack)));
            if (!from_table)
                return at_rest && !this->rounding_hides_a_dual() ? Verdict::optimal : Verdict::hand_over;
            if (at_rest && is_certain()) return Verdict::optimal;
            from_table = false;
            refinements = 0;
            return Verdict::recompute_from_A;
        } else {
            // (A dual that is not a number is none of these.)
            if (!(top > slack) || count == Kind::positions || (!from_table && ++looks > 4))
                return Verdict::hand_over;
            uint64_t columns = this->none;
            if constexpr (Lanes::has_sweeps && !Kind::summed) columns = damped_columns_at_peaks();
            if (columns) {
                entering = columns;
                this->enter_some(columns);
                this->count_insertions(bits_in(columns));
                this->may_project = projections_left > 0;
            } else {
                const int j = this->find_top_column();
                inward = this->at_upper & bit_of(j) ? -1.0 : 1.0;
                if constexpr (!Base::keeps_all) w[j] = inward * top / this->inverse_norm(j, j);
                this->enter(j);
                entering = bit_of(j);
                this->count_insertions(1);
            }
            refinements = 0;
        }
        settled = true;
        this->set_out(inward, entering);
        return Verdict::step;
    }

    // Whether what is added to its square keeps column j apart from columns like it.
    SW_HD bool is_damped(int j) const {
        double added = 0;
        if constexpr (Kind::penalized) {
            added = nu * this->penalty(j, j);
        } else if constexpr (!Kind::bounded) {
            const double damping = job.options.damping * this->scale(j);
            added = damping * damping;
        }
        return added > 1e-7 * this->square(j);
    }

    // Where columns are damped, many enter at once: those whose scores are not less than those of the columns
    // beside them, and those beside one of these or beside one in the factor, as columns that are alike
    // come in clusters; all with scores of some size. (What then has to go the other way leaves at once, and
    // the way down is as sure as with one: their duals all point inward.) None where one of the first is not
    // damped, or where there is no room for all.
    SW_HD uint64_t damped_columns_at_peaks() {
        if (!(Kind::penalized ? nu > 0 : job.options.damping > 0)) return 0;
        const auto found = lanes.find_peaks(max_of(0.05 * top, slack), this->scores, this->swept());
        for (uint64_t rest = found.peaks; rest; rest &= rest - 1)
            if (!is_damped(lowest_of(rest))) return 0;
        const uint64_t near = in_factor | found.peaks,
                       columns = found.above & (found.peaks | near << 1 | near >> 1);
        return count + bits_in(columns) <= Kind::positions ? columns : 0;
    }

    // Whether the table alone certifies the point.
    SW_HD bool is_certain() {
        if constexpr (Kind::source == normal_equations) return true;
        if constexpr (Base::certifies) {
            this->fit_from_table();
            if (!is_large(squared_fit, size) && !has_duals_of_small_fit()) return false;
            if (this->rounding_hides_a_dual() || this->has_weak_pivot()) return false;
            if (!numbers.rounds) this->finish_fit();  // (of others when x is rounded)
            return true;
        }
        return false;
    }

    SW_HD bool has_duals_of_small_fit() const {
        if constexpr (Kind::shares && Lanes::has_sweeps && !Kind::bounded)
            return job.options.damping > 0 && squared_fit > judged_residual * size * size;
        return false;
    }

    // The columns that a start says are between their bounds enter at once, at its values where it has some.
    SW_HD void take_start() {
        const int64_t row = system * job.warm_stride;
        const void* values = job.warm_values ? numbers.after(job.warm_values, row) : nullptr;
        const uint8_t* marks = job.warm_marks ? job.warm_marks + row : nullptr;
        if (!values && !marks) return;
        for (int j = 0; j < n; ++j) {
            if (!this->is_at_bound(j)) continue;
            const double low = this->lower(j), high = this->upper(j);
            int said = 0;  // -1 at the lower bound, 1 at the upper, 0 between
            double value = x[j];
            if (values) {
                value = this->in_units_of(j, numbers.read(values, j));
                said = !(value > low) ? -1 : !(value < high) ? 1 : 0;
            } else if (job.constraints.has_states) {
                said = static_cast<int8_t>(marks[j]) == 2 ? -1 : static_cast<int8_t>(marks[j]);
            } else {
                said = marks[j] ? 0 : -1;
            }
            if (said == 0 && count < Kind::positions) {
                this->set_x(j, value);
                this->enter(j);
                this->count_insertions();
            } else if (said != 0 && is_finite(said > 0 ? high : low)) {
                this->set_x(j, said > 0 ? high : low);
                this->at_upper = said > 0 ? this->at_upper | bit_of(j) : this->at_upper & ~bit_of(j);
            }
        }
    }

    // Whether a guess may keep some of the columns alone. (It misses a bound sum then, until all of a step is
    // taken.)
    static constexpr bool projects = !Kind::summed || !Kind::bounded;

    // A first guess of the columns between their bounds: those that the solution without bounds has there.
    // True where x is the solution on the columns in the factor then.
    SW_HD bool take_guess() {
        const int before = count;
        const uint64_t at_upper = this->at_upper, in_factor = this->in_factor;
        if (!enter_all()) return false;
        const int all = count;
        if constexpr (Base::sweeps_signs) {
            if (this->products.guess && this->products.guess->is_positive) {
                ++this->solves;
                this->nonzero = this->in_factor;
                return true;
            }
        }
        if (!Base::sweeps_signs || !this->products.guess) this->template dual_from_table<false>();
        if constexpr (!projects) {
            if (this->go_freely()) return true;
            leave_again(before, in_factor, at_upper);
            return false;
        }
        this->projected_step();
        return count == all;
    }

    // Puts all columns at bounds into the factor, unless one nearly depends on the others.
    SW_HD bool enter_all() {
        const int before = count;
        const uint64_t at_upper = this->at_upper, in_factor = this->in_factor;
        this->enter_some(this->out_of_factor());
        if (!this->complete_factor(max_of(near_pivot, smallest_pivot<Kind>(n)))) {
            leave_again(before, in_factor, at_upper);
            return false;
        }
        this->count_insertions(count - before);
        return true;
    }

    SW_HD void leave_again(int before, uint64_t in_factor, uint64_t at_upper) {
        this->factored = min_of(this->factored, before);
        this->at_upper = at_upper;
        this->in_factor = in_factor;
        count = before;
    }
};

}  // namespace small
}  // namespace lsq
SW_END
