// How a new column enters a factor, by each update. The factor is left as it is, but for ws.h, R's new
// column, and Q's.
#pragma once

#include "core/lsq/factor.hpp"

SW_BEGIN
namespace lsq {

// Corrected semi-normal equations: v = a_j - A_P z is formed from A, twice.
template <class Team>
SW_HD Inserted correct(const Factor<Team>& factor, int j, const double* against) {
    const Team& team = factor.team;
    const Setting& setting = factor.setting;
    const Workspace& ws = factor.ws;
    const Columns columns = factor.positive();
    const int length = setting.extent.row_length();
    const int64_t m = setting.extent.rows, k = factor.count;
    copy_column(team, columns, factor.count, ws.v, length);
    factor.solve_with_r(ws.h, ws.z);
    subtract_columns(team, columns, factor.count, ws.z, ws.v, length);
    dot_columns(team, columns, factor.count, factor.under_metric(ws.v), 0, length, ws.g);
    if (setting.extent.damped) {
        // Rows of the damping: column p has only its own, below(p), where v holds -below(p) z_p.
        team.each_short(factor.count, [&](int p) {
            const double d = setting.below(ws.order[p]);
            ws.g[p] -= d * d * ws.z[p];
        });
        team.sync();
    }
    factor.solve_with_r_transposed(ws.g, ws.g);
    team.each_short(factor.count, [&](int p) { ws.h[p] += ws.g[p]; });
    team.sync();
    factor.solve_with_r(ws.g, ws.g);
    subtract_columns(team, columns, factor.count, ws.g, ws.v, length);
    double part = 0;
    team.each_short(factor.count, [&](int p) {
        const double d = setting.below(ws.order[p]) * (ws.z[p] + ws.g[p]);
        part += d * d;
    });
    const double own = setting.below(j);
    const double square =
        team.sum(part + part_of_dot(team, ws.v, factor.under_metric(ws.v), length)) + own * own;
    double product = part_of_dot(team, ws.v, against, length);
    // b - A x below A: the rows of the damping hold -below(p) x_p, unless `against` is b itself.
    if (setting.options.damping > 0 && against != ws.b)
        team.each_short(factor.count, [&](int p) {
            const double d = setting.below(ws.order[p]);
            product += d * d * (ws.z[p] + ws.g[p]) * ws.x[p];
        });
    const double pivot = square_root(square), inverse = 1.0 / pivot, entry = team.sum(product) * inverse;
    factor.charge(3 * k + 1, 6 * m * k + 4 * m + 3 * k * k + 3 * k);
    if (pivot <= dependence * setting.norm_of(j)) return {Entry::dependent, 0, 0, 0, 0};
    if (factor.update == gram && pivot < escalate_below * setting.norm_of(j))
        return {Entry::escalate, 0, 0, 0, 0};
    return {Entry::entered, pivot, inverse, entry, 0};
}

// R's new column and Q's from the column itself.
template <class Team>
SW_HD Inserted orthogonalise(const Factor<Team>& factor, int j, const double* against) {
    const Team& team = factor.team;
    const Setting& setting = factor.setting;
    const Workspace& ws = factor.ws;
    const int length = setting.extent.row_length(), q_length = setting.extent.q_length();
    copy_column(team, factor.positive(), factor.count, ws.v, length);
    if (setting.extent.damped)
        team.each(q_length - length, [&](int i) { ws.v[length + i] = i == j ? setting.below(j) : 0.0; });
    if (ws.metric) team.each(length, [&](int i) { ws.v[i] *= ws.root[i]; });
    team.sync();
    if (factor.update == rotations) return rotate_in(factor, j, against);
    if (factor.update == mgs)
        modified_gram_schmidt(factor, q_length);
    else
        classical_gram_schmidt_twice(factor, q_length);
    const double pivot = square_root(team.sum(part_of_dot(team, ws.v, ws.v, q_length)));
    if (pivot <= dependence * setting.norm_of(j)) return {Entry::dependent, 0, 0, 0, 0};
    double* fresh = ws.q + static_cast<int64_t>(factor.count) * q_length;
    const double inverse = 1.0 / pivot;
    team.each(q_length, [&](int i) { fresh[i] = ws.v[i] * inverse; });
    team.sync();
    return {Entry::entered, pivot, inverse, product_below(factor, fresh, against), 0};
}

// q . (b - A x), the rows of the damping included.
template <class Team>
SW_HD double product_below(const Factor<Team>& factor, const double* column, const double* against) {
    const Team& team = factor.team;
    const Setting& setting = factor.setting;
    const Workspace& ws = factor.ws;
    const int length = setting.extent.row_length();
    double part = 0;
    if (ws.metric)
        team.each(length, [&](int i) { part += column[i] * against[i] * ws.inverse_root[i]; });
    else
        part = part_of_dot(team, column, against, length);
    if (setting.extent.damped && against != ws.b)
        team.each_short(factor.count, [&](int p) {
            const int j = ws.order[p];
            part -= column[length + j] * setting.below(j) * ws.x[p];
        });
    return team.sum(part);
}

template <class Team>
SW_HD void classical_gram_schmidt_twice(const Factor<Team>& factor, int length) {
    const Team& team = factor.team;
    const Workspace& ws = factor.ws;
    const Columns basis = factor.q(length);
    dot_columns(team, basis, factor.count, ws.v, 0, length, ws.h);
    subtract_columns(team, basis, factor.count, ws.h, ws.v, length);
    dot_columns(team, basis, factor.count, ws.v, 0, length, ws.g);
    subtract_columns(team, basis, factor.count, ws.g, ws.v, length);
    team.each_short(factor.count, [&](int p) { ws.h[p] += ws.g[p]; });
    team.sync();
    const int64_t m = factor.setting.extent.rows, k = factor.count;
    factor.charge(2 * k + 2, 8 * m * k + k + 3 * m + 1);
}

template <class Team>
SW_HD void modified_gram_schmidt(const Factor<Team>& factor, int length) {
    const Team& team = factor.team;
    const Workspace& ws = factor.ws;
    for (int p = 0; p < factor.count; ++p) {
        const double* basis = ws.q + static_cast<int64_t>(p) * length;
        const double product = team.sum(part_of_dot(team, basis, ws.v, length));
        team.each(length, [&](int i) { ws.v[i] -= product * basis[i]; });
        if (team.rank() == 0) ws.h[p] = product;
        team.sync();
    }
    const int64_t m = factor.setting.extent.rows, k = factor.count;
    factor.charge(k + 2, 4 * m * k + 3 * m + 1);
}

// Q is square and starts as the identity; rotations bring Q'a_j to zero below the diagonal (section 3.2).
template <class Team>
SW_HD Inserted rotate_in(const Factor<Team>& factor, int j, const double* against) {
    const Team& team = factor.team;
    const Setting& setting = factor.setting;
    const Workspace& ws = factor.ws;
    const int length = setting.extent.q_length();
    const int64_t m = setting.extent.rows;
    double* image = ws.image;
    dot_columns(team, factor.q(length), length, ws.v, 0, length, image);
    int turns = 0;
    for (int t = length - 2; t >= factor.count; --t) {
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
    team.each_short(factor.count, [&](int p) { ws.h[p] = image[p]; });
    double pivot = image[factor.count];
    team.sync();
    factor.charge(2 * turns, 6 * m * turns + 2 * m * m + 8 * turns);
    if (absolute(pivot) <= dependence * setting.norm_of(j)) return {Entry::dependent, 0, 0, 0, 0};
    double entry = product_below(factor, ws.q + static_cast<int64_t>(factor.count) * length, against);
    if (pivot < 0) {  // only when there was nothing to rotate: the last row
        double* fresh = ws.q + static_cast<int64_t>(factor.count) * length;
        team.each(length, [&](int i) { fresh[i] = -fresh[i]; });
        team.sync();
        pivot = -pivot;
        entry = -entry;
    }
    return {Entry::entered, pivot, 1.0 / pivot, entry, 0};
}

// Called on a copy: the factor itself then stays in the registers of a device's thread.
template <class Team>
SW_CALL Inserted insert_by_csne_or_qr(const Factor<Team> factor, int j, const double* against) {
    if (factor.keeps_q()) return orthogonalise(factor, j, against);
    return correct(factor, j, against);
}

// R's new column from the normal equations; where the pivot is small, corrected with A (equation 3.2). After
// it in ws.h are the products with the `others` candidates that follow.
template <class Team>
SW_CALL Inserted insert_by_gram(const Factor<Team> factor, int j, const double* against, double product,
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
    return insert_by_csne_or_qr(factor, j, against);
}

}  // namespace lsq
SW_END
