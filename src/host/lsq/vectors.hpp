// Sweeps over one vector by a team of CPU threads, in vector registers: see core/lsq/vectors.hpp.
#pragma once

#include "core/common/simd.hpp"
#include "core/lsq/vectors.hpp"

SW_BEGIN
namespace lsq {

inline double dot(const double* a, const double* b, int64_t count) {
    if (count < 8) {
        double s = 0;
        for (int64_t i = 0; i < count; ++i) {
            SW_SHORT_LOOP(i);
            s += a[i] * b[i];
        }
        return s;
    }
    Pack s0{}, s1{}, s2{}, s3{};
    int64_t i = 0;
    for (; i + 32 <= count; i += 32) {
        s0 += load(a + i) * load(b + i);
        s1 += load(a + i + 8) * load(b + i + 8);
        s2 += load(a + i + 16) * load(b + i + 16);
        s3 += load(a + i + 24) * load(b + i + 24);
    }
    for (; i + 8 <= count; i += 8) s0 += load(a + i) * load(b + i);
    double tail = 0;
    for (; i < count; ++i) {
        SW_SHORT_LOOP(i);
        tail += a[i] * b[i];
    }
    return add_lanes((s0 + s1) + (s2 + s3)) + tail;
}

// (By registers: GCC takes packs that are stored at once through memory.)
inline void add_scaled(double f, const double* x, double* y, int64_t count) {
    constexpr int lot = register_lanes<double>;
    int64_t i = 0;
    for (; i + lot <= count; i += lot) register_at(y + i) += f * register_at(x + i);
    for (; i < count; ++i) {
        SW_SHORT_LOOP(i);
        y[i] += f * x[i];
    }
}

inline void dot_four(const double* const* a, const double* b, int64_t count, double* out) {
    Pack s0{}, s1{}, s2{}, s3{}, t0{}, t1{}, t2{}, t3{};
    const double *a0 = a[0], *a1 = a[1], *a2 = a[2], *a3 = a[3];
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const Pack u = load(b + i), v = load(b + i + 8);
        s0 += load(a0 + i) * u;
        s1 += load(a1 + i) * u;
        s2 += load(a2 + i) * u;
        s3 += load(a3 + i) * u;
        t0 += load(a0 + i + 8) * v;
        t1 += load(a1 + i + 8) * v;
        t2 += load(a2 + i + 8) * v;
        t3 += load(a3 + i + 8) * v;
    }
    for (; i < count; i += 8) {
        const Pack u = load(b + i);
        s0 += load(a0 + i) * u;
        s1 += load(a1 + i) * u;
        s2 += load(a2 + i) * u;
        s3 += load(a3 + i) * u;
    }
    out[0] = add_lanes(s0 + t0);
    out[1] = add_lanes(s1 + t1);
    out[2] = add_lanes(s2 + t2);
    out[3] = add_lanes(s3 + t3);
}

template <class Team>
SW_CALL double part_of_dot(const Team& team, const double* a, const double* b, int count) {
    int begin, end;
    team.chunk(count, begin, end);
    return dot(a + begin, b + begin, end - begin);
}

template <class Team>
SW_HD double lane_dot(const Team& team, const double* a, const double* b, int count) {
    (void)team;
    return dot(a, b, count);
}

template <class Team, class T>
SW_HD void shift_left(const Team& team, T* values, int count) {
    (void)team;
    if (count >= 32) {
        std::memmove(values, values + 1, static_cast<size_t>(count) * sizeof(T));
        return;
    }
    for (int c = 0; c < count; ++c) {
        SW_SHORT_LOOP(c);
        values[c] = values[c + 1];
    }
}

template <class Team, class Scalar>
SW_HD double largest_magnitude(const Team& team, const Scalar* values, int count) {
    double highest = 0, oddness = 0;  // v - v is NaN for NaN and infinity alone
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
    return team.max(!(oddness == 0) ? double_infinity : highest);
}

template <class Team>
SW_CALL bool all_finite(const Team& team, const double* values, int64_t count) {
    double oddness = 0;  // v - v is NaN for NaN and infinity alone
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
    return team.max(oddness == 0 ? 0.0 : 1.0) == 0;
}

template <class Team>
SW_CALL Peak largest(const Team& team, const double* values, int count) {
    double value = -double_infinity;
    int where = -1;
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
    where = static_cast<int>(team.argmax(value, where));
    return {value, where};
}

template <class Team>
SW_CALL int take_largest(const Team& team, double* values, int count, double threshold, double top, int limit,
                         int32_t* spare, int32_t* out) {
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
}

}  // namespace lsq
SW_END
