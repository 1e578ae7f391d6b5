// R, the upper triangular factor of the positive columns in insertion order, and Q'b beside it.
//
// The solves are work for one group of a team; the others wait at the sync that follows. On a device the
// chain from one unknown to the next is what a solve takes: so a group solves as many unknowns as it has
// lanes at a time, each lane with its own in a register, and what they leave of the others follows in one
// sweep. Where that is too slow a device keeps the inverse instead: inverse.hpp.
#pragma once

#include "core/lsq/packing.hpp"

SW_BEGIN
namespace lsq {

struct Triangle : Packing {
    SW_HD explicit Triangle(const Packing& packing) : Packing(packing) {}

    // Solves R'h = g in place, by columns of R' (rows of R). By one group; ends in a lane_sync.
    template <class Team>
    static SW_CALL void solve_transposed(const Team& team, const Triangle r, int count, double* g) {
        const double* inverse_diagonal = r.storage->inverse_diagonal;
#if defined(__CUDACC__)
        const int lane = team.lane(), lanes = team.lanes();
        for (int base = 0; base < count; base += lanes) {
            // A lane without an unknown goes along with the last.
            const int width = min_of(lanes, count - base), own = base + min_of(lane, width - 1);
            double value = g[own];
            const double* at = r.row(base) + own;  // down the lane's column
            int step = r.capacity - base - 1;
            for (int t = base; t < base + width; t += ahead) {
                double entry[ahead];
                SW_UNROLL
                for (int u = 0; u < ahead; ++u) {
                    entry[u] = t + u < own ? at[0] * inverse_diagonal[t + u] : 0.0;
                    at += step--;
                }
                SW_UNROLL
                for (int u = 0; u < ahead; ++u) value -= team.lane_pick(value, t + u - base) * entry[u];
            }
            team.lane_sync();
            if (lane < width) g[own] = value * inverse_diagonal[own];
            team.lane_sync();
            for (int c = base + width + lane; c < count; c += lanes) {
                double s[4] = {0, 0, 0, 0};
                const double* below = r.row(base) + c;
                int next = r.capacity - base - 1;
                for (int t = base; t < base + width; t += 4) {
                    SW_UNROLL
                    for (int u = 0; u < 4; ++u) {
                        if (t + u < base + width) s[u] += g[t + u] * below[0];
                        below += next--;
                    }
                }
                g[c] -= (s[0] + s[1]) + (s[2] + s[3]);
            }
            team.lane_sync();
        }
#else
        (void)team;
        for (int t = 0; t < count; ++t) {
            const double h = g[t] * inverse_diagonal[t];
            g[t] = h;
            add_scaled(-h, r.row(t) + t + 1, g + t + 1, count - t - 1);
        }
#endif
    }

    // Solves R z = g in place, by rows of R. By one group; ends in a lane_sync.
    template <class Team>
    static SW_CALL void solve(const Team& team, const Triangle r, int count, double* g) {
        const double* inverse_diagonal = r.storage->inverse_diagonal;
#if defined(__CUDACC__)
        const int lane = team.lane(), lanes = team.lanes();
        if (count == 0) return;
        for (int base = (count - 1) / lanes * lanes; base >= 0; base -= lanes) {
            const int width = min_of(lanes, count - base), own = min_of(lane, width - 1);
            double value = g[base + own];
            const double *entries = r.row(base + own) + base, *inverse = inverse_diagonal + base;
            for (int t = width - 1; t >= 0; t -= ahead) {
                double entry[ahead];
                SW_UNROLL
                for (int u = 0; u < ahead; ++u)
                    entry[u] = t - u > own ? entries[t - u] * inverse[t - u] : 0.0;
                SW_UNROLL
                for (int u = 0; u < ahead; ++u) value -= team.lane_pick(value, max_of(t - u, 0)) * entry[u];
            }
            team.lane_sync();
            if (lane < width) g[base + own] = value * inverse[own];
            team.lane_sync();
            for (int p = lane; p < base; p += lanes) g[p] -= member_dot(g + base, r.row(p) + base, width);
            team.lane_sync();
        }
#else
        for (int t = count - 1; t >= 0; --t) {
            const double s = lane_dot(team, r.row(t) + t + 1, g + t + 1, count - t - 1);
            g[t] = (g[t] - s) * inverse_diagonal[t];
        }
#endif
    }

    // Appends column (h, pivot) and its entries of Q'b and of the sum. By one group; ends in a lane_sync.
    template <class Team>
    SW_HD void append(const Team& team, int count, const double* h, double pivot, double inverse,
                      double entry, double share) const {
        team.lane_each(count, [&](int t) { row(t)[count] = h[t]; });
        if (team.lane() == 0) {
            row(count)[count] = pivot;
            storage->inverse_diagonal[count] = inverse;
            storage->target[count] = entry;
            if (storage->sum) storage->sum[count] = share;
        }
        team.lane_sync();
    }

    // Removes column `position` of `count`: Givens rotations bring the Hessenberg rest back to a triangle and
    // are kept in cosine, sine for Q (rotation t acts on columns t and t + 1). By the team; no sync at the
    // end.
    template <class Team>
    static SW_CALL void remove(const Team& team, const Triangle r, int count, int position) {
#if defined(__CUDACC__)
        if (team.row() == 0) r.rotate(team, count, position);
        team.sync();
        for (int t = team.row(); t < count - 1; t += team.rows()) {
            const int start = max_of(position, t);
            shift_left(team, r.row(t) + start, count - 1 - start);
        }
#else
        if (team.row() != 0) return;
        double *target = r.storage->target, *inverse_diagonal = r.storage->inverse_diagonal;
        for (int t = 0; t < position; ++t) shift_left(team, r.row(t) + position, count - 1 - position);
        for (int t = position; t < count - 1; ++t) {
            double *upper = r.row(t), *lower = r.row(t + 1);
            const double a = upper[t + 1], b = lower[t + 1];
            // R's entries are between the dependence threshold and 2: no over- or underflow.
            const double inverse = inverse_root(a * a + b * b);
            const double c = a * inverse, s = b * inverse;
            rotate_rows(upper + t, lower + t, count - 1 - t, c, s);
            r.storage->cosine[t] = c;
            r.storage->sine[t] = s;
            inverse_diagonal[t] = inverse;
            const double above = target[t], below = target[t + 1];
            target[t] = c * above + s * below;
            target[t + 1] = c * below - s * above;
            if (double* sum = r.storage->sum) {
                const double first = sum[t], second = sum[t + 1];
                sum[t] = c * first + s * second;
                sum[t + 1] = c * second - s * first;
            }
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
        double *cosine = storage->cosine, *sine = storage->sine, *target = storage->target;
        double* sum = storage->sum;
        const int lane = team.lane(), lanes = team.lanes();
        double goal = target[position], share = sum ? sum[position] : 0.0;
        team.lane_sync();
        for (int base = position + 1; base < count; base += lanes) {
            const int column = base + lane, end = min_of(count, base + lanes);
            const bool mine = column < count;
            double carry = mine ? row(position)[column] : 0.0;
            if (mine) carry = rotate_known(carry, column, position, base - 1);
            double next = mine ? row(base)[column] : 0.0;
            for (int t = base - 1; t < end - 1; ++t) {
                const double after = mine && column > t + 1 ? row(t + 2)[column] : 0.0;
                const double goal_below = target[t + 1], share_below = sum ? sum[t + 1] : 0.0;
                const double a = team.lane_pick(carry, t + 1 - base), b = team.lane_pick(next, t + 1 - base);
                const double inverse = inverse_root(a * a + b * b);
                const double c = a * inverse, s = b * inverse;
                if (mine && column > t) row(t)[column] = c * carry + s * next;
                carry = c * next - s * carry;
                next = after;
                if (lane == 0) {
                    cosine[t] = c;
                    sine[t] = s;
                    storage->inverse_diagonal[t] = inverse;
                    target[t] = c * goal + s * goal_below;
                    if (sum) sum[t] = c * share + s * share_below;
                }
                goal = c * goal_below - s * goal;
                share = c * share_below - s * share;
            }
            team.lane_sync();
        }
    }

    // Rotations `from` to `to`, exclusive, of a column.
    SW_HD double rotate_known(double carry, int column, int from, int to) const {
        const double *cosine = storage->cosine, *sine = storage->sine;
        for (int t = from; t < to; t += 4) {
            double next[4], c[4], s[4];
            SW_UNROLL
            for (int u = 0; u < 4; ++u) {
                const bool there = t + u < to;
                next[u] = there ? row(t + u + 1)[column] : 0.0;
                c[u] = there ? cosine[t + u] : 1.0;
                s[u] = there ? sine[t + u] : 0.0;
            }
            SW_UNROLL
            for (int u = 0; u < 4; ++u)
                if (t + u < to) {
                    row(t + u)[column] = c[u] * carry + s[u] * next[u];
                    carry = c[u] * next[u] - s[u] * carry;
                }
        }
        return carry;
    }
#else
    // upper[c] = cos upper[c+1] + sin lower[c+1] (one place to the left); lower[c+1] = the other part, in
    // place.
    static void rotate_rows(double* upper, double* lower, int count, double c, double s) {
        int q = 0;
        for (; q + 8 <= count; q += 8) {
            const Pack above = load(upper + q + 1), below = load(lower + q + 1);
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

}  // namespace lsq
SW_END
