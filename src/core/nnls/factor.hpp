// The factor of the positive columns, in the order they were inserted (Luo & Duraiswami, section 3): a new
// column is always the last, a removed one is rotated out. R and Q'b always; Q only for the updates that keep
// it.
#pragma once

#include "core/nnls/workspace.hpp"

SW_BEGIN
namespace nnls {

enum class Entry { entered, dependent, escalate };

template <class Team>
struct Factor {
    const Team& team;
    const Setting& setting;
    const Workspace& ws;
    Tally& tally;
    Triangle triangle;
    int update;
    int count = 0;
    int settled = 0;  // on so many positions x is the least-squares solution

    SW_HD Factor(const Team& team, const Setting& setting, Tally& tally)
        : team(team),
          setting(setting),
          ws(setting.ws),
          tally(tally),
          triangle(setting.ws.triangle),
          update(setting.options.update) {}

    SW_HD bool keeps_q() const { return update == cgs2 || update == mgs || update == rotations; }

    SW_HD Columns positive() const {
        const Shared& shared = setting.shared;
        const int length = setting.extent.row_length();
        if (shared.columns)
            return {shared.columns, shared.column_stride, ws.order, shared.low, shared.high, length};
        return {ws.panel, length, ws.slot, ws.low, ws.high, length};
    }

    SW_HD Columns q(int columns_length) const {
        return {ws.q, setting.extent.q_length(), nullptr, nullptr, nullptr, columns_length};
    }

    // Inserts column j, which is already gathered at position `count`. `against` is b or the residual at x:
    // the new column of Q has the same product with both. `product` is a_j . (b - A x), where x is settled,
    // or a_j . b. Of the `others` candidates at the positions after it, products_with_others() then tells.
    SW_CALL Entry enter(int j, const double* against, double product, int settled_there, int others) {
        if (count >= setting.extent.most_columns) return Entry::dependent;
        if (triangle.is_full(count)) triangle.make_room(team, count);
        double pivot, entry;
        const Entry outcome = keeps_q() ? orthogonalise(j, against, pivot, entry)
                                        : normal(j, against, product, settled_there, others, pivot, entry);
        if (outcome != Entry::entered) return outcome;
        if (team.row() == 0) triangle.append(team, count, ws.h, pivot, entry);
        if (team.rank() == 0) ws.x[count] = 0;
        ++count;
        ++tally.insertions;
        team.sync();
        return outcome;
    }

    // a_c . a_j of the candidates c at the positions from `count` on, a_j the column inserted last.
    SW_CALL const double* products_with_others(int others) {
        if (!keeps_q()) return ws.h + count;
        const Columns columns = positive();
        Columns candidates = columns;
        candidates.slot += count;
        dot_columns(team, candidates, others, columns.at(count - 1), columns.first(count - 1),
                    columns.last(count - 1), ws.g);
        return ws.g;
    }

    // Removes the column at a position by rotations (Luo & Duraiswami, algorithm 3).
    SW_CALL void leave(int position) {
        shift_lists(position);
        triangle.remove(team, count, position);
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
        ++tally.removals;
    }

    // Takes the last column back: nothing to rotate.
    SW_HD void take_back() { --count; }

    // z = R^-1 Q'b, the least-squares solution on the positive columns.
    SW_CALL void solve() {
        if (team.row() == 0) {
            team.lane_each(count, [&](int p) { ws.z[p] = ws.triangle.target[p]; });
            team.lane_sync();
            triangle.solve(team, count, ws.z);
        }
        team.sync();
    }

    // One step of refinement from the gradient s = A_P'(b - A x) in ws.g: corrects Q'b and solves again.
    SW_CALL void refine() {
        if (team.row() == 0) {
            triangle.solve_transposed(team, count, ws.g);
            team.lane_sync();
            team.lane_each(count, [&](int p) { ws.triangle.target[p] += ws.g[p]; });
            team.lane_sync();
        }
        team.sync();
        solve();
    }

private:
    // A charge on the insertions, kept by the first member.
    SW_HD void charge(int64_t accesses, int64_t flops) const {
        if (team.rank() != 0) return;
        ws.costs[0] += accesses;
        ws.costs[1] += flops;
    }

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

    // R's new column from the normal equations; where the pivot is small, corrected with A (equation 3.2).
    SW_CALL Entry normal(int j, const double* against, double product, int settled_there, int others,
                         double& pivot, double& entry) {
        const Columns columns = positive();
        const Shared& shared = setting.shared;
        const int wanted = others > 0 ? count + 1 + others : count;
        const double square = setting.norm_of(j) * setting.norm_of(j);
        const double* column = columns.at(count);
        const int first = columns.first(count), last = columns.last(count);
        const int64_t m = setting.extent.rows, k = count;
        if (shared.gram) {
            const double* products = shared.gram + j * shared.gram_stride;
            team.few(wanted, [&](int p) { ws.h[p] = products[ws.order[p]]; });
            team.sync();
        } else {
            dot_columns(team, columns, wanted, column, first, last, ws.h);
            charge(k + 1, 2 * m * k);
        }
        if (team.row() == 0) {
            triangle.solve_transposed(team, count, ws.h);
            const double inside = lane_dot(team, ws.h, ws.h, count);
            // Q'(b - A x) is zero where x is settled and Q'b on the positions after.
            const double along = lane_dot(team, ws.h + settled_there, ws.triangle.target + settled_there,
                                          count - settled_there);
            if (team.lane() == 0) {
                ws.note[0] = inside;
                ws.note[1] = along;
            }
        }
        team.sync();
        charge(1, k * k + 4 * k);
        const double outside = square - ws.note[0];
        const double small = correct_below * correct_below * square;
        if (update == gram && outside > small) {
            pivot = square_root(outside);
            entry = (product - ws.note[1]) / pivot;
            return Entry::entered;
        }
        return correct(j, against, pivot, entry);
    }

    // Corrected semi-normal equations: v = a_j - A_P z is formed from A, twice.
    SW_CALL Entry correct(int j, const double* against, double& pivot, double& entry) {
        const Columns columns = positive();
        const int length = setting.extent.row_length();
        const int64_t m = setting.extent.rows, k = count;
        if (team.row() == 0) {
            team.lane_each(count, [&](int p) { ws.z[p] = ws.h[p]; });
            team.lane_sync();
            triangle.solve(team, count, ws.z);
        }
        copy_column(team, columns, count, ws.v, length);
        team.sync();
        subtract_columns(team, columns, count, ws.z, ws.v, length);
        dot_columns(team, columns, count, ws.v, 0, length, ws.g);
        if (team.row() == 0) {
            // Rows of the damping: column p has only its own, below(p), where v holds -below(p) z_p.
            team.lane_each(count, [&](int p) {
                const double d = setting.below(ws.order[p]);
                ws.g[p] -= d * d * ws.z[p];
            });
            team.lane_sync();
            triangle.solve_transposed(team, count, ws.g);
            team.lane_each(count, [&](int p) { ws.h[p] += ws.g[p]; });
            team.lane_sync();
            triangle.solve(team, count, ws.g);
        }
        team.sync();
        subtract_columns(team, columns, count, ws.g, ws.v, length);
        double part = 0;
        team.few(count, [&](int p) {
            const double d = setting.below(ws.order[p]) * (ws.z[p] + ws.g[p]);
            part += d * d;
        });
        const double own = setting.below(j);
        const double square = team.sum(part + part_of_dot(team, ws.v, ws.v, length)) + own * own;
        double product = part_of_dot(team, ws.v, against, length);
        // b - A x below A: the rows of the damping hold -below(p) x_p, unless `against` is b itself.
        if (setting.options.damping > 0 && against != ws.b)
            team.few(count, [&](int p) {
                const double d = setting.below(ws.order[p]);
                product += d * d * (ws.z[p] + ws.g[p]) * ws.x[p];
            });
        pivot = square_root(square);
        entry = team.sum(product) / pivot;
        charge(3 * k + 1, 6 * m * k + 4 * m + 3 * k * k + 3 * k);
        if (pivot <= dependence * setting.norm_of(j)) return Entry::dependent;
        if (update == gram && pivot < escalate_below * setting.norm_of(j)) return Entry::escalate;
        return Entry::entered;
    }

    // R's new column and Q's from the column itself.
    SW_CALL Entry orthogonalise(int j, const double* against, double& pivot, double& entry) {
        const int length = setting.extent.row_length(), q_length = setting.extent.q_length();
        copy_column(team, positive(), count, ws.v, length);
        if (setting.extent.damped)
            team.each(q_length - length, [&](int i) { ws.v[length + i] = i == j ? setting.below(j) : 0.0; });
        team.sync();
        if (update == rotations) return rotate_in(j, against, pivot, entry);
        if (update == mgs)
            modified_gram_schmidt(q_length);
        else
            classical_gram_schmidt_twice(q_length);
        pivot = square_root(team.sum(part_of_dot(team, ws.v, ws.v, q_length)));
        if (pivot <= dependence * setting.norm_of(j)) return Entry::dependent;
        double* fresh = ws.q + static_cast<int64_t>(count) * q_length;
        const double inverse = 1.0 / pivot;
        team.each(q_length, [&](int i) { fresh[i] = ws.v[i] * inverse; });
        team.sync();
        entry = product_below(fresh, against);
        return Entry::entered;
    }

    // q . (b - A x), the rows of the damping included.
    SW_CALL double product_below(const double* column, const double* against) const {
        const int length = setting.extent.row_length();
        double part = part_of_dot(team, column, against, length);
        if (setting.extent.damped && against != ws.b)
            team.few(count, [&](int p) {
                const int j = ws.order[p];
                part -= column[length + j] * setting.below(j) * ws.x[p];
            });
        return team.sum(part);
    }

    SW_CALL void classical_gram_schmidt_twice(int length) {
        const Columns basis = q(length);
        dot_columns(team, basis, count, ws.v, 0, length, ws.h);
        subtract_columns(team, basis, count, ws.h, ws.v, length);
        dot_columns(team, basis, count, ws.v, 0, length, ws.g);
        subtract_columns(team, basis, count, ws.g, ws.v, length);
        team.few(count, [&](int p) { ws.h[p] += ws.g[p]; });
        team.sync();
        const int64_t m = setting.extent.rows, k = count;
        charge(2 * k + 2, 8 * m * k + k + 3 * m + 1);
    }

    SW_CALL void modified_gram_schmidt(int length) {
        for (int p = 0; p < count; ++p) {
            const double* basis = ws.q + static_cast<int64_t>(p) * length;
            const double product = team.sum(part_of_dot(team, basis, ws.v, length));
            team.each(length, [&](int i) { ws.v[i] -= product * basis[i]; });
            if (team.rank() == 0) ws.h[p] = product;
            team.sync();
        }
        const int64_t m = setting.extent.rows, k = count;
        charge(k + 2, 4 * m * k + 3 * m + 1);
    }

    // Q is square and starts as the identity; rotations bring Q'a_j to zero below the diagonal (section 3.2).
    SW_CALL Entry rotate_in(int j, const double* against, double& pivot, double& entry) {
        const int length = setting.extent.q_length();
        const int64_t m = setting.extent.rows;
        double* image = ws.image;
        dot_columns(team, q(length), length, ws.v, 0, length, image);
        int turns = 0;
        for (int t = length - 2; t >= count; --t) {
            const double a = image[t], b = image[t + 1];
            const double size = square_root(a * a + b * b);
            team.sync();
            if (size == 0 || b == 0) continue;
            ++turns;
            double *upper = ws.q + static_cast<int64_t>(t) * length, *lower = upper + length;
            const double c = a / size, s = b / size;
            team.each(length, [&](int i) {
                const double above = upper[i], under = lower[i];
                upper[i] = c * above + s * under;
                lower[i] = c * under - s * above;
            });
            if (team.rank() == 0) {
                image[t] = size;
                image[t + 1] = 0;
            }
            team.sync();
        }
        team.few(count, [&](int p) { ws.h[p] = image[p]; });
        pivot = image[count];
        team.sync();
        charge(2 * turns, 6 * m * turns + 2 * m * m + 8 * turns);
        if (absolute(pivot) <= dependence * setting.norm_of(j)) return Entry::dependent;
        entry = product_below(ws.q + static_cast<int64_t>(count) * length, against);
        if (pivot < 0) {  // only when there was nothing to rotate: the last row
            double* fresh = ws.q + static_cast<int64_t>(count) * length;
            team.each(length, [&](int i) { fresh[i] = -fresh[i]; });
            team.sync();
            pivot = -pivot;
            entry = -entry;
        }
        return Entry::entered;
    }
};

}  // namespace nnls
SW_END
