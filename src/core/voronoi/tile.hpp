// The nearest sites of a tile of pixels, exactly. Every pixel's nearest site lies no farther than the
// farthest pixel of the tile from any one site; so one site nearby bounds the search, and the few sites
// within the bound are compared at every pixel.
//
// A tile belongs to a team: one CPU thread holds all its pixels in vector registers, a warp two to a lane.
// Beyond rank() and size() a tile's team has
//   columns, rows          how many columns and rows of the tile are one member's
//   column(c), row(r)      which ones
//   least(value)           the least value of all members
//   select(begin, end, test, take)   calls take(i), in all members together, where test(i) holds
#pragma once

#include "core/voronoi/buckets.hpp"

SW_BEGIN

namespace voronoi {

// In front of a loop over the columns of a tile: one thread does them all at once.
#if defined(_OPENMP) && !defined(__CUDACC__)
#define SW_COLUMNS _Pragma("omp simd")
#else
#define SW_COLUMNS
#endif

constexpr int tile_side = 8;

// The centres of a tile's pixels span this box.
struct Box {
    double left, right, top, bottom;

    SW_HD double nearest_squared(double x, double y) const {
        const double dx = max_of(0.0, max_of(left - x, x - right));
        const double dy = max_of(0.0, max_of(top - y, y - bottom));
        return dx * dx + dy * dy;
    }
    SW_HD double farthest_squared(double x, double y) const {
        const double dx = max_of(x - left, right - x), dy = max_of(y - top, bottom - y);
        return dx * dx + dy * dy;
    }
};

SW_HD Box box_of(int32_t top, int32_t left) {
    return {left + 0.5, left + tile_side - 0.5, top + 0.5, top + tile_side - 0.5};
}

// A member's pixels: squared distance to the nearest site so far, and that site. Sites are numbered in
// Team::Number, which on the CPU is as wide as a distance so that both fit the same vector lanes.
template <class Team>
struct Nearest {
    typedef typename Team::Number Number;
    static constexpr int rows = Team::rows, columns = Team::columns;
    double squared[rows][columns];
    Number site[rows][columns];

    SW_HD void clear() {
        for (int r = 0; r < rows; ++r) SW_COLUMNS
        for (int c = 0; c < columns; ++c) {
            squared[r][c] = double_infinity;
            site[r][c] = Team::nobody;
        }
    }

    SW_HD void consider(const Team& team, double x, double y, Number number) {
        double across[columns];
        SW_COLUMNS
        for (int c = 0; c < columns; ++c) {
            const double dx = team.column(c) - x;
            across[c] = dx * dx;
        }
        for (int r = 0; r < rows; ++r) {
            const double dy = team.row(r) - y, down = dy * dy;
            SW_COLUMNS
            for (int c = 0; c < columns; ++c) {
                const double other = across[c] + down;
                const bool nearer =
                    (other < squared[r][c]) | ((other == squared[r][c]) & (number < site[r][c]));
                squared[r][c] = nearer ? other : squared[r][c];
                site[r][c] = nearer ? number : site[r][c];
            }
        }
    }
};

// A squared distance within which every pixel of the box has its nearest site.
template <class Team>
SW_HD double search_bound(const Team& team, const Sorted& sites, const Box& box) {
    const Grid& grid = sites.grid;
    const int32_t left = pixel_of(box.left, grid.width) >> grid.shift;
    const int32_t right = pixel_of(box.right, grid.width) >> grid.shift;
    const int32_t top = pixel_of(box.top, grid.height) >> grid.shift;
    const int32_t bottom = pixel_of(box.bottom, grid.height) >> grid.shift;
    for (int32_t margin = 1;; margin *= 2) {
        const int32_t low = max_of(0, left - margin), high = min_of(grid.columns - 1, right + margin);
        double least = double_infinity;
        const int32_t last = min_of(grid.rows - 1, bottom + margin);
        for (int32_t row = max_of(0, top - margin); row <= last; ++row) {
            const int32_t* first = sites.first + static_cast<int64_t>(row) * grid.columns;
            const int32_t end = first[high + 1];
            for (int32_t i = first[low] + team.rank(); i < end; i += team.size())
                least = min_of(least, box.farthest_squared(sites.x[i], sites.y[i]));
        }
        least = team.least(least);
        // The slack is for the rounding of both sides of the comparison with this bound. Where nobody has a
        // finite position, nobody is found.
        if (least < double_infinity || margin > grid.rows + grid.columns) return least * (1 + 1e-12);
    }
}

// Finds the nearest site of each pixel of the tile whose first pixel is (top, left).
template <class Team>
SW_HD void search_tile(const Team& team, const Sorted& sites, int32_t top, int32_t left,
                       Nearest<Team>& nearest) {
    const Grid& grid = sites.grid;
    const Box box = box_of(top, left);
    const double bound = search_bound(team, sites, box), reach = square_root(bound);
    const int32_t last = pixel_of(box.bottom + reach, grid.height) >> grid.shift;
    nearest.clear();
    for (int32_t row = pixel_of(box.top - reach, grid.height) >> grid.shift; row <= last; ++row) {
        // The bound is a rounded square: of this row of buckets it covers so much.
        const double start = static_cast<double>(row << grid.shift), side = 1 << grid.shift;
        const double down = max_of(0.0, max_of(start - box.bottom, box.top - start - side));
        const double across = square_root(max_of(0.0, bound - down * down));
        const int32_t low = pixel_of(box.left - across, grid.width) >> grid.shift;
        const int32_t high = pixel_of(box.right + across, grid.width) >> grid.shift;
        const int32_t* first = sites.first + static_cast<int64_t>(row) * grid.columns;
        team.select(
            first[low], first[high + 1],
            [&](int32_t i) { return box.nearest_squared(sites.x[i], sites.y[i]) <= bound; },
            [&](int32_t i) {
                // From the tile's own corner, where coordinates are small and differences accurate.
                nearest.consider(team, sites.x[i] - box.left, sites.y[i] - box.top,
                                 static_cast<typename Team::Number>(sites.site[i]));
            });
    }
}

}  // namespace voronoi

SW_END
