// A small system from its start to its answer: an active set (Lawson & Hanson) on the normal
// equations, certified from A. What asks for more care than that is left to the solver for all sizes.
#pragma once

#include "core/nnls/level.hpp"
#include "core/nnls/small/steps.hpp"

SW_BEGIN
namespace nnls {
namespace small {

template <class Kind, class Lanes>
struct Solver : Steps<Kind, Lanes> {
    using Base = Steps<Kind, Lanes>;
    typedef typename Kind::Scalar Scalar;
    using Base::b_norm;
    using Base::count;
    using Base::job;
    using Base::lanes;
    using Base::n;
    using Base::nu;
    using Base::order;
    using Base::passive;
    using Base::size;
    using Base::slack;
    using Base::slope;
    using Base::squared_fit;
    using Base::squared_residual;
    using Base::system;
    using Base::top;
    using Base::w;
    using Base::width;
    using Base::x;

    // With A given, the dual comes from tables until nothing is left to do, and then from A.
    bool from_table = true;
    bool settled = true;    // x is a solution on the columns in the factor, but for rounding
    bool trusting = false;  // with a lambda that is only tried, tables will do
    int at_end = 0, evaluations = 0;
    double missing = 0;                            // of a bound sum, at the start
    double unpenalized = double_nan(), level = 0;  // phi at nu = 0, and what it has to be

    SW_HD Solver(const Job& job, int64_t system, const Products& products, const Lanes& lanes,
                 Store<Kind, width>& store)
        : Base(job, system, products, lanes, store) {}

    // After start(), go_on() as long as it says so, then finish(): threads of a warp, a system each, take
    // their steps together. False of finish(): the solver for all sizes has to see to it.
    SW_HD bool start() {
        const Family& family = job.family;
        if (Kind::penalized && family.rule == rule_given) {
            const double lam = family.lam[system * family.lam_stride];
            nu = lam * lam;
        }
        if (!this->begin()) return false;
        this->passes = 1;
        if constexpr (Kind::summed)
            if (!has_sum()) return false;
        // (Normal equations that are given are often such that little of the guess holds.)
        const bool guesses =
            n <= guessed_columns && Kind::source != normal_equations && !job.warm_values && !job.warm_marks;
        settled = guesses && take_guess();
        if constexpr (Kind::summed) {
            if (!settled && !fill_up()) return false;
            if (!settled && guesses) enter_all();
        } else if (!guesses) {
            take_start();
        }
        settled = settled || count == 0;
        begin_set();
        return true;
    }

    // A dual and a solution, or one of them.
    SW_HD bool go_on() {
        if (!this->on_the_way) {
            const Verdict verdict = judge_point();
            if (verdict == Verdict::look_again) return true;
            if (verdict == Verdict::leave) return false;
            if (verdict == Verdict::optimal) {
                if constexpr (Kind::penalized) {
                    if (job.family.rule != rule_given && next_lambda()) {
                        begin_set();
                        return true;
                    }
                }
                solved = true;
                return false;
            }
        }
        return this->advance(limit);
    }

    SW_HD bool finish() {
        if (!solved) return false;
        if constexpr (Kind::summed) mend_sum();
        if constexpr (sizeof(Scalar) < sizeof(double)) round_answer();
        return is_finite(squared_fit) && answer();
    }

private:
    enum class Verdict { optimal, leave, look_again, step };
    bool solved = false;
    int refinements = 0, looks = 0, limit = 0;
    LevelSearch along;

    SW_HD void begin_set() {
        refinements = looks = 0;
        limit = min_of(job.options.max_solves, this->solves + 5 * n + 50);
    }

    SW_HD Verdict judge_point() {
        // Where nothing can enter, A itself has the next word.
        if (from_table && settled && Kind::shares && !trusting && !~(passive | this->shut))
            from_table = false;
        if (from_table)
            this->dual_from_table();
        else
            this->dual_from_rows();
        const bool nothing_left = top <= slack, steep = slope > slack;
        // Where products have few digits of a pivot, A refines the point whatever the dual says.
        const bool wanted = !settled || (!from_table && refinements == 0 && this->has_weak_pivot());
        const bool refines =
            count > 0 && (wanted || (steep && (nothing_left || slope > 0.1 * top) && refinements < 3));
        double inward = 0;
        int entering = this->none;
        if (refines) {
            ++refinements;
        } else if (nothing_left) {
            if (trusting) return Verdict::optimal;
            const bool at_rest = !steep || (refinements >= 3 && (Kind::source == normal_equations ||
                                                                 (Kind::summed && slope <= 256 * slack)));
            if (!from_table)
                return at_rest && !this->rounding_hides_a_dual() ? Verdict::optimal : Verdict::leave;
            if (at_rest && is_certain()) return Verdict::optimal;
            from_table = false;
            refinements = 0;
            return Verdict::look_again;
        } else {
            // (A dual that is not a number is none of these.)
            if (!(top > slack) || count == Kind::positions || (!from_table && ++looks > 4))
                return Verdict::leave;
            const int j = this->top_column;
            inward = this->at_upper & bit_of(j) ? -1.0 : 1.0;
            if constexpr (!Base::keeps_all) w[j] = inward * top / this->inverse_norm(j, j);
            this->enter(j);
            this->count_insertions();
            refinements = 0;
            entering = j;
        }
        settled = true;
        this->set_out(inward, entering);
        return Verdict::step;
    }

    // Whether the table alone certifies the point.
    SW_HD bool is_certain() {
        if constexpr (Kind::source == normal_equations) return true;
        if constexpr (Kind::source == own_matrix) {
            this->fit_from_table();
            return squared_fit > large_residual * size * size;
        }
        return false;
    }

    // The columns that a start says are between their bounds enter at once, at its values where it has some.
    SW_HD void take_start() {
        const int64_t row = system * job.warm_stride;
        const Scalar* values = job.warm_values ? static_cast<const Scalar*>(job.warm_values) + row : nullptr;
        const uint8_t* marks = job.warm_marks ? job.warm_marks + row : nullptr;
        if (!values && !marks) return;
        for (int j = 0; j < n; ++j) {
            if (!this->is_at_bound(j)) continue;
            const double low = this->lower(j), high = this->upper(j);
            int said = 0;  // -1 at the lower bound, 1 at the upper, 0 between
            double value = x[j];
            if (values) {
                value = this->in_units_of(j, double(values[j]));
                said = !(value > low) ? -1 : !(value < high) ? 1 : 0;
            } else if (job.family.has_states) {
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

    // A first guess of the columns between their bounds: those that the solution without bounds has there.
    // With a bound sum all have to be. True where x is the solution on the columns in the factor then.
    SW_HD bool take_guess() {
        const int before = count;
        const uint64_t at_upper = this->at_upper, passive = this->passive;
        if (!enter_all()) return false;
        const int all = count;
        this->dual_from_table();
        if constexpr (Kind::summed) {
            if (this->go_freely()) return true;
            leave_again(before, passive, at_upper);
            return false;
        }
        this->bend();
        return count == all;
    }

    // Puts all columns at bounds into the factor, unless one nearly depends on the others.
    SW_HD bool enter_all() {
        const int before = count;
        const uint64_t at_upper = this->at_upper, passive = this->passive, out = ~(passive | this->shut);
        SW_ROLLED
        for (uint64_t rest = out; rest && count < Kind::positions; rest &= rest - 1)
            this->enter(lowest_of(rest));
        if (!this->complete_factor(max_of(weak_pivot, smallest_pivot<Kind>(n)))) {
            leave_again(before, passive, at_upper);
            return false;
        }
        this->count_insertions(count - before);
        return true;
    }

    SW_HD void leave_again(int before, uint64_t passive, uint64_t at_upper) {
        this->factored = min_of(this->factored, before);
        this->at_upper = at_upper;
        this->passive = passive;
        count = before;
    }

    // With a bound sum: goes to a point that has it. The columns that lower the residual most are filled, one
    // after the other; the last is in the factor then.
    SW_HD bool fill_up() {
        if (count > 0) return true;  // columns without bounds take what is missing
        double rest = missing;
        this->dual_from_table();
        SW_ROLLED
        for (uint64_t tried = 0;;) {
            int best = -1;
            double most = -double_infinity;
            SW_ROLLED
            for (int j = 0; j < n; ++j) {
                if (!this->is_at_bound(j) || (tried & bit_of(j))) continue;
                const double value = value_of_filling(j, rest);
                if (value > most) {
                    most = value;
                    best = j;
                }
            }
            if (best < 0) return false;
            const double s = this->coefficient(best), far = other_bound(best), whole = x[best] + rest / s;
            if (rest > 0 ? whole < far : rest < 0 ? whole > far : true) {
                this->set_x(best, whole);
                this->enter(best);
                this->count_insertions();
                return true;
            }
            tried |= bit_of(best);
            rest -= s * (far - x[best]);
            this->set_x(best, far);
            this->at_upper ^= bit_of(best);
        }
    }

    // Whether some x within the bounds has the sum that is asked for, and how far x is from it.
    SW_HD bool has_sum() {
        const Family& family = job.family;
        const double low = family.sum_low[system * family.sum_stride],
                     high = family.sum_high[system * family.sum_stride];
        this->wanted = missing = is_finite(high) ? high : is_finite(low) ? low : 0.0;
        double lowest = 0, highest = 0, around = absolute(this->wanted);
        SW_ROLLED
        for (int j = 0; j < n; ++j) {
            if (this->is_masked(j)) continue;
            const double s = this->coefficient(j), at = x[j];
            missing -= s * at;
            this->least_sum += s * at;
            around += s * absolute(at);
            if (!this->is_at_bound(j)) continue;
            lowest += s * (this->at_upper & bit_of(j) ? this->lower(j) - at : 0.0);
            highest += s * (this->at_upper & bit_of(j) ? 0.0 : this->upper(j) - at);
        }
        if (count > 0) return true;
        const double room = 8 * double_epsilon * around;
        this->drops_upper = lowest == 0;
        return lowest <= missing + room && highest >= missing - room;
    }

    SW_HD double other_bound(int j) const {
        return this->at_upper & bit_of(j) ? this->lower(j) : this->upper(j);
    }

    // How much less the squared residual is with column j filled as far as it can be; w has no multiplier.
    SW_HD double value_of_filling(int j, double rest) const {
        const double s = this->coefficient(j), by = other_bound(j) - x[j];
        if (!(s > 0) || (rest > 0 ? !(by > 0) : rest < 0 ? !(by < 0) : false)) return -double_infinity;
        const double d = rest > 0 ? min_of(by, rest / s) : rest < 0 ? max_of(by, rest / s) : 0.0;
        return d == 0 ? (by < 0 ? -w[j] : w[j]) : d * (2 * w[j] - d * this->square(j));
    }

    // The sum of x is what it has to be, but for one rounding: the x with the most room takes what is
    // missing.
    SW_HD void mend_sum() {
        double rest = this->wanted, highest = -1;
        int where = -1;
        SW_ROLLED
        for (int j = 0; j < n; ++j) {
            const double s = this->coefficient(j);
            if (!this->is_masked(j)) rest -= s * x[j];
            if (!(passive & bit_of(j))) continue;
            const double room = min_of(this->upper(j) - x[j], x[j] - this->lower(j)) * s;
            if (room > highest) {
                highest = room;
                where = j;
            }
        }
        if (where >= 0 && rest != 0 && highest > absolute(rest))
            this->set_x(where, x[where] + rest / this->coefficient(where));
    }

    // phi = T, with T a multiple of phi at nu = 0, or what the noise makes of it. False where there is no
    // other lambda to solve with; the last is solved with twice, the second time from A.
    SW_HD bool next_lambda() {
        const Family& family = job.family;
        if (evaluations > 0 && !trusting) return false;
        if (evaluations == 0) {
            unpenalized = squared_fit;
            level = family.chi2 * unpenalized;
            if (family.rule == rule_discrepancy) {
                const double noise = family.noise[system * family.noise_stride];
                level = job.rows * noise * noise;
            }
            const double rounding = job.options.rounding * b_norm;
            if (!(level > unpenalized) || unpenalized <= rounding * rounding || count == 0) {
                at_end = -1;
                return false;
            }
            const double unit = trace_ratio(), q = curvature_of_path();
            along = LevelSearch(unit, max_of(0.5 * logarithm(q > 0 ? (level - unpenalized) / q : unit),
                                             logarithm(1e-7 * unit)));
            trusting = true;
        } else {
            squared_fit = this->template residual_of_rows<false>(true);
            const double missing = level - unpenalized;
            const bool met = absolute(squared_fit - level) <= LevelSearch::tolerance * missing;
            if (met || evaluations == LevelSearch::max_steps ||
                !along.next(squared_fit - unpenalized, 2 * nu * nu * curvature_of_path(), missing)) {
                at_end = met ? 0 : along.at_end;
                trusting = false;
                return true;
            }
        }
        ++evaluations;
        nu = exponential(along.s);
        this->find_norms();
        if constexpr (Lanes::has_sweeps) this->gates.stale = true;
        this->factored = 0;
        settled = count == 0;
        from_table = true;
        return true;
    }

    // tr A'A / tr L'L over the columns that take part: where both terms count alike.
    SW_HD double trace_ratio() const {
        double a = 0, l = 0;
        this->each_column([&](int j, int) {
            const double scale = this->scale(j);
            if (this->is_masked(j) || !(scale > 0)) return;
            if (this->shut & bit_of(j) && Kind::bounded) return;
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

    // The residual and the dual that are reported belong to the x that is returned.
    SW_HD void round_answer() {
        this->each_position(count, [&](int p, int) {
            const int j = order[p];
            const double scale = this->scale(j);
            x[j] = double(Scalar(x[j] * scale)) / scale;
        });
        lanes.sync();
        if (from_table) {
            this->dual_from_table();
            if constexpr (Kind::source == own_matrix) this->fit_from_table();
        } else {
            this->dual_from_rows();
        }
    }

    // False where x is beyond the largest number of its kind.
    SW_HD bool answer() {
        if (!write_vectors()) return false;
        const double room = is_relative_to_b(job.family) ? b_norm : size;
        if (lanes.lane() == 0) {
            job.residual[system] = square_root(squared_fit);
            job.violation[system] = room > 0 ? max_of(top, slope) / room : 0.0;
            job.status[system] = converged;
            job.insertions[system] = this->insertions;
            job.removals[system] = this->removals;
            job.solves[system] = this->solves;
            job.passes[system] = this->passes;
            job.escalated[system] = 0;
            SW_UNROLL
            for (int k = 0; k < 4; ++k) job.costs[4 * system + k] = this->costs[k];
        }
        if (job.family.general) write_more();
        return true;
    }

    // False where not all of x is finite.
    SW_HD bool write_vectors() {
        const int64_t row = system * job.columns;
        Scalar *out = static_cast<Scalar*>(job.x) + row, *dual = static_cast<Scalar*>(job.dual) + row;
        const Family& family = job.family;
        bool odd = false;
        this->each_column([&](int j, int) {
            if (j >= job.columns) return;
            const bool is_passive = passive & bit_of(j), masked = this->is_masked(j);
            const double scale = this->scale(j);
            double value = x[j] * scale;
            int state = is_passive ? 0 : -1;
            if constexpr (Kind::bounded) {
                const double low = this->given_bound(j, false), high = this->given_bound(j, true);
                const bool up = this->at_upper & bit_of(j), is_free = !is_finite(low) && !is_finite(high);
                if (is_passive)
                    value = clamp_to(value, low, high);
                else
                    value = masked || is_free ? 0.0 : up ? high : low;
                if (!is_passive) state = masked || low == high ? 2 : is_free ? 0 : up ? 1 : -1;
            } else if (masked) {
                state = 2;
            }
            out[j] = Scalar(value);
            dual[j] = Scalar(scale > 0 ? w[j] / scale : 0.0);
            job.active[row + j] = is_passive;
            if (family.general) family.state[row + j] = static_cast<int8_t>(state);
            odd = odd || !is_finite(double(Scalar(value)));
        });
        lanes.sync();
        return !lanes.any(odd);
    }

    SW_HD void write_more() {
        const Family& family = job.family;
        const int given = job.columns;
        const Scalar* out = static_cast<const Scalar*>(job.x) + system * given;
        double missed = 0, seminorm = 0;
        if constexpr (Kind::summed) {
            double sum = 0;
            SW_ROLLED
            for (int j = 0; j < given; ++j)
                sum += (family.coefficients ? family.coefficients[j] : 1.0) * double(out[j]);
            const double low = family.sum_low[system * family.sum_stride],
                         high = family.sum_high[system * family.sum_stride];
            missed = max_of(0.0, max_of(low - sum, sum - high));
        }
        if constexpr (Kind::penalized) {
            SW_ROLLED
            for (int i = lanes.lane(); i < family.penalty_rows; i += width) {
                double entry = 0;
                if (family.penalty)
                    for (int j = 0; j < given; ++j)
                        entry += family.penalty[static_cast<int64_t>(i) * given + j] * double(out[j]);
                else
                    entry = out[i];
                seminorm += entry * entry;
            }
            seminorm = lanes.sum(seminorm);
        }
        if (lanes.lane() == 0) {
            family.multiplier[system] = this->multiplier;
            family.equality_error[system] = missed;
            family.used_lam[system] = square_root(nu);
            family.fit[system] = squared_fit;
            family.seminorm[system] = square_root(seminorm);
            family.unpenalized[system] = unpenalized;
            family.at_end[system] = at_end;
            family.evaluations[system] = evaluations;
            family.passive[system] = count - Kind::summed;
        }
        if (!family.variance) return;
        double* variance = family.variance + system * given;
        this->each_column([&](int j, int) {
            if (j < given && !(passive & bit_of(j))) variance[j] = 0;
        });
        SW_ROLLED
        for (int p = 0; p < count; ++p) {
            const int j = order[p];
            const double scale = this->scale(j), square = this->variance_at(p);
            if (j < given && lanes.lane() == 0) variance[j] = square * scale * scale;
        }
    }
};

}  // namespace small
}  // namespace nnls
SW_END
