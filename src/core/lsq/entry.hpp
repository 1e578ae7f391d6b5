// How a new column enters a factor, by each update. The factor is left as it is, but for ws.h, R's new
// column, and Q's.
#pragma once

#include "core/lsq/columns.hpp"
#include "core/lsq/inverse.hpp"
#include "core/lsq/triangle.hpp"
#include "core/lsq/workspace.hpp"

SW_BEGIN
namespace lsq {

enum class Entry { entered, dependent, escalate };

// What came of a column: R's new diagonal, its inverse, and Q'b's new entry; and the sum's, R^-T c.
struct Entrance {
    Entry outcome;
    double pivot, inverse, target;
    double share = 0;
};

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
    OfGeneral<double> penalty{}, row_weight{}, remainder{};

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

template <class Team>
struct CarefulEntry : FactorState<Team> {
    using FactorState<Team>::charge;
    using FactorState<Team>::count;
    using FactorState<Team>::positive;
    using FactorState<Team>::q;
    using FactorState<Team>::setting;
    using FactorState<Team>::team;
    using FactorState<Team>::triangle;
    using FactorState<Team>::update;
    using FactorState<Team>::ws;

    SW_HD explicit CarefulEntry(const FactorState<Team>& factor) : FactorState<Team>(factor) {}

    // Corrected semi-normal equations: v = a_j - A_P z is formed from A, twice.
    SW_HD Entrance correct(int j, const double* against) const {
        const Columns columns = positive();
        const int length = setting.extent.row_length();
        const int64_t m = setting.extent.rows, k = count;
        copy_column(team, columns, count, ws.v, length);
        this->solve_with_r(ws.h, ws.z);
        subtract_columns(team, columns, count, ws.z, ws.v, length);
        dot_columns(team, columns, count, this->under_metric(ws.v), 0, length, ws.g);
        if (setting.extent.damped) {
            // Rows of the damping: column p has only its own, below(p), where v holds -below(p) z_p.
            team.each_short(count, [&](int p) {
                const double d = setting.below(ws.order[p]);
                ws.g[p] -= d * d * ws.z[p];
            });
            team.sync();
        }
        this->solve_with_r_transposed(ws.g, ws.g);
        team.each_short(count, [&](int p) { ws.h[p] += ws.g[p]; });
        team.sync();
        this->solve_with_r(ws.g, ws.g);
        subtract_columns(team, columns, count, ws.g, ws.v, length);
        double part = 0;
        team.each_short(count, [&](int p) {
            const double d = setting.below(ws.order[p]) * (ws.z[p] + ws.g[p]);
            part += d * d;
        });
        const double own = setting.below(j);
        const double square =
            team.sum(part + part_of_dot(team, ws.v, this->under_metric(ws.v), length)) + own * own;
        double product = part_of_dot(team, ws.v, against, length);
        // b - A x below A: the rows of the damping hold -below(p) x_p, unless `against` is b itself.
        if (setting.options.damping > 0 && against != ws.b)
            team.each_short(count, [&](int p) {
                const double d = setting.below(ws.order[p]);
                product += d * d * (ws.z[p] + ws.g[p]) * ws.x[p];
            });
        const double pivot = square_root(square), inverse = 1.0 / pivot, entry = team.sum(product) * inverse;
        charge(3 * k + 1, 6 * m * k + 4 * m + 3 * k * k + 3 * k);
        if (pivot <= dependence * setting.norm_of(j)) return {Entry::dependent, 0, 0, 0, 0};
        if (update == gram && pivot < escalate_below * setting.norm_of(j))
            return {Entry::escalate, 0, 0, 0, 0};
        return {Entry::entered, pivot, inverse, entry, 0};
    }

    // R's new column and Q's from the column itself.
    SW_HD Entrance orthogonalise(int j, const double* against) const {
        const int length = setting.extent.row_length(), q_length = setting.extent.q_length();
        copy_column(team, positive(), count, ws.v, length);
        if (setting.extent.damped)
            team.each(q_length - length, [&](int i) { ws.v[length + i] = i == j ? setting.below(j) : 0.0; });
        if (ws.metric) team.each(length, [&](int i) { ws.v[i] *= ws.root[i]; });
        team.sync();
        if (update == rotations) return rotate_in(j, against);
        if (update == mgs)
            modified_gram_schmidt(q_length);
        else
            classical_gram_schmidt_twice(q_length);
        const double pivot = square_root(team.sum(part_of_dot(team, ws.v, ws.v, q_length)));
        if (pivot <= dependence * setting.norm_of(j)) return {Entry::dependent, 0, 0, 0, 0};
        double* fresh = ws.q + static_cast<int64_t>(count) * q_length;
        const double inverse = 1.0 / pivot;
        team.each(q_length, [&](int i) { fresh[i] = ws.v[i] * inverse; });
        team.sync();
        return {Entry::entered, pivot, inverse, product_below(fresh, against), 0};
    }

    // q . (b - A x), the rows of the damping included.
    SW_HD double product_below(const double* column, const double* against) const {
        const int length = setting.extent.row_length();
        double part = 0;
        if (ws.metric)
            team.each(length, [&](int i) { part += column[i] * against[i] * ws.inverse_root[i]; });
        else
            part = part_of_dot(team, column, against, length);
        if (setting.extent.damped && against != ws.b)
            team.each_short(count, [&](int p) {
                const int j = ws.order[p];
                part -= column[length + j] * setting.below(j) * ws.x[p];
            });
        return team.sum(part);
    }

    SW_HD void classical_gram_schmidt_twice(int length) const {
        const Columns basis = q(length);
        dot_columns(team, basis, count, ws.v, 0, length, ws.h);
        subtract_columns(team, basis, count, ws.h, ws.v, length);
        dot_columns(team, basis, count, ws.v, 0, length, ws.g);
        subtract_columns(team, basis, count, ws.g, ws.v, length);
        team.each_short(count, [&](int p) { ws.h[p] += ws.g[p]; });
        team.sync();
        const int64_t m = setting.extent.rows, k = count;
        charge(2 * k + 2, 8 * m * k + k + 3 * m + 1);
    }

    SW_HD void modified_gram_schmidt(int length) const {
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
    SW_HD Entrance rotate_in(int j, const double* against) const {
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
        team.each_short(count, [&](int p) { ws.h[p] = image[p]; });
        double pivot = image[count];
        team.sync();
        charge(2 * turns, 6 * m * turns + 2 * m * m + 8 * turns);
        if (absolute(pivot) <= dependence * setting.norm_of(j)) return {Entry::dependent, 0, 0, 0, 0};
        double entry = product_below(ws.q + static_cast<int64_t>(count) * length, against);
        if (pivot < 0) {  // only when there was nothing to rotate: the last row
            double* fresh = ws.q + static_cast<int64_t>(count) * length;
            team.each(length, [&](int i) { fresh[i] = -fresh[i]; });
            team.sync();
            pivot = -pivot;
            entry = -entry;
        }
        return {Entry::entered, pivot, 1.0 / pivot, entry, 0};
    }
};

// Called on a copy: the factor itself then stays in the registers of a device's thread.
template <class Team>
SW_CALL Entrance enter_with_care(const FactorState<Team> factor, int j, const double* against) {
    const CarefulEntry<Team> entry(factor);
    if (factor.keeps_q()) return entry.orthogonalise(j, against);
    return entry.correct(j, against);
}

// R's new column from the normal equations; where the pivot is small, corrected with A (equation 3.2). After
// it in ws.h are the products with the `others` candidates that follow.
template <class Team>
SW_CALL Entrance enter_plainly(const FactorState<Team> factor, int j, const double* against, double product,
                               int settled_there, int others, double multiplier) {
    const Team& team = factor.team;
    const Setting& setting = factor.setting;
    const Workspace& ws = factor.ws;
    const int count = factor.count, wanted = others > 0 ? count + 1 + others : count;
    const double square = setting.norm_of(j) * setting.norm_of(j);
    const int64_t m = setting.extent.rows, k = count;
    double* h = ws.h;
    factor.products(count, 0, wanted, h);
    factor.solve_with_r_transposed(h, h);
    // Q'(b - A x) is zero where x is settled and Q'b on the positions after. Each group sums for itself.
    const double* target = ws.triangle.target;
#if defined(__CUDACC__)
    double inside = 0, along = 0;
    team.lane_each(count, [&](int p) {
        inside += h[p] * h[p];
        if (p >= settled_there) along += h[p] * target[p];
    });
    inside = team.lane_sum(inside);
    along = team.lane_sum(along);
#else
    (void)team;
    const double inside = dot(h, h, count);
    const double along = dot(h + settled_there, target + settled_there, count - settled_there);
#endif
    // Where a sum is bound, they hold mu times R^-T c as well.
    const double* sum = ws.triangle.sum;
    double along_sum = 0;
    if (multiplier == 0) sum = nullptr;
    if (sum) {
        team.lane_each(count - settled_there,
                       [&](int p) { along_sum += h[settled_there + p] * sum[settled_there + p]; });
        along_sum = multiplier * team.lane_sum(along_sum);
    }
    const bool formed = !setting.shared.gram;  // the products were not at hand
    factor.charge(1 + formed * (k + 1), k * k + 4 * k + formed * 2 * m * k);
    const double outside = square - inside;
    double small = correct_below * correct_below * square;
    // Normal equations that are given leave nothing to correct with.
    if (setting.extent.gram_only) {
        small = dependent_below(setting.extent.columns) * square;
        if (!(outside > small)) return {Entry::dependent, 0, 0, 0, 0};
    }
    if (factor.update == gram && outside > small) {
        const double inverse = inverse_root(outside);
        double target = (product - along) * inverse;
        if (sum) target = (product - along - along_sum) * inverse - multiplier * factor.share_of(j, inverse);
        return {Entry::entered, outside * inverse, inverse, target, 0};
    }
    return enter_with_care<Team>(factor, j, against);
}

}  // namespace lsq
SW_END
