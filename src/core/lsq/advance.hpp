// From x to the least-squares solution on the columns in the factor: Lawson & Hanson's inner loop, in which
// columns leave at their bounds.
#pragma once

#include "core/lsq/bounded.hpp"

SW_BEGIN
namespace lsq {

// Squares of pivots, over those of columns: near the rounding of products; with few of their digits.
constexpr double rounded_pivot = 1e-12, weak_pivot = 1e-5;

// |R^-T w| of the columns in the factor, along the plane of a bound sum: how far their solution is from
// the lowest objective on them. Where they nearly depend on each other a dual that is as small as
// rounding makes it says little of that.
template <class State>
SW_HD double decrement(const State& s) {
    if (s.factor.count == 0) return 0.0;
    s.team.each_short(s.factor.count, [&](int p) { s.ws.g[p] = s.ws.w[s.ws.order[p]]; });
    s.team.sync();
    const double length = square_root(max_of(0.0, square_in_factor(s)));
    return has_pivot_below(s, rounded_pivot) ? doubtful_pivots * length : length;
}

// Whether the square of a pivot, by products alone, is below a part of its column's.
template <class State>
SW_HD bool has_pivot_below(const State& s, double part) {
    if (s.factor.keeps_q()) return false;
    const bool inverse = s.factor.inverted();
    double any = 0;
    s.team.each_short(s.factor.count, [&](int p) {
        const double entry = s.factor.triangle.row(p)[p], norm = s.task.norm_of(s.ws.order[p]);
        const double pivot = inverse ? 1 / entry : entry;
        if (pivot * pivot < part * norm * norm) any = 1;
    });
    return s.team.max(any) > 0;
}

// g' (R'R)^-1 g, outside the direction of a bound sum; g in ws.g. Takes ws.z.
template <class State>
SW_CALL double square_in_factor(const State& s) {
    const int count = s.factor.count;
    double* z = s.ws.z;
    s.factor.solve_with_r_transposed(s.ws.g, z);
    const double* sum = s.ws.triangle.sum;
    double square = 0, along = 0, size = 0;
    s.team.lane_each(count, [&](int p) {
        square += z[p] * z[p];
        if (!sum) return;
        along += z[p] * sum[p];
        size += sum[p] * sum[p];
    });
    square = s.team.lane_sum(square);
    along = s.team.lane_sum(along);
    size = s.team.lane_sum(size);
    s.team.sync();
    return size > 0 ? square - along * along / size : square;
}

// From x towards z as advance() goes, within all bounds.
template <class State>
SW_CALL bool advance_within(State& s, bool solved) {
    for (;;) {
        if (s.tally.solves >= s.task.options.max_solves) return false;
        ++s.tally.solves;
        if (!solved) solve_set(s);
        solved = false;
        // What a bound sum leaves to one column alone is where it is.
        const bool sole = s.ws.sum_of && s.factor.count == 1;
        double step = -double_infinity;
        s.team.lane_each(s.factor.count, [&](int p) { step = max_of(step, -room_towards(s, p)); });
        step = s.team.lane_max(step);
        s.team.sync();
        if (!(step > -double_infinity) || sole) {
            if (sole) {
                const int j = s.ws.order[0];
                const double z =
                    clamp_to(s.factor.remainder / s.ws.sum_of[j], s.task.least_of(j), s.task.most_of(j));
                s.team.sync();
                if (s.team.rank() == 0) s.ws.z[0] = z;
                s.team.sync();
            }
            return true;
        }
        const double alpha = min_of(1.0, -step);
        s.team.sync();
        int stay = 0;
        s.team.each_short(s.factor.count, [&](int p) {
            const int j = s.ws.order[p];
            const double least = s.task.least_of(j), most = s.task.most_of(j);
            const double moved = s.ws.x[p] + alpha * (s.ws.z[p] - s.ws.x[p]);
            const bool blocks =
                !(room_towards(s, p) > alpha) || (s.ws.z[p] > s.ws.x[p] ? !(moved < most) : !(moved > least));
            if (blocks) {
                const bool up = s.ws.z[p] > least && (s.ws.z[p] > s.ws.x[p] || !(s.ws.z[p] < most));
                s.ws.x[p] = up ? most : least;
                s.ws.state[j] |= leaving;
            } else {
                s.ws.x[p] = clamp_to(moved, least, most);
                stay = 1;
            }
        });
        const bool any_stays = s.team.max(double(stay)) > 0;
        s.team.sync();
        // A bound sum needs one.
        if (s.ws.sum_of && !any_stays) {
            if (s.team.rank() == 0) s.ws.state[s.ws.order[0]] &= ~leaving;
            s.team.sync();
        }
        s.factor.settled = 0;
        s.fresh = false;
        for (int p = s.factor.count - 1; p >= 0; --p) {
            const bool leaves = s.ws.state[s.ws.order[p]] & leaving;
            s.team.sync();
            if (leaves) leave_at_bound(s, p);
        }
        if (s.factor.count == 0) return true;
    }
}

// How far from x to z position p can go; infinite where it can go all the way.
template <class State>
SW_HD double room_towards(const State& s, int p) {
    const int j = s.ws.order[p];
    const double x = s.ws.x[p], z = s.ws.z[p], least = s.task.least_of(j), most = s.task.most_of(j);
    if (!(z > least)) return x > least ? (x - least) / (x - z) : 0.0;
    if (!(z < most)) return x < most ? (most - x) / (z - x) : 0.0;
    return double_infinity;
}

// x becomes z, which is positive: settled.
template <class State>
SW_HD void finish_step(State& s) {
    s.team.each_short(s.factor.count, [&](int p) { s.ws.x[p] = s.ws.z[p]; });
    s.factor.settled = s.factor.count;
    s.fresh = false;
    s.team.sync();
}

// From x towards the least-squares solution z, dropping what reaches zero, until z is positive (Lawson &
// Hanson's inner loop). Starts with z solved when `solved`. False at the limit, with x feasible.
template <class State>
SW_HD bool advance(State& s, bool solved) {
    if constexpr (!State::general)
        return advance_positive(s, solved);
    else if constexpr (!State::plain)
        return advance_within(s, solved);
    else
        return s.is_general() ? advance_within(s, solved) : advance_positive(s, solved);
}

template <class State>
SW_HD bool advance_positive(State& s, bool solved) {
    const bool many = s.factor.count >= many_columns;
    for (;;) {
        if (s.tally.solves >= s.task.options.max_solves) return false;
        ++s.tally.solves;
        if (!solved) solve_set(s);
        solved = false;
        // Each group finds minus the longest feasible step for itself.
        double step = -double_infinity;
        s.team.lane_each(s.factor.count, [&](int p) {
            if (!(s.ws.z[p] > 0)) step = max_of(step, -longest_step(s, p));
        });
        step = s.team.lane_max(step);
        if (!(step > -double_infinity)) return true;
        const double alpha = min_of(1.0, -step);
        s.team.sync();
        const bool leaps = many && may_drop_all_negatives(s, alpha);
        s.team.each_short(s.factor.count, [&](int p) {
            const bool blocks = !(s.ws.z[p] > 0) && (leaps || !(longest_step(s, p) > alpha));
            const double moved = leaps ? s.ws.z[p] : s.ws.x[p] + alpha * (s.ws.z[p] - s.ws.x[p]);
            s.ws.x[p] = blocks || !(moved > 0) ? 0.0 : moved;
        });
        s.team.sync();
        s.factor.settled = 0;
        s.fresh = false;
        remove_zeros(s);
        if (s.factor.count == 0) return true;
    }
}

// Whether all negatives of z may leave at once: x with them at zero and the rest at z is then no worse
// than where the step of length alpha ends. On the positive columns the objective is that of z plus
// |A_P (x - z)|^2, which the step brings down to (1 - alpha)^2 of what it is.
template <class State>
SW_CALL bool may_drop_all_negatives(State& s, double alpha) {
    double negatives = 0;
    s.team.lane_each(s.factor.count, [&](int p) { negatives += s.ws.z[p] > 0 ? 0.0 : 1.0; });
    // The look costs two products: as much as a few removals.
    if (s.projected || !s.task.options.guarded || 16 * s.team.lane_sum(negatives) < s.factor.count)
        return false;
    const double left = square_of_image(s, [&](int p) { return (1 - alpha) * (s.ws.x[p] - s.ws.z[p]); });
    return square_of_image(s, [&](int p) { return s.ws.z[p] > 0 ? 0.0 : -s.ws.z[p]; }) < left;
}

// |A_P y|^2, the rows of the damping included.
template <class State, class Entry>
SW_HD double square_of_image(const State& s, const Entry& entry) {
    const int length = s.task.extent.row_length();
    double* image = s.ws.v;
    s.team.sync();
    s.team.each_short(s.factor.count, [&](int p) { s.ws.g[p] = entry(p); });
    s.team.each(length, [&](int i) { image[i] = 0; });
    s.team.sync();
    subtract_columns(s.team, s.factor.positive(), s.factor.count, s.ws.g, image, length);
    double part = part_of_dot(s.team, image, image, length);
    if (s.task.extent.damped)
        s.team.each_short(s.factor.count, [&](int p) {
            const double d = s.task.below(s.ws.order[p]) * s.ws.g[p];
            part += d * d;
        });
    const double square = s.team.sum(part);
    s.team.sync();
    return square;
}

// How far from x to z position p can go.
template <class State>
SW_HD double longest_step(const State& s, int p) {
    return s.ws.x[p] > 0 ? s.ws.x[p] / (s.ws.x[p] - s.ws.z[p]) : 0.0;
}

// ws.z becomes the solution on the positive columns.
template <class State>
SW_HD void solve_set(State& s) {
    if (!s.projected) return s.factor.solve();
    // As a step from x, whose error is that of a small vector.
    if (!s.fresh) residual_from_matrix(s);
    project_residual(s.factor);
    s.factor.solve();
    s.team.each_short(s.factor.count, [&](int p) { s.ws.z[p] += s.ws.x[p]; });
    s.team.sync();
}

// ws.z becomes the solution that the dual at x says is better.
template <class State>
SW_HD void refine(State& s) {
    if (s.projected) {
        s.inserted_count = 0;
        return solve_set(s);
    }
    s.team.each_short(s.factor.count, [&](int p) { s.ws.g[p] = s.ws.w[s.ws.order[p]]; });
    s.team.sync();
    s.factor.refine();
    s.inserted_count = 0;
}

}  // namespace lsq
SW_END
