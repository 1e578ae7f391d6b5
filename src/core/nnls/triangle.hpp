// R, the upper triangular factor of the positive columns in insertion order, and Q'b beside it.
//
// Rows are contiguous, so that both triangular solves and the rotations of a removal run along memory. The
// stride grows with the factor: a factor of 40 columns is compact whatever room there is. The solves are work
// for one group of a team; the others wait at the sync that follows.
//
// On a device the chain from one unknown to the next is what a solve takes: so a group solves as many unknowns
// as it has lanes at a time, each lane with its own in a register, and what they leave of the others follows in
// one sweep.
#pragma once

#include "core/nnls/vectors.hpp"

SW_BEGIN
namespace nnls {

constexpr int first_stride = 16;
// Keeps the elements of a column off one cache set or, on a device, off one bank of shared memory.
#if defined(__CUDACC__)
constexpr int stride_gap = 1;
#else
constexpr int stride_gap = 8;
#endif

// Capacities are powers of two times first_stride: doubling the stride then ends there exactly.
SW_HD int64_t triangle_capacity(int64_t columns) {
    int64_t capacity = first_stride;
    while (capacity < columns) capacity *= 2;
    return capacity;
}

// Memory of a triangle: from the arena's fast memory what fits, from the slow the rest.
struct TriangleRoom {
    double* near_entries;
    double* far_entries;  // where entries go when the fast memory is too small for them
    int near_capacity;    // columns that fit where entries start
    double* inverse_diagonal;
    double* target;  // Q'b
    double* cosine;  // the rotations of the last removal
    double* sine;

    template <class Arena>
    SW_HD void carve(Arena& arena, int columns) {
        near_capacity = 0;
        const int64_t most = triangle_capacity(columns);
        for (int64_t capacity = first_stride; capacity <= most; capacity *= 2)
            if (arena.used_fast + bytes(capacity) <= arena.fast_bytes)
                near_capacity = static_cast<int>(capacity);
        near_entries = near_capacity ? arena.template take<double>(bytes(near_capacity) / 8) : nullptr;
        far_entries = near_capacity < most ? arena.template take<double>(bytes(most) / 8) : nullptr;
    }

    SW_HD static int64_t bytes(int64_t capacity) { return capacity * (capacity + stride_gap) * 8; }
};

// What each member of a team knows of the triangle.
struct Triangle {
    const TriangleRoom& room;
    double* entries;
    int stride;

    SW_HD explicit Triangle(const TriangleRoom& room)
        : room(room),
          entries(room.near_capacity ? room.near_entries : room.far_entries),
          stride(first_stride + stride_gap) {}

    SW_HD double* row(int t) const { return entries + static_cast<int64_t>(t) * stride; }

    // Makes room for `count` + 1 columns.
    template <class Team>
    SW_CALL void make_room(const Team& team, int count) {
        const int capacity = 2 * (stride - stride_gap), wider = capacity + stride_gap;
        double* target_entries =
            entries == room.near_entries && capacity > room.near_capacity ? room.far_entries : entries;
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

    SW_HD bool is_full(int count) const { return count >= stride - stride_gap; }

    // Solves R'h = g in place, by columns of R' (rows of R). By one group; ends in a lane_sync.
    template <class Team>
    SW_CALL void solve_transposed(const Team& team, int count, double* g) const {
        const double* inverse_diagonal = room.inverse_diagonal;
#if defined(__CUDACC__)
        const int lane = team.lane(), lanes = team.lanes(), gap = stride;
        for (int base = 0; base < count; base += lanes) {
            const int width = min_of(lanes, count - base);
            const bool mine = lane < width;
            double value = mine ? g[base + lane] : 0.0;
            const double* above = row(base) + base + lane;  // of this lane's column
            for (int t = 0; t < width; t += ahead) {
                double r[ahead];
                SW_UNROLL
                for (int u = 0; u < ahead; ++u)
                    r[u] = mine && t + u < lane ? above[(t + u) * gap] * inverse_diagonal[base + t + u] : 0.0;
                SW_UNROLL
                for (int u = 0; u < ahead; ++u)
                    if (t + u < width) value -= team.lane_pick(value, t + u) * r[u];
            }
            if (mine) g[base + lane] = value * inverse_diagonal[base + lane];
            team.lane_sync();
            for (int c = base + width + lane; c < count; c += lanes)
                g[c] -= strided_dot(g + base, 1, row(base) + c, gap, width);
            team.lane_sync();
        }
#else
        (void)team;
        for (int t = 0; t < count; ++t) {
            const double h = g[t] * inverse_diagonal[t];
            g[t] = h;
            add_scaled(-h, row(t) + t + 1, g + t + 1, count - t - 1);
        }
#endif
    }

    // Solves R z = g in place, by rows of R. By one group; ends in a lane_sync.
    template <class Team>
    SW_CALL void solve(const Team& team, int count, double* g) const {
        const double* inverse_diagonal = room.inverse_diagonal;
#if defined(__CUDACC__)
        const int lane = team.lane(), lanes = team.lanes();
        for (int base = (count - 1) / lanes * lanes; base >= 0; base -= lanes) {
            const int width = min_of(lanes, count - base);
            const bool mine = lane < width;
            double value = mine ? g[base + lane] : 0.0;
            const double* own = row(base + (mine ? lane : 0)) + base;
            for (int t = width - 1; t >= 0; t -= ahead) {
                double r[ahead];
                SW_UNROLL
                for (int u = 0; u < ahead; ++u)
                    r[u] = mine && t - u > lane ? own[t - u] * inverse_diagonal[base + t - u] : 0.0;
                SW_UNROLL
                for (int u = 0; u < ahead; ++u)
                    if (t - u >= 0) value -= team.lane_pick(value, t - u) * r[u];
            }
            if (mine) g[base + lane] = value * inverse_diagonal[base + lane];
            team.lane_sync();
            for (int p = lane; p < base; p += lanes)
                g[p] -= strided_dot(g + base, 1, row(p) + base, 1, width);
            team.lane_sync();
        }
#else
        for (int t = count - 1; t >= 0; --t) {
            const double s = lane_dot(team, row(t) + t + 1, g + t + 1, count - t - 1);
            g[t] = (g[t] - s) * inverse_diagonal[t];
        }
#endif
    }

    // Appends column (h, pivot) and its entry of Q'b. By one group; ends in a lane_sync.
    template <class Team>
    SW_HD void append(const Team& team, int count, const double* h, double pivot, double entry) const {
        team.lane_each(count, [&](int t) { row(t)[count] = h[t]; });
        if (team.lane() == 0) {
            row(count)[count] = pivot;
            room.inverse_diagonal[count] = 1.0 / pivot;
            room.target[count] = entry;
        }
        team.lane_sync();
    }

    // Removes column `position` of `count`: Givens rotations bring the Hessenberg rest back to a triangle and
    // are kept in cosine, sine for Q (rotation t acts on columns t and t + 1). By the team; no sync at the end.
    template <class Team>
    SW_CALL void remove(const Team& team, int count, int position) const {
#if defined(__CUDACC__)
        if (team.row() == 0) rotate(team, count, position);
        team.sync();
        for (int t = team.row(); t < count - 1; t += team.rows()) {
            const int start = max_of(position, t);
            shift_left(team, row(t) + start, count - 1 - start);
        }
#else
        if (team.row() != 0) return;
        double *target = room.target, *inverse_diagonal = room.inverse_diagonal;
        for (int t = 0; t < position; ++t) shift_left(team, row(t) + position, count - 1 - position);
        for (int t = position; t < count - 1; ++t) {
            double *upper = row(t), *lower = row(t + 1);
            const double a = upper[t + 1], b = lower[t + 1];
            // R's entries are between the dependence threshold and 2: no over- or underflow.
            const double inverse = inverse_root(a * a + b * b);
            const double c = a * inverse, s = b * inverse;
            rotate_rows(upper + t, lower + t, count - 1 - t, c, s);
            room.cosine[t] = c;
            room.sine[t] = s;
            inverse_diagonal[t] = inverse;
            const double above = target[t], below = target[t + 1];
            target[t] = c * above + s * below;
            target[t + 1] = c * below - s * above;
        }
#endif
    }

private:
#if defined(__CUDACC__)
    static constexpr int ahead = 8;  // entries read before the chain needs them

    // A lane takes a column down its rotations: those of the columns before are known, then each lane's
    // own comes in turn. In place; the columns move to the left later.
    template <class Team>
    SW_HD void rotate(const Team& team, int count, int position) const {
        double *cosine = room.cosine, *sine = room.sine, *target = room.target;
        const int lane = team.lane(), lanes = team.lanes();
        double goal = target[position];
        team.lane_sync();
        for (int base = position + 1; base < count; base += lanes) {
            const int column = base + lane, end = min_of(count, base + lanes);
            const bool mine = column < count;
            double carry = mine ? row(position)[column] : 0.0;
            if (mine) carry = rotate_known(carry, row(position) + column, position, base - 1);
            double next = mine ? row(base)[column] : 0.0;
            for (int t = base - 1; t < end - 1; ++t) {
                const double after = mine && column > t + 1 ? row(t + 2)[column] : 0.0;
                const double goal_below = target[t + 1];
                const double a = team.lane_pick(carry, t + 1 - base), b = team.lane_pick(next, t + 1 - base);
                const double inverse = inverse_root(a * a + b * b);
                const double c = a * inverse, s = b * inverse;
                if (mine && column > t) row(t)[column] = c * carry + s * next;
                carry = c * next - s * carry;
                next = after;
                if (lane == 0) {
                    cosine[t] = c;
                    sine[t] = s;
                    room.inverse_diagonal[t] = inverse;
                    target[t] = c * goal + s * goal_below;
                }
                goal = c * goal_below - s * goal;
            }
            team.lane_sync();
        }
    }

    // Rotations `from` to `to`, exclusive, of the column whose entry in row `from` is at `entry`.
    SW_HD double rotate_known(double carry, double* entry, int from, int to) const {
        const double *cosine = room.cosine, *sine = room.sine;
        int t = from;
        for (; t + 4 <= to; t += 4) {
            double next[4], c[4], s[4];
            SW_UNROLL
            for (int u = 0; u < 4; ++u) {
                next[u] = entry[(u + 1) * stride];
                c[u] = cosine[t + u];
                s[u] = sine[t + u];
            }
            SW_UNROLL
            for (int u = 0; u < 4; ++u) {
                entry[u * stride] = c[u] * carry + s[u] * next[u];
                carry = c[u] * next[u] - s[u] * carry;
            }
            entry += 4 * stride;
        }
        for (; t < to; ++t, entry += stride) {
            const double next = entry[stride];
            entry[0] = cosine[t] * carry + sine[t] * next;
            carry = cosine[t] * next - sine[t] * carry;
        }
        return carry;
    }
#else
    // upper[c] = cos upper[c+1] + sin lower[c+1] (one place to the left); lower[c+1] = the other part, in
    // place.
    static void rotate_rows(double* upper, double* lower, int count, double c, double s) {
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
    }
#endif
};

}  // namespace nnls
SW_END
