// What the regather sweep would find after a walk along the Cauchy path, without a sweep: the sums over the
// variables that were free, of the absorb sweep, less what the crossed ones have in them. The list of a walk
// has the rows of these, on every rank.
#pragma once

#include <cmath>
#include <vector>

#include "core/quasi_newton/cauchy_walk.hpp"
#include "core/quasi_newton/totals.hpp"

SW_BEGIN

class WalkSums {
public:
    // Before a walk, with what the absorb sweep has left.
    void begin(const State& s, const SumLayout& found, const double* sums) {
        layout = found;
        known = found.gram && found.rows == s.pairs;
        if (!known) return;
        all.assign(sums, sums + found.length());
        crossed.assign(size_t(found.length()), 0.0);
        row.resize(size_t(2 * s.pairs));
    }

    // Breakpoints that were crossed without their rows.
    void forget() { known = false; }

    // After a list, sorted, of which those up to the state's carry_time were crossed.
    void cross(const State& s, const BreakList& list, int count) {
        const int size = 2 * s.pairs;
        for (int k = 0; known && k < count; ++k) {
            const double time = time_of_number(list.breaks[k].time);
            if (!(time <= s.carry_time)) return;
            const double* listed = list.rows + int64_t(list.breaks[k].record()) * (size + 1);
            cross(listed, listed[size], time, s.pairs, s.gamma);
        }
    }

    // The sums over what stays free; null where they are not known, or where so little of them is left that
    // they would have lost digits.
    const double* left(const State& s) {
        if (!known || !(s.walk.moving >= least_left * s.movable_descent)) return nullptr;
        const int q = layout.q(), carried = layout.carried(), gram = layout.free_gram(), size = 2 * s.pairs;
        for (int i = 0; i < size; ++i) {
            const int square = gram + triangle(i, i);
            if (!(all[size_t(square)] - crossed[size_t(square)] >= least_left * all[size_t(square)]))
                return nullptr;
        }
        for (int i = 0; i < size; ++i) {
            all[size_t(q + i)] -= crossed[size_t(q + i)];
            all[size_t(carried + i)] = -crossed[size_t(carried + i)];
        }
        for (int i = gram; i < gram + triangle(size, 0); ++i) all[size_t(i)] -= crossed[size_t(i)];
        return all.data();
    }

private:
    static constexpr double least_left = 0.01;

    SumLayout layout{};
    bool known = false;
    std::vector<double> all, crossed, row;

    // One variable: u = h w g as it is listed, h g², its breakpoint.
    void cross(const double* u, double squared, double time, int pairs, double gamma) {
        if (!(squared > 1e-290)) return forget();  // too few digits to divide by
        const double scale = 1 / std::sqrt(squared);
        const int size = 2 * pairs;
        double *const q = crossed.data() + layout.q(), *const carried = crossed.data() + layout.carried();
        for (int i = 0; i < size; ++i) {
            const double product = i < pairs ? u[i] : gamma * u[i];  // of its stacked row and √h g
            q[i] += product;
            carried[i] += time * product;
            row[size_t(i)] = scale * product;
        }
        double* gram = crossed.data() + layout.free_gram();
        for (int i = 0; i < size; ++i, gram += i) {
            const double one = row[size_t(i)];
            for (int j = 0; j <= i; ++j) gram[j] += one * row[size_t(j)];
        }
    }
};

SW_END
