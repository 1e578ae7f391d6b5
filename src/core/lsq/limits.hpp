// What bounds, a bound sum, weights of rows and a penalty add to the dual of a point. Of the general solver.
#pragma once

#include "core/lsq/columns.hpp"
#include "core/lsq/workspace.hpp"

SW_BEGIN
namespace lsq {

// How far the dual of a positive column is from what it must be: zero, unless its x has been left at a bound.
SW_HD double breach(const Setting& task, int j, double x, double w) {
    if (!(x < task.most_of(j))) return max_of(0.0, -w);
    if (!(x > task.least_of(j))) return max_of(0.0, w);
    return absolute(w);
}

// The residual under the metric in place of the residual; returns this member's part of its square. Ends in a
// sync.
template <class Team>
SW_CALL double weigh_residual(const Team& team, const Setting& task) {
    double* r = task.ws.r;
    const double* metric = task.ws.metric;
    const int length = task.extent.row_length(), first = task.extent.weighted ? 0 : task.extent.rows_of_a;
    double part = first > 0 ? part_of_dot(team, r, r, first) : 0.0;
    team.sync();
    team.each(length - first, [&](int i) {
        const double weighed = metric[first + i] * r[first + i];
        part += weighed * r[first + i];
        r[first + i] = weighed;
    });
    team.sync();
    return part;
}

// ws.w += lambda^2 (L'f - L'L x), by tables. Ends in a sync.
template <class Team>
SW_CALL void subtract_penalty(const Team& team, const Setting& task, int count, double penalty) {
    const Workspace& ws = task.ws;
    const Shared& shared = task.shared;
    const int length = static_cast<int>(padded(task.extent.columns));
    double *w = ws.w, *score = ws.score;
    const double* c = ws.c_penalty;
    if (!shared.penalty_gram) {
        team.each(length, [=](int j) { w[j] += penalty * c[j]; });
        team.sync();
        team.each_short(count, [&](int p) {
            const int j = ws.order[p];
            w[j] -= penalty * shared.penalty_diagonal[j] * ws.x[p];
        });
        team.sync();
        return;
    }
    const Columns products{
        shared.penalty_gram, shared.gram_stride, ws.order, nullptr, nullptr, nullptr, length};
    team.each(length, [=](int j) { score[j] = c[j]; });
    team.sync();
    subtract_columns(team, products, count, ws.x, score, length);
    team.each(length, [=](int j) { w[j] += penalty * score[j]; });
    team.sync();
}

// Finds the multiplier mu of a bound sum from the dual without it, w, which becomes w + mu c. Of columns
// between their bounds w + mu c is zero at the optimum: mu = -c'w / c'c over them. Where all are at bounds,
// any mu will do between what those at an upper bound ask for at the least and those at a lower at the most.
// Ends in a sync.
template <class Team>
SW_CALL double settle_multiplier(const Team& team, const Setting& task, int count) {
    const Workspace& ws = task.ws;
    double* w = ws.w;
    const double* sum_of = ws.sum_of;
    double along = 0, size = 0;
    team.lane_each(count, [&](int p) {
        const int j = ws.order[p];
        if (!(ws.x[p] < task.most_of(j) && ws.x[p] > task.least_of(j))) return;
        along += sum_of[j] * w[j];
        size += sum_of[j] * sum_of[j];
    });
    along = team.lane_sum(along);
    size = team.lane_sum(size);
    double mu = 0;
    if (size > 0) {
        mu = -along / size;
    } else {
        double least = -double_infinity, negated_most = -double_infinity;
        team.each(task.extent.columns, [&](int j) {
            if ((ws.state[j] & (is_in_factor | excluded)) || !(sum_of[j] > 0)) return;
            if (ws.state[j] & reflected)
                least = max_of(least, -w[j] / sum_of[j]);
            else
                negated_most = max_of(negated_most, w[j] / sum_of[j]);
        });
        if (team.rank() == 0 && count > 0) {
            const int j = ws.order[0];
            if (!(ws.x[0] < task.most_of(j)))
                least = max_of(least, -w[j] / sum_of[j]);
            else
                negated_most = max_of(negated_most, w[j] / sum_of[j]);
        }
        least = team.max(least);
        const double most = -team.max(negated_most);
        mu = least > -double_infinity ? least : is_finite(most) ? most : 0.0;
    }
    team.sync();
    team.each(task.extent.columns, [=](int j) { w[j] += mu * sum_of[j]; });
    team.sync();
    return mu;
}

}  // namespace lsq
SW_END
