// One problem, of a device thread, by the turn for problems side by side: its begin, and its state at the end
// as the certificate wants it.
#pragma once

#include "core/fit/side_by_side/turn.hpp"

SW_BEGIN
namespace fit {

template <class Size>
SW_HD void begin_one(Size n, const FitOptions& options, const double* low, const double* high,
                     const double* x0, SideState<double, Size::capacity>& s) {
    s.status = still_running;
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        const double start = options.single ? as_single(x0[i]) : x0[i];
        s.x[i] = s.trial[i] = clamp_to(start, low[i], high[i]);
        s.g[i] = s.scale[i] = 0;
        if (!(low[i] <= high[i])) s.status = int(FitStatus::crossed_bounds);
    }
    SW_UNROLL
    for (int k = 0; k < at(n, 0); ++k) s.H[k] = s.S[k] = 0;
    s.cost = s.last = double_infinity;
    s.radius = -1;
    s.damping = s.floor = s.predicted = s.promise = 0;
    s.iterations = s.evaluations = s.accepted = s.rejections = s.nonfinite = 0;
    s.secant_helps = false;
}

template <class Size>
SW_HD FitState<Size::capacity> state_of(Size n, const SideState<double, Size::capacity>& s) {
    FitState<Size::capacity> found;
    SW_UNROLL
    for (int i = 0; i < n; ++i) {
        found.x[i] = s.x[i];
        found.g[i] = s.g[i];
        found.scale[i] = s.scale[i];
    }
    SW_UNROLL
    for (int k = 0; k < at(n, 0); ++k) found.H[k] = s.H[k];
    found.cost = s.cost;
    found.promise = s.promise;
    found.status = FitStatus(s.status);
    found.iterations = s.iterations;
    found.evaluations = s.evaluations;
    found.accepted = s.accepted;
    return found;
}

}  // namespace fit
SW_END
