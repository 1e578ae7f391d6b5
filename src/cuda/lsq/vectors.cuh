// Sweeps over one vector by the lanes of a device's team: see core/lsq/vectors.hpp.
#pragma once

#include "core/lsq/vectors.hpp"

SW_BEGIN
namespace lsq {

// a . b by one member.
SW_HD double member_dot(const double* a, const double* b, int count) {
    double s[4] = {0, 0, 0, 0};
    for (int i = 0; i < count; i += 4) {
        SW_UNROLL
        for (int u = 0; u < 4; ++u)
            if (i + u < count) s[u] += a[i + u] * b[i + u];
    }
    return (s[0] + s[1]) + (s[2] + s[3]);
}

template <class Team>
SW_CALL double part_of_dot(const Team& team, const double* a, const double* b, int count) {
    double s = 0;
    SW_FOUR_AT_A_TIME
    for (int i = team.rank(); i < count; i += team.size()) s += a[i] * b[i];
    return s;
}

template <class Team>
SW_HD double lane_dot(const Team& team, const double* a, const double* b, int count) {
    double s = 0;
    for (int i = team.lane(); i < count; i += team.lanes()) s += a[i] * b[i];
    return team.lane_sum(s);
}

template <class Team, class T>
SW_HD void shift_left(const Team& team, T* values, int count) {
    SW_ROLLED
    for (int base = 0; base < count; base += team.lanes()) {
        const int c = base + team.lane();
        const T moved = c < count ? values[c + 1] : T(0);
        team.lane_sync();
        if (c < count) values[c] = moved;
        team.lane_sync();
    }
}

template <class Team, class Scalar>
SW_HD double largest_magnitude(const Team& team, const Scalar* values, int count) {
    double highest = 0, oddness = 0;  // v - v is NaN for NaN and infinity alone
    team.each(count, [&](int i) {
        const double v = values[i];
        oddness += v - v;
        highest = max_of(highest, absolute(v));
    });
    return team.max(!(oddness == 0) ? double_infinity : highest);
}

template <class Team>
SW_CALL bool all_finite(const Team& team, const double* values, int64_t count) {
    double oddness = 0;  // v - v is NaN for NaN and infinity alone
    const int64_t size = team.size();
    int64_t i = team.rank();
    SW_ROLLED
    for (; i < count - 7 * size; i += 8 * size) {
        double v[8];
        SW_UNROLL
        for (int u = 0; u < 8; ++u) v[u] = values[i + u * size];
        SW_UNROLL
        for (int u = 0; u < 8; ++u) oddness += v[u] - v[u];
    }
    SW_ROLLED
    for (; i < count; i += size) oddness += values[i] - values[i];
    return team.max(oddness == 0 ? 0.0 : 1.0) == 0;
}

template <class Team>
SW_CALL Peak largest(const Team& team, const double* values, int count) {
    double value = -double_infinity;
    int where = -1;
    team.each(count, [&](int i) {
        const double other = values[i];
        if (other > value) {
            value = other;
            where = i;
        }
    });
    where = static_cast<int>(team.argmax(value, where));
    return {value, where};
}

template <class Team>
SW_CALL int take_largest(const Team& team, double* values, int count, double threshold, double top, int limit,
                         int32_t* spare, int32_t* out) {
    int found = 0;
    for (int attempt = 0;; ++attempt) {
        found = 0;
        for (int base = 0; base < count; base += team.size()) {
            const int j = base + team.rank();
            const bool mine = j < count && values[j] > threshold;
            int passed;
            const int place = found + team.place(mine, passed);
            if (mine && place < crowd) spare[place] = j;
            found += passed;
        }
        if (found <= crowd || attempt == 8) break;
        threshold = 0.5 * (threshold + top);
        team.sync();
    }
    found = min_of(found, crowd);
    team.sync();
    // Everybody counts who is ahead of his own.
    team.each_short(found, [&](int c) {
        const int j = spare[c];
        const double own = values[j];
        int place = 0;
        SW_UNROLL_BY(4)
        for (int i = 0; i < found; ++i) {
            const double other = values[spare[i]];
            place += other > own || (other == own && i < c);
        }
        if (place < limit) out[place] = j;
    });
    team.sync();
    const int number = min_of(limit, found);
    team.each_short(number, [&](int q) { values[out[q]] = -1; });
    team.sync();
    return number;
}

}  // namespace lsq
SW_END
