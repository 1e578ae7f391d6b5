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
SW_HD int slot_of(int age, int head, int pairs, int slots) {
    int slot = head - pairs + age;
    return slot < 0 ? slot + slots : slot >= slots ? slot - slots : slot;
}

// Products of pairs, by slot, kept from one iteration to the next: sy[i, j] = s_i·y_j; ss = s_i·s_j / h and
// yy = h y_i·y_j are symmetric, and kept in the row of the newer pair. Where G comes from sums, yy and the
// products of a newer y are not kept.
struct SmallMatrices {
    double *sy, *ss, *yy;
    int slots;
};

SW_HD constexpr int64_t small_matrices_length(int slots) {
    return int64_t(3) * slots * slots;
}

SW_HD SmallMatrices small_matrices(double* memory, int slots) {
    const int64_t block = int64_t(slots) * slots;
    return {memory, memory + block, memory + 2 * block, slots};
}

// Where the sums of the absorb and regather sweeps lie. `rows` pairs in order of age, the newest last;
// stacked rows are [Y; S] with h as weight (y √h, s/√h), so that all products are plain dot products.
struct SumLayout {
    int rows;
    bool gram, all_ss;
    SW_HD int new_ss() const { return 0; }         // s·s_j over all variables
    SW_HD int new_sy() const { return rows; }      // s·y_j
    SW_HD int new_ys() const { return 2 * rows; }  // y·s_j
    SW_HD int new_yy() const { return 3 * rows; }  // y·y_j
    // On a host, within bounds and without a diagonal, where nobody wants y·s_j: 1 if few variables are free
    // (reduced_model.hpp), else 0.
    SW_HD int few() const { return new_ys(); }
    SW_HD int q() const { return 4 * rows; }        // stacked·(√h g) over the free variables
    SW_HD int carried() const { return 6 * rows; }  // stacked·(delta/√h) over the carried variables
    SW_HD int free_gram() const {
        return 8 * rows;
    }  // stacked·stackedᵀ over the free, lower triangle by rows
    SW_HD int whole_ss() const { return free_gram() + (gram ? rows * (2 * rows + 1) : 0); }
    SW_HD int length() const { return whole_ss() + (all_ss ? rows * (rows + 1) / 2 : 0); }
};

SW_HD SumLayout sum_layout(const Options& options, int rows) {
    // Unbounded with a constant H0, the Gram matrix is known from the kept products and their new rows.
    const bool gram = options.bounded || options.weights_vary;
    return {rows, gram && rows > 0, options.bounded && options.weights_vary && rows > 0};
}

SW_HD int triangle(int i, int j) {
    return i * (i + 1) / 2 + j;
}

// Working memory of the decisions of one problem, alive for one turn.
struct Scratch {
    double* k;     // factors of K, 2r x 2r
    double* kg;    // factors of K - G
    double* gram;  // G
    double* path;  // L⁻¹ q in the basis of K = L D Lᵀ, for the Cauchy path; 2r, as are the next
    double* carried;
    double* coefficients;  // b + z, what the aim sweep applies: [for gamma h y; for s]
};

SW_HD constexpr int64_t scratch_length(int capacity) {
    return 3 * int64_t(4) * capacity * capacity + 3 * int64_t(2) * capacity;
}

SW_HD Scratch scratch_views(double* memory, int capacity) {
    const int64_t square = int64_t(4) * capacity * capacity, line = int64_t(2) * capacity;
    double* lines = memory + 3 * square;
    return {memory, memory + square, memory + 2 * square, lines, lines + line, lines + 2 * line};
}

// Enters the new row and column of the pair products, from the sums over all variables.
template <class Team>
SW_HD void store_new_products(Team& team, const SmallMatrices& m, const State& s, const SumLayout& layout,
                              const double* sums) {
    const int r = layout.rows, c = m.slots, newest = slot_of(r - 1, s.head, r, c);
    SW_ROLLED
    for (int a = team.rank(); a < r; a += team.size()) {
        const int j = slot_of(a, s.head, r, c);
        m.ss[newest * c + j] = sums[layout.new_ss() + a];
        m.sy[newest * c + j] = sums[layout.new_sy() + a];
        if (layout.gram) continue;
        m.yy[newest * c + j] = sums[layout.new_yy() + a];
        if (a < r - 1) m.sy[j * c + newest] = sums[layout.new_ys() + a];
    }
    team.sync();
}

// With weights that vary, s_i·s_j / h changes for every pair: take it anew.
template <class Team>
SW_HD void store_whole_ss(Team& team, const SmallMatrices& m, const State& s, const SumLayout& layout,
                          const double* sums) {
    const int r = s.pairs, c = m.slots, rows = layout.rows;
    SW_ROLLED
    for (int a = team.row(); a < r; a += team.rows()) {
        SW_ROLLED
        for (int b = team.lane(); b <= a; b += team.lanes()) {
            const double value = layout.all_ss ? sums[layout.whole_ss() + triangle(a, b)]
                                               : sums[layout.free_gram() + triangle(rows + a, rows + b)];
            const int i = slot_of(a, s.head, r, c), j = slot_of(b, s.head, r, c);
            m.ss[i * c + j] = value;
        }
    }
    team.sync();
}

// K - G and, `with_k`, K; without, where K has factors that are kept, G over the free variables. In order of
// age: upper triangles, but G the full square. G comes from the sums, or from the kept products when every
// variable is free. `rows` of the sums may exceed s.pairs by one, when the newest pair was refused.
template <class Team>
SW_HD_CALLED void form_model(Team& team, const Scratch& w, const SmallMatrices& m, const State& s,
                             const SumLayout layout, const double* sums, double theta, bool with_k) {
    const int r = s.pairs, c = m.slots, size = 2 * r, rows = layout.rows;
    const double gamma = s.gamma;
    each_entry(team, r, [&](bool a_is_s, int a_age, bool b_is_s, int b_age) {
        const int a = a_is_s ? r + a_age : a_age, b = b_is_s ? r + b_age : b_age;
        const int i = slot_of(a_age, s.head, r, c), j = slot_of(b_age, s.head, r, c);
        const double product = (a_is_s ? m.ss : b_is_s ? m.sy : m.yy)[j * c + i];
        const double free = layout.gram ? sums[layout.free_gram() + triangle(b_is_s ? rows + b_age : b_age,
                                                                             a_is_s ? rows + a_age : a_age)]
                                        : product;
        double k = 0, g = free;
        if (a_is_s) {
            k = theta * product;
            g = theta * free;
        } else if (b_is_s) {
            if (a < b_age) k = product;  // L transposed
        } else {
            if (a == b) k = -m.sy[i * c + i];
            g = gamma * free;
        }
        w.kg[a * size + b] = k - g;
        if (with_k) {
            w.k[a * size + b] = k;
        } else {
            w.gram[a * size + b] = w.gram[b * size + a] = g;
        }
    });
}

// Element a of a vector of stacked sums [for y; for s], as the vector W has it: the part of s times theta =
// 1/gamma.
SW_HD double stacked_sum(const double* sums, int pairs, int rows, double theta, int a) {
    return a < pairs ? sums[a] : theta * sums[rows + a - pairs];
}

// With variables carried to their bounds: b + z into scratch.coefficients. Scratch holds the factors of K.
// False if rounding has destroyed K - G.
template <class Team>
SW_HD_CALLED bool solve_carried(Team& team, const Scratch& w, const SmallMatrices& m, const State& s,
                                const SumLayout& layout, const double* sums) {
    const int pairs = s.pairs, size = 2 * pairs, rows = layout.rows;
    const double theta = 1 / s.gamma;
    form_model(team, w, m, s, layout, sums, theta, false);
    SW_ROLLED
    for (int i = team.rank(); i < size; i += team.size()) {
        w.coefficients[i] = s.gamma * stacked_sum(sums + layout.q(), pairs, rows, theta, i);
        w.carried[i] = -stacked_sum(sums + layout.carried(), pairs, rows, theta, i);
    }
    team.sync();
    solve_ldlt(team, w.k, size, w.carried);  // b
    SW_ROLLED
    for (int i = team.rank(); i < size; i += team.size()) {
        double product = 0;
        SW_ROLLED
        for (int j = 0; j < size; ++j) product += w.gram[i * size + j] * w.carried[j];
        w.coefficients[i] += product;
    }
    team.sync();
    if (!factor_with(team, Factoring{w.kg, w.coefficients}, size, pairs)) return false;
    solve_upper(team, w.kg, size, w.coefficients);  // z
    SW_ROLLED
    for (int i = team.rank(); i < size; i += team.size()) w.coefficients[i] += w.carried[i];
    team.sync();
    return true;
}

SW_END
