// The quasi-Newton iteration. A sweep over the variables leaves sums, a decision turns them into the next
// action:
//
//   x = start within the bounds
//   evaluate   f, g at the trial point                                             the caller
//              slope g·d                      decide_slope: the line search (line_search.hpp) goes on ->
//              step,
//                                             accepts the point -> absorb, or fails -> aim along -h g, or
//                                             done
//   absorb     x, g = the trial point; s, y; products of all pairs; which variables are held
//                                             decide_absorb: take the pair; stop? -> done; K, K - G and their
//                                             factors (compact.hpp); if no bound is met before the minimiser
//                                             of the first segment of the Cauchy path -> aim
//   list_breaks, count_breaks, sum_ties       decide_list, decide_count, decide_ties: the exact Cauchy point,
//              breakpoints of the path        from breakpoint to breakpoint (cauchy_walk.hpp) -> regather
//   regather   products over the variables that stay free
//                                             decide_regather: the subspace step with the others carried to
//                                             their bounds -> aim
//   aim        d from history and coefficients, put inside the bounds; trial point x + d
//                                             decide_aim: descends? first step -> evaluate, or step if it is
//                                             not 1; else -> aim again, truncated at the first bound, or
//                                             without the history
//   step       trial point x + step d         -> evaluate
//
// An iteration is absorb, aim and the evaluations of one line search; walks and regather are rare. Every
// phase hands over its totals (totals.hpp) before anything is decided.
#pragma once

#include "core/quasi_newton/decide_model.hpp"

SW_BEGIN

// Goes from action to action until f and g are wanted or the run is over. A target has action(), and for each
// action a function of that name, which sweeps and decides; one without bounds is never asked to walk.
template <class Target>
SW_HD void run_actions(Target& target) {
    while (true) {
        switch (target.action()) {
            case Action::evaluate:
            case Action::done:
                return;
            case Action::absorb:
                target.absorb();
                break;
            case Action::aim:
                target.aim();
                break;
            case Action::step:
                target.step();
                break;
            default:
                if constexpr (Target::walks) {
                    switch (target.action()) {
                        case Action::list_breaks:
                            target.list_breaks();
                            break;
                        case Action::count_breaks:
                            target.count_breaks();
                            break;
                        case Action::sum_ties:
                            target.sum_ties();
                            break;
                        default:
                            target.regather();
                    }
                }
        }
    }
}

SW_END
