// Decisions of the quasi-Newton core alone: factors, compact matrices, the Cauchy path, line searches.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/common/team.hpp"
#include "core/quasi_newton/decide.hpp"
#include "host/quasi_newton/simd_matrices.hpp"
#include "host/quasi_newton/walk_sums.hpp"

using namespace stepwell;

namespace {

// Numbers in (-1, 1), the same everywhere.
struct Random {
    uint64_t state;
    double operator()() {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        return double(int64_t(state >> 11)) / double(int64_t(1) << 52) - 1;
    }
};

void print(const char* name, const std::vector<double>& values, const char* end = ", ") {
    std::printf("\"%s\": [", name);
    for (size_t i = 0; i < values.size(); ++i) std::printf("%s%.17g", i ? ", " : "", values[i]);
    std::printf("]%s", end);
}

// Quasi-definite matrices: minus a positive definite block, a coupling, a positive definite block.
void check_ldlt() {
    Lone team;
    for (int half : {1, 2, 5, 16}) {
        Random random{uint64_t(half)};
        const int size = 2 * half;
        std::vector<double> factor(half * half), a(size * size), l, b(size), x;
        auto definite = [&](int i, int j) {
            double sum = i == j ? 0.5 : 0.0;
            for (int k = 0; k < half; ++k) sum += factor[i * half + k] * factor[j * half + k];
            return sum;
        };
        for (double& v : factor) v = random();
        for (int i = 0; i < half; ++i)
            for (int j = 0; j < half; ++j) a[i * size + j] = -definite(i, j);
        for (double& v : factor) v = random();
        for (int i = 0; i < half; ++i)
            for (int j = 0; j < half; ++j) {
                a[(half + i) * size + half + j] = definite(i, j);
                a[(half + i) * size + j] = a[j * size + half + i] = random();
            }
        for (double& v : b) v = random();
        DecidingThread deciding;
        std::vector<double> l_too = a, x_too = b;
        const bool sound_too = factor_ldlt(deciding, l_too.data(), size, half);
        solve_ldlt(deciding, l_too.data(), size, x_too.data());
        l = a, x = b;
        const bool sound = factor_ldlt(team, l.data(), size, half) && sound_too;
        solve_ldlt(team, l.data(), size, x.data());
        std::vector<double> wrong = a;
        const bool wrong_sign = factor_ldlt(team, wrong.data(), size, half - 1);
        std::vector<double> singular(size * size, 0.0);
        const bool zero_pivot = factor_ldlt(team, singular.data(), size, half);
        std::vector<double> poisoned = a;
        poisoned[size * size - 1] = double_infinity;
        const bool infinite = factor_ldlt(team, poisoned.data(), size, half);
        std::printf("{\"part\": \"ldlt\", \"size\": %d, \"sound\": %d, \"refused\": [%d, %d, %d], ", size,
                    sound, wrong_sign, zero_pivot, infinite);
        print("a", a);
        print("b", b);
        print("x by registers", x_too);
        print("x", x, "}\n");
    }
}

// A ring of pairs that has wrapped: the step over all variables, from sums formed here.
void check_compact() {
    Lone team;
    for (int capacity : {1, 3, 7}) {
        Random random{uint64_t(100 + capacity)};
        const int n = 12, head = capacity / 2, pairs = capacity;
        std::vector<double> s(capacity * n), y(capacity * n), g(n), d(n);
        for (int slot = 0; slot < capacity; ++slot)
            for (int i = 0; i < n; ++i) {
                s[slot * n + i] = random();
                y[slot * n + i] = (1 + i) * s[slot * n + i] + 0.01 * random();
            }
        for (double& v : g) v = random();
        auto dot = [n](const double* a, const double* b) {
            double sum = 0;
            for (int i = 0; i < n; ++i) sum += a[i] * b[i];
            return sum;
        };
        std::vector<double> memory(small_matrices_length(capacity)), work(scratch_length(capacity));
        const SmallMatrices m = small_matrices(memory.data(), capacity);
        for (int i = 0; i < capacity; ++i)
            for (int j = 0; j < capacity; ++j) {
                m.ss[i * capacity + j] = dot(&s[i * n], &s[j * n]);
                m.sy[i * capacity + j] = dot(&s[i * n], &y[j * n]);
                m.yy[i * capacity + j] = dot(&y[i * n], &y[j * n]);
            }
        State state;
        start_state(state);
        state.head = head, state.pairs = pairs, state.gamma = 0.3;
        Options options{};
        options.capacity = options.slots = capacity;
        const SumLayout layout = sum_layout(options, pairs);
        std::vector<double> sums(layout.length());
        for (int age = 0; age < pairs; ++age) {
            const int slot = slot_of(age, head, pairs, capacity);
            sums[layout.q() + age] = dot(&y[slot * n], g.data());
            sums[layout.q() + pairs + age] = dot(&s[slot * n], g.data());
        }
        const Scratch w = scratch_views(work.data(), capacity);
        form_model(team, w, m, state, layout, sums.data(), 1 / state.gamma, false);
        for (int a = 0; a < 2 * pairs; ++a)
            w.coefficients[a] =
                state.gamma * stacked_sum(sums.data() + layout.q(), pairs, pairs, 1 / state.gamma, a);
        const bool sound = factor_with(team, Factoring{w.kg, w.coefficients}, 2 * pairs, pairs);
        solve_upper(team, w.kg, 2 * pairs, w.coefficients);
        std::vector<double> old_first_s, old_first_y;
        d = g;
        for (int i = 0; i < n; ++i) {
            double from_s = 0;
            for (int age = 0; age < pairs; ++age) {
                const int slot = slot_of(age, head, pairs, capacity);
                d[i] += w.coefficients[age] * y[slot * n + i];
                from_s += w.coefficients[pairs + age] * s[slot * n + i];
            }
            d[i] = -state.gamma * d[i] - from_s;
        }
        for (int age = 0; age < pairs; ++age) {
            const int slot = slot_of(age, head, pairs, capacity);
            old_first_s.insert(old_first_s.end(), &s[slot * n], &s[slot * n] + n);
            old_first_y.insert(old_first_y.end(), &y[slot * n], &y[slot * n] + n);
        }
        std::printf("{\"part\": \"compact\", \"n\": %d, \"gamma\": %.17g, \"sound\": %d, ", n, state.gamma,
                    sound);
        print("s", old_first_s);
        print("y", old_first_y);
        print("g", g);
        print("d", d, "}\n");
    }
}

// The end of a segment of the Cauchy path, also where rounding has made the curvature vanish or negative.
void check_settles() {
    const double inf = double_infinity;
    const double cases[][4] = {
        // offset, curvature, from, to
        {-2, 1, 0, 5},  {-2, 1, 0, 1},   {-2, 1, 2, 5},     {-2, 1, 3, 5},        {0, 1, 0, 1},
        {-1, 0, 0, 4},  {-1, 0, 0, inf}, {-1, -1, 2, 4},    {-1, -1, 2, inf},     {-2, 1, 0, inf},
        {1, 1, 0, inf}, {NAN, 1, 1, 2},  {-1, NAN, 1, inf}, {-1, 1e-300, 0, inf},
    };
    for (const auto& c : cases) {
        double t = -1;
        const bool settled = settles(PathSlope{c[0], c[1]}, c[2], c[3], t);
        std::printf("{\"part\": \"settles\", \"settled\": %d, \"finite\": %d, \"t\": %.17g}\n", settled,
                    is_finite(t), is_finite(t) ? t : -1.0);
    }
}

// Forty variables that were free, of which a walk in two lists crosses the first few: what is left of the
// sums, and whether it is known.
void check_walk_sums() {
    constexpr int n = 40, pairs = 3, size = 2 * pairs;
    Random random{7};
    std::vector<double> stacked(n * size), g(n), h(n);  // rows y √h, s / √h
    for (double& one : stacked) one = random();
    for (double& one : g) one = random();
    for (double& one : h) one = 1.5 + random();
    Options options{};
    options.bounded = 1;
    const SumLayout layout = sum_layout(options, pairs);
    const auto one_list = [&](WalkSums& sums, State& s, int begin, int end, int crossed) {
        std::vector<Break> breaks;
        std::vector<double> rows(size_t(end - begin) * (size + 1));
        for (int i = begin; i < end; ++i) {
            const int record = end - 1 - i;  // in another order than that of their times
            breaks.push_back(make_break(number_of_time(1 + i), i, record));
            double* row = rows.data() + record * (size + 1);
            for (int c = 0; c < size; ++c)
                row[c] = std::sqrt(h[i]) * g[i] * stacked[i * size + c] / (c < pairs ? 1 : s.gamma);
            row[size] = h[i] * g[i] * g[i];
        }
        for (int i = begin; i < crossed; ++i) s.walk.moving -= h[i] * g[i] * g[i];
        if (crossed > begin) s.carry_time = crossed;
        sums.cross(s, {breaks.data(), rows.data(), nullptr, end - begin}, end - begin);
    };
    for (const int crossed : {0, 5, 12, n}) {
        State s{};
        s.pairs = pairs, s.gamma = 0.7, s.carry_time = -1;
        std::vector<double> all(size_t(layout.length())), wanted(all.size());
        for (int i = 0; i < n; ++i) {
            s.movable_descent += h[i] * g[i] * g[i];
            for (int a = 0; a < size; ++a) {
                const double w = stacked[i * size + a], product = w * std::sqrt(h[i]) * g[i];
                all[layout.q() + a] += product;
                (i < crossed ? wanted[layout.carried() + a] : wanted[layout.q() + a]) +=
                    i < crossed ? -(1 + i) * product : product;
                for (int b = 0; b <= a; ++b) {
                    const double square = w * stacked[i * size + b];
                    all[layout.free_gram() + triangle(a, b)] += square;
                    if (i >= crossed) wanted[layout.free_gram() + triangle(a, b)] += square;
                }
            }
        }
        s.walk.moving = s.movable_descent;
        WalkSums sums;
        sums.begin(s, layout, all.data());
        one_list(sums, s, 0, 8, std::min(crossed, 8));
        if (crossed > 8) one_list(sums, s, 8, n, crossed);
        WalkSums tied = sums;
        tied.forget();
        const double* left = sums.left(s);
        std::printf("{\"crossed\": %d, \"known\": %d, \"known with ties\": %d, ", crossed, left != nullptr,
                    tied.left(s) != nullptr);
        print("left", left ? std::vector<double>(left, left + layout.length()) : std::vector<double>());
        print("wanted", wanted, "}\n");
    }
}

LineSearchOptions preset(bool va15) {
    LineSearchOptions o{};
    o.decrease = 1e-3, o.curvature = 0.9, o.interval = 0.1, o.step_max = 1e10, o.max_evaluations = 20;
    o.extrapolate_low = 1.1, o.extrapolate_high = 4;
    o.first_step_gradient = va15;
    o.stage_two_needs_rise = !va15;
    o.guard_first_case = o.last_at_best = va15;
    o.warning_is_step = !va15;
    if (va15)
        o.decrease = 1e-4, o.interval = double_epsilon, o.step_min = 1e-20, o.step_max = 1e20,
        o.extrapolate_low = 0;
    return o;
}

// Searches on a function that is hard for interpolation, with values that turn not finite beyond a wall.
void check_search() {
    for (int va15 = 0; va15 < 2; ++va15)
        for (double wall : {double_infinity, 0.4})
            for (double first : {1e-3, 0.1, 10.0, 1e3}) {
                const LineSearchOptions o = preset(va15 != 0);
                auto f = [](double a) { return -a / (a * a + 0.01); };
                auto slope = [](double a) { return (a * a - 0.01) / ((a * a + 0.01) * (a * a + 0.01)); };
                LineSearch s;
                start_search(s, o, f(0), slope(0), first, o.step_max, 0.0);
                SearchInfo info = SearchInfo::searching;
                double trial = 0;
                while (info == SearchInfo::searching) {
                    trial = s.step;
                    info = trial < wall ? advance_search(s, o, f(trial), slope(trial)) : retreat_search(s, o);
                }
                std::printf(
                    "{\"part\": \"search\", \"info\": %d, \"step\": %.17g, \"evaluations\": %d, "
                    "\"decrease\": %.17g, "
                    "\"curvature\": %.17g, \"f\": %.17g, \"slope\": %.17g, \"slope0\": %.17g}\n",
                    int(info), trial, s.evaluations, o.decrease, o.curvature, f(trial), slope(trial),
                    slope(0));
            }
}

}  // namespace
