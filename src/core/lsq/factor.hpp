// The factor of the positive columns, in the order they were inserted (Luo & Duraiswami, section 3): a new
// column is always the last, a removed one is rotated out. R and Q'b always; Q only for the updates that keep
// it. How a column enters is in entry.hpp, how many do at once in block_entry.hpp.
#pragma once

#include "core/lsq/columns.hpp"
#include "core/lsq/inverse.hpp"
#include "core/lsq/triangle.hpp"
#include "core/lsq/workspace.hpp"

SW_BEGIN
namespace lsq {

enum class Entry { entered, dependent, escalate };

// What a column brings to the factor.
struct Inserted {
    Entry outcome;
    double pivot, inverse;  // the new entry of R's diagonal, and 1 over it
    double target;          // the new entry of Q'b
    double share = 0;       // the new entry of R^-T c, where a sum c'x is bound
};

// The factor, of which each member of a team has a copy; what it points at belongs to the team.
template <class Team>
struct Factor {
    const Team& team;
    const Setting& setting;
    const Workspace& ws;
    Triangle triangle;
    int update;
    int count = 0;
    int settled = 0;  // on so many positions x is the least-squares solution
    int insertions = 0, removals = 0;
    // Of the general solver: lambda^2, the weight of the sum's row, and the sum that the positive columns
    // have to have.
    IfConstrained<double> penalty{}, row_weight{}, remainder{};

    SW_HD Factor(const Team& team, const Setting& setting)
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

    // What column j, which is already gathered at position `count`, brings; R's new column is in ws.h.
    // `against` is b or the residual at x: the new column of Q has the same product with both. `product` is
    // a_j . (b - A x), where x is settled, or a_j . b. Of the `others` candidates at the positions after it,
    // products_with_others() then tells.
    // Where a sum is bound, `product` has its multiplier times the column's coefficient in it.
    SW_HD Inserted weigh(int j, const double* against, double product, int settled_there, int others,
                         double multiplier = 0) {
        if (count >= setting.extent.max_columns) return {Entry::dependent, 0, 0, 0, 0};
        if (triangle.is_full(count)) triangle = Triangle(Packing::widened(team, triangle, count));
        Inserted column = keeps_q()
                              ? insert_by_csne_or_qr(*this, j, against)
                              : insert_by_gram(*this, j, against, product, settled_there, others, multiplier);
        if (ws.triangle.sum && column.outcome == Entry::entered) column.share = share_of(j, column.inverse);
        return column;
    }

    // The new unknown's value in the solution with the column weighed last, times its pivot.
    SW_HD double promise(const Inserted& column) const {
        const double* sum = ws.triangle.sum;
        if (!sum) return column.target;
        return column.target + multiplier_with(column.share, column.target) * column.share;
    }

    // a_c . a_j of the candidates c at the positions after `count`, a_j the column weighed last.
    SW_HD const double* products_with_others(int others) {
        if (!keeps_q()) return ws.h + count + 1;
        products(count, count + 1, others, ws.g);
        return ws.g;
    }

    // Inserts the column weighed last. No sync.
    SW_HD void accept(const Inserted& column) {
        if (inverted())
            Inverse::append(team, triangle, count, ws.h, column.inverse, column.target, column.share);
        else if (team.row() == 0)
            triangle.append(team, count, ws.h, column.pivot, column.inverse, column.target, column.share);
        if (team.rank() == 0) ws.x[count] = 0;
        ++count;
        ++insertions;
    }

    // Inserts the columns at the `number` positions after the last, whose Q'b comes from A'b. False where one
    // depends on others; the factor is then as it was. Ends in a sync.
    SW_HD bool enter_together(int number) {
        const int last = count + number;
        if (last > setting.extent.max_columns) return false;
        while (triangle.is_full(last - 1)) triangle = Triangle(Packing::widened(team, triangle, count));
        team.sync();
        if (!enter_in_blocks(*this, number)) return false;
        count = last;
        insertions += number;
        return true;
    }

    // Removes the column at a position by rotations (Luo & Duraiswami, algorithm 3).
    SW_HD void leave(int position) {
        shift_lists(position);
        if (inverted())
            Inverse::remove(team, triangle, count, position);
        else
            Triangle::remove(team, triangle, count, position);
        team.sync();
        const int turns = count - 1 - position, length = setting.extent.q_length();
        if (keeps_q() && turns > 0)
            rotate_columns(team, ws.q, length, position, count, ws.triangle.cosine, ws.triangle.sine, length);
        if (team.rank() == 0) {
            ws.costs[2] += 4 * static_cast<int64_t>(turns);
            ws.costs[3] += static_cast<int64_t>(turns) * (6 + 3 * (turns + 1)) +
                           (keeps_q() ? 6 * static_cast<int64_t>(setting.extent.rows) * turns : 0);
        }
        --count;
        ++removals;
    }

    // Takes the last column back: nothing to rotate.
    SW_HD void take_back() { --count; }

    // Leaves the first columns alone.
    SW_HD void truncate(int left) {
        count = left;
        settled = min_of(settled, left);
    }

    // Flops of a column that enters after `others`, and of the removal of one that has `behind` to rotate.
    SW_HD double cost_of_entry(int others) const {
        const Extent& extent = setting.extent;
        const double k = others;
        if (keeps_q()) return 8.0 * extent.q_length() * k;
        return k * k + (setting.shared.gram || extent.shifted() ? k : 2.0 * extent.row_length() * k);
    }
    SW_HD double cost_of_removal(int behind) const {
        const double k = behind;
        return 3.0 * k * k + (keeps_q() ? 6.0 * setting.extent.q_length() * k : 0.0);
    }

    // z = R^-1 Q'b, the least-squares solution on the positive columns. With v = R^-T c and c'z = e it is
    // R^-1 (Q'b + mu v), mu = (e - v'Q'b) / v'v.
    SW_HD void solve() {
        const double *target = ws.triangle.target, *sum = ws.triangle.sum;
        if (!sum || count == 0) return solve_with_r(target, ws.z);
        const double mu = multiplier_with(0, 0);
        double* z = ws.z;
        team.each_short(count, [=](int p) { z[p] = target[p] + mu * sum[p]; });
        team.sync();
        solve_with_r(z, z);
    }

    // The unknown at a position stays at d when it leaves: Q'b without it is Q'b - d R e_p. Ends in a sync.
    SW_HD void shift_target(int position, double d) {
        double* target = ws.triangle.target;
        if (inverted()) {
            // R e_p = R^-T (A_P' a_p)
            double* g = ws.g;
            products(position, 0, count, g);
            solve_with_r_transposed(g, g);
            team.each_short(count, [=](int p) { target[p] -= d * g[p]; });
        } else {
            team.each_short(position + 1, [&](int t) { target[t] -= d * triangle.row(t)[position]; });
        }
        team.sync();
    }

    // One step of refinement from the gradient s = A_P'(b - A x) in ws.g: corrects Q'b and solves again.
    SW_HD void refine() {
        solve_with_r_transposed(ws.g, ws.g);
        team.each_short(count, [&](int p) { ws.triangle.target[p] += ws.g[p]; });
        team.sync();
        solve();
    }

    // Starts anew, with another update.
    SW_HD void restart(int next_update) {
        update = next_update;
        triangle = Triangle(Packing(ws.triangle));
        count = settled = 0;
    }

private:
    // Each list by a group, while the first is busy with the triangle. The freed slot goes to the end, where
    // the next column takes it. No sync.
    SW_HD void shift_lists(int position) const {
        const int last = count - 1, groups = team.rows(), mine = team.row();
        if (mine == 1 % groups) shift_left(team, ws.order + position, last - position);
        if (mine == 2 % groups) shift_left(team, ws.x + position, last - position);
        if (mine == 3 % groups) {
            const int32_t freed = ws.slot[position];
            team.lane_sync();
            shift_left(team, ws.slot + position, last - position);
            if (team.lane() == 0) ws.slot[last] = freed;
            team.lane_sync();
        }
    }
};

}  // namespace lsq
SW_END
