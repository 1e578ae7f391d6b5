// What the absorb sweep does with one variable.
#pragma once

#include "cuda/quasi_newton/staging.cuh"

SW_BEGIN

// What the sweep reads of one element.
struct AbsorbInput {
    Real g, x, g_before, d, lower, upper, weight;

    template <Gather gather>
    __device__ void load(const Vectors& v, const BoundNumbers& numbers, Index i) {
        g = v.gradient[i];
        x = v.at[i];
        if (gather == Gather::pair) {
            g_before = v.g[i];
            d = v.d[i];
        }
        if (bounded) {
            lower = lower_step ? v.lower[i] : numbers.lower;
            upper = upper_step ? v.upper[i] : numbers.upper;
        }
        if (weighted) weight = v.weights[i];
    }

    // The same, staged: copies on their way to shared memory, and what has arrived there.
    template <Gather gather>
    __device__ static void fetch(const Vectors& v, int64_t i, Real* to, int pitch) {
        each_vector<gather>(v, i, [&](int row, const Real* from) { copy_element(to + row * pitch, from); });
    }
    // Two neighbouring elements of every vector, of those before the end.
    template <Gather gather>
    __device__ static void fetch_two(const Vectors& v, int64_t i, int64_t end, Real* to, int pitch) {
        if (!v.in_packs || i + 2 > end) {
            if (i < end) fetch<gather>(v, i, to, pitch);
            if (i + 1 < end) fetch<gather>(v, i + 1, to + 1, pitch);
            return;
        }
        each_vector<gather>(v, i, [&](int row, const Real* from) {
            copy_async<2 * sizeof(Real)>(StagePlace(to + row * pitch), from);
        });
    }
    __device__ void take(const Real* from, int pitch, const BoundNumbers& numbers) {
        g = from[0], x = from[pitch], g_before = from[2 * pitch], d = from[3 * pitch];
        lower = lower_step ? from[4 * pitch] : numbers.lower;
        upper = upper_step ? from[upper_row * pitch] : numbers.upper;
        if (weighted) weight = from[weight_row * pitch];
    }

private:
    // copy(row of the stage, where element i lies) for every vector that is read.
    template <Gather gather, class Copy>
    __device__ static void each_vector(const Vectors& v, int64_t i, const Copy& copy) {
        // All addresses first: they are kept in shared memory.
        const Real* const from[] = {v.gradient + i, v.at + i, v.g + i, v.d + i, v.lower + i, v.upper + i};
        const Real* const weight = v.weights + i;
        copy(0, from[0]);
        copy(1, from[1]);
        if (gather == Gather::pair) {
            copy(2, from[2]);
            copy(3, from[3]);
        }
        if (lower_step) copy(4, from[4]);
        if (upper_step) copy(upper_row, from[5]);
        if (weighted) copy(weight_row, weight);
    }
};

// What the sweep adds up besides the products of rows; with a new pair, the slope g·d as well.
struct AbsorbShare {
    AbsorbTotals scalars;
    int held = 0;                       // for the scalar of that name: a register less
    Real largest = 0;                   // for the maximum norm of the projected gradient
    Real soon = Real(double_infinity);  // in single precision: no less than the first break
    CarefulSum slope;
    double unread_yy = 0;  // yᵀy of the new pair where no rows are read
};

// What makes a pair of the last step d and the change of the gradient: s = step · d and y, both times the
// scale. In single precision by two factors, since the scale alone may lie beyond its range.
class PairFactors {
public:
    __device__ explicit PairFactors(const State& state)
        : scale(pair_scale(narrowed, -state.search.slope0 * state.search.step)), step(state.search.step) {
        const int64_t exponent = int64_t(__builtin_bit_cast(uint64_t, scale) >> 52) - 1023;
        half = float(__builtin_bit_cast(double, uint64_t(1023 + exponent / 2) << 52));
        rest = float(scale / double(half));
        step_rest = float(step * double(rest));
    }
    __device__ Kept s(Real d) const {
        if constexpr (in_single) return narrowed_single(half * d * step_rest);
        return narrowed_to<Kept>(scale * step * double(d));
    }
    __device__ Kept y(Real change) const {
        if constexpr (in_single) return narrowed_single(half * change * rest);
        return narrowed_to<Kept>(narrowed ? scale * double(change) : double(change));
    }

private:
    static constexpr bool in_single = narrowed && sizeof(Real) == 4;
    const double scale, step;
    float half, rest, step_rest;

    __device__ static Kept narrowed_single(float value) { return narrowed_to<Kept>(double(value)); }
};

// One variable as the sweep has formed it: a new pair as it is kept, and what rides along.
struct FormedElement {
    Kept s = {}, y = {};
    bool free = true;
    double root = 1, moving = 0, carried = 0;

    __device__ double own_s() const { return weighted ? double(widened(s)) / root : double(widened(s)); }
    __device__ double own_y() const { return double(widened(y)) * root; }
    // Whether rows of the history count here.
    __device__ bool needed() const { return free || double(widened(s)) != 0 || carried != 0; }
};

// Whether a bound may be met before the first break found so far. In single precision on the safe side: the
// margin is wider than what rounding may take.
__device__ inline bool may_break(const AbsorbShare& totals, double h, const AbsorbInput& in) {
    if constexpr (sizeof(Real) == 4 && !weighted) {
        const Real distance = in.g < 0 ? in.upper - in.x : in.x - in.lower;
        return totals.soon * (in.g < 0 ? -in.g : in.g) + 1e-37f > distance;
    } else {
        return may_break_before(totals.scalars.first_break, double(in.x), h * double(in.g), double(in.lower),
                                double(in.upper));
    }
}
__device__ inline void note_break(AbsorbShare& totals, double h, const AbsorbInput& in) {
    double& first = totals.scalars.first_break;
    first = min_of(first, breakpoint<double>(in.x, h * double(in.g), in.lower, in.upper));
    totals.soon = Real(first * (1 + 4e-6));
}

template <Gather gather>
__device__ inline FormedElement form_element(const PairFactors& factors, double carry_time,
                                             const AbsorbInput& in, AbsorbShare& totals) {
    AbsorbTotals& sums = totals.scalars;
    const double g = in.g, x = in.x;
    const double h = weighted ? double(in.weight) : 1.0;
    FormedElement one;
    if (weighted) one.root = sqrt(h);
    if (gather == Gather::pair) {
        one.s = factors.s(in.d);
        one.y = factors.y(in.g - in.g_before);
        add_product(totals.slope, g, double(in.d));
    }
    if (bounded && gather == Gather::again) {
        const VariableStatus standing = classify_variable<true>(x, g, h * g, in.lower, in.upper, carry_time);
        one.free = standing.mask != 0;
        one.carried = standing.carried / one.root;
    } else {
        Real projected = in.g;
        if (bounded) {
            // As classify_variable<false>(), without a division but where it may bring the first break.
            one.free = !is_held(in.x, in.g, in.lower, in.upper);
            totals.held += !one.free;
            if (one.free && may_break(totals, h, in)) note_break(totals, h, in);
            projected = projected_gradient(in.x, in.g, in.lower, in.upper);
        }
        sums.projected_squared += double(projected) * double(projected);
        totals.largest = max_of(totals.largest, projected < 0 ? -projected : projected);
    }
    one.moving = one.free ? one.root * g : 0.0;
    sums.movable_descent += one.moving * one.moving;
    sums.gradient_squared += g * g;
    sums.x_squared += x * x;
    return one;
}

SW_END
