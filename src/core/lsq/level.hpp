// Where phi, the squared residual as a function of s = ln lambda^2, has a given level.
#pragma once

#include "core/common/config.hpp"

SW_BEGIN
namespace lsq {

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
// are known, then the inverse cubic through the last two points, with both slopes, or that through the ends
// of the bracket; or bisection where two steps did not halve the bracket, nor the last one h by far.
struct LevelSearch {
    static constexpr int max_steps = 60;
    static constexpr double tolerance = 1e-6;  // of phi, relative to level - phi_0
    static constexpr double highest = 1e300;   // of levels: what is beyond any phi

    double s = 0;
    int at_end = 0;  // -1, 1: the root lies beyond an end of the range

    LevelSearch() = default;
    // `unit` is where lambda^2 makes both terms count alike; `start` the first s to try.
    SW_HD LevelSearch(double unit, double start) : least(logarithm(unit) - 46), most(logarithm(unit) + 30) {
        s = clamp_to(start, least, most);
    }

    // Takes phi - phi_0 at s, in `above`, with its derivative by s; the next s is then in s. False at the
    // end.
    SW_HD bool next(double above, double derivative, double wanted) {
        const double h = above > 1e-300 * wanted ? logarithm(above / wanted) : -690.0;
        // (Of numbers near the largest and the smallest the derivative may not be one.)
        const bool known = above > 0 && is_finite(derivative);
        const double slope = clamp_to(known ? derivative / above : 2.0, 0.2, 2.5);
        const Point before = last;
        last = {s, h, slope};
        if (h > 0) {
            high = last, has_high = true;
        } else {
            low = last, has_low = true;
        }
        if (!has_low || !has_high) {
            if (!has_high && !(s < most)) at_end = 1;
            if (!has_low && !(s > least)) at_end = -1;
            if (at_end != 0) return false;
            // Where phi hardly changes, near its limits, Newton's steps are short: they grow after a while.
            double step = clamp_to(-h / slope, -4.0, 4.0);
            const bool slow = ++unbracketed > 4 && absolute(h) > 0.5 * absolute(before.h);
            const double shortest = slow ? min_of(4.0, 0.25 * (unbracketed - 4)) : 0.0;
            if (absolute(step) < shortest) step = h > 0 ? -shortest : shortest;
            s = clamp_to(s + step, least, most);
            return true;
        }
        const double width = high.s - low.s;
        const bool slow = width > 0.5 * width_before && absolute(h) > 0.1 * absolute(before.h);
        width_before = width_last;
        width_last = width;
        if (width < 1e-13) return false;
        double next = slow ? 0.5 * (low.s + high.s) : inverse_cubic(before, last);
        if (!is_inside(next)) next = inverse_cubic(low, high);
        if (!is_inside(next)) next = 0.5 * (low.s + high.s);
        if (slow) width_before = width_last = double_infinity;
        s = next;
        return true;
    }

    // Whether phi is at the level, and whether it is so far off that what found it had too few digits.
    SW_HD static bool meets(double phi, double level, double wanted) {
        return absolute(phi - level) <= tolerance * wanted;
    }
    SW_HD static bool misses(double phi, double level, double wanted) {
        return absolute(phi - level) > 10 * tolerance * wanted;
    }
    // Whether phi is below what was taken for the least.
    SW_HD static bool falls_below(double phi, double least, double wanted) {
        return phi < least - tolerance * wanted;
    }
    // What phi is to be where `rows` numbers of b count, each with so much noise.
    SW_HD static double level_of_noise(double rows, double noise) {
        return min_of(rows * noise * noise, highest);
    }
    // The first s, from q (search.hpp) of the solution without lambda: too small where its columns are nearly
    // dependent. `wanted` is level - phi_0.
    SW_HD static double first_guess(double wanted, double q, double unit) {
        return max_of(0.5 * logarithm(q > 0 ? wanted / q : unit), logarithm(1e-7 * unit));
    }

private:
    struct Point {
        double s, h, slope;
    };
    double least = 0, most = 0;
    Point low{}, high{}, last{};  // the ends of the bracket, where they are known, and the last point
    double width_before = double_infinity, width_last = double_infinity;
    bool has_low = false, has_high = false;
    int unbracketed = 0;  // points until both sides of the root are known

    SW_HD bool is_inside(double next) const {
        const double edge = 1e-9 * (high.s - low.s);
        return next > low.s + edge && next < high.s - edge;
    }

    // s where h is zero, s a cubic of h with the values and slopes known; the slopes are limited to three
    // times the chord's, which keeps it monotone.
    SW_HD static double inverse_cubic(const Point& a, const Point& b) {
        const double length = b.h - a.h, chord = (b.s - a.s) / length;
        const double d0 = min_of(1.0 / a.slope, 3 * chord), d1 = min_of(1.0 / b.slope, 3 * chord);
        const double t = -a.h / length, u = 1 - t;
        return a.s * (u * u * (1 + 2 * t)) + b.s * (t * t * (3 - 2 * t)) + length * t * u * (d0 * u - d1 * t);
    }
};

}  // namespace lsq
SW_END
