// The residual in twice the precision, and its part outside the span of the positive columns: what decides
// where b - A x is so small that its rounding hides the dual.
//
// Of r = b - A x in plain arithmetic a rounding of |b| + sum |a_j| x_j is noise; of r in twice the precision
// only a rounding of |r|. What is left in r of the rounding of x lies in the span of the positive columns: Q
// takes it out, and the dual of the rest is that of the true solution on these columns.
#pragma once

#include "core/lsq/factor.hpp"

SW_BEGIN
namespace lsq {

SW_HD double fused(double a, double b, double c) {
#if defined(__CUDACC__)
    return fma(a, b, c);
#else
    return __builtin_fma(a, b, c);
#endif
}

// A number and what rounding took from it (Dekker 1971; Ogita, Rump & Oishi 2005, Dot2).
struct Twofold {
    double high, low;

    SW_HD void subtract_product(double a, double b) {
        const double product = -a * b, missing = fused(-a, b, -product);
        const double sum = high + product, back = sum - high;
        low += ((high - (sum - back)) + (product - back)) + missing;
        high = sum;
    }
};

// r = b - sum of x[p] column_p, correct to a rounding of r itself. Ends in a sync.
template <class Team>
SW_CALL void subtract_columns_exactly(const Team& team, const Columns columns, int count, const double* x,
                                      const double* b, double* r, int length) {
    team.each(length, [&](int i) {
        Twofold entry{b[i], 0};
        for (int p = 0; p < count; ++p)
            if (i >= columns.first(p) && i < columns.last(p))
                entry.subtract_product(columns.at(p)[i], columns.factor_of(p) * x[p]);
        r[i] = entry.high + entry.low;
    });
    team.sync();
}

// ws.v becomes r, the rows of the damping below it; ends in a sync.
template <class Team>
SW_CALL void stack_residual(const Factor<Team> factor) {
    const Setting& setting = factor.setting;
    const Workspace& ws = factor.ws;
    const int length = setting.extent.row_length(), rest = setting.extent.q_length() - length;
    factor.team.each(length, [&](int i) { ws.v[i] = ws.metric ? ws.inverse_root[i] * ws.r[i] : ws.r[i]; });
    factor.team.each(rest, [&](int i) { ws.v[length + i] = 0; });
    factor.team.sync();
    if (rest == 0) return;
    factor.team.each_short(factor.count, [&](int p) {
        const int j = ws.order[p];
        ws.v[length + j] = -setting.below(j) * ws.x[p];
    });
    factor.team.sync();
}

// Q'b's place takes Q'(b - A x), and ws.v the part of b - A x outside the span of Q; returns that part's
// square. Twice, as one pass leaves a rounding of what it took out. Only where Q is kept.
template <class Team>
SW_CALL double project_residual(const Factor<Team> factor) {
    const Workspace& ws = factor.ws;
    const int length = factor.setting.extent.q_length();
    const Columns basis = factor.q(length);
    double* inside = ws.triangle.target;
    stack_residual(factor);
    dot_columns(factor.team, basis, factor.count, ws.v, 0, length, inside);
    subtract_columns(factor.team, basis, factor.count, inside, ws.v, length);
    dot_columns(factor.team, basis, factor.count, ws.v, 0, length, ws.g);
    subtract_columns(factor.team, basis, factor.count, ws.g, ws.v, length);
    factor.team.each_short(factor.count, [&](int p) { inside[p] += ws.g[p]; });
    factor.team.sync();
    return factor.team.sum(part_of_dot(factor.team, ws.v, ws.v, length));
}

}  // namespace lsq
SW_END
