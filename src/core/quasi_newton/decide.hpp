// The quasi-Newton iteration (L-BFGS-B; without bounds L-BFGS), top to bottom. The left column is a sweep
// over the variables, which leaves sums; the right one decides on them what comes next (decide_search.hpp,
// decide_model.hpp).
//
//   trial = x0, projected onto the bounds
//   loop
//     evaluate      the caller: f, g at trial
//     slope         g·d                          line search (line_search.hpp): step again, or accept, or
//                                                fail: drop the history and aim, or done
//     absorb        x, g = trial; pair s, y;     keep the pair? stop? -> done
//                   products of pairs; which     matrices of the model K, K - G (compact.hpp); Cauchy point
//                   variables are held           within the first segment of the path? -> aim
//     list_breaks   breakpoints of the path      the exact Cauchy point, from breakpoint to breakpoint
//     count_breaks  their times in bins          (cauchy_walk.hpp), until the model stops falling
//     sum_ties      those at one time            -> regather
//     regather      products over the            minimiser of the model over the variables that stay free,
//                   variables still free         the others carried to their bounds
//     aim           d, inside the bounds;        does it descend enough? first step; else aim again, cut at
//                   trial = x + d                the first bound, or without the history
//     step          trial = x + step d           -> evaluate
//
// An ordinary iteration is evaluate, slope, absorb, aim: two reads of the history. Every phase hands over its
// totals (totals.hpp) before anything is decided, so that something may stand between the two.
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
