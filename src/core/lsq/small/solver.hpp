// A small system from its start to its answer: an active set (Lawson & Hanson) on the normal equations,
// certified from A. P are the columns in the factor, w = A'(b - Ax) is the dual. What asks for more care is
// handed over to the solver for all sizes (active_set.hpp), here by `false`.
//
//   begin         what is given (start.hpp); x has a bound sum (sums.hpp); P is that of a start, or a guess
//                 (guess.hpp)
//   iterate       as long as it says so:
//     judge       w from the tables, or from A      w on P not zero?      refine                -> advance
//     _point      (dual.hpp)                        w outside P > slack?  the top column, or    -> advance
//                                                                         many that are damped
//                 nothing left to do: tables alone  certain? the point                          -> optimal
//                                                   else                  the dual from A       -> iterate
//                                     from A        certified                                   -> optimal
//                                                   else                                        -> hand over
//     advance     the solution on P; x goes there, and what meets a bound leaves P (steps.hpp)  -> iterate
//     optimal     another lambda to try (search.hpp)?                                           -> iterate
//   certify       the sum is mended, x rounded to the caller's numbers, judged, written (answer.hpp)
#pragma once

#include "core/lsq/small/guess.hpp"
#include "core/lsq/small/search.hpp"
#include "core/lsq/small/sums.hpp"

SW_BEGIN
namespace lsq {
namespace small {

// What comes of the judgement of a point.
enum class Verdict { optimal, hand_over, recompute_from_A, step };

// After begin(), iterate() as long as it says so, then certify(): threads of a warp, a system each, take
// their steps together. False of certify(): the solver for all sizes has to see to it.
template <class State>
SW_HD bool begin(State& s) {
    const Constraints& constraints = s.job.constraints;
    if (State::penalized && constraints.rule == rule_given) {
        const double lam = constraints.lam[s.system * constraints.lam_stride];
        s.nu = lam * lam;
    }
    if (!read(s)) return false;
    s.counts.passes = 1;
    if constexpr (State::summed)
        if (!has_sum(s)) return false;
    // (Normal equations that are given are often such that little of the guess holds.)
    const bool guesses = s.n <= guessed_columns && State::source != normal_equations && !s.job.warm_values &&
                         !s.job.warm_marks;
    s.settled = guesses && take_guess(s);
    if constexpr (State::summed) {
        if (!s.settled && !(State::projects && s.count > 0)) {
            if (!fill_up(s)) return false;
            if (guesses) enter_all(s);
        }
    } else if (!guesses) {
        take_start(s);
    }
    s.settled = s.settled || s.count == 0;
    begin_set(s);
    return true;
}

// For a host's thread, before there are guesses: false where there are none with this matrix. Then it is
// counted what a system takes that one of them solves.
template <class State>
SW_HD bool keep_inverse_of_all(State& s) {
    static_assert(State::sweeps_signs);
    if constexpr (State::keeps_sum)
        if (!(s.products.sum->weight > 0)) keep_sum(s, *s.products.sum);
    s.excluded = ~(bit_of(s.n) - 1);
    if ((State::keeps_sum ? s.products.sum->nothing : s.products.nothing) || !enter_all(s)) return false;
    s.counts.solves = s.counts.passes = 1;
    return true;
}

template <class State>
SW_HD void begin_set(State& s) {
    s.refinements = s.looks = 0;
    s.projections_left = 6;
    s.limit = min_of(s.job.options.max_solves, s.counts.solves + 5 * s.n + 50);
    s.turns_left = 2 * (s.limit - s.counts.solves) + max_idle_turns;
}

// A dual and a solution, or one of them.
template <class State>
SW_HD bool iterate(State& s) {
    if (--s.turns_left < 0) return false;
    if (!s.in_progress.open) {
        const Verdict verdict = judge_point(s);
        if (verdict == Verdict::recompute_from_A) return true;
        if (verdict == Verdict::hand_over) return false;
        if (verdict == Verdict::optimal) {
            if constexpr (State::penalized) {
                if (s.job.constraints.rule != rule_given && next_lambda(s)) {
                    begin_set(s);
                    return true;
                }
                if (misses_level(s)) return false;
            }
            s.solved = true;
            return false;
        }
    }
    return advance(s, s.limit);
}

template <class State>
SW_HD bool certify(State& s) {
    if (!s.solved) return false;
    if constexpr (State::summed)
        if (!mend_sum(s)) return false;
    if (s.numbers.rounds) round_answer(s);
    return is_finite(s.squared_fit) && answer(s);
}

template <class State>
SW_HD Verdict judge_point(State& s) {
    // (The step after a projected one is none of refinement.)
    bool was_projected = false;
    if constexpr (State::has_sweeps) {
        if (s.was_projected) {
            was_projected = true;
            s.settled = s.was_projected = false;
            --s.projections_left;
        }
    }
    // Where nothing can enter, and tables are not enough, A itself has the next word.
    if (s.from_table && s.settled && State::shares && !State::certifies && !s.trusting && !s.out_of_factor())
        s.from_table = false;
    // (All threads of a warp judge: few of them would be ready to leave it out.)
    if (State::has_sweeps && s.from_table && !s.settled && s.count > 0) {
        dual_from_table<false>(s);
        s.refinements += !was_projected;
        s.settled = true;
        s.in_progress = {true};
        return Verdict::step;
    }
    if (!s.from_table)
        dual_from_rows(s);
    else
        dual_from_table(s);
    const bool nothing_left = s.top <= s.slack, steep = s.slope > s.slack;
    // Where products have few digits of a pivot, A refines the point whatever the dual says.
    const bool wanted = !s.settled || (!s.from_table && has_weak_pivot(s, s.refinements));
    const bool refines =
        s.count > 0 && (wanted || (steep && (nothing_left || s.slope > 0.1 * s.top) && s.refinements < 3));
    double inward = 0;
    uint64_t entering = no_columns;
    if (refines) {
        s.refinements += !was_projected;
    } else if (nothing_left) {
        if (s.trusting) return Verdict::optimal;
        const bool at_rest = !steep || (s.refinements >= 3 && (State::source == normal_equations ||
                                                               (State::summed && s.slope <= 256 * s.slack)));
        if (!s.from_table)
            return at_rest && !rounding_hides_a_dual(s) ? Verdict::optimal : Verdict::hand_over;
        if (at_rest && is_certain(s)) return Verdict::optimal;
        s.from_table = false;
        s.refinements = 0;
        return Verdict::recompute_from_A;
    } else {
        // (A dual that is not a number is none of these.)
        if (!(s.top > s.slack) || s.count == State::positions || (!s.from_table && ++s.looks > 4))
            return Verdict::hand_over;
        uint64_t columns = no_columns;
        if constexpr (State::has_sweeps && !State::summed) columns = damped_columns_at_peaks(s);
        if (columns) {
            entering = columns;
            enter_some(s, columns);
            count_insertions(s, bits_in(columns));
            s.may_project = s.projections_left > 0;
        } else {
            const int j = find_top_column(s);
            inward = s.at_upper & bit_of(j) ? -1.0 : 1.0;
            if constexpr (!State::keeps_all) s.w[j] = inward * s.top / s.inverse_norm(j, j);
            enter(s, j);
            entering = bit_of(j);
            count_insertions(s, 1);
        }
        s.refinements = 0;
    }
    s.settled = true;
    s.in_progress = {true, 1, inward, entering};
    return Verdict::step;
}

// Whether the table alone certifies the point.
template <class State>
SW_HD bool is_certain(State& s) {
    if constexpr (State::source == normal_equations) return true;
    if constexpr (State::certifies) {
        fit_from_table(s);
        if (!has_large_fit(s) && !has_duals_of_small_fit(s)) return false;
        if (rounding_hides_a_dual(s) || has_weak_pivot(s)) return false;
        if (!s.numbers.rounds) finish_fit(s);  // (of others when x is rounded)
        return true;
    }
    return false;
}

template <class State>
SW_HD bool has_duals_of_small_fit(const State& s) {
    if constexpr (State::shares && State::has_sweeps && !State::bounded)
        return s.job.options.damping > 0 && s.squared_fit > judged_residual * s.size * s.size;
    return false;
}

// Where columns are damped, many enter at once: those whose scores are not less than those of the columns
// beside them, and those beside one of these or beside one in the factor, as columns that are alike
// come in clusters; all with scores of some size. (What then has to go the other way leaves at once, and
// the way down is as sure as with one: their duals all point inward.) None where one of the first is not
// damped, or where there is no room for all.
template <class State>
SW_HD uint64_t damped_columns_at_peaks(State& s) {
    if (!(State::penalized ? s.nu > 0 : s.job.options.damping > 0)) return 0;
    const auto found = s.lanes.find_peaks(max_of(0.05 * s.top, s.slack), s.scores, s.swept());
    for (uint64_t rest = found.peaks; rest; rest &= rest - 1)
        if (!is_damped(s, lowest_of(rest))) return 0;
    const uint64_t near = s.in_factor | found.peaks,
                   columns = found.above & (found.peaks | near << 1 | near >> 1);
    return s.count + bits_in(columns) <= State::positions ? columns : 0;
}

// Whether what is added to its square keeps column j apart from columns like it.
template <class State>
SW_HD bool is_damped(const State& s, int j) {
    double added = 0;
    if constexpr (State::penalized) {
        added = s.nu * s.penalty(j, j);
    } else if constexpr (!State::bounded) {
        const double damping = s.job.options.damping * s.scale(j);
        added = damping * damping;
    }
    return added > 1e-7 * s.square(j);
}

}  // namespace small
}  // namespace lsq
SW_END
