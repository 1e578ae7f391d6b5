// The factor of the columns in it, as it is: R, its columns, and their products.
#pragma once

#include "core/lsq/columns.hpp"
#include "core/lsq/inverse.hpp"
#include "core/lsq/triangle.hpp"
#include "core/lsq/workspace.hpp"

SW_BEGIN
namespace lsq {

// The factor as each member of a team knows it; what it points at is the team's.
template <class Team>
struct FactorState {
    const Team& team;
    const Setting& setting;
    const Workspace& ws;
    Triangle triangle;
    int update;
    int count = 0;
    int settled = 0;  // on so many positions x is the least-squares solution
    // Of the general solver: lambda^2, what the sum's row weighs, and what the sum of the positive columns
    // has to be.
    IfConstrained<double> penalty{}, row_weight{}, remainder{};

    SW_HD FactorState(const Team& team, const Setting& setting)
        : team(team),
          setting(setting),
          ws(setting.ws),
          triangle(Packing(setting.ws.triangle)),
          update(setting.options.update) {}

    SW_HD bool keeps_q() const { return update == cgs2 || update == mgs || update == rotations; }

    // Whether the triangle is R^-1: on a device, where no Q goes with R. Q is kept for the sake of columns
    // that are nearly dependent, which an inverse does not stand.
    SW_HD bool inverted() const {
#if defined(__CUDACC__)
        return update == gram;
#else
        return false;
#endif
    }

    SW_HD Columns positive() const {
        const Shared& shared = setting.shared;
        const int length = setting.extent.row_length();
        if (shared.columns)
            return {shared.columns, shared.column_stride, ws.order, shared.low, shared.high, nullptr, length};
        if (setting.extent.shifted())
            return {ws.pulse + setting.extent.pulse_origin, -1, ws.order, ws.low, ws.high, ws.factor, length};
        return {ws.panel, length, ws.slot, ws.low, ws.high, nullptr, length};
    }

    SW_HD Columns q(int columns_length) const {
        return {ws.q, setting.extent.q_length(), nullptr, nullptr, nullptr, nullptr, columns_length};
    }

    // out[q] = a_j . a_c for the columns c at `number` positions from `first` on, a_j that at `place`. Ends
    // in a sync.
    SW_HD void products(int place, int first, int number, double* out) const {
        const Shared& shared = setting.shared;
        const int32_t* order = ws.order + first;
        const int j = ws.order[place];
        if (!shared.gram && !setting.extent.shifted()) {
            Columns columns = positive();
            const double* column = columns.at(place);
            const int from = columns.first(place), to = columns.last(place);
            if (ws.metric) {
                double* v = ws.v;
                const double* metric = ws.metric;
                team.each(setting.extent.row_length(),
                          [=](int i) { v[i] = i >= from && i < to ? metric[i] * column[i] : 0.0; });
                team.sync();
                column = v;
            }
            columns.slot += first;
            dot_columns(team, columns, number, column, from, to, out);
            return;
        }
        if (shared.gram) {
            const double* row = shared.gram + j * shared.gram_stride;
            team.each_short(number, [=](int q) { out[q] = row[order[q]]; });
            if (setting.extent.metric) add_rows_beneath(j, order, number, out);
        } else {
            team.each_short(number, [&](int q) { out[q] = setting.product_of_shifts(order[q], j); });
        }
        team.sync();
    }

    // out[q] += what the rows beneath A add to a_j . a_c, from tables. Each member where it wrote; no sync.
    SW_HD void add_rows_beneath(int j, const int32_t* order, int number, double* out) const {
        const Shared& shared = setting.shared;
        if (ws.sum_of) {
            const double f = row_weight * ws.sum_of[j], *sum_of = ws.sum_of;
            team.each_short(number, [=](int q) { out[q] += f * sum_of[order[q]]; });
        }
        if (!(penalty > 0)) return;
        const double f = penalty;
        if (shared.penalty_gram) {
            const double* row = shared.penalty_gram + j * shared.gram_stride;
            team.each_short(number, [=](int q) { out[q] += f * row[order[q]]; });
        } else {
            const double own = f * shared.penalty_diagonal[j];
            team.each_short(number, [=](int q) { out[q] += order[q] == j ? own : 0.0; });
        }
    }

    // (c_j - h . v) / pivot, v = R^-T c: the entry of a new column, R's part of which is in ws.h. Each group
    // for itself.
    SW_HD double share_of(int j, double inverse) const {
        const double *h = ws.h, *sum = ws.triangle.sum;
        double part = 0;
        team.lane_each(count, [&](int p) { part += h[p] * sum[p]; });
        return (ws.sum_of[j] - team.lane_sum(part)) * inverse;
    }

    // mu = (e - v'Q'b) / v'v, with one more entry of each. Each group for itself.
    SW_HD double multiplier_with(double share, double entry) const {
        const double *target = ws.triangle.target, *sum = ws.triangle.sum;
        double product = 0, square = 0;
        team.lane_each(count, [&](int p) {
            product += sum[p] * target[p];
            square += sum[p] * sum[p];
        });
        square = team.lane_sum(square) + share * share;
        return square > 0 ? (remainder - team.lane_sum(product) - share * entry) / square : 0.0;
    }

    // v under the metric, in ws.image; v itself without one.
    SW_HD const double* under_metric(const double* v) const {
        if (!ws.metric) return v;
        double* image = ws.image;
        const double* metric = ws.metric;
        team.each(setting.extent.row_length(), [=](int i) { image[i] = metric[i] * v[i]; });
        team.sync();
        return image;
    }

    // out = R^-1 v, in place too. Ends in a sync.
    SW_HD void solve_with_r(const double* v, double* out) const { solve_with<false>(v, out); }

    // out = R^-T v, in place too. Ends in a sync.
    SW_HD void solve_with_r_transposed(const double* v, double* out) const { solve_with<true>(v, out); }

    template <bool transposed>
    SW_HD void solve_with(const double* v, double* out) const {
        if (inverted()) return Inverse::multiply<transposed>(team, triangle, count, v, out);
        if (team.row() == 0) {
            if (v != out) {
                team.lane_each(count, [&](int p) { out[p] = v[p]; });
                team.lane_sync();
            }
            if (transposed)
                Triangle::solve_transposed(team, triangle, count, out);
            else
                Triangle::solve(team, triangle, count, out);
        }
        team.sync();
    }

    // A charge on the insertions, kept by the first member.
    SW_HD void charge(int64_t accesses, int64_t flops) const {
        if (team.rank() != 0) return;
        ws.costs[0] += accesses;
        ws.costs[1] += flops;
    }
};

}  // namespace lsq
SW_END
