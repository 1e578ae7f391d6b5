// Where phi, the squared residual as a function of s = ln lambda^2, has a given level.
#pragma once

#include "core/common/config.hpp"

SW_BEGIN
namespace nnls {

SW_HD double logarithm(double value) {
#if defined(__CUDACC__)
    return log(value);
#else
    return std::log(value);
#endif
}

SW_HD double exponential(double value) {
#if defined(__CUDACC__)
    return exp(value);
#else
    return std::exp(value);
#endif
}

// h = ln((phi - phi_0) / (level - phi_0)) has slope 2 for small lambda. Newton until both sides of the root
// are known, then inverse cubic interpolation with both slopes, or bisection where two steps did not halve
// the bracket.
struct LevelSearch {
    static constexpr int max_steps = 60;
    static constexpr double tolerance = 1e-6;  // of phi, relative to level - phi_0

    double s = 0;
    int at_end = 0;  // -1, 1: the root lies beyond an end of the range

    LevelSearch() = default;
    // `unit` is where lambda^2 makes both terms count alike; `start` the first s to try.
    SW_HD LevelSearch(double unit, double start)
        : least(logarithm(unit) - 46), most(logarithm(unit) + 30), low(least), high(most) {
        s = clamp_to(start, least, most);
    }

    // Takes phi - phi_0 at s, in `above`, with its derivative by s; the next s is then in s. False at the
    // end.
    SW_HD bool next(double above, double derivative, double wanted) {
        const double h = above > 1e-300 * wanted ? logarithm(above / wanted) : -690.0;
        const double slope = clamp_to(above > 0 ? derivative / above : 2.0, 0.2, 2.5);
        if (h > 0) {
            high = s, high_h = h, high_slope = slope, has_high = true;
        } else {
            low = s, low_h = h, low_slope = slope, has_low = true;
        }
        if (!has_low || !has_high) {
            if (!has_high && !(s < most)) at_end = 1;
            if (!has_low && !(s > least)) at_end = -1;
            if (at_end != 0) return false;
            s = clamp_to(s + clamp_to(-h / slope, -4.0, 4.0), least, most);
            return true;
        }
        const double width = high - low;
        const bool slow = width > 0.5 * width_before;
        width_before = width_last;
        width_last = width;
        if (width < 1e-13) return false;
        double next = slow ? 0.5 * (low + high) : inverse_cubic();
        if (!(next > low + 1e-3 * width * 1e-3 && next < high - 1e-6 * width)) next = 0.5 * (low + high);
        if (slow) width_before = width_last = double_infinity;
        s = next;
        return true;
    }

private:
    double least = 0, most = 0, low = 0, high = 0, low_h = 0, high_h = 0, low_slope = 0, high_slope = 0;
    double width_before = double_infinity, width_last = double_infinity;
    bool has_low = false, has_high = false;

    // s where h is zero, s a cubic of h with the values and slopes known; the slopes are limited to three
    // times the chord's, which keeps it monotone.
    SW_HD double inverse_cubic() const {
        const double length = high_h - low_h, chord = (high - low) / length;
        const double d0 = min_of(1.0 / low_slope, 3 * chord), d1 = min_of(1.0 / high_slope, 3 * chord);
        const double t = -low_h / length, u = 1 - t;
        return low * (u * u * (1 + 2 * t)) + high * (t * t * (3 - 2 * t)) +
               length * t * u * (d0 * u - d1 * t);
    }
};

}  // namespace nnls
SW_END
