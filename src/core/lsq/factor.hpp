// The factor of the positive columns, in the order they were inserted (Luo & Duraiswami, section 3): a new
// column is always the last, a removed one is rotated out. R and Q'b always; Q only for the updates that keep
// it.
#pragma once

#include "core/lsq/block_entry.hpp"

SW_BEGIN
namespace lsq {

template <class Team>
struct Factor : FactorState<Team> {
    using FactorState<Team>::count;
    using FactorState<Team>::keeps_q;
    using FactorState<Team>::setting;
    using FactorState<Team>::team;
    using FactorState<Team>::triangle;
    using FactorState<Team>::ws;

    int insertions = 0, removals = 0;

    SW_HD Factor(const Team& team, const Setting& setting) : FactorState<Team>(team, setting) {}

    // What column j, which is already gathered at position `count`, brings; R's new column is in ws.h.
    // `against` is b or the residual at x: the new column of Q has the same product with both. `product` is
    // a_j . (b - A x), where x is settled, or a_j . b. Of the `others` candidates at the positions after it,
    // products_with_others() then tells.
    // Where a sum is bound, `product` has its multiplier times the column's coefficient in it.
    SW_HD Inserted weigh(int j, const double* against, double product, int settled_there, int others,
                         double multiplier = 0) {
        if (count >= setting.extent.max_columns) return {Entry::dependent, 0, 0, 0, 0};
        if (triangle.is_full(count)) triangle = Triangle(Packing::widened(team, triangle, count));
        Inserted column =
            keeps_q() ? insert_by_csne_or_qr<Team>(*this, j, against)
                      : insert_by_gram<Team>(*this, j, against, product, settled_there, others, multiplier);
        if (ws.triangle.sum && column.outcome == Entry::entered)
            column.share = this->share_of(j, column.inverse);
        return column;
    }

    // The new unknown's value in the solution with the column weighed last, times its pivot.
    SW_HD double promise(const Inserted& column) const {
        const double* sum = ws.triangle.sum;
        if (!sum) return column.target;
        return column.target + this->multiplier_with(column.share, column.target) * column.share;
    }

    // a_c . a_j of the candidates c at the positions after `count`, a_j the column weighed last.
    SW_HD const double* products_with_others(int others) {
        if (!keeps_q()) return ws.h + count + 1;
        this->products(count, count + 1, others, ws.g);
        return ws.g;
    }

    // Inserts the column weighed last. No sync.
    SW_HD void accept(const Inserted& column) {
        if (this->inverted())
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
        if (!enter_in_blocks<Team>(*this, number)) return false;
        count = last;
        insertions += number;
        return true;
    }

    // Removes the column at a position by rotations (Luo & Duraiswami, algorithm 3).
    SW_HD void leave(int position) {
        shift_lists(position);
        if (this->inverted())
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
        this->settled = min_of(this->settled, left);
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
        if (!sum || count == 0) return this->solve_with_r(target, ws.z);
        const double mu = this->multiplier_with(0, 0);
        double* z = ws.z;
        team.each_short(count, [=](int p) { z[p] = target[p] + mu * sum[p]; });
        team.sync();
        this->solve_with_r(z, z);
    }

    // The unknown at a position stays at d when it leaves: Q'b without it is Q'b - d R e_p. Ends in a sync.
    SW_HD void shift_target(int position, double d) {
        double* target = ws.triangle.target;
        if (this->inverted()) {
            // R e_p = R^-T (A_P' a_p)
            double* g = ws.g;
            this->products(position, 0, count, g);
            this->solve_with_r_transposed(g, g);
            team.each_short(count, [=](int p) { target[p] -= d * g[p]; });
        } else {
            team.each_short(position + 1, [&](int t) { target[t] -= d * triangle.row(t)[position]; });
        }
        team.sync();
    }

    // One step of refinement from the gradient s = A_P'(b - A x) in ws.g: corrects Q'b and solves again.
    SW_HD void refine() {
        this->solve_with_r_transposed(ws.g, ws.g);
        team.each_short(count, [&](int p) { ws.triangle.target[p] += ws.g[p]; });
        team.sync();
        solve();
    }

    // Starts anew, with another update.
    SW_HD void restart(int next_update) {
        this->update = next_update;
        triangle = Triangle(Packing(ws.triangle));
        count = this->settled = 0;
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
