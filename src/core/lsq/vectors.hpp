// Sweeps over one vector, dealt out over a team. Each has two bodies: vector registers for teams of CPU
// threads, lanes for a thread block. The order of every sum is fixed.
#pragma once

#include "core/lsq/dot.hpp"

SW_BEGIN
namespace lsq {

// This member's part of a . b; the team's sum of the parts is the dot product.
template <class Team>
SW_CALL double part_of_dot(const Team& team, const double* a, const double* b, int count) {
#if defined(__CUDACC__)
    double s = 0;
    SW_FOUR_AT_A_TIME
    for (int i = team.rank(); i < count; i += team.size()) s += a[i] * b[i];
    return s;
#else
    int begin, end;
    team.chunk(count, begin, end);
    return dot(a + begin, b + begin, end - begin);
#endif
}

// a . b by the lanes of one group, the same value in each lane.
template <class Team>
SW_HD double lane_dot(const Team& team, const double* a, const double* b, int count) {
#if defined(__CUDACC__)
    double s = 0;
    for (int i = team.lane(); i < count; i += team.lanes()) s += a[i] * b[i];
    return team.lane_sum(s);
#else
    (void)team;
    return dot(a, b, count);
#endif
}

#if defined(__CUDACC__)
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
#endif

// values[c] = values[c + 1] for c < count. By one group; ends in a lane_sync.
template <class Team, class T>
SW_HD void shift_left(const Team& team, T* values, int count) {
#if defined(__CUDACC__)
    SW_ROLLED
    for (int base = 0; base < count; base += team.lanes()) {
        const int c = base + team.lane();
        const T moved = c < count ? values[c + 1] : T(0);
        team.lane_sync();
        if (c < count) values[c] = moved;
        team.lane_sync();
    }
#else
    (void)team;
    if (count >= 32) {
        std::memmove(values, values + 1, static_cast<size_t>(count) * sizeof(T));
        return;
    }
    for (int c = 0; c < count; ++c) {
        SW_SHORT_LOOP(c);
        values[c] = values[c + 1];
    }
#endif
}

// The largest magnitude in values[0..count), infinite where one is NaN or infinite; the same in every member.
template <class Team, class Scalar>
SW_HD double largest_magnitude(const Team& team, const Scalar* values, int count) {
    double highest = 0, oddness = 0;  // v - v is NaN for NaN and infinity alone
#if defined(__CUDACC__)
    team.each(count, [&](int i) {
        const double v = values[i];
        oddness += v - v;
        highest = max_of(highest, absolute(v));
    });
#else
    int i, end;
    team.chunk(count, i, end);
    Pack high{}, low{}, odd{};
    for (; i + 8 <= end; i += 8) {
        const Pack v = load(values + i);
        odd += v - v;
        high = v > high ? v : high;
        low = v < low ? v : low;
    }
    low = -low;
    highest = max_lane(high > low ? high : low);
    oddness = add_lanes(odd);
    for (; i < end; ++i) {
        const double v = values[i];
        oddness += v - v;
        highest = max_of(highest, absolute(v));
    }
#endif
    return team.max(!(oddness == 0) ? double_infinity : highest);
}

// Whether no number of a large matrix is NaN or infinite; the same in every member. Many loads at a time: one
// after the other would take long.
template <class Team>
SW_CALL bool all_finite(const Team& team, const double* values, int64_t count) {
    double oddness = 0;  // v - v is NaN for NaN and infinity alone
#if defined(__CUDACC__)
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
#else
    constexpr int width = register_lanes<double>;
    const int64_t share = (count / team.size() + 8) / 8 * 8;
    int64_t i = share * team.rank() < count ? share * team.rank() : count;
    const int64_t end = i + share < count ? i + share : count;
    Register<double> odd[4] = {};
    for (; i + 4 * width <= end; i += 4 * width)
        for (int u = 0; u < 4; ++u) {
            const Register<double> v = register_at(values + i + u * width);
            odd[u] += v - v;
        }
    odd[0] = (odd[0] + odd[1]) + (odd[2] + odd[3]);
    for (int k = 0; k < width; ++k) oddness += odd[0][k];
    for (; i < end; ++i) oddness += values[i] - values[i];
#endif
    return team.max(oddness == 0 ? 0.0 : 1.0) == 0;
}

// The largest of values[0..count) and the lowest index that has it, the same in every member.
struct Peak {
    double value;
    int index;
};

template <class Team>
SW_CALL Peak largest(const Team& team, const double* values, int count) {
    double value = -double_infinity;
    int where = -1;
#if defined(__CUDACC__)
    team.each(count, [&](int i) {
        const double other = values[i];
        if (other > value) {
            value = other;
            where = i;
        }
    });
#else
    int begin, end;
    team.chunk(count, begin, end);
    int i = begin;
    Pack highest = Pack{} - double_infinity;
    for (; i + 8 <= end; i += 8) {
        const Pack v = load(values + i);
        highest = v > highest ? v : highest;
    }
    if (i > begin) value = max_lane(highest);
    for (; i < end; ++i) {
        SW_SHORT_LOOP(i);
        value = max_of(value, values[i]);
    }
    for (where = begin; where < end && values[where] != value;) ++where;
#endif
    where = static_cast<int>(team.argmax(value, where));
    return {value, where};
}

// The indices of the `limit` largest values above a threshold, largest first, into `out`; their values become
// -1. Returns how many there are. On a device `spare` holds `crowd` indices, and where more pass the
// threshold it is raised: there may then be fewer. Ends in a sync.
constexpr int crowd = 128;

template <class Team>
SW_CALL int take_largest(const Team& team, double* values, int count, double threshold, double top, int limit,
                         int32_t* spare, int32_t* out) {
#if defined(__CUDACC__)
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
#else
    (void)top, (void)spare;
    for (int number = 0; number < limit; ++number) {
        const Peak peak = largest(team, values, count);
        if (!(peak.value > threshold)) return number;
        team.sync();
        if (team.rank() == 0) {
            out[number] = peak.index;
            values[peak.index] = -1;
        }
        team.sync();
    }
    return limit;
#endif
}

}  // namespace lsq
SW_END
