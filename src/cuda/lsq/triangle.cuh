// R on a device: see core/lsq/triangle.hpp.
#pragma once

#include "core/lsq/triangle.hpp"
#include "cuda/lsq/vectors.cuh"

SW_BEGIN
namespace lsq {

SW_HD double Triangle::rotate_known(double carry, int column, int from, int to) const {
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

template <class Team>
SW_CALL void Triangle::solve_transposed(const Team& team, const Triangle r, int count, double* g) {
    constexpr int ahead = 8;  // entries read before the chain needs them
    const double* inverse_diagonal = r.storage->inverse_diagonal;
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
}

template <class Team>
SW_CALL void Triangle::solve(const Team& team, const Triangle r, int count, double* g) {
    constexpr int ahead = 8;
    const double* inverse_diagonal = r.storage->inverse_diagonal;
    const int lane = team.lane(), lanes = team.lanes();
    if (count == 0) return;
    for (int base = (count - 1) / lanes * lanes; base >= 0; base -= lanes) {
        const int width = min_of(lanes, count - base), own = min_of(lane, width - 1);
        double value = g[base + own];
        const double *entries = r.row(base + own) + base, *inverse = inverse_diagonal + base;
        for (int t = width - 1; t >= 0; t -= ahead) {
            double entry[ahead];
            SW_UNROLL
            for (int u = 0; u < ahead; ++u) entry[u] = t - u > own ? entries[t - u] * inverse[t - u] : 0.0;
            SW_UNROLL
            for (int u = 0; u < ahead; ++u) value -= team.lane_pick(value, max_of(t - u, 0)) * entry[u];
        }
        team.lane_sync();
        if (lane < width) g[base + own] = value * inverse[own];
        team.lane_sync();
        for (int p = lane; p < base; p += lanes) g[p] -= member_dot(g + base, r.row(p) + base, width);
        team.lane_sync();
    }
}

template <class Team>
SW_HD void Triangle::rotate(const Team& team, int count, int position) const {
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

template <class Team>
SW_CALL void Triangle::remove(const Team& team, const Triangle r, int count, int position) {
    if (team.row() == 0) r.rotate(team, count, position);
    team.sync();
    for (int t = team.row(); t < count - 1; t += team.rows()) {
        const int start = max_of(position, t);
        shift_left(team, r.row(t) + start, count - 1 - start);
    }
}

}  // namespace lsq
SW_END
