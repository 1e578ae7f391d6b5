// Many columns enter S = R^-1 at once, on a device: see core/lsq/block_entry.hpp.
#pragma once

#include "core/lsq/block_entry.hpp"

SW_BEGIN
namespace lsq {

template <class Team>
struct BlockEntry {
    static constexpr int width = block_width;
    const Team& team;
    const Setting& setting;
    const Workspace& ws;
    const Triangle s;
    const int64_t length;  // of a column of `across` and `right`
    double *left, *across, *right,
        *over;  // the first: a row of `width` numbers a position; the last: R_BB^-1

    SW_HD explicit BlockEntry(const Factor<Team>& factor)
        : team(factor.team),
          setting(factor.setting),
          ws(factor.setting.ws),
          s(factor.triangle),
          length(padded(setting.extent.positions())),
          left(ws.strip),
          across(ws.strip),
          right(ws.strip + width * padded(setting.extent.positions() + width)),
          over(right + width * length) {}

    // The block of `own` columns at the positions from `first` on. False where one depends on others.
    SW_HD bool enter(int first, int own) const {
        gather(first, own);
        multiply_transposed(first);
        const bool sound = factor_block(first, own);
        if (!sound) return false;
        multiply_by_block(first);
        append(first, own);
        return true;
    }

private:
    // left = G_PB, and below it G_BB. A row of lanes takes as many positions as it has lanes.
    SW_HD void gather(int first, int own) const {
        const Shared& shared = setting.shared;
        const int lanes = team.lanes(), pieces = width * ((first + own + lanes - 1) / lanes);
        for (int k = team.row(); k < pieces; k += team.rows()) {
            const int c = k % width, p = k / width * lanes + team.lane();
            const double* row = shared.gram + ws.order[first + min_of(c, own - 1)] * shared.gram_stride;
            if (p < first + own) left[p * width + c] = c < own ? row[ws.order[p]] : 0.0;
        }
        team.sync();
    }

    // right = S' left, which is R_PB. A member takes a column of S, whose neighbours' lie beside it, with all
    // columns of the block or, where there are more rows of lanes than that keeps busy, with some.
    SW_HD void multiply_transposed(int count) const {
        if (is_wide(team))
            multiply_columns<width / 4>(count);
        else
            multiply_columns<width>(count);
        team.sync();
    }

    template <int some>
    SW_HD void multiply_columns(int count) const {
        constexpr int parts = width / some, at_once = some < width ? 16 : 8;
        const int lanes = team.lanes(), pieces = parts * ((count + lanes - 1) / lanes);
        // (The longest first.)
        for (int k = pieces - 1 - team.row(); k >= 0; k -= team.rows()) {
            const int t = k / parts * lanes + team.lane(), first = k % parts * some;
            const int end = min_of((k / parts + 1) * lanes, count);  // all lanes read the same row
            double sum[some] = {};
            SW_ROLLED
            for (int p = 0; p < end; p += at_once) {
                // All loads before any is used. (Below the diagonal lies what other rows end with.)
                double value[at_once];
                SW_UNROLL
                for (int u = 0; u < at_once; ++u)
                    value[u] = s.row(min_of(p + u, end - 1))[min_of(t, count - 1)];
                SW_UNROLL
                for (int u = 0; u < at_once; ++u) {
                    const double own = p + u <= t && p + u < end ? value[u] : 0.0;
                    const double* row = left + min_of(p + u, end - 1) * width + first;
                    SW_UNROLL
                    for (int c = 0; c < some; ++c) sum[c] += own * row[c];
                }
            }
            if (t < count) {
                SW_UNROLL
                for (int c = 0; c < some; ++c) right[(first + c) * length + t] = sum[c];
            }
        }
    }

    // R_BB, where G_BB was, its inverse, and Q'b of the block. Whether all pivots are sound.
    SW_HD bool factor_block(int first, int own) const {
        double* r = left + first * width;
        double *target = ws.triangle.target, *rest = ws.g;
        // What the positions before take of G_BB and of c_B.
        for (int k = team.row(); k < own * (width + 1); k += team.rows()) {
            const int i = k / (width + 1), c = k % (width + 1);
            const bool of_target = c == width;
            if (i > c || (c >= own && !of_target)) continue;
            const double taken = product(right + i * length, of_target ? target : right + c * length, first);
            if (team.lane() != 0) continue;
            if (of_target)
                rest[i] = ws.c[ws.order[first + i]] - taken;
            else
                r[i * width + c] -= taken;
        }
        team.sync();
        double bad = 0;
        if (team.row() == 0) {
            for (int c = 0; c < own; ++c) {
                team.lane_each(own - c, [&](int q) {
                    double value = r[c * width + c + q];
                    for (int i = 0; i < c; ++i) value -= r[i * width + c] * r[i * width + c + q];
                    r[c * width + c + q] = value;
                });
                team.lane_sync();
                const double square = r[c * width + c];
                const bool sound = square > least_square_of_new(setting, ws.order[first + c]);
                if (!sound) bad = 1;
                const double root = sound ? inverse_root(square) : 0.0;
                team.lane_sync();
                team.lane_each(own - c, [&](int q) { r[c * width + c + q] *= root; });
                if (team.lane() == 0) over[c * width + c] = root;
                team.lane_sync();
            }
            team.lane_each(width, [&](int d) {
                for (int i = own; i < width; ++i) over[i * width + d] = 0;
                for (int i = d + 1; i < own; ++i) over[i * width + d] = 0;
                for (int i = min_of(d, own) - 1; i >= 0; --i) {
                    double value = 0;
                    if (d < own)
                        for (int k = i + 1; k <= d; ++k) value -= r[i * width + k] * over[k * width + d];
                    over[i * width + d] = value * over[i * width + i];
                }
            });
            team.lane_sync();
        }
        const bool sound = team.max(bad) == 0;
        team.sync();
        if (!sound) return false;
        team.each_short(own, [&](int c) {
            double value = 0;
            for (int i = 0; i <= c; ++i) value += over[i * width + c] * rest[i];
            target[first + c] = value;
        });
        return true;
    }

    // a . b by a row of lanes, four loads of each at a time.
    SW_HD double product(const double* a, const double* b, int count) const {
        double sum[4] = {0, 0, 0, 0};
        const int lanes = team.lanes();
        SW_ROLLED
        for (int t = team.lane(); t < count; t += 4 * lanes) {
            SW_UNROLL
            for (int u = 0; u < 4; ++u)
                if (t + u * lanes < count) sum[u] += a[t + u * lanes] * b[t + u * lanes];
        }
        return team.lane_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    }

    // across = R_PB R_BB^-1, a column after the other
    SW_HD void multiply_by_block(int count) const {
        team.each(count, [&](int t) {
            double value[width];
            SW_UNROLL
            for (int i = 0; i < width; ++i) value[i] = right[i * length + t];
            SW_UNROLL
            for (int c = 0; c < width; ++c) {
                double sum = 0;
                SW_UNROLL
                for (int i = 0; i <= c; ++i) sum += value[i] * over[i * width + c];
                across[c * length + t] = sum;
            }
        });
        team.sync();
    }

    // The new columns of S. A row of lanes goes along two rows of S at a time, as they lie in memory.
    SW_HD void append(int count, int own) const {
        SW_ROLLED
        for (int p = 2 * team.row(); p < count; p += 2 * team.rows()) {
            const bool second = p + 1 < count;
            double *upper = s.row(p), *lower = s.row(second ? p + 1 : p);
            double sum[2][width] = {};
            SW_ROLLED
            for (int t = p + team.lane(); t < count; t += team.lanes()) {
                const double above = upper[t], below = t > p ? lower[t] : 0.0;
                SW_UNROLL
                for (int c = 0; c < width; ++c) {
                    const double value = across[c * length + t];
                    sum[0][c] += above * value;
                    sum[1][c] += below * value;
                }
            }
            SW_UNROLL
            for (int c = 0; c < width; ++c) {
                const double first = team.lane_sum(sum[0][c]), next = team.lane_sum(sum[1][c]);
                if (team.lane() != c % team.lanes() || c >= own) continue;
                upper[count + c] = -first;
                if (second) lower[count + c] = -next;
            }
        }
        team.each(own * own, [&](int k) {
            const int i = k / own, c = k % own;
            if (c >= i) s.row(count + i)[count + c] = over[i * width + c];
        });
        team.sync();
    }
};

}  // namespace lsq
SW_END
