// Bounded nonlinear least squares, one problem: the decisions. This is Levenberg-Marquardt whose step is the
// exact minimiser of the damped model within the box, with a trust radius (Moré 1978) and a secant term in
// the tail.
//
// How it is driven, by host loops, a CUDA turn kernel and fused loops of compiled models alike:
//
//   FitState<N> s;
//   begin_fit(n, options, low, high, x0, s);             s.trial = x0 within the bounds
//   do evaluate cost, g = Jᵀr, H = JᵀJ (packed, size.hpp) at s.trial
//   while (fit_turn(n, options, low, high, s, cost, g, H));   s.trial is the next point, or s.status the end
//
// n is Exactly<N> or AtMost<N> (size.hpp). low and high are n bounds; infinite where there is none, equal
// where a parameter is fixed. cost is ½Σρ; g and H belong to the same weights, and H has to be JᵀWJ. Sums are
// double whatever J is in. A cost that is not finite makes a rejected point. g and H are read only where
// wants_jacobian(s, cost): whoever evaluates them apart may skip them elsewhere.
// s.floor, set after begin_fit, is a cost that is the rounding of the data: 8 ε² Σ (w y)².
// At the end s.x, s.cost, s.g, s.H are those of one point, and certificate.hpp judges it.
#pragma once

#include "core/fit/bounded_step.hpp"
#include "core/fit/secant.hpp"
#include "core/fit/types.hpp"

SW_BEGIN

struct FitConstants {
    static constexpr double accept = 1e-4;       // least ratio of true to foretold decrease
    static constexpr double first_radius = 0.7;  // over the length of the start; MINPACK: 100, TRF: 1
    static constexpr double tail = 0.05;         // the secant term counts below this promise
    static constexpr double timid = 0.03;        // or where it foretells less than this part of the promise
    static constexpr double quiet = 1e-4;        // the last step took less than this of the cost
    static constexpr int stall = 30, wall = 12;  // rejections in a row; of points that are not finite
    static constexpr int damping_tries = 12, bent_tries = 4;  // the latter where S bends the wrong way
};

template <class Size>
SW_HD void begin_fit(Size n, const FitOptions& options, const double* low, const double* high,
                     const double* x0, FitState<Size::capacity>& s) {
    s.status = FitStatus::running;
    for (int i = 0; i < n; ++i) {
        const double start = options.single ? double(float(x0[i])) : x0[i];
        s.x[i] = s.trial[i] = clamp_to(start, low[i], high[i]);
        s.g[i] = s.scale[i] = 0;
        if (!(low[i] <= high[i])) s.status = FitStatus::crossed_bounds;
    }
    for (int i = 0; i < at(n, 0); ++i) s.H[i] = s.S[i] = 0;
    s.cost = double_infinity;
    s.radius = -1;
    s.damping = 0;
    s.floor = 0;
    s.predicted = 0;
    s.last = double_infinity;
    s.promise = double_infinity;
    s.iterations = s.evaluations = s.accepted = 0;
    s.rejections = s.nonfinite = 0;
    s.secant_helps = s.secant_used = 0;
}

// Whether a point of this cost may be accepted, so that g and H are needed there.
template <int N>
SW_HD bool wants_jacobian(const FitState<N>& s, double cost) {
    return is_finite(cost) && cost < s.cost;
}

template <class Size>
SW_HD void take_point(Size n, FitState<Size::capacity>& s, double cost, const double* g, const double* H) {
    for (int i = 0; i < n; ++i) {
        s.x[i] = s.trial[i];
        s.g[i] = g[i];
        s.scale[i] = max_of(s.scale[i], H[at(i, i)]);
    }
    for (int i = 0; i < at(n, 0); ++i) s.H[i] = H[i];
    s.cost = cost;
    ++s.accepted;
    s.rejections = s.nonfinite = 0;
}

template <class Size>
SW_HD bool all_finite(Size n, const double* g, const double* H) {
    double sum = 0;  // inf - inf and NaN survive sums of squares
    for (int i = 0; i < n; ++i) sum += absolute(g[i]);
    for (int i = 0; i < at(n, 0); ++i) sum += absolute(H[i]);
    return is_finite(sum);
}

// Judges the trial point: takes it or not, and sets the radius (MINPACK's rules).
template <class Size>
SW_HD void judge_trial(Size n, const FitOptions& options, FitState<Size::capacity>& s, double cost,
                       const double* g, const double* H) {
    constexpr int N = Size::capacity;
    double step[N];
    double length = 0, place = 0, slope = 0;
    for (int i = 0; i < n; ++i) {
        step[i] = s.trial[i] - s.x[i];
        const double scale = s.scale[i] > 0 ? s.scale[i] : 1;
        length += scale * step[i] * step[i];
        place += scale * s.x[i] * s.x[i];
        slope += s.g[i] * step[i];
    }
    length = square_root(length);
    bool finite = is_finite(cost);
    const double gain = s.cost - cost;
    double ratio = gain / s.predicted;
    if (!finite || !is_finite(ratio)) ratio = -1;
    bool good = finite && gain > 0 && ratio > FitConstants::accept;
    if (good && !all_finite(n, g, H)) {
        good = finite = false;
        ratio = -1;
    }

    double radius = s.evaluations == 2 ? min_of(s.radius, length) : s.radius;
    if (ratio <= 0.25) {
        double part = 0.1;
        if (finite && cost < 100 * s.cost) part = gain >= 0 ? 0.5 : 0.5 * slope / (slope + 0.5 * gain);
        radius = (is_finite(part) ? clamp_to(part, 0.1, 0.5) : 0.1) * min_of(radius, 10 * length);
    } else if (ratio >= 0.75 || s.damping == 0) {
        radius = 2 * length;
    }
    s.radius = radius;

    if (!good) {
        const bool tiny = length <= 1e-15 * square_root(place);
        s.rejections = int16_t(tiny ? FitConstants::stall : s.rejections + 1);
        s.nonfinite = int16_t(finite ? 0 : s.nonfinite + 1);
        // A trial as high as x, where next to nothing is promised, says as much as a step that took nothing.
        if (finite) s.last = min_of(s.last, absolute(gain) / s.cost);
        return;
    }
    s.last = gain / s.cost;
    if (options.secant) s.secant_helps = learn_secant(n, step, s.g, s.H, g, H, gain, s.S);
    take_point(n, s, cost, g, H);
    if (options.xtol > 0 && length <= options.xtol * square_root(place)) s.status = FitStatus::step;
}

// The model at x in variables that are scaled to columns of length one (of the largest that were seen).
template <int N>
struct ScaledModel {
    double A[N * (N + 1) / 2], b[N], low[N], high[N], to_x[N];
};

// The ridge that keeps the factor: 4nε of a column's own length.
template <class Size>
SW_HD void scale_model(Size n, const double* low, const double* high, const FitState<Size::capacity>& s,
                       ScaledModel<Size::capacity>& model) {
    const double ridge = 4 * n * double_epsilon;
    for (int i = 0; i < n; ++i) {
        const double scale = s.scale[i] > 0 ? s.scale[i] : 1;
        const double inverse = inverse_root(scale);
        model.to_x[i] = inverse;
        model.b[i] = s.g[i] * inverse;
        const double size = scale * inverse;
        model.low[i] = (low[i] - s.x[i]) * size;
        model.high[i] = (high[i] - s.x[i]) * size;
        for (int j = 0; j <= i; ++j) model.A[at(i, j)] = s.H[at(i, j)] * inverse * model.to_x[j];
        // (Relative to the column as it is here: one that has shrunk may still promise much.)
        model.A[at(i, i)] = model.A[at(i, i)] > 0 ? model.A[at(i, i)] * (1 + ridge) : 1;
    }
}

template <int N, class Size>
SW_HD double length_of(Size n, const BoundedStep<N>& step) {
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += step.d[i] * step.d[i];
    return square_root(sum);
}

// Damps the step until it is as long as the radius: λ inside a bracket (0, ‖b‖/Δ), from the last one. With S
// the model may bend the wrong way: returns whether a few λ have made up for that.
template <class Size>
SW_HD_CALLED bool damp_step(Size n, ScaledModel<Size::capacity>& model, double radius, double before,
                            bool with_S, double& damping, BoundedStep<Size::capacity>& step) {
    constexpr int N = Size::capacity;
    double size = 0, diagonal[N];
    bool definite = false;
    for (int i = 0; i < n; ++i) {
        size += model.b[i] * model.b[i];
        diagonal[i] = model.A[at(i, i)];
    }
    double low = 0, high = square_root(size) / max_of(radius, 1e-300);
    double next = clamp_to(before, 1e-3 * high, high);
    const double least = with_S ? 1e-10 : 1e-300;
    for (int turn = 0; turn < FitConstants::damping_tries; ++turn) {
        damping = next;
        for (int i = 0; i < n; ++i) model.A[at(i, i)] = diagonal[i] + damping;
        if (bounded_step(n, model.A, model.b, model.low, model.high, least, !with_S, step)) {
            definite = true;
            const double length = length_of(n, step);
            if (length >= 0.9 * radius && length <= 1.1 * radius) break;
            (length > radius ? low : high) = damping;
            // The length falls about as 1/(a + λ); a power of 5/4 overtakes that.
            const double factor = length / radius;
            next = damping * factor * square_root(square_root(factor));
        } else {
            if (!definite && turn + 1 >= FitConstants::bent_tries) break;
            low = next = damping;
            high = max_of(high, 1.0);  // (Columns have length one at most: this is as much as JᵀJ.)
        }
        if (!(next > low && next < high)) next = square_root(max_of(low, 1e-6 * high) * high);
    }
    for (int i = 0; i < n; ++i) model.A[at(i, i)] = diagonal[i];
    return definite;
}

// The step with S, where that is definite or damped as much as that takes, and foretells enough.
template <class Size>
SW_HD bool curved_step(Size n, const FitState<Size::capacity>& s, ScaledModel<Size::capacity>& model,
                       double& damping, BoundedStep<Size::capacity>& step) {
    for (int i = 0; i < n; ++i)
        for (int j = 0; j <= i; ++j) model.A[at(i, j)] += s.S[at(i, j)] * model.to_x[i] * model.to_x[j];
    const bool definite = bounded_step(n, model.A, model.b, model.low, model.high, 1e-10, false, step);
    if ((!definite || length_of(n, step) > 1.1 * s.radius) &&
        !damp_step(n, model, s.radius, s.damping, true, damping, step))
        return false;
    const double length = length_of(n, step);
    const double foretold = -model_value(n, model.A, model.b, step.d) - 0.5 * damping * length * length;
    return s.rejections > 0 || foretold >= FitConstants::timid * s.promise * s.cost;
}

// Ends the fit at x, or finds the next trial point.
template <class Size>
SW_HD bool aim(Size n, const FitOptions& options, const double* low, const double* high,
               FitState<Size::capacity>& s) {
    constexpr int N = Size::capacity;
    const auto end = [&](FitStatus status) {
        s.status = status;
        return false;
    };
    if (s.nonfinite >= FitConstants::wall) return end(FitStatus::nonfinite);

    // Is this the end? All from g and H at x.
    bool stationary = true, noisy = options.accuracy > 0;
    double rounding = 0, place = 0;
    for (int i = 0; i < n; ++i) {
        const double diagonal = s.H[at(i, i)];
        const bool held = (s.x[i] <= low[i] && s.g[i] >= 0) || (s.x[i] >= high[i] && s.g[i] <= 0);
        const double square = held ? 0 : s.g[i] * s.g[i], unit = diagonal * 2 * s.cost;
        if (square > options.gtol * options.gtol * unit) stationary = false;
        if (square > 16 * options.accuracy * options.accuracy * unit) noisy = false;
        rounding += diagonal * s.x[i] * s.x[i];
        place += (s.scale[i] > 0 ? s.scale[i] : 1) * s.x[i] * s.x[i];
    }
    if (s.cost <= max_of(8 * options.epsilon * options.epsilon * rounding, s.floor))
        return end(FitStatus::zero_residual);
    ScaledModel<N> model;
    scale_model(n, low, high, s, model);
    BoundedStep<N> step;
    bounded_step(n, model.A, model.b, model.low, model.high, 1e-300, true, step);
    s.promise = -model_value(n, model.A, model.b, step.d) / s.cost;
    if (stationary) return end(FitStatus::gradient);
    if (s.promise <= options.ftol && s.last <= FitConstants::quiet) return end(FitStatus::promise);
    // (What inexact derivatives promise along columns that are nearly dependent may be their error alone.)
    if (s.rejections > 0 && (s.promise <= 8 * options.epsilon || noisy)) return end(FitStatus::rounding);
    // A promise of less than twice ‖r‖ ε‖y‖, which is what rounding of the model does to the cost, may be
    // that.
    if (s.rejections >= FitConstants::stall)
        return end(s.promise * s.promise * s.cost <= s.floor ? FitStatus::rounding : FitStatus::stalled);
    if (s.iterations >= options.max_iterations || s.evaluations >= options.max_evaluations)
        return end(FitStatus::limit);

    if (s.radius < 0) s.radius = place > 0 ? FitConstants::first_radius * square_root(place) : 100;
    s.secant_used = 0;
    double damping = 0;
    if (options.secant && s.secant_helps && s.promise <= FitConstants::tail) {
        ScaledModel<N> curved = model;
        BoundedStep<N> other;
        if (curved_step(n, s, curved, damping, other)) {
            step = other;
            s.secant_used = 1;
        }
    }
    if (!s.secant_used) {
        damping = 0;
        if (length_of(n, step) > 1.1 * s.radius)
            damp_step(n, model, s.radius, s.damping, false, damping, step);
    }
    s.damping = damping;

    bool moves = false;
    for (int i = 0; i < n; ++i) {
        double there = s.x[i] + step.d[i] * model.to_x[i];
        if (options.single) there = double(float(there));
        s.trial[i] = step.side[i] < 0   ? low[i]
                     : step.side[i] > 0 ? high[i]
                                        : clamp_to(there, low[i], high[i]);
        step.d[i] = s.trial[i] - s.x[i];
        moves = moves || step.d[i] != 0;
    }
    // A step below the resolution of x: there is nothing left to try.
    if (!moves) return end(s.promise <= options.ftol ? FitStatus::promise : FitStatus::rounding);
    s.predicted = -model_value(n, s.H, s.g, step.d);
    if (s.secant_used) {
        double curved[N];
        symmetric_product(n, s.S, step.d, curved);
        for (int i = 0; i < n; ++i) s.predicted -= 0.5 * step.d[i] * curved[i];
    }
    ++s.iterations;
    return true;
}

// Takes in what was found at s.trial. True: evaluate at the new s.trial; false: s.status says how it ended.
template <class Size>
SW_HD bool fit_turn(Size n, const FitOptions& options, const double* low, const double* high,
                    FitState<Size::capacity>& s, double cost, const double* g, const double* H) {
    if (s.status != FitStatus::running) return false;
    if (s.evaluations++ == 0) {
        if (!is_finite(cost) || !all_finite(n, g, H)) {
            s.status = FitStatus::nonfinite_start;
            return false;
        }
        take_point(n, s, cost, g, H);
        // A residual that moving x by a thousandth of the start's rounding would change as much is none.
        double sum = 0;
        for (int i = 0; i < n; ++i) sum += s.scale[i] * s.x[i] * s.x[i];
        s.floor = max_of(s.floor, 8e-6 * options.epsilon * options.epsilon * sum);
    } else {
        judge_trial(n, options, s, cost, g, H);
        if (s.status != FitStatus::running) return false;
    }
    return aim(n, options, low, high, s);
}

SW_END
