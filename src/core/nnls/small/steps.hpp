// Steps of a small system: the factor of the columns between their bounds, and the way to the solution there.
//
// L L' = A_P'A_P, row after row in the order in which columns came; a row is the forward substitution of its
// column. A step solves for the difference from x, from the dual at x: so every step is one of refinement
// too.
#pragma once

#include "core/nnls/small/dual.hpp"

SW_BEGIN
namespace nnls {
namespace small {

template <class Kind>
struct Steps : Dual<Kind> {
    using Base = Dual<Kind>;
    using Base::at_upper;
    using Base::count;
    using Base::deficit;
    using Base::order;
    using Base::passive;
    using Base::w;
    using Base::x;

    double factor[Kind::positions * (Kind::positions + 1) / 2];  // L by rows; on its diagonal the inverse
    double step[Kind::positions];
    double sum[Kind::summed ? Kind::positions : 1];  // L^-1 s, s the coefficients of the sum
    int factored = 0;                                // rows of L that are there
    int solves = 0, insertions = 0, removals = 0;
    int64_t costs[4] = {0, 0, 0, 0};  // accesses and flops of updates, then of downdates

    SW_HD Steps(const Job& job, int64_t system, const Products& products) : Base(job, system, products) {}

    // From x to the solution on the columns of the factor, leaving at bounds what would go beyond. A column
    // just inserted, at the last place, has to go `inward`: 1 up, -1 down; 0 where there is none. False where
    // another solver has to see to it.
    SW_HD bool advance(double inward, int max_solves) {
        double left = 1;  // of the dual of the columns in the factor
        for (;;) {
            if (solves >= max_solves || !complete_factor()) return false;
            ++solves;
            solve(left);
            if (inward != 0 && !(inward * step[count - 1] > 0)) return false;
            inward = 0;
            double alpha = double_infinity;
            SW_ROLLED
            for (int p = 0; p < count; ++p) alpha = min_of(alpha, room(order[p], step[p]));
            if (!(alpha < double_infinity)) {
                SW_ROLLED
                for (int p = 0; p < count; ++p) this->set_x(order[p], x[order[p]] + step[p]);
                return true;
            }
            alpha = min_of(alpha, 1.0);
            if (!walk(alpha)) return false;
            left *= 1 - alpha;
            if (count == 0) return true;
        }
    }

    // |L^-1 g|^2, outside the direction of a bound sum; g in `step`, which is overwritten.
    SW_HD double square_in_factor() {
        for (int p = 0; p < count; ++p) substitute(p, step[p]);
        direct(0);
        double square = 0;
        SW_ROLLED
        for (int p = 0; p < count; ++p) square += step[p] * step[p];
        return square;
    }

    // Rows of L that are missing. False where a column depends on the others as far as products tell.
    SW_HD bool complete_factor() {
        const double least = smallest_pivot<Kind>(this->n);
        SW_ROLLED
        for (; factored < count; ++factored) {
            const int place = factored, j = order[place];
            double* row = factor + place * (place + 1) / 2;
            double inside = 0;
            SW_ROLLED
            for (int p = 0; p < place; ++p) {
                substitute(p, this->product(j, order[p]));
                const double entry = step[p];
                row[p] = entry;
                inside += entry * entry;
            }
            const double square = this->product(j, j), outside = square - inside;
            if (!(outside > least * square)) return false;
            const double inverse = inverse_root(outside);
            row[place] = inverse;
            if constexpr (Kind::summed) {
                double part = this->coefficient(j);
                SW_ROLLED
                for (int p = 0; p < place; ++p) part -= step[p] * sum[p];
                sum[place] = part * inverse;
            }
        }
        return true;
    }

    // The variance of x at a position, where entries of b have variance one and the set is what it is. With M
    // = L^-T (I - v v'/v'v) L^-1, v = L^-1 s, it is M_pp - nu |L_P M e_p|^2.
    SW_HD double variance_at(int position) {
        for (int p = 0; p < count; ++p) substitute(p, p == position ? 1.0 : 0.0);
        direct(0);
        double square = 0;
        SW_ROLLED
        for (int p = 0; p < count; ++p) square += step[p] * step[p];
        if constexpr (Kind::penalized) {
            substitute_back();
            double image = 0;
            SW_ROLLED
            for (int p = 0; p < count; ++p)
                for (int q = 0; q < count; ++q)
                    image += step[p] * step[q] * this->penalty(order[p], order[q]);
            square -= this->nu * image;
        }
        return max_of(0.0, square);
    }

    // What the last column took to enter, as the solver for all sizes counts it.
    SW_HD void count_insertion() {
        const int64_t k = count - 1;
        ++insertions;
        costs[0] += 1;
        costs[1] += k * k + 4 * k;
    }

private:
    // Where a sum is bound: step += mu v, v = L^-1 s, so that v'step is what is given.
    SW_HD void direct(double along) {
        if constexpr (Kind::summed) {
            double size = 0;
            SW_ROLLED
            for (int p = 0; p < count; ++p) {
                along -= sum[p] * step[p];
                size += sum[p] * sum[p];
            }
            const double mu = size > 0 ? along / size : 0.0;
            SW_ROLLED
            for (int p = 0; p < count; ++p) step[p] += mu * sum[p];
        }
    }

    // step = L^-T step. Threads begin at the same row, so that they read the same places.
    SW_HD void substitute_back() {
        for (int p = together(count) - 1; p >= 0; --p) {
            if (p >= count) continue;
            const double* row = factor + p * (p + 1) / 2;
            const double value = step[p] * row[p];
            step[p] = value;
            SW_UNROLL_BY(4)
            for (int q = 0; q < p; ++q) step[q] -= row[q] * value;
        }
    }

    // step[p] = (value - L's row p times what is before) / L_pp
    SW_HD void substitute(int p, double value) {
        const double* row = factor + p * (p + 1) / 2;
        double part[2] = {value, 0};
        SW_UNROLL_BY(4)
        for (int q = 0; q < p; ++q) part[q % 2] -= row[q] * step[q];
        step[p] = (part[0] + part[1]) * row[p];
    }

    // step = (L L')^-1 w_P; where a sum is bound, of w_P + mu s with s'step = what the sum misses.
    SW_HD void solve(double left) {
        for (int p = 0; p < count; ++p) substitute(p, left * w[order[p]]);
        direct(left * deficit);
        substitute_back();
    }

    // How much of a step column j can go; infinite where it can go all of it.
    SW_HD double room(int j, double by) const {
        const double from = x[j], to = from + by;
        if constexpr (!Kind::bounded) {
            if (to > 0) return double_infinity;
            return from > 0 ? from / -by : 0.0;
        } else {
            const double low = this->lower(j), high = this->upper(j);
            if (!(to > low)) return from > low ? (low - from) / by : 0.0;
            if (!(to < high)) return from < high ? (high - from) / by : 0.0;
            return double_infinity;
        }
    }

    // Takes alpha of the step; what reaches a bound leaves. False where a bound sum has no column left.
    SW_HD bool walk(double alpha) {
        int place = 0, first = count;
        SW_ROLLED
        for (int p = 0; p < count; ++p) {
            const int j = order[p];
            const double by = step[p], moved = x[j] + alpha * by;
            const double low = this->lower(j), high = this->upper(j);
            const bool blocks = !(room(j, by) > alpha) || (by > 0 ? !(moved < high) : !(moved > low));
            if (!blocks) {
                this->set_x(j, clamp_to(moved, low, high));
                order[place++] = j;
                continue;
            }
            first = min_of(first, p);
            const bool up = by > 0;
            this->set_x(j, up ? high : low);
            passive &= ~bit_of(j);
            at_upper = up ? at_upper | bit_of(j) : at_upper & ~bit_of(j);
            ++removals;
        }
        SW_ROLLED
        for (int64_t k = first; k < place; ++k) {
            ++costs[2];
            costs[3] += k * k + 4 * k;
        }
        factored = min_of(factored, first);
        count = place;
        return !Kind::summed || count > 0;
    }
};

}  // namespace small
}  // namespace nnls
SW_END
