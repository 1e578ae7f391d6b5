// The solves of core/lsq/free_solve.hpp, by a team a system or, with a kept factor, a right-hand side.
#pragma once

#include "core/lsq/free_solve.hpp"
#include "core/lsq/inverse.hpp"
#include "core/lsq/scaling.hpp"

SW_BEGIN
namespace lsq {

// Solves with a factor that was kept; a team takes one right-hand side of one system.
template <class Scalar, class Team>
SW_HD void solve_with_kept(const Team& team, const KeptLaunch& launch, int64_t side, double* scratch) {
    const int n = launch.columns;
    const int64_t system = side / launch.right_sides;
    const int32_t* order = launch.order + system * (n + 1);
    const int count = order[0];
    const Scalar* g = static_cast<const Scalar*>(launch.g) + side * n;
    Scalar* u = static_cast<Scalar*>(launch.u) + side * n;
    const Scalar nothing = count < 0 ? Scalar(double_nan()) : Scalar(0);
    team.each(n, [&](int j) { u[j] = nothing; });
    if (count <= 0) return;
    TriangleStorage storage{};
    storage.near_capacity = count;
    storage.near_entries =
        const_cast<double*>(launch.factor) + system * (static_cast<int64_t>(n) * (n + 1) / 2);
    storage.scratch = scratch + 2 * n;
    const Packing inverse(storage);
    double *given = scratch, *found = scratch + n;
    team.each(count, [&](int p) { given[p] = double(g[order[1 + p]]); });
    team.sync();
    Inverse::multiply<true>(team, inverse, count, given, found);
    Inverse::multiply<false>(team, inverse, count, found, given);
    team.each(count, [&](int p) { u[order[1 + p]] = Scalar(given[p]); });
    team.sync();
}

template <class Scalar, class Team>
struct FreeSolve {
    const Team& team;
    const FreeLaunch& launch;
    const int64_t system;
    FreeSpace space{};
    int count = 0;
    double damping = 0;

    SW_HD FreeSolve(const Team& team, const FreeLaunch& launch, int64_t system)
        : team(team), launch(launch), system(system) {}

    SW_HD void run(Arena arena) {
        space.carve_order(arena, n());
        damping = launch.damping ? launch.damping[system * launch.damping_stride] : launch.fixed_damping;
        if (!list_free()) return write_nothing();
        space.carve(arena, launch.rows, count, damping != 0, team.rows());
        gather();
        factor();
        for (int base = 0; base < launch.right_sides; base += team.rows()) solve(base + team.row());
        team.sync();
        if (launch.image) pull_back();
    }

private:
    SW_HD int n() const { return launch.columns; }
    SW_HD const Scalar* a() const { return static_cast<const Scalar*>(launch.a) + system * launch.a_stride; }
    SW_HD const Scalar* marks() const {
        return static_cast<const Scalar*>(launch.marks) + system * launch.marks_stride;
    }
    SW_HD double* column(int t) const { return space.column + static_cast<int64_t>(t) * space.length; }
    SW_HD double* r(int t) const { return space.r + static_cast<int64_t>(t) * space.stride; }
    SW_HD int64_t first_side() const { return system * launch.right_sides; }

    // The free columns, in order. False where a mark is no number.
    SW_HD bool list_free() {
        const Scalar* mark = marks();
        double odd = 0;
        for (int base = 0; base < n(); base += team.size()) {
            const int j = base + team.rank();
            const Scalar own = j < n() ? mark[j] : Scalar(0);
            if (own != own) odd = 1;
            int passed;
            const int place = count + team.place(own > 0, passed);
            if (own > 0) space.order[place] = j;
            count += passed;
        }
        odd = team.max(odd);
        team.sync();
        return odd == 0;
    }

    SW_HD void gather() const {
        const Scalar* entries = a();
        const int rows = launch.rows;
        for (int i = team.row(); i < rows; i += team.rows())
            team.lane_each(count, [&](int t) {
                column(t)[i] = double(entries[static_cast<int64_t>(i) * n() + space.order[t]]);
            });
        // The damping's own rows, and what makes the length odd.
        for (int i = rows + team.row(); i < space.length; i += team.rows())
            team.lane_each(count, [&](int t) { column(t)[i] = i - rows == t ? damping : 0.0; });
        team.sync();
        for (int t = team.row(); t < count; t += team.rows()) {
            const double square = product(column(t), column(t));
            if (team.lane() == 0) space.norm[t] = square_root(square);
        }
        team.sync();
    }

    SW_HD double product(const double* left, const double* right) const {
        double sum = 0;
        SW_UNROLL_BY(4)
        for (int i = team.lane(); i < space.length; i += team.lanes()) sum += left[i] * right[i];
        return team.lane_sum(sum);
    }

    SW_HD void factor() const {
        const double rounding = 1e-15 * square_root(static_cast<double>(space.length));
        for (int t = 0; t < count; ++t) {
            // Each group of lanes for itself: less than a wait.
            const double square = product(column(t), column(t)), left = square_root(square);
            // What rounding leaves of a column that depends on the others: it has no say.
            const bool sound = left > rounding * space.norm[t];
            if (team.rank() == 0) r(t)[t] = sound ? left : 0.0;
            if (sound) {
                const int rest = count - t - 1;
                if (rest > 2 * team.rows())
                    for (int q = 4 * team.row(); q < rest; q += 4 * team.rows())
                        take_out<4>(t, t + 1 + q, left, square);
                else
                    for (int q = team.row(); q < rest; q += team.rows())
                        take_out<1>(t, t + 1 + q, left, square);
            }
            team.sync();
        }
    }

    // Takes column t out of `width` columns from `first` on.
    template <int width>
    SW_HD void take_out(int t, int first, double norm, double square) const {
        const double* q = column(t);
        double *own[width], sum[width];
        SW_UNROLL
        for (int c = 0; c < width; ++c) {
            own[c] = column(min_of(first + c, count - 1));
            sum[c] = 0;
        }
        SW_UNROLL_BY(4)
        for (int i = team.lane(); i < space.length; i += team.lanes()) {
            const double value = q[i];
            SW_UNROLL
            for (int c = 0; c < width; ++c) sum[c] += value * own[c][i];
        }
        SW_UNROLL
        for (int c = 0; c < width; ++c) {
            sum[c] = team.lane_sum(sum[c]);
            if (team.lane() == 0 && first + c < count) r(t)[first + c] = sum[c] / norm;
            sum[c] = first + c < count ? sum[c] / square : 0.0;
        }
        SW_UNROLL_BY(4)
        for (int i = team.lane(); i < space.length; i += team.lanes()) {
            const double value = q[i];
            SW_UNROLL
            for (int c = 0; c < width; ++c)
                if (first + c < count) own[c][i] -= sum[c] * value;
        }
    }

    // u = R^-1 R^-T g of one right-hand side, by one group of lanes.
    SW_HD void solve(int side) const {
        if (side >= launch.right_sides) return;
        const Scalar* g = static_cast<const Scalar*>(launch.g) + (first_side() + side) * n();
        double* z = space.z + static_cast<int64_t>(team.row()) * count;
        team.lane_each(count, [&](int t) { z[t] = double(g[space.order[t]]); });
        team.lane_sync();
        for (int t = 0; t < count; ++t) {
            const double pivot = r(t)[t], value = pivot == 0 ? 0.0 : z[t] / pivot;
            if (pivot != 0)
                for (int s = t + 1 + team.lane(); s < count; s += team.lanes()) z[s] -= value * r(t)[s];
            team.lane_sync();
            if (team.lane() == 0) z[t] = value;
            team.lane_sync();
        }
        for (int t = count - 1; t >= 0; --t) {
            const double pivot = r(t)[t], value = pivot == 0 ? 0.0 : z[t] / pivot;
            if (pivot != 0)
                for (int s = team.lane(); s < t; s += team.lanes())
                    if (r(s)[s] != 0) z[s] -= value * r(s)[t];
            team.lane_sync();
            if (team.lane() == 0) z[t] = value;
            team.lane_sync();
        }
        if (!launch.u) return;
        Scalar* u = static_cast<Scalar*>(launch.u) + (first_side() + side) * n();
        team.lane_each(n(), [&](int j) { u[j] = 0; });
        team.lane_sync();
        team.lane_each(count, [&](int t) { u[space.order[t]] = Scalar(z[t]); });
        team.lane_sync();
    }

    // Writes A u, b - A x, the cotangent of A and u . x. A group of lanes takes a row of A at a time.
    SW_HD void pull_back() const {
        const int rows = launch.rows;
        const int64_t first = system * rows;
        const Scalar *entries = a(), *x = marks(), *b = static_cast<const Scalar*>(launch.b) + first;
        Scalar* image = static_cast<Scalar*>(launch.image) + first;
        Scalar* residual = static_cast<Scalar*>(launch.residual);
        Scalar* to_a = static_cast<Scalar*>(launch.to_a);
        const double* z = space.z;
        for (int i = team.row(); i < rows; i += team.rows()) {
            const Scalar* row = entries + static_cast<int64_t>(i) * n();
            double of_u = 0, of_x = 0;
            team.lane_each(count, [&](int t) {
                const int j = space.order[t];
                of_u += double(row[j]) * z[t];
                of_x += double(row[j]) * double(x[j]);
            });
            of_u = team.lane_sum(of_u);
            const double rest = double(b[i]) - team.lane_sum(of_x);
            if (team.lane() == 0) {
                image[i] = Scalar(of_u);
                if (residual) residual[first + i] = Scalar(rest);
            }
            if (!to_a) continue;
            Scalar* out = to_a + (first + i) * n();
            team.lane_each(n(), [&](int j) { out[j] = 0; });
            team.lane_sync();
            team.lane_each(count, [&](int t) {
                const int j = space.order[t];
                out[j] = Scalar(rest * z[t] - of_u * double(x[j]));
            });
        }
        if (launch.overlap && team.row() == 0) {
            double sum = 0;
            team.lane_each(count, [&](int t) { sum += z[t] * double(x[space.order[t]]); });
            sum = team.lane_sum(sum);
            if (team.lane() == 0) launch.overlap[system] = sum;
        }
        team.sync();
    }

    SW_HD void write_nothing() const {
        const Scalar none = Scalar(double_nan());
        const int64_t rows = launch.rows, first = system * rows;
        const auto fill = [&](void* to, int64_t from, int64_t length) {
            Scalar* out = static_cast<Scalar*>(to);
            if (out)
                for (int64_t i = team.rank(); i < length; i += team.size()) out[from + i] = none;
        };
        fill(launch.u, first_side() * n(), static_cast<int64_t>(launch.right_sides) * n());
        fill(launch.image, first, rows);
        fill(launch.residual, first, rows);
        fill(launch.to_a, first * n(), rows * n());
        if (launch.overlap && team.rank() == 0) launch.overlap[system] = double_nan();
        team.sync();
    }
};

}  // namespace lsq
SW_END
