// What the sweeps of a phase leave for its decision. Every chunk of the variables (or rank, or device) leaves
// one row of numbers: sums first, then maxima, then minima. Rows are folded in a fixed order, and only then
// is anything decided: whoever has a part of the variables can put its rows together with those of others in
// between.
#pragma once

#include "core/quasi_newton/compact.hpp"

SW_BEGIN

struct RowShape {
    int sums, maxima, minima;
    SW_HD int width() const { return sums + maxima + minima; }
};

// Behind the products of rows (SumLayout), the scalars of the absorb sweep: five sums, a maximum, a minimum.
struct AbsorbTotals {
    double movable_descent = 0;  // Σ over movable variables of h g²
    double gradient_squared = 0, projected_squared = 0, x_squared = 0;
    double held = 0;                       // count
    double projected_gradient = 0;         // maximum norm
    double first_break = double_infinity;  // smallest breakpoint of a movable variable

    static constexpr int count = 7;

    SW_HD void put(double* row) const {
        row[0] = movable_descent, row[1] = gradient_squared, row[2] = projected_squared, row[3] = x_squared;
        row[4] = held, row[5] = projected_gradient, row[6] = first_break;
    }
    SW_HD static AbsorbTotals of(const double* row) {
        AbsorbTotals t;
        t.movable_descent = row[0], t.gradient_squared = row[1], t.projected_squared = row[2];
        t.x_squared = row[3], t.held = row[4], t.projected_gradient = row[5], t.first_break = row[6];
        return t;
    }
};

// Of the aim sweep: two sums, two minima.
struct AimTotals {
    double slope = 0, direction_squared = 0;
    double step_limit = double_infinity;  // largest feasible multiple of the direction
    // Confine::measure alone: largest feasible fraction of the way from the Cauchy point
    double truncation = double_infinity;

    SW_HD void put(double* row) const {
        row[0] = slope, row[1] = direction_squared, row[2] = step_limit, row[3] = truncation;
    }
    SW_HD static AimTotals of(const double* row) {
        AimTotals t;
        t.slope = row[0], t.direction_squared = row[1], t.step_limit = row[2], t.truncation = row[3];
        return t;
    }
};

constexpr RowShape slope_row{2, 0, 0};  // g·d; f, where every chunk has a part of it
constexpr RowShape aim_row{2, 0, 2};
constexpr RowShape list_row{1, 0, 0};  // how many breakpoints are listed

SW_HD RowShape absorb_row(const SumLayout& layout) {
    return {layout.length() + 5, 1, 1};
}
SW_HD RowShape regather_row(const SumLayout& layout) {
    return {layout.length(), 0, 0};
}
SW_HD RowShape ties_row(const State& s) {
    return {2 * s.pairs + 1, 0, 0};
}

SW_END
