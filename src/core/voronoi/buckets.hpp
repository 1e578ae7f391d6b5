// Sites sorted into square buckets of pixels. All lengths are in pixels: pixel (row, column) has its centre
// at (column + 0.5, row + 0.5).
#pragma once

#include "core/common/config.hpp"

SW_BEGIN

namespace voronoi {

// An image and the buckets laid over it.
struct Grid {
    int32_t height, width;
    int32_t shift;          // a bucket is 2^shift pixels wide and high
    int32_t rows, columns;  // of buckets

    SW_HD int64_t buckets() const { return static_cast<int64_t>(rows) * columns; }
    SW_HD int64_t pixels() const { return static_cast<int64_t>(height) * width; }
};

// About one site to a bucket, were they spread evenly.
SW_HD Grid grid_of(int32_t height, int32_t width, int64_t sites) {
    Grid grid{height, width, 0, 0, 0};
    while (grid.shift < 14 && (sites << (2 * grid.shift + 1)) <= grid.pixels()) ++grid.shift;
    grid.rows = ((height - 1) >> grid.shift) + 1;
    grid.columns = ((width - 1) >> grid.shift) + 1;
    return grid;
}

// The pixel that holds a coordinate; the far border belongs to the last pixel.
SW_HD int32_t pixel_of(double coordinate, int32_t size) {
    const int32_t pixel = static_cast<int32_t>(coordinate);
    return pixel < 0 ? 0 : pixel >= size ? size - 1 : pixel;
}

SW_HD int64_t bucket_of(const Grid& grid, double x, double y) {
    const int64_t row = pixel_of(y, grid.height) >> grid.shift;
    return row * grid.columns + (pixel_of(x, grid.width) >> grid.shift);
}

// Sites in the order of their buckets, row by row; bucket k holds places first[k] to first[k + 1]. The order
// within a bucket is of no consequence: ties go to the lowest site.
struct Sorted {
    Grid grid;
    const int32_t* first;
    const double* x;
    const double* y;
    const int32_t* site;
};

}  // namespace voronoi

SW_END
