// Settings of the quasi-Newton iteration. Plain data, the same for every problem of a batch.
#pragma once

#include "core/common/config.hpp"

namespace stepwell {

enum class Cauchy : int32_t { exact = 0, first_interval = 1, none = 2 };

// In what pairs are kept (history.hpp).
enum class HistoryType : int8_t { float64 = 0, float32 = 1, bfloat16 = 2 };

// Constants of the Moré–Thuente search. Two published codes differ in the rows marked (*): L-BFGS-B's search
// (Zhu, Byrd, Lu, Nocedal 1997) and the MCSRCH of Harwell VA15 (Liu, Nocedal 1989).
struct LineSearchOptions {
    double decrease;          // ftol: f(step) <= f(0) + decrease * step * slope(0)                      (*)
    double curvature;         // gtol: |slope(step)| <= curvature * |slope(0)|
    double interval;          // xtol: relative width of the interval of uncertainty at which to give up (*)
    double step_min;          // stpmin                                                                  (*)
    double step_max;          // stpmax; bounds may lower it                                             (*)
    int32_t max_evaluations;  // maxls
    int32_t first_step_gradient;  // first step of all: 1/|g| always (1); 1/|d|, or 1 if boxed or given H0 (*)
    double extrapolate_low;  // while unbracketed, trial in step + [low, high] * (step - best); 0: best  (*)
    double extrapolate_high;
    int32_t stage_two_needs_rise;  // from slope >= 0 on (1) or >= min(decrease, curvature)*slope(0) (0) (*)
    int32_t guard_first_case;  // keep the step inside 0.66 of the interval also after a rise of f       (*)
    int32_t last_at_best;      // spend the last allowed evaluation at the best step so far              (*)
    int32_t warning_is_step;   // a warning (rounding, interval, step limits) is an accepted step        (*)
};

// Defaults are those of the public call: quasi_newton/settings.py.
struct Options {
    int32_t capacity;  // m: pairs kept
    int32_t slots;     // of their ring: m, or one more where a pair is written before its step is accepted
    Cauchy cauchy;
    int32_t patience;  // iterations running in which the decrease must be below ftol
    LineSearchOptions search;
    double gtol;        // projected gradient, maximum norm
    double ftol;        // relative decrease of f
    double f_rounding;  // relative rounding error of f: the epsilon of the type that it is computed in
    double eps;         // |g| <= eps * max(1, |x|), Euclidean norms; 0: off
    double target;      // stop at f <= target
    int64_t max_iterations;
    int64_t max_evaluations;
    int32_t bounded;   // lower and upper bounds are given
    int32_t boxed;     // every variable has two finite bounds
    int32_t weighted;  // a diagonal H0 is given
    // (Two blocks of a device share a multiprocessor's memory to the last bytes: these are short.)
    uint8_t weights_vary;  // ... and may change from one iteration to the next
    HistoryType history;
    uint8_t narrowed;  // the history is of a narrower type than the vectors
};

}  // namespace stepwell
