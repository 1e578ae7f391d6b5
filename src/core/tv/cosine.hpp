// Cosine transforms (DCT-II, orthonormal, and their inverses) of two real lines at a time: the first is the
// real part of a complex line, the second the imaginary one (Makhoul 1980; one FFT of the same length).
//
// A line lies in `at(0) .. at(n - 1)`, each a Complex of numbers: vectors with a line per lane on the host,
// plain numbers on a GPU. Input is written where place() says, so that the stages work where it lies:
//   forward   pixel i to at(place(sorted(i)));  all stages;  untangle(k), k = 0 .. n / 2;  coefficient k at k
//   back      coefficient k to at(place(k));  tangle(k);  all stages backwards;  pixel i at sorted(i)
#pragma once

#include "core/common/config.hpp"

SW_BEGIN

constexpr int max_radix = 5, max_stages = 24;

template <class Number>
struct Complex {
    Number re, im;
};

// Tables of one length. `roots` has e^(-2πik/n), `turns` e^(iπk/2n) / √(2n), cosine before sine; the first of
// the turns is 1 / √n alone.
template <class Real>
struct CosinePlan {
    int32_t n, stages;
    int32_t radix[max_stages];
    const int32_t* place;
    const Real* roots;
    const Real* turns;
};

// Where pixel i of a line stands before the FFT: even ones first, then odd ones from the last.
SW_HD int sorted(int i, int n) {
    return i & 1 ? n - (i + 1) / 2 : i / 2;
}

template <class Number, class Real>
SW_HD Complex<Number> turned(Complex<Number> a, Real cosine, Real sine) {
    return {a.re * cosine - a.im * sine, a.re * sine + a.im * cosine};
}

template <class Number>
SW_HD Complex<Number> plus(Complex<Number> a, Complex<Number> b) {
    return {a.re + b.re, a.im + b.im};
}

template <class Number>
SW_HD Complex<Number> minus(Complex<Number> a, Complex<Number> b) {
    return {a.re - b.re, a.im - b.im};
}

// a + factor · i · b
template <class Number, class Real>
SW_HD Complex<Number> plus_i(Complex<Number> a, Real factor, Complex<Number> b) {
    return {a.re - factor * b.im, a.im + factor * b.re};
}

template <class Number, class Real>
SW_HD Complex<Number> plus_part(Complex<Number> a, Real factor, Complex<Number> b) {
    return {a.re + factor * b.re, a.im + factor * b.im};
}

// One butterfly of a stage that joins transforms of length m: of the entries first, first + m and so on, the
// j-th of their transforms. `sign` is 1 forwards and -1 back.
template <int radix, class Number, class Real, class At>
SW_HD void butterfly(const CosinePlan<Real>& plan, int m, int first, int j, Real sign, At at) {
    const int step = plan.n / (m * radix) * j;
    Complex<Number> a[radix];
    a[0] = at(first);
    for (int q = 1; q < radix; ++q) {
        a[q] = at(first + q * m);
        if (j) {
            const Real* root = plan.roots + 2 * (q * step);
            a[q] = turned(a[q], root[0], sign * root[1]);
        }
    }
    if constexpr (radix == 2) {
        at(first) = plus(a[0], a[1]);
        at(first + m) = minus(a[0], a[1]);
    } else if constexpr (radix == 4) {
        const Complex<Number> even = plus(a[0], a[2]), odd = plus(a[1], a[3]);
        const Complex<Number> low = minus(a[0], a[2]), high = minus(a[1], a[3]);
        at(first) = plus(even, odd);
        at(first + m) = plus_i(low, -sign, high);
        at(first + 2 * m) = minus(even, odd);
        at(first + 3 * m) = plus_i(low, sign, high);
    } else if constexpr (radix == 3) {
        const Real sine = Real(0.86602540378443864676);
        const Complex<Number> both = plus(a[1], a[2]), apart = minus(a[1], a[2]);
        const Complex<Number> middle = plus_part(a[0], Real(-0.5), both);
        at(first) = plus(a[0], both);
        at(first + m) = plus_i(middle, -sign * sine, apart);
        at(first + 2 * m) = plus_i(middle, sign * sine, apart);
    } else {
        const Real c1 = Real(0.30901699437494742410), c2 = Real(-0.80901699437494742410);
        const Real s1 = Real(0.95105651629515357212), s2 = Real(0.58778525229247312917);
        const Complex<Number> outer = plus(a[1], a[4]), inner = plus(a[2], a[3]);
        const Complex<Number> wide = minus(a[1], a[4]), narrow = minus(a[2], a[3]);
        const Complex<Number> low = plus_part(plus_part(a[0], c1, outer), c2, inner);
        const Complex<Number> high = plus_part(plus_part(a[0], c2, outer), c1, inner);
        const Complex<Number> turn_low = {wide.re * s1 + narrow.re * s2, wide.im * s1 + narrow.im * s2};
        const Complex<Number> turn_high = {wide.re * s2 - narrow.re * s1, wide.im * s2 - narrow.im * s1};
        at(first) = plus(plus(a[0], outer), inner);
        at(first + m) = plus_i(low, -sign, turn_low);
        at(first + 2 * m) = plus_i(high, -sign, turn_high);
        at(first + 3 * m) = plus_i(high, sign, turn_high);
        at(first + 4 * m) = plus_i(low, sign, turn_low);
    }
}

template <int r>
struct Radix {
    static constexpr int value = r;
};

// All stages of a line in order: stage(Radix, m) joins transforms of length m.
template <class Stage>
SW_HD void each_stage(const int32_t* radix, int stages, const Stage& stage) {
    for (int s = 0, m = 1; s < stages; m *= radix[s++]) switch (radix[s]) {
            case 2:
                stage(Radix<2>{}, m);
                break;
            case 3:
                stage(Radix<3>{}, m);
                break;
            case 4:
                stage(Radix<4>{}, m);
                break;
            default:
                stage(Radix<5>{}, m);
        }
}

// After the FFT: with F the spectrum of a + ib, coefficients k and n - k of a and of b.
template <class Number, class Real, class At>
SW_HD void untangle(const CosinePlan<Real>& plan, int k, At at) {
    if (k == 0) {
        const Complex<Number> F = at(0);
        at(0) = {F.re * plan.turns[0], F.im * plan.turns[0]};
        return;
    }
    const int other = plan.n - k;
    const Complex<Number> F = at(k), G = at(other);
    const Real* here = plan.turns + 2 * k;
    const Real* there = plan.turns + 2 * other;
    at(k) = {(F.re + G.re) * here[0] + (F.im - G.im) * here[1],
             (F.im + G.im) * here[0] + (G.re - F.re) * here[1]};
    if (other != k)
        at(other) = {(F.re + G.re) * there[0] + (G.im - F.im) * there[1],
                     (F.im + G.im) * there[0] + (F.re - G.re) * there[1]};
}

// Before the FFT back: F_k = e^(iπk/2n) ((a_k - i a_(n-k)) + i (b_k - i b_(n-k))), a_n = b_n = 0. Coefficient
// k lies in from(k), and place(k) is where stages want it, in the line `to`, which may be the same memory.
template <class Number, class Real, class From, class To>
SW_HD void tangle(const CosinePlan<Real>& plan, int k, From from, To to) {
    if (k == 0) {
        const Complex<Number> X = from(0);
        to(plan.place[0]) = {X.re * plan.turns[0], X.im * plan.turns[0]};
        return;
    }
    const int other = plan.n - k;
    const Complex<Number> X = from(k), Y = from(other);
    const Complex<Number> here = {X.re + Y.im, X.im - Y.re};
    to(plan.place[k]) = turned(here, plan.turns[2 * k], plan.turns[2 * k + 1]);
    if (other != k) {
        const Complex<Number> there = {Y.re + X.im, Y.im - X.re};
        to(plan.place[other]) = turned(there, plan.turns[2 * other], plan.turns[2 * other + 1]);
    }
}

// The same where the coefficients already lie where stages want them.
template <class Number, class Real, class At>
SW_HD void tangle(const CosinePlan<Real>& plan, int k, At at) {
    tangle<Number>(plan, k, [&](int i) { return at(plan.place[i]); }, at);
}

SW_END
