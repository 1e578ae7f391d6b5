// One problem per lane of a CPU's vector registers: the number type that models are evaluated with on the
// host. As many lanes as a register holds floats, so that a number is one register of floats or two of
// doubles: two chains of operations hide each other's latency.
#pragma once

#include <cmath>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/common/simd.hpp"
#include "core/fit/models/numbers.hpp"

SW_BEGIN
namespace fit {

constexpr int problem_lanes = register_lanes<float>;

template <class T, int count = problem_lanes / register_lanes<T>>
struct Lanes {
    static constexpr int parts = count;
    typedef AlignedRegister<T> Part;
    Part part[parts];

    Lanes() = default;
    Lanes(T value) {
        for (int p = 0; p < parts; ++p) part[p] = value - Part{};
    }
    T& operator[](int lane) { return reinterpret_cast<T*>(part)[lane]; }
    T operator[](int lane) const { return reinterpret_cast<const T*>(part)[lane]; }
};

#define SW_LANES_OPERATOR(sign)                                           \
    template <class T, int P>                                             \
    inline Lanes<T, P> operator sign(Lanes<T, P> a, Lanes<T, P> b) {      \
        for (int p = 0; p < P; ++p) a.part[p] = a.part[p] sign b.part[p]; \
        return a;                                                         \
    }                                                                     \
    template <class T, int P>                                             \
    inline Lanes<T, P> operator sign(Lanes<T, P> a, double b) {           \
        return a sign Lanes<T, P>(T(b));                                  \
    }                                                                     \
    template <class T, int P>                                             \
    inline Lanes<T, P> operator sign(double a, Lanes<T, P> b) {           \
        return Lanes<T, P>(T(a)) sign b;                                  \
    }
SW_LANES_OPERATOR(+)
SW_LANES_OPERATOR(-)
SW_LANES_OPERATOR(*)
SW_LANES_OPERATOR(/)
#undef SW_LANES_OPERATOR

template <class T, int P>
inline Lanes<T, P> operator-(Lanes<T, P> a) {
    for (int p = 0; p < P; ++p) a.part[p] = -a.part[p];
    return a;
}

template <class T, int P>
inline Lanes<T, P>& operator+=(Lanes<T, P>& a, Lanes<T, P> b) {
    return a = a + b;
}

inline AlignedRegister<double> root_part(AlignedRegister<double> a) {
#if defined(__AVX512F__)
    return _mm512_sqrt_pd(a);
#elif defined(__AVX__)
    return _mm256_sqrt_pd(a);
#elif defined(__SSE2__)
    return _mm_sqrt_pd(a);
#elif defined(__aarch64__)
    return vsqrtq_f64(a);
#else
    for (int i = 0; i < register_lanes<double>; ++i) a[i] = std::sqrt(a[i]);
    return a;
#endif
}

// b where |a| < limit, else c.
template <class T>
inline Lanes<T> where_small(Lanes<T> a, double limit, Lanes<T> b, Lanes<T> c) {
    for (int p = 0; p < Lanes<T>::parts; ++p) {
        const auto small = (a.part[p] < T(limit)) & (a.part[p] > T(-limit));
        c.part[p] = small ? b.part[p] : c.part[p];
    }
    return c;
}

// 0 where w is 0, whatever a is; else w a.
template <class T>
inline Lanes<T> weighed(Lanes<T> w, Lanes<T> a) {
    for (int p = 0; p < Lanes<T>::parts; ++p) {
        const typename Lanes<T>::Part zero = {};
        a.part[p] = w.part[p] == zero ? zero : w.part[p] * a.part[p];
    }
    return a;
}

// Decisions are taken for so many registers of doubles at a time: wide ones alone, since every loop runs
// until the last lane is done; narrow ones in pairs, which hide each other's latency.
constexpr int decided_parts = register_lanes<double> >= 4 ? 1 : 2;
typedef Lanes<double, decided_parts> Decided;
constexpr int decided_lanes = decided_parts * register_lanes<double>;

// For which lanes something holds: all bits set, or none.
struct DecidedWhere {
    static constexpr int parts = decided_parts;
    AlignedRegister<int64_t> part[parts];

    DecidedWhere() = default;
    DecidedWhere(bool all) {
        for (int p = 0; p < parts; ++p) part[p] = AlignedRegister<int64_t>{} - int64_t(all);
    }
    void clear(int lane) { part[lane / register_lanes<double>][lane % register_lanes<double>] = 0; }
};

template <>
struct DecisionsOf<Decided> {
    typedef DecidedWhere Where;
    typedef Decided Count;
};

#define SW_LANES_COMPARISON(sign)                                                         \
    inline DecidedWhere operator sign(Decided a, Decided b) {                             \
        DecidedWhere where;                                                               \
        for (int p = 0; p < decided_parts; ++p) where.part[p] = a.part[p] sign b.part[p]; \
        return where;                                                                     \
    }                                                                                     \
    inline DecidedWhere operator sign(Decided a, double b) {                              \
        return a sign Decided(b);                                                         \
    }
SW_LANES_COMPARISON(<)
SW_LANES_COMPARISON(<=)
SW_LANES_COMPARISON(>)
SW_LANES_COMPARISON(>=)
SW_LANES_COMPARISON(==)
SW_LANES_COMPARISON(!=)
#undef SW_LANES_COMPARISON

#define SW_LANES_LOGIC(sign)                                                          \
    inline DecidedWhere operator sign(DecidedWhere a, DecidedWhere b) {               \
        for (int p = 0; p < decided_parts; ++p) a.part[p] = a.part[p] sign b.part[p]; \
        return a;                                                                     \
    }
SW_LANES_LOGIC(&)
SW_LANES_LOGIC(|)
#undef SW_LANES_LOGIC

inline DecidedWhere operator!(DecidedWhere a) {
    for (int p = 0; p < decided_parts; ++p) a.part[p] = ~a.part[p];
    return a;
}

inline Decided choose(DecidedWhere where, Decided a, Decided b) {
    for (int p = 0; p < decided_parts; ++p) a.part[p] = where.part[p] ? a.part[p] : b.part[p];
    return a;
}
inline DecidedWhere choose(DecidedWhere where, DecidedWhere a, DecidedWhere b) {
    return (where & a) | ((!where) & b);
}

inline bool any(DecidedWhere where) {
    AlignedRegister<int64_t> all = where.part[0];
    for (int p = 1; p < decided_parts; ++p) all |= where.part[p];
#if defined(__AVX512F__)
    return _mm512_test_epi64_mask(__m512i(all), __m512i(all)) != 0;
#elif defined(__AVX__)
    return !_mm256_testz_si256(__m256i(all), __m256i(all));
#else
    int64_t found = 0;
    for (int i = 0; i < register_lanes<double>; ++i) found |= all[i];
    return found != 0;
#endif
}

inline Decided smaller_of(Decided a, Decided b) {
    return choose(b < a, b, a);
}
inline Decided larger_of(Decided a, Decided b) {
    return choose(a < b, b, a);
}
inline Decided size_of(Decided a) {
    return choose(a < 0.0, -a, a);
}
inline Decided root_of(Decided a) {
    for (int p = 0; p < decided_parts; ++p) a.part[p] = root_part(a.part[p]);
    return a;
}
inline Decided inverse_root_of(Decided a) {
    return 1.0 / root_of(a);
}
inline Decided as_single(Decided a) {
    for (int i = 0; i < decided_lanes; ++i) a[i] = double(float(a[i]));
    return a;
}

// A function of the C++ library, lane by lane.
template <class T, class Function>
inline Lanes<T> each(Lanes<T> a, Function function) {
    for (int i = 0; i < problem_lanes; ++i) a[i] = function(a[i]);
    return a;
}

// What eˣ needs of a type: x = k ln 2 + r, |r| <= ln 2 / 2, and Taylor's series in r as far as the type can
// see.
template <class T>
struct ExpOf;
template <>
struct ExpOf<double> {
    typedef int64_t Bits;
    static constexpr double low = -746, high = 710,
                            big = 6755399441055744.0;  // 1.5 * 2^52: rounds to whole numbers
    static constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
    static constexpr int bias = 1023, shift = 52, terms = 13;
};
template <>
struct ExpOf<float> {
    typedef int32_t Bits;
    static constexpr float low = -104, high = 89, big = 12582912.0f;  // 1.5 * 2^23
    static constexpr float ln2_high = 6.93145752e-01f, ln2_low = 1.42860677e-06f;
    static constexpr int bias = 127, shift = 23, terms = 7;
};

template <class T>
inline typename Lanes<T>::Part exponential_part(typename Lanes<T>::Part x) {
    typedef ExpOf<T> Of;
    typedef typename Lanes<T>::Part Part;
    typedef AlignedRegister<typename Of::Bits> Bits;
    const Part bottom = Of::low - Part{}, top = Of::high - Part{};
    Part held = x < bottom ? bottom : x;  // (NaN stays)
    held = held > top ? top : held;
    const Part shifted = held * T(1.4426950408889634074) + Of::big;
    const Part whole = shifted - Of::big;
    Part r = held - whole * Of::ln2_high;
    r = r - whole * Of::ln2_low;
    // Taylor's coefficients, the last first; e^r = 1 + r + r² (...).
    constexpr double inverse_factorial[] = {
        1.0 / 2,     1.0 / 6,      1.0 / 24,      1.0 / 120,      1.0 / 720,       1.0 / 5040,
        1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};
    Part sum = T(inverse_factorial[Of::terms - 2]) - Part{};
    for (int k = Of::terms - 3; k >= 0; --k) sum = sum * r + T(inverse_factorial[k]);
    sum = sum * (r * r) + r;  // e^r - 1
    // 2^k in two factors, since one may be out of range where the product is not. The low bits of `shifted`
    // are k.
    const Bits bits = reinterpret_cast<const Bits&>(shifted);
    constexpr int spare = int(8 * sizeof(T)) - 12;  // k has at most 12 bits
    const Bits k = (bits << spare) >> spare, half = k >> 1;
    const Bits first = (half + Of::bias) << Of::shift, second = (k - half + Of::bias) << Of::shift;
    const Part one = reinterpret_cast<const Part&>(first), two = reinterpret_cast<const Part&>(second);
    return (sum * one + one) * two;
}

template <class T>
inline Lanes<T> exponential(Lanes<T> a) {
    for (int p = 0; p < Lanes<T>::parts; ++p) a.part[p] = exponential_part<T>(a.part[p]);
    return a;
}

}  // namespace fit
SW_END
