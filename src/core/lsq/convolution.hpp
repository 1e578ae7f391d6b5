// The banded Toeplitz matrix of a convolution, which is never stored.
#pragma once

#include "core/lsq/scaling.hpp"

SW_BEGIN
namespace lsq {

// A_ij = pulse[i - j + origin]: the pulse's sample `origin` falls on row j of column j.
//
// A team works with a copy of the pulse in its own memory, scaled by a power of two, and with what
// describe() says of the columns: each is a shift of that copy times a factor, and the product of two follows
// from their distance.
template <class Scalar>
struct Convolution {
    static constexpr bool shifts = true;
    static constexpr bool general = false, plain = true;

    const Scalar* pulse;
    int length, origin;
    int rows, columns;
    double* copy;  // `length` samples, then the scale and its inverse

    SW_HD int zeros_before() const { return origin + padding; }
    SW_HD int zeros_after() const { return max_of(0, columns - rows + length - origin) + padding; }
    SW_HD int pulse_length() const { return length; }
    SW_HD int pulse_origin() const { return origin; }
    SW_HD void keep_copy_in(double* memory) { copy = memory; }

    template <class Team>
    SW_CALL void measure(const Team& team, const double* r, Envelope envelope, double* squares,
                         double* sums) const {
        trim(team, envelope);
        prepare(team);
        const int first = envelope.low[0], last = envelope.high[0];
        team.each(columns, [&](int j) {
            double square = 0;
            const int from = max_of(first, origin - j), to = min_of(last, rows - j + origin);
            SW_UNROLL_BY(8)
            for (int t = from; t < to; ++t) square += double(pulse[t]) * double(pulse[t]);
            squares[j] = square;
        });
        multiply(team, r, envelope, sums, nullptr);
    }

    // Fills the team's copy. Ends in a sync.
    template <class Team>
    SW_CALL void prepare(const Team& team) const {
        const double magnitude = largest_magnitude(team, pulse, length);
        const double scale = !is_finite(magnitude)        ? 1.0
                             : magnitude >= smallest_size ? power_below(magnitude)
                                                          : 0.0;
        double* samples = copy;
        const Scalar* given = pulse;
        team.each(length, [=](int t) { samples[t] = scale * double(given[t]); });
        if (team.rank() == 0) {
            samples[length] = scale;
            samples[length + 1] = scale > 0 ? 1.0 / scale : 0.0;
        }
        team.sync();
    }

    // What each column's shift is multiplied with and where it lies; the products of the pulse with itself,
    // shifted. Ends in a sync.
    template <class Team>
    SW_CALL void describe(const Team& team, Envelope envelope, const double* scale, double* factor,
                          int32_t* low, int32_t* high, double* lags) const {
        const double* samples = copy;
        const int first = envelope.low[0], last = envelope.high[0];
        team.each(columns, [&](int j) {
            factor[j] = scale[j] * samples[length + 1];
            bounds(envelope, j, nullptr, low[j], high[j]);
        });
        team.each(min_of(length, columns), [&](int lag) {
            double sum = 0;
            SW_UNROLL_BY(8)
            for (int t = first; t < last - lag; ++t) sum += samples[t] * samples[t + lag];
            lags[lag] = sum;
        });
        team.sync();
    }

    // The samples of the pulse that are not zero, into the envelope's first entry. Ends in a sync.
    template <class Team>
    SW_CALL void trim(const Team& team, Envelope envelope) const {
        double head = -length, tail = 0;  // minus the first, and one past the last
        team.each(length, [&](int t) {
            if (pulse[t] == 0) return;
            head = max_of(head, -double(t));
            tail = max_of(tail, t + 1.0);
        });
        head = team.max(head);
        tail = team.max(tail);
        if (team.rank() == 0) {
            envelope.low[0] = static_cast<int32_t>(min_of(-head, tail));
            envelope.high[0] = static_cast<int32_t>(tail);
        }
        team.sync();
    }

    template <class Team>
    SW_CALL void multiply(const Team& team, const double* r, Envelope envelope, double* sums, double*) const;

    template <class Team>
    SW_CALL void gather(const Team& team, Envelope envelope, int j, double scale, double* out,
                        int padded_length) const;

    SW_CALL double largest_in(int j) const {
        double magnitude = 0;
        for (int i = 0; i < rows; ++i) {
            const double a = absolute(entry(i, j));
            if (!is_finite(a)) return a;
            magnitude = max_of(magnitude, a);
        }
        return magnitude;
    }

    SW_HD void bounds(Envelope envelope, int j, const double*, int32_t& low, int32_t& high) const {
        high = clamp_to(j - origin + static_cast<int>(envelope.high[0]), 0, rows);
        low = clamp_to(j - origin + static_cast<int>(envelope.low[0]), 0, static_cast<int>(high));
    }

    SW_HD double entry(int i, int j) const {
        const int t = i - j + origin;
        return t >= 0 && t < length ? double(pulse[t]) : 0.0;
    }
};

}  // namespace lsq
SW_END
