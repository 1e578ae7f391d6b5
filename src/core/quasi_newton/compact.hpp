// The compact representation of limited-memory BFGS (Byrd, Nocedal, Schnabel 1994) and the subspace step.
//
//   B = H0⁻¹ - W K⁻¹ Wᵀ,  H0 = gamma diag(h),  W = [Y, H0⁻¹ S],  K = [[-D, Lᵀ], [L, Sᵀ H0⁻¹ S]]
//
// with D the diagonal and L the strictly lower part of SᵀY in order of age. With free variables F, variables
// H carried to their bounds by displacements delta, and the rest held, the minimiser of the quadratic model
// is
//
//   b = -K⁻¹ Σ_H w_i delta_i      z = (K - G)⁻¹ (q + G b),  q = Σ_F H0 w_i g_i,  G = Σ_F H0 w_i w_iᵀ
//   d_i = -H0_i (g_i + w_iᵀ(b + z))  on F
//
// by Sherman–Morrison–Woodbury. S and Y are ring buffers that never move: the m x m products of pairs are
// kept by slot (SmallMatrices) and put in order of age only when K is formed.
#pragma once

#include "core/quasi_newton/options.hpp"
#include "core/quasi_newton/small_matrix.hpp"
#include "core/quasi_newton/state.hpp"

SW_BEGIN

// Slot of the pair of a given age, 0 the oldest of `pairs`.
SW_HD int slot_of(int age, int head, int pairs, int capacity) {
    int slot = head - pairs + age;
    return slot < 0 ? slot + capacity : slot >= capacity ? slot - capacity : slot;
}

// Products of pairs, by slot, kept from one iteration to the next: sy[i, j] = s_i·y_j; ss = s_i·s_j / h and
// yy = h y_i·y_j are symmetric.
struct SmallMatrices {
    double *sy, *ss, *yy;
    int capacity;
};

SW_HD int64_t small_matrices_length(int capacity) {
    return int64_t(3) * capacity * capacity;
}

SW_HD SmallMatrices small_matrices(double* memory, int capacity) {
    const int64_t block = int64_t(capacity) * capacity;
    return {memory, memory + block, memory + 2 * block, capacity};
}

// Where the sums of the absorb and regather sweeps lie. `rows` pairs in order of age, the newest last;
// stacked rows are [Y; S] with h as weight (y √h, s/√h), so that all products are plain dot products.
struct SumLayout {
    int rows;
    bool gram, all_ss;
    SW_HD int64_t new_ss() const { return 0; }          // s·s_j over all variables
    SW_HD int64_t new_sy() const { return rows; }       // s·y_j
    SW_HD int64_t new_ys() const { return 2 * rows; }   // y·s_j
    SW_HD int64_t new_yy() const { return 3 * rows; }   // y·y_j
    SW_HD int64_t q() const { return 4 * rows; }        // stacked·(√h g) over the free variables
    SW_HD int64_t carried() const { return 6 * rows; }  // stacked·(delta/√h) over the carried variables
    SW_HD int64_t free_gram() const {
        return 8 * rows;
    }  // stacked·stackedᵀ over the free, lower triangle by rows
    SW_HD int64_t whole_ss() const { return free_gram() + (gram ? int64_t(rows) * (2 * rows + 1) : 0); }
    SW_HD int64_t length() const { return whole_ss() + (all_ss ? int64_t(rows) * (rows + 1) / 2 : 0); }
};

SW_HD SumLayout sum_layout(const Options& options, int rows) {
    // Unbounded with a constant H0, the Gram matrix is known from the kept products and their new rows.
    const bool gram = options.bounded || options.weights_vary;
    return {rows, gram && rows > 0, options.bounded && options.weights_vary && rows > 0};
}

SW_HD int64_t triangle(int i, int j) {
    return int64_t(i) * (i + 1) / 2 + j;
}

// Working memory of the decisions of one problem, alive for one turn.
struct Scratch {
    double* k;     // factors of K, 2r x 2r
    double* kg;    // factors of K - G
    double* gram;  // G
    double* q;     // 2r each
    double* carried;
    double* work;
    double*
        coefficients;  // b + z, what the aim sweep applies: [for gamma h y; for s], see finish_coefficients
};

SW_HD int64_t scratch_length(int capacity) {
    return 3 * int64_t(4) * capacity * capacity + 4 * int64_t(2) * capacity;
}

SW_HD Scratch scratch_views(double* memory, int capacity) {
    const int64_t square = int64_t(4) * capacity * capacity, line = int64_t(2) * capacity;
    double* lines = memory + 3 * square;
    return {memory,       memory + square,  memory + 2 * square, lines,
            lines + line, lines + 2 * line, lines + 3 * line};
}

// Enters the new row and column of the pair products, from the sums over all variables.
template <class Team>
SW_HD void store_new_products(Team& team, const SmallMatrices& m, const State& s, const SumLayout& layout,
                              const double* sums) {
    const int r = layout.rows, c = m.capacity, newest = slot_of(r - 1, s.head, r, c);
    SW_ROLLED
    for (int a = team.rank(); a < r; a += team.size()) {
        const int j = slot_of(a, s.head, r, c);
        m.ss[newest * c + j] = m.ss[j * c + newest] = sums[layout.new_ss() + a];
        m.yy[newest * c + j] = m.yy[j * c + newest] = sums[layout.new_yy() + a];
        m.sy[newest * c + j] = sums[layout.new_sy() + a];
        if (a < r - 1) m.sy[j * c + newest] = sums[layout.new_ys() + a];
    }
    team.sync();
}

// With weights that vary, s_i·s_j / h changes for every pair: take it anew.
template <class Team>
SW_HD void store_whole_ss(Team& team, const SmallMatrices& m, const State& s, const SumLayout& layout,
                          const double* sums) {
    const int r = s.pairs, c = m.capacity, rows = layout.rows;
    SW_ROLLED
    for (int a = team.row(); a < r; a += team.rows()) {
        SW_ROLLED
        for (int b = team.lane(); b <= a; b += team.lanes()) {
            const double value = layout.all_ss ? sums[layout.whole_ss() + triangle(a, b)]
                                               : sums[layout.free_gram() + triangle(rows + a, rows + b)];
            const int i = slot_of(a, s.head, r, c), j = slot_of(b, s.head, r, c);
            m.ss[i * c + j] = m.ss[j * c + i] = value;
        }
    }
    team.sync();
}

// K in order of age, upper triangle.
template <class Team>
SW_HD_CALLED void form_k(Team& team, double* k, const SmallMatrices& m, const State& s) {
    const int r = s.pairs, c = m.capacity, size = 2 * r;
    const double theta = 1 / s.gamma;
    SW_ROLLED
    for (int a = team.row(); a < r; a += team.rows()) {
        const int i = slot_of(a, s.head, r, c);
        SW_ROLLED
        for (int b = team.lane(); b < r; b += team.lanes()) {
            const int j = slot_of(b, s.head, r, c);
            if (a <= b) {
                k[a * size + b] = a == b ? -m.sy[i * c + i] : 0.0;
                k[(r + a) * size + r + b] = theta * m.ss[i * c + j];
            }
            k[a * size + r + b] = a < b ? m.sy[j * c + i] : 0.0;  // L transposed
        }
    }
    team.sync();
}

// G over the free variables, full square: from the sums, or from the kept products when every variable is
// free. `rows` of the sums may exceed s.pairs by one, when the newest pair was refused.
template <class Team>
SW_HD_CALLED void form_gram(Team& team, double* g, const SmallMatrices& m, const State& s,
                            const SumLayout& layout, const double* sums) {
    const int r = s.pairs, c = m.capacity, size = 2 * r, rows = layout.rows;
    const double theta = 1 / s.gamma;
    SW_ROLLED
    for (int a = team.row(); a < size; a += team.rows()) {
        const bool is_s = a >= r;
        const int age = is_s ? a - r : a, i = slot_of(age, s.head, r, c);
        const double* known = sums + layout.free_gram() + triangle(is_s ? rows + age : age, 0);
        SW_ROLLED
        for (int b = team.lane(); b < min_of(a + 1, r); b += team.lanes()) {  // against Y
            const int j = slot_of(b, s.head, r, c);
            const double value = layout.gram ? known[b] : (is_s ? m.sy : m.yy)[i * c + j];
            g[a * size + b] = g[b * size + a] = is_s ? value : s.gamma * value;
        }
        SW_ROLLED
        for (int b = team.lane(); b < a + 1 - r; b += team.lanes()) {  // against S
            const int j = slot_of(b, s.head, r, c);
            const double value = layout.gram ? known[rows + b] : m.ss[i * c + j];
            g[a * size + r + b] = g[(r + b) * size + a] = theta * value;
        }
    }
    team.sync();
}

// A vector of stacked sums [for y; for s], as the vector W has it: the part of s divided by gamma.
template <class Team>
SW_HD void take_stacked(Team& team, double* out, const double* sums, const State& s, int rows, double scale) {
    const int r = s.pairs;
    SW_ROLLED
    for (int a = team.rank(); a < r; a += team.size()) {
        out[a] = scale * sums[a];
        out[r + a] = scale / s.gamma * sums[rows + a];
    }
    team.sync();
}

// Solves for b + z. Scratch holds the factors of K, G and q (for the path direction: without gamma);
// `with_carried` says that scratch.carried holds Σ_H w delta. False if rounding has destroyed K - G.
template <class Team>
SW_HD_CALLED bool solve_subspace(Team& team, const Scratch& w, const SmallMatrices& m, const State& s,
                                 bool with_carried) {
    const int size = 2 * s.pairs;
    form_k(team, w.kg, m, s);
    SW_ROLLED
    for (int i = team.row(); i < size; i += team.rows()) {
        SW_ROLLED
        for (int j = i + team.lane(); j < size; j += team.lanes()) w.kg[i * size + j] -= w.gram[i * size + j];
    }
    team.sync();
    if (!factor_ldlt(team, w.kg, size, s.pairs)) return false;
    SW_ROLLED
    for (int i = team.rank(); i < size; i += team.size()) {
        w.coefficients[i] = s.gamma * w.q[i];
        if (with_carried) w.carried[i] = -w.carried[i];
    }
    team.sync();
    if (with_carried) {
        solve_ldlt(team, w.k, size, w.carried);  // b
        SW_ROLLED
        for (int i = team.rank(); i < size; i += team.size()) {
            double product = 0;
            SW_ROLLED
            for (int j = 0; j < size; ++j) product += w.gram[i * size + j] * w.carried[j];
            w.coefficients[i] += product;
        }
        team.sync();
    }
    solve_ldlt(team, w.kg, size, w.coefficients);  // z
    if (with_carried) {
        SW_ROLLED
        for (int i = team.rank(); i < size; i += team.size()) w.coefficients[i] += w.carried[i];
        team.sync();
    }
    return true;
}

SW_END
