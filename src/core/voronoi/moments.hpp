// Moments of cells in integers, so that they do not depend on the order in which they are added.
//
// Densities are integers of at most 24 bits, and a tile is 8 x 8: mass and first moments of its pixels about
// its corner stay below 2^33, second moments below 2^37, exact in a double as in an integer. They are shifted
// to the pixel that holds the site, in 64-bit integers, and added up there. The energy about those pixels is
// one sum for all sites, in two words that cannot overflow.
//
// With q the centre of that pixel, d = x - q, and sums over the pixels p of a cell,
//   sum w |p - x|^2 = sum w |p - q|^2 - 2 d . sum w (p - q) + |d|^2 sum w,
// all of one size: nothing cancels.
#pragma once

#include "core/voronoi/tile.hpp"

SW_BEGIN

namespace voronoi {

// Mass, and first moments about the pixel of the site.
constexpr int moments_per_site = 3;

// Sum over all pixels of w |p - q|^2, as high * 2^32 + low.
struct Spread {
    int64_t low, high;

    SW_HD void add(int64_t value) {
        low += value & 0xffffffffll;
        high += value >> 32;
    }
    SW_HD double value() const { return static_cast<double>(high) * 4294967296.0 + static_cast<double>(low); }
};

// Sites as the caller holds them: x and y in turn, in units of `scale` pixels.
struct Points {
    const double* xy;
    double scale;
    int64_t count;

    SW_HD double x(int64_t i) const { return xy[2 * i] * scale; }
    SW_HD double y(int64_t i) const { return xy[2 * i + 1] * scale; }
};

// Adds the tile to the moments of the sites that own its pixels. `weight` are the densities of the member's
// pixels. The owners are visited from the lowest on.
template <class Team>
SW_HD void add_tile(const Team& team, const Points& points, const Grid& grid, int32_t top, int32_t left,
                    const double (&weight)[Team::rows][Team::columns], Nearest<Team>& nearest,
                    int64_t* moments, Spread& spread) {
    typedef typename Team::Number Number;
    for (;;) {
        Number owner = Team::nobody;
        {
            Number lowest[Team::columns];
            SW_COLUMNS
            for (int c = 0; c < Team::columns; ++c) lowest[c] = Team::nobody;
            for (int r = 0; r < Team::rows; ++r) SW_COLUMNS
            for (int c = 0; c < Team::columns; ++c) {
                const Number site = nearest.site[r][c];
                lowest[c] = site < lowest[c] ? site : lowest[c];
            }
            for (int c = 0; c < Team::columns; ++c) owner = lowest[c] < owner ? lowest[c] : owner;
        }
        owner = team.lowest(owner);
        if (owner == Team::nobody) return;
        double mass[Team::columns], down[Team::columns], squared[Team::columns];
        SW_COLUMNS
        for (int c = 0; c < Team::columns; ++c) mass[c] = down[c] = squared[c] = 0;
        for (int r = 0; r < Team::rows; ++r) {
            const double row = team.row(r);
            SW_COLUMNS
            for (int c = 0; c < Team::columns; ++c) {
                const bool owned = nearest.site[r][c] == owner;
                const double w = owned ? weight[r][c] : 0.0;
                mass[c] += w;
                down[c] += w * row;
                squared[c] += w * row * row;
                nearest.site[r][c] = owned ? Team::nobody : nearest.site[r][c];
            }
        }
        double sums[4] = {0, 0, 0, 0};
        for (int c = 0; c < Team::columns; ++c) {
            const double column = team.column(c);
            sums[0] += mass[c];
            sums[1] += mass[c] * column;
            sums[2] += down[c];
            sums[3] += mass[c] * column * column + squared[c];
        }
        int64_t whole[4];
        for (int k = 0; k < 4; ++k) whole[k] = team.total(static_cast<int64_t>(sums[k]));
        if (whole[0] == 0) continue;
        const int64_t site = static_cast<int64_t>(owner);
        const int64_t dx = left - pixel_of(points.x(site), grid.width);
        const int64_t dy = top - pixel_of(points.y(site), grid.height);
        const int64_t shifted[3] = {whole[0], whole[1] + dx * whole[0], whole[2] + dy * whole[0]};
        for (int k = team.rank(); k < moments_per_site; k += team.size())
            Team::add(moments + moments_per_site * site + k, shifted[k]);
        if (team.rank() == 0)
            spread.add(whole[3] + 2 * (dx * whole[1] + dy * whole[2]) + (dx * dx + dy * dy) * whole[0]);
    }
}

// Writes the gradient of sum w |p - x|^2 for one site and returns its part of the energy beyond the spread.
SW_HD double finish_site(const Points& points, const Grid& grid, int64_t site, const int64_t* moments,
                         double& gradient_x, double& gradient_y) {
    const double x = points.x(site), y = points.y(site);
    const double dx = x - pixel_of(x, grid.width) - 0.5, dy = y - pixel_of(y, grid.height) - 0.5;
    const double mass = static_cast<double>(moments[moments_per_site * site]);
    const double across = static_cast<double>(moments[moments_per_site * site + 1]);
    const double down = static_cast<double>(moments[moments_per_site * site + 2]);
    gradient_x = 2 * (mass * dx - across);
    gradient_y = 2 * (mass * dy - down);
    return dx * (mass * dx - 2 * across) + dy * (mass * dy - 2 * down);
}

}  // namespace voronoi

SW_END
