// The nearest sites of a tile of pixels, exactly. Take any one site t near the tile. Another site s is nearer
// than t somewhere in the tile only if it is so at a corner, for |s - c|^2 - |t - c|^2 is linear in c: with m
// the middle of the tile and h half its width, if
//   |s - m|^2 - |t - m|^2 <= 2 h (|s_x - t_x| + |s_y - t_y|).
// The few sites that pass are compared at every pixel. And none of them is farther from the tile than t is
// from its farthest corner, which bounds the buckets to look at.
//
// A tile belongs to a team: one CPU thread holds all its pixels in vector registers, a warp two to a lane.
// Beyond rank() and size() a tile's team has
//   columns, rows          how many columns and rows of the tile are one member's
//   column(c), row(r)      which ones
//   where_min(value, k)  the k of the member with the least value; of equals the lowest
//   select(begin, end, test, take)   calls take(i), in all members together, where test(i) holds
#pragma once

#include "core/voronoi/buckets.hpp"

SW_BEGIN

namespace voronoi {

// In front of a loop over the columns of a tile, which are independent: one CPU thread does them all at once.
#if defined(__CUDACC__)
#define SW_COLUMNS
#elif defined(__clang__)
#define SW_COLUMNS _Pragma("clang loop vectorize(enable)")
#else
#define SW_COLUMNS _Pragma("GCC ivdep")
#endif

constexpr int tile_side = 8;

// From the middle of a tile to the centres of its outermost pixels, along either axis.
constexpr double half_span = (tile_side - 1) / 2.0;

SW_HD double magnitude(double value) {
#if defined(__CUDACC__)
    return fabs(value);
#else
    return std::fabs(value);  // without a branch, unlike a comparison with zero
#endif
}

// The centres of a tile's pixels span a box, known by its middle.
struct Box {
    double x, y;

    SW_HD double left() const { return x - half_span; }
    SW_HD double right() const { return x + half_span; }
    SW_HD double top() const { return y - half_span; }
    SW_HD double bottom() const { return y + half_span; }
    SW_HD double middle_squared(double px, double py) const {
        return (px - x) * (px - x) + (py - y) * (py - y);
    }
    SW_HD double farthest_squared(double px, double py) const {
        const double dx = magnitude(px - x) + half_span, dy = magnitude(py - y) + half_span;
        return dx * dx + dy * dy;
    }
};

SW_HD Box box_of(int32_t top, int32_t left) {
    return {left + 0.5 * tile_side, top + 0.5 * tile_side};
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
        for (int r = 0; r < rows; ++r) {
            const double dy = team.row(r) - y, down = dy * dy;
            SW_COLUMNS
            for (int c = 0; c < columns; ++c) {
                const double dx = team.column(c) - x;
                const double other = dx * dx + down;
                const bool nearer =
                    (other < squared[r][c]) | ((other == squared[r][c]) & (number < site[r][c]));
                squared[r][c] = nearer ? other : squared[r][c];
                site[r][c] = nearer ? number : site[r][c];
            }
        }
    }
};

// A site near the box, by its place; -1 where no site has a finite position.
template <class Team>
SW_HD int32_t site_nearby(const Team& team, const Sorted& sites, const Box& box) {
    const Grid& grid = sites.grid;
    const int32_t left = pixel_of(box.left(), grid.width) >> grid.shift;
    const int32_t right = pixel_of(box.right(), grid.width) >> grid.shift;
    const int32_t top = pixel_of(box.top(), grid.height) >> grid.shift;
    const int32_t bottom = pixel_of(box.bottom(), grid.height) >> grid.shift;
    for (int32_t margin = 1;; margin *= 2) {
        const int32_t low = max_of(0, left - margin), high = min_of(grid.columns - 1, right + margin);
        double min_squared = double_infinity;
        int32_t where = -1;
        const int32_t last = min_of(grid.rows - 1, bottom + margin);
        for (int32_t row = max_of(0, top - margin); row <= last; ++row) {
            const int32_t* first = sites.first + static_cast<int64_t>(row) * grid.columns;
            const int32_t end = first[high + 1];
            for (int32_t i = first[low] + team.rank(); i < end; i += team.size()) {
                const double squared = box.middle_squared(sites.x[i], sites.y[i]);
                where = squared < min_squared ? i : where;
                min_squared = min_of(min_squared, squared);
            }
        }
        where = team.where_min(min_squared, where);
        if (where >= 0 || margin > grid.rows + grid.columns) return where;
    }
}

// Finds the nearest site of each pixel of the tile whose first pixel is (top, left).
template <class Team>
SW_HD void search_tile(const Team& team, const Sorted& sites, int32_t top, int32_t left,
                       Nearest<Team>& nearest) {
    const Grid& grid = sites.grid;
    const Box box = box_of(top, left);
    nearest.clear();
    const int32_t nearby = site_nearby(team, sites, box);
    if (nearby < 0) return;
    const double x = sites.x[nearby], y = sites.y[nearby];
    const double squared = box.middle_squared(x, y);
    // The slack is for rounding, here and in the test below.
    constexpr double slack = 1e-12;
    const double bound = box.farthest_squared(x, y) * (1 + slack), reach = square_root(bound);
    const int32_t last = pixel_of(box.bottom() + reach, grid.height) >> grid.shift;
    for (int32_t row = pixel_of(box.top() - reach, grid.height) >> grid.shift; row <= last; ++row) {
        // What the bound allows is a rounded square: of this row of buckets it covers so much.
        const double start = static_cast<double>(row << grid.shift), side = 1 << grid.shift;
        const double down = max_of(0.0, max_of(start - box.bottom(), box.top() - start - side));
        const double across = square_root(max_of(0.0, bound - down * down));
        const int32_t low = pixel_of(box.left() - across, grid.width) >> grid.shift;
        const int32_t high = pixel_of(box.right() + across, grid.width) >> grid.shift;
        const int32_t* first = sites.first + static_cast<int64_t>(row) * grid.columns;
        team.select(
            first[low], first[high + 1],
            [&](int32_t i) {
                const double apart = magnitude(sites.x[i] - x) + magnitude(sites.y[i] - y);
                const double own = box.middle_squared(sites.x[i], sites.y[i]);
                return own * (1 - slack) - squared <= 2 * half_span * apart;
            },
            [&](int32_t i) {
                // From the tile's own corner, where coordinates are small and differences accurate.
                nearest.consider(team, sites.x[i] - box.left(), sites.y[i] - box.top(),
                                 static_cast<typename Team::Number>(sites.site[i]));
            });
    }
}

}  // namespace voronoi

SW_END
