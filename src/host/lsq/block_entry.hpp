// Many columns enter R at once, on a CPU: see core/lsq/block_entry.hpp.
#pragma once

#include "core/lsq/block_entry.hpp"
#include "host/lsq/tile.hpp"

SW_BEGIN
namespace lsq {

// By the first member: eight columns at a time, in a strip of rows of eight.
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

}  // namespace lsq
SW_END
