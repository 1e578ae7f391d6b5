// Jump flooding (Rong & Tan 2006): every pixel asks its eight neighbours at a distance that halves from pass
// to pass for their sites. The order here is 1+JFA with two passes more (Rong & Tan 2007): step 1, half the
// image, a quarter, ..., 1, and once more 2 and 1.
#pragma once

#include "core/voronoi/buckets.hpp"
#include "core/voronoi/moments.hpp"

SW_BEGIN

namespace voronoi {

// Writes the steps of the passes and returns how many there are (at most 32).
SW_HD int jump_steps(int32_t height, int32_t width, int32_t* steps) {
    int count = 0;
    steps[count++] = 1;
    int32_t step = 1;
    while (2 * step < max_of(height, width)) step *= 2;
    for (; step >= 1; step /= 2) steps[count++] = step;
    steps[count++] = 2;
    steps[count++] = 1;
    return count;
}

// The nearest of the sites known to a pixel and to its neighbours at a distance of `step`; -1 if none is.
SW_HD int32_t jump_pixel(const Grid& grid, const Points& points, const int32_t* known, int32_t row,
                         int32_t column, int32_t step) {
    const double x = column + 0.5, y = row + 0.5;
    double min_squared = double_infinity;
    int32_t best = -1;
    for (int32_t dr = -step; dr <= step; dr += step) {
        const int32_t r = row + dr;
        if (r < 0 || r >= grid.height) continue;
        const int32_t* line = known + static_cast<int64_t>(r) * grid.width;
        for (int32_t dc = -step; dc <= step; dc += step) {
            const int32_t c = column + dc;
            if (c < 0 || c >= grid.width) continue;
            const int32_t site = line[c];
            if (site < 0 || site == best) continue;
            const double dx = points.x(site) - x, dy = points.y(site) - y;
            const double squared = dx * dx + dy * dy;
            if (squared < min_squared || (squared == min_squared && site < best)) {
                min_squared = squared;
                best = site;
            }
        }
    }
    return best;
}

}  // namespace voronoi

SW_END
