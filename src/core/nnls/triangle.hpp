// R, the upper triangular factor of the positive columns in insertion order, and Q'b beside it.
//
// Rows are contiguous, so that both triangular solves and the rotations of a removal run along memory. The
// stride grows with the factor: a factor of 40 columns is compact whatever room there is. All of this is work
// for one group of a team; the others wait at the sync that each operation ends in.
#pragma once

#include "core/nnls/vectors.hpp"

SW_BEGIN
namespace nnls {

constexpr int first_stride = 16;
constexpr int stride_gap = 8;  // keeps the elements of a column off one cache set

// Capacities are powers of two times first_stride: doubling the stride then ends there exactly.
SW_HD int64_t triangle_capacity(int64_t columns) {
    int64_t capacity = first_stride;
    while (capacity < columns) capacity *= 2;
    return capacity;
}

struct Triangle {
    double* entries;
    double* near_entries;
    double* far_entries;  // where entries go when the fast memory is too small for them
    int near_capacity;    // columns that fit where entries start
    double* inverse_diagonal;
    double* target;  // Q'b
    double* cosine;  // the rotations of the last removal
    double* sine;
    int stride = first_stride + stride_gap;

    // From the arena's fast memory what fits, from the slow the rest.
    template <class Arena>
    SW_HD void carve(Arena& arena, int columns) {
        near_capacity = 0;
        entries = nullptr;
        const int64_t most = triangle_capacity(columns);
        for (int64_t capacity = first_stride; capacity <= most; capacity *= 2)
            if (arena.used_fast + bytes(capacity) <= arena.fast_bytes)
                near_capacity = static_cast<int>(capacity);
        near_entries = near_capacity ? arena.template take<double>(bytes(near_capacity) / 8) : nullptr;
        far_entries = near_capacity < most ? arena.template take<double>(bytes(most) / 8) : nullptr;
        reset();
    }

    SW_HD void reset() {
        stride = first_stride + stride_gap;
        entries = near_capacity ? near_entries : far_entries;
    }

    SW_HD static int64_t bytes(int64_t capacity) { return capacity * (capacity + stride_gap) * 8; }

    SW_HD double* row(int t) const { return entries + static_cast<int64_t>(t) * stride; }

    // Makes room for `count` + 1 columns.
    template <class Team>
    SW_CALL void make_room(const Team& team, int count) {
        if (count < stride - stride_gap) return;
        const int capacity = 2 * (stride - stride_gap), wider = capacity + stride_gap;
        double* target_entries = entries == near_entries && capacity > near_capacity ? far_entries : entries;
        team.sync();
        if (team.row() == 0)
            for (int t = count - 1; t >= 0; --t) {
                const double* from = row(t);
                double* to = target_entries + static_cast<int64_t>(t) * wider;
                if (to == from) continue;
                team.lane_each(count - t, [&](int c) { to[t + c] = from[t + c]; });
                team.lane_sync();
            }
        stride = wider;
        entries = target_entries;
        team.sync();
    }

    // Solves R'h = g in place, by columns of R' (rows of R). By one group; no sync.
    template <class Team>
    SW_CALL void solve_transposed(const Team& team, int count, double* g) const {
        for (int t = 0; t < count; ++t) {
            const double* r = row(t);
            const double h = g[t] * inverse_diagonal[t];
            team.lane_sync();
            if (team.lane() == 0) g[t] = h;
#if defined(__CUDACC__)
            for (int c = t + 1 + team.lane(); c < count; c += team.lanes()) g[c] -= h * r[c];
            team.lane_sync();
#else
            add_scaled(-h, r + t + 1, g + t + 1, count - t - 1);
#endif
        }
    }

    // Solves R z = g in place, by rows of R. By one group; no sync.
    template <class Team>
    SW_CALL void solve(const Team& team, int count, double* g) const {
        for (int t = count - 1; t >= 0; --t) {
            const double s = lane_dot(team, row(t) + t + 1, g + t + 1, count - t - 1);
            if (team.lane() == 0) g[t] = (g[t] - s) * inverse_diagonal[t];
            team.lane_sync();
        }
    }

    // Appends column (h, pivot) and its entry of Q'b. By one group; no sync.
    template <class Team>
    SW_HD void append(const Team& team, int count, const double* h, double pivot, double entry) const {
        team.lane_each(count, [&](int t) { row(t)[count] = h[t]; });
        if (team.lane() == 0) {
            row(count)[count] = pivot;
            inverse_diagonal[count] = 1.0 / pivot;
            target[count] = entry;
        }
        team.lane_sync();
    }

    // Removes column `position` of `count`: Givens rotations bring the Hessenberg rest back to a triangle and
    // are kept in cosine, sine for Q (rotation t acts on columns t and t + 1). By one group; no sync.
    template <class Team>
    SW_CALL void remove(const Team& team, int count, int position) const {
        for (int t = 0; t < position; ++t) shift_left(team, row(t) + position, count - 1 - position);
        for (int t = position; t < count - 1; ++t) {
            double *upper = row(t), *lower = row(t + 1);
            const double a = upper[t + 1], b = lower[t + 1];
            const double length = hypotenuse(a, b);
            const double c = length > 0 ? a / length : 1.0, s = length > 0 ? b / length : 0.0;
            team.lane_sync();
            rotate_rows(team, upper + t, lower + t, count - 1 - t, c, s);
            if (team.lane() == 0) {
                cosine[t] = c;
                sine[t] = s;
                inverse_diagonal[t] = 1.0 / length;
                const double above = target[t], below = target[t + 1];
                target[t] = c * above + s * below;
                target[t + 1] = c * below - s * above;
            }
            team.lane_sync();
        }
    }

private:
    SW_HD static double hypotenuse(double a, double b) {
        // R's entries are between the dependence threshold and 2: no over- or underflow.
        return square_root(a * a + b * b);
    }

    template <class Team>
    SW_HD static void shift_left(const Team& team, double* values, int count) {
#if defined(__CUDACC__)
        for (int base = 0; base < count; base += team.lanes()) {
            const int c = base + team.lane();
            const double moved = c < count ? values[c + 1] : 0.0;
            team.lane_sync();
            if (c < count) values[c] = moved;
            team.lane_sync();
        }
#else
        (void)team;
        for (int c = 0; c < count; ++c) {
            SW_SHORT_LOOP(c);
            values[c] = values[c + 1];
        }
#endif
    }

    // upper[c] = cos upper[c+1] + sin lower[c+1] (one place to the left); lower[c+1] = the other part, in
    // place.
    template <class Team>
    SW_HD static void rotate_rows(const Team& team, double* upper, double* lower, int count, double c,
                                  double s) {
#if defined(__CUDACC__)
        for (int base = 0; base < count; base += team.lanes()) {
            const int q = base + team.lane();
            const double above = q < count ? upper[q + 1] : 0.0, below = q < count ? lower[q + 1] : 0.0;
            team.lane_sync();
            if (q < count) {
                upper[q] = c * above + s * below;
                lower[q + 1] = c * below - s * above;
            }
            team.lane_sync();
        }
#else
        (void)team;
        int q = 0;
        for (; q + 8 <= count; q += 8) {
            const Wide above = load(upper + q + 1), below = load(lower + q + 1);
            store(upper + q, c * above + s * below);
            store(lower + q + 1, c * below - s * above);
        }
        for (; q < count; ++q) {
            SW_SHORT_LOOP(q);
            const double above = upper[q + 1], below = lower[q + 1];
            upper[q] = c * above + s * below;
            lower[q + 1] = c * below - s * above;
        }
#endif
    }
};

}  // namespace nnls
SW_END
