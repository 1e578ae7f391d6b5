// Many columns enter the Gram factor at once, where normal equations are given: what columns that enter one
// after the other do with vectors is done with blocks of them, whose products a machine is far faster at.
//
// With R of the columns before, G_PB their products with a block B of new ones and G_BB those of the block:
//   R_PB = R^-T G_PB,   R_BB'R_BB = G_BB - R_PB'R_PB,   and Q'b of the block is R_BB^-T (c_B - R_PB'Q'b).
// The host keeps R. A device keeps S = R^-1 (inverse.hpp), whose new columns are -S R_PB R_BB^-1 and R_BB^-1.
#pragma once

#include "core/lsq/entry.hpp"
#include "core/lsq/tile.hpp"

SW_BEGIN
namespace lsq {

// What is left of a column's square where it does not depend on the others: as in insert_by_gram().
SW_HD double least_square_of_new(const Setting& setting, int j) {
    return dependent_below(setting.extent.columns) * setting.norm_of(j) * setting.norm_of(j);
}

#if defined(__CUDACC__)

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

#else

// The same with R, by the first member: eight columns at a time, in a strip of rows of eight.
template <class Team>
struct BlockEntry {
    static constexpr int width = lanes;
    const Team& team;
    const Setting& setting;
    const Workspace& ws;
    const Triangle r;

    explicit BlockEntry(const Factor<Team>& factor)
        : team(factor.team), setting(factor.setting), ws(factor.setting.ws), r(factor.triangle) {}

    bool enter(int first, int own) const {
        const double bad = team.rank() == 0 && !enter_strip(first, own) ? 1 : 0;
        return team.max(bad) == 0;
    }

private:
    double* at(int t) const { return ws.strip + t * width; }

    bool enter_strip(int first, int own) const {
        gather(first, own);
        const double* over = ws.triangle.inverse_diagonal;
        const int64_t stride = r.row(1) - r.row(0);
        int t = 0;
        for (; t + 4 <= first; t += 4) {
            Tile tile;
            std::memcpy(tile, at(t), sizeof tile);
            add_products<-1>(r.row(0) + t, stride, at(0), t, tile);
            for (int i = 0; i < 4; ++i) {
                Eight row(tile[i]);
                for (int k = 0; k < i; ++k) row.add(-r.row(t + k)[t + i], tile[k]);
                row.multiply(over[t + i]);
                row.keep(tile[i]);
            }
            std::memcpy(at(t), tile, sizeof tile);
        }
        for (; t < first; ++t) {
            Eight row(at(t));
            for (int k = 0; k < t; ++k) row.add(-r.row(k)[t], at(k));
            row.multiply(over[t]);
            row.keep(at(t));
        }
        if (!factor_block(first, own)) return false;
        for (t = 0; t < first; ++t)
            for (int c = 0; c < own; ++c) r.row(t)[first + c] = at(t)[c];
        for (int i = 0; i < own; ++i)
            for (int c = i; c < own; ++c) r.row(first + i)[first + c] = at(first + i)[c];
        find_targets(first, own);
        return true;
    }

    void gather(int first, int own) const {
        const Shared& shared = setting.shared;
        for (int c = 0; c < width; ++c) {
            const double* row = shared.gram + ws.order[first + min_of(c, own - 1)] * shared.gram_stride;
            for (int p = 0; p < first + own; ++p) at(p)[c] = c < own ? row[ws.order[p]] : 0.0;
        }
        for (int p = first + own; p < first + width; ++p) std::fill_n(at(p), width, 0.0);
    }

    bool factor_block(int first, int own) const {
        for (int half = 0; half < width; half += 4) {
            Tile tile;
            std::memcpy(tile, at(first + half), sizeof tile);
            add_products<-1>(at(0) + half, width, at(0), first, tile);
            std::memcpy(at(first + half), tile, sizeof tile);
        }
        for (int c = 0; c < own; ++c) {
            Eight row(at(first + c));
            for (int i = 0; i < c; ++i) row.add(-at(first + i)[c], at(first + i));
            row.keep(at(first + c));
            const double square = at(first + c)[c];
            if (!(square > least_square_of_new(setting, ws.order[first + c]))) return false;
            const double over = inverse_root(square);
            row.multiply(over);
            row.keep(at(first + c));
            ws.triangle.inverse_diagonal[first + c] = over;
        }
        return true;
    }

    void find_targets(int first, int own) const {
        double* target = ws.triangle.target;
        double rest[width] = {};
        for (int c = 0; c < own; ++c) rest[c] = ws.c[ws.order[first + c]];
        Eight sums(rest);
        for (int t = 0; t < first; ++t) sums.add(-target[t], at(t));
        sums.keep(rest);
        for (int c = 0; c < own; ++c) {
            for (int i = 0; i < c; ++i) rest[c] -= at(first + i)[c] * target[first + i];
            target[first + c] = rest[c] * ws.triangle.inverse_diagonal[first + c];
        }
    }
};

#endif

// The columns at `number` positions after the last. False where one depends on others to rounding; the factor
// is then as it was. Called on a copy, as insert_by_csne_or_qr() is.
template <class Team>
SW_CALL bool enter_in_blocks(const Factor<Team> factor, int number) {
    const BlockEntry<Team> entry(factor);
    constexpr int width = BlockEntry<Team>::width;
    const int last = factor.count + number;
    for (int first = factor.count; first < last; first += width) {
        const int own = min_of(width, last - first);
        if (!entry.enter(first, own)) return false;
        const int64_t k = first;
        factor.charge(own, own * (k * k + 4 * k));
    }
    return true;
}

}  // namespace lsq
SW_END
