// The vector sweeps of NNLS: products of a few long columns, dealt out over a team. Each has two bodies:
// vector registers for teams of CPU threads, lanes for a thread block. The order of every sum is fixed.
//
// Vectors the solver owns are padded with zeros to a multiple of `padding`, so the CPU bodies have no tails
// there.
#pragma once

#include "core/team.hpp"

// A function that a device calls instead of inlining: the solver inlined whole is a megabyte of code and a
// minute of compilation.
#if defined(__CUDACC__)
#define SW_CALL __host__ __device__ __noinline__
#else
#define SW_CALL inline
#endif

// Loops over registers: unrolled, or they are no registers.
#if defined(__CUDACC__)
#define SW_TEXT(text) #text
#define SW_UNROLL _Pragma("unroll")
#define SW_UNROLL_BY(times) _Pragma(SW_TEXT(unroll times))
#else
#define SW_UNROLL
#define SW_UNROLL_BY(times)
#endif

SW_BEGIN
namespace nnls {

constexpr int padding = 8;

SW_HD int64_t padded(int64_t count) {
    return (count + padding - 1) / padding * padding;
}

// Columns by position: the p-th is at base + slot[p] * stride, non-zero within [low[slot], high[slot]).
// Without slots the p-th is the p-th; without bounds it is `length` long.
struct Columns {
    const double* base;
    int64_t stride;
    const int32_t* slot;
    const int32_t* low;
    const int32_t* high;
    int length;

    SW_HD int place(int position) const { return slot ? slot[position] : position; }
    SW_HD const double* at(int position) const { return base + place(position) * stride; }
    // Of the four positions from p on, the last for those past it.
    SW_HD void places(int p, int count, int* place) const {
        SW_UNROLL
        for (int q = 0; q < 4; ++q) place[q] = min_of(p + q, count - 1);
        if (!slot) return;
        SW_UNROLL
        for (int q = 0; q < 4; ++q) place[q] = slot[place[q]];
    }
    SW_HD int first(int position) const { return low ? low[place(position)] : 0; }
    SW_HD int last(int position) const { return low ? high[place(position)] : length; }
};

#if !defined(__CUDACC__)

// Wide values are never passed between translation units: how they would be is of no interest.
#pragma GCC diagnostic ignored "-Wpsabi"

typedef double Wide __attribute__((vector_size(64)));
typedef Wide WideLoose __attribute__((aligned(8), may_alias));
typedef float WideFloat __attribute__((vector_size(32), aligned(4), may_alias));

inline Wide load(const double* p) {
    return *reinterpret_cast<const WideLoose*>(p);
}

inline Wide load(const float* p) {
    return __builtin_convertvector(*reinterpret_cast<const WideFloat*>(p), Wide);
}

inline void store(double* p, Wide value) {
    *reinterpret_cast<WideLoose*>(p) = value;
}

inline Wide halves_swapped(Wide v) {
    return __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
}

inline Wide quarters_swapped(Wide v) {
    return __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
}

inline double largest_of(Wide v) {
    const Wide other = halves_swapped(v);
    v = v > other ? v : other;
    const Wide third = quarters_swapped(v);
    v = v > third ? v : third;
    return v[0] > v[1] ? v[0] : v[1];
}

// The sum of the eight, in a fixed order.
inline double total(Wide v) {
    v += halves_swapped(v);
    v += quarters_swapped(v);
    return v[0] + v[1];
}

// a . b, any length.
inline double dot(const double* a, const double* b, int64_t count) {
    if (count < 8) {
        double s = 0;
        for (int64_t i = 0; i < count; ++i) {
            SW_SHORT_LOOP(i);
            s += a[i] * b[i];
        }
        return s;
    }
    Wide s0{}, s1{}, s2{}, s3{};
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
    return total((s0 + s1) + (s2 + s3)) + tail;
}

// y += f x, any length.
inline void add_scaled(double f, const double* x, double* y, int64_t count) {
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) store(y + i, load(y + i) + f * load(x + i));
    for (; i < count; ++i) {
        SW_SHORT_LOOP(i);
        y[i] += f * x[i];
    }
}

// Four dots with one vector, whose loads they share; count a multiple of `padding`.
inline void dot_four(const double* const* a, const double* b, int64_t count, double* out) {
    Wide s0{}, s1{}, s2{}, s3{}, t0{}, t1{}, t2{}, t3{};
    const double *a0 = a[0], *a1 = a[1], *a2 = a[2], *a3 = a[3];
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const Wide u = load(b + i), v = load(b + i + 8);
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
        const Wide u = load(b + i);
        s0 += load(a0 + i) * u;
        s1 += load(a1 + i) * u;
        s2 += load(a2 + i) * u;
        s3 += load(a3 + i) * u;
    }
    out[0] = total(s0 + t0);
    out[1] = total(s1 + t1);
    out[2] = total(s2 + t2);
    out[3] = total(s3 + t3);
}

#endif

// This member's part of a . b; the team's sum of the parts is the dot product.
template <class Team>
SW_HD double part_of_dot(const Team& team, const double* a, const double* b, int count) {
#if defined(__CUDACC__)
    double s = 0;
    team.each(count, [&](int i) { s += a[i] * b[i]; });
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
    for (int base = 0; base < count; base += team.lanes()) {
        const int c = base + team.lane();
        const T moved = c < count ? values[c + 1] : T(0);
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

// v = column_p, zero where it is. No sync.
template <class Team>
SW_HD void copy_column(const Team& team, const Columns& columns, int p, double* v, int length) {
    const double* column = columns.at(p);
    const int first = columns.first(p), last = columns.last(p);
    team.each(length, [&](int i) { v[i] = i >= first && i < last ? column[i] : 0.0; });
}

// out[p] = column_p . v for p < count, v non-zero within [first, last). Ends in a sync.
template <class Team>
SW_CALL void dot_columns(const Team& team, const Columns columns, int count, const double* v, int first,
                         int last, double* out) {
#if defined(__CUDACC__)
    // A row of lanes takes four columns at a time, so that their loads and their sums overlap.
    for (int p = 4 * team.row(); p < count; p += 4 * team.rows()) {
        int place[4], from[4], to[4], longest = 0;
        double sum[4];
        columns.places(p, count, place);
        SW_UNROLL
        for (int q = 0; q < 4; ++q) {
            from[q] = first;
            to[q] = last;
            sum[q] = 0;
        }
        if (columns.low) {
            SW_UNROLL
            for (int q = 0; q < 4; ++q) {
                from[q] = max_of(first, static_cast<int>(columns.low[place[q]]));
                to[q] = min_of(last, static_cast<int>(columns.high[place[q]]));
            }
        }
        const double* column[4];
        SW_UNROLL
        for (int q = 0; q < 4; ++q) {
            column[q] = columns.base + place[q] * columns.stride;
            longest = max_of(longest, to[q] - from[q]);
        }
        for (int i = team.lane(); i < longest; i += 2 * team.lanes()) {
            double left[8], right[8];
            SW_UNROLL
            for (int q = 0; q < 8; ++q) {
                const int at = from[q % 4] + i + q / 4 * team.lanes();
                const bool inside = at < to[q % 4];
                left[q] = inside ? column[q % 4][at] : 0.0;
                right[q] = inside ? v[at] : 0.0;
            }
            SW_UNROLL
            for (int q = 0; q < 8; ++q) sum[q % 4] += left[q] * right[q];
        }
        SW_UNROLL
        for (int q = 0; q < 4; ++q) sum[q] = team.lane_sum(sum[q]);
        SW_UNROLL
        for (int q = 0; q < 4; ++q)
            if (team.lane() == q % team.lanes() && p + q < count) out[p + q] = sum[q];
    }
#else
    int begin, end;
    team.chunk(count, begin, end);
    int p = begin;
    while (p < end) {
        // Dense columns go four at a time over the whole length; short ones alone over what overlaps.
        if (p + 4 <= end) {
            const double* four[4];
            int least = last - first;
            for (int q = 0; q < 4; ++q) {
                four[q] = columns.at(p + q) + first;
                least = min_of(least, columns.last(p + q) - columns.first(p + q));
            }
            if (2 * least >= last - first) {
                const int64_t start = first & ~(padding - 1);
                for (int q = 0; q < 4; ++q) four[q] -= first - start;
                dot_four(four, v + start, padded(last) - start, out + p);
                p += 4;
                continue;
            }
        }
        const int from = max_of(first, columns.first(p)), to = min_of(last, columns.last(p));
        out[p] = to > from ? dot(columns.at(p) + from, v + from, to - from) : 0.0;
        ++p;
    }
#endif
    team.sync();
}

// v -= sum of f[p] column_p. Ends in a sync.
template <class Team>
SW_CALL void subtract_columns(const Team& team, const Columns columns, int count, const double* f, double* v,
                              int length) {
#if defined(__CUDACC__)
    team.each(length, [&](int i) {
        double s[4] = {0, 0, 0, 0};
        for (int p = 0; p < count; p += 4) {
            int place[4];
            bool inside[4];
            double entry[4];
            columns.places(p, count, place);
            SW_UNROLL
            for (int q = 0; q < 4; ++q) inside[q] = p + q < count;
            if (columns.low) {
                SW_UNROLL
                for (int q = 0; q < 4; ++q)
                    inside[q] = inside[q] && i >= columns.low[place[q]] && i < columns.high[place[q]];
            }
            SW_UNROLL
            for (int q = 0; q < 4; ++q)
                entry[q] = inside[q] ? columns.base[place[q] * columns.stride + i] : 0.0;
            SW_UNROLL
            for (int q = 0; q < 4; ++q) s[q] += f[min_of(p + q, count - 1)] * entry[q];
        }
        v[i] -= (s[0] + s[1]) + (s[2] + s[3]);
    });
#else
    int begin, end;
    team.chunk(length, begin, end);
    int p = 0;
    while (p < count) {
        if (p + 4 <= count) {
            int least = length;
            for (int q = 0; q < 4; ++q) least = min_of(least, columns.last(p + q) - columns.first(p + q));
            if (2 * least >= length) {
                const double *a0 = columns.at(p), *a1 = columns.at(p + 1), *a2 = columns.at(p + 2),
                             *a3 = columns.at(p + 3);
                const double f0 = f[p], f1 = f[p + 1], f2 = f[p + 2], f3 = f[p + 3];
                int i = begin;
                for (; i + 8 <= end; i += 8)
                    store(v + i, load(v + i) - ((f0 * load(a0 + i) + f1 * load(a1 + i)) +
                                                (f2 * load(a2 + i) + f3 * load(a3 + i))));
                for (; i < end; ++i) {
                    SW_SHORT_LOOP(i);
                    v[i] -= (f0 * a0[i] + f1 * a1[i]) + (f2 * a2[i] + f3 * a3[i]);
                }
                p += 4;
                continue;
            }
        }
        const int from = max_of(begin, columns.first(p)), to = min_of(end, columns.last(p));
        if (to > from) add_scaled(-f[p], columns.at(p) + from, v + from, to - from);
        ++p;
    }
#endif
    team.sync();
}

// Applies the rotations of a removal to the columns base + t * stride, t = position .. count - 1: each member
// its own rows, one read and one write of every column. Ends in a sync.
template <class Team>
SW_CALL void rotate_columns(const Team& team, double* base, int64_t stride, int position, int count,
                            const double* cosine, const double* sine, int length) {
#if defined(__CUDACC__)
    team.each(length, [&](int i) {
        double carry = base[position * stride + i];
        int t = position;
        for (; t + 4 < count; t += 4) {
            double next[4];
            SW_UNROLL
            for (int u = 0; u < 4; ++u) next[u] = base[(t + u + 1) * stride + i];
            SW_UNROLL
            for (int u = 0; u < 4; ++u) {
                base[(t + u) * stride + i] = cosine[t + u] * carry + sine[t + u] * next[u];
                carry = cosine[t + u] * next[u] - sine[t + u] * carry;
            }
        }
        for (; t < count - 1; ++t) {
            const double next = base[(t + 1) * stride + i];
            base[t * stride + i] = cosine[t] * carry + sine[t] * next;
            carry = cosine[t] * next - sine[t] * carry;
        }
        base[(count - 1) * stride + i] = carry;
    });
#else
    int begin, end;
    team.chunk(length, begin, end);
    for (int i = begin; i < end; i += 32) {
        const int parts = min_of(4, (end - i) / 8);
        double* column = base + position * stride + i;
        Wide carry[4] = {};
        for (int q = 0; q < parts; ++q) carry[q] = load(column + 8 * q);
        for (int t = position; t < count - 1; ++t, column += stride) {
            const double c = cosine[t], s = sine[t];
            for (int q = 0; q < parts; ++q) {
                const Wide next = load(column + stride + 8 * q);
                store(column + 8 * q, c * carry[q] + s * next);
                carry[q] = c * next - s * carry[q];
            }
        }
        for (int q = 0; q < parts; ++q) store(column + 8 * q, carry[q]);
    }
#endif
    team.sync();
}

// The largest magnitude in values[0..count), infinite where one is NaN or infinite; the same in every member.
template <class Team, class Scalar>
SW_HD double largest_magnitude(const Team& team, const Scalar* values, int count) {
    double most = 0, oddness = 0;  // v - v is NaN for NaN and infinity alone
#if defined(__CUDACC__)
    team.each(count, [&](int i) {
        const double v = values[i];
        oddness += v - v;
        most = max_of(most, absolute(v));
    });
#else
    int i, end;
    team.chunk(count, i, end);
    Wide high{}, low{}, odd{};
    for (; i + 8 <= end; i += 8) {
        const Wide v = load(values + i);
        odd += v - v;
        high = v > high ? v : high;
        low = v < low ? v : low;
    }
    low = -low;
    most = largest_of(high > low ? high : low);
    oddness = total(odd);
    for (; i < end; ++i) {
        const double v = values[i];
        oddness += v - v;
        most = max_of(most, absolute(v));
    }
#endif
    return team.max(!(oddness == 0) ? double_infinity : most);
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
    Wide most = Wide{} - double_infinity;
    for (; i + 8 <= end; i += 8) {
        const Wide v = load(values + i);
        most = v > most ? v : most;
    }
    if (i > begin) value = largest_of(most);
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
// -1. Returns how many there are. On a device `spare` has room for `crowd` indices, and where more pass the
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
    team.few(found, [&](int c) {
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
    team.few(number, [&](int q) { values[out[q]] = -1; });
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

}  // namespace nnls
SW_END
