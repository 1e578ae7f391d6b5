// The discrete Voronoi diagram and its moments on all cores, compiled once per instruction set. Rows of tiles
// are claimed one by one from the pool; what they add up is whole numbers, so who adds when does not matter.
#include "host/voronoi/kernels.hpp"

#include <algorithm>
#include <vector>

#include "core/voronoi/jump.hpp"
#include "core/voronoi/moments.hpp"
#include "host/common/pool.hpp"

SW_BEGIN

namespace voronoi {
namespace {

// A tile's team of one thread: all 64 pixels.
struct Thread {
    typedef double Number;
    static constexpr double nobody = double_infinity;
    static constexpr int rows = tile_side, columns = tile_side;

    int rank() const { return 0; }
    int size() const { return 1; }
    double column(int c) const { return c; }
    double row(int r) const { return r; }
    int32_t where_min(double, int32_t where) const { return where; }
    double lowest(double number) const { return number; }
    int64_t total(int64_t value) const { return value; }
    // Not std::atomic_ref, which the C++ library of macOS had late.
    static void add(int64_t* sum, int64_t value) { __atomic_fetch_add(sum, value, __ATOMIC_RELAXED); }
    template <class Test, class Take>
    void select(int32_t begin, int32_t end, Test test, Take take) const {
        // Whether a site passes cannot be foretold: collecting those that do costs less than branches.
        constexpr int32_t max_found = 32;
        int32_t found[max_found];
        for (int32_t base = begin; base < end; base += max_found) {
            int32_t count = 0;
            for (int32_t i = base; i < std::min(base + max_found, end); ++i) {
                found[count] = i;
                count += test(i);
            }
            for (int32_t k = 0; k < count; ++k) take(found[k]);
        }
    }
};

constexpr int sites_in_piece = 4096;

int pieces_of(int64_t count, int64_t length) {
    return static_cast<int>((count + length - 1) / length);
}

// Counting sort by bucket; within one, sites keep their order.
Sorted sort_sites(const VoronoiJob& job, const Grid& grid, const Points& points) {
    const int64_t buckets = grid.buckets();
    std::fill(job.first, job.first + buckets + 1, 0);
    for (int64_t i = 0; i < points.count; ++i) ++job.first[bucket_of(grid, points.x(i), points.y(i)) + 1];
    for (int64_t k = 0; k < buckets; ++k) job.first[k + 1] += job.first[k];
    // From the last site to the first, each bucket is filled from its end, which becomes its beginning.
    for (int64_t i = points.count - 1; i >= 0; --i) {
        const double x = points.x(i), y = points.y(i);
        const int32_t place = --job.first[bucket_of(grid, x, y) + 1];
        job.sorted_x[place] = x;
        job.sorted_y[place] = y;
        job.sorted_site[place] = static_cast<int32_t>(i);
    }
    // first[k + 1] is now where bucket k begins.
    std::copy(job.first + 1, job.first + buckets + 1, job.first);
    job.first[buckets] = static_cast<int32_t>(points.count);
    return {grid, job.first, job.sorted_x, job.sorted_y, job.sorted_site};
}

// Calls work(row of tiles) on all threads.
template <class Work>
void each_row_of_tiles(const VoronoiJob& job, const Work& work) {
    Pool::instance().run(pieces_of(job.height, tile_side), job.threads, [&](int piece, int) { work(piece); });
}

// Jump flooding; returns the image that holds the owners.
int32_t* flood(const VoronoiJob& job, const Grid& grid, const Points& points) {
    int32_t *known = job.flooded[0], *next = job.flooded[1];
    std::fill(known, known + grid.pixels(), -1);
    // Of the sites in one pixel the lowest stays.
    for (int64_t i = points.count - 1; i >= 0; --i) {
        const int64_t row = pixel_of(points.y(i), grid.height);
        known[row * grid.width + pixel_of(points.x(i), grid.width)] = static_cast<int32_t>(i);
    }
    int32_t steps[32];
    const int count = jump_steps(grid.height, grid.width, steps);
    for (int pass = 0; pass < count; ++pass) {
        each_row_of_tiles(job, [&](int piece) {
            const int32_t last = std::min((piece + 1) * tile_side, grid.height);
            for (int32_t row = piece * tile_side; row < last; ++row)
                for (int32_t column = 0; column < grid.width; ++column)
                    next[static_cast<int64_t>(row) * grid.width + column] =
                        jump_pixel(grid, points, known, row, column, steps[pass]);
        });
        std::swap(known, next);
    }
    return known;
}

// Copies between an image and a tile, which may hang over the border.
template <class Image, class Tile, class Value>
void load_tile(const Grid& grid, const Image* image, int32_t top, int32_t left, Value outside, Tile& tile) {
    const int32_t rows = std::min(tile_side, grid.height - top);
    const int32_t columns = std::min(tile_side, grid.width - left);
    for (int r = 0; r < tile_side; ++r) {
        const Image* line = image + static_cast<int64_t>(top + r) * grid.width + left;
        if (r < rows && columns == tile_side) {
            for (int c = 0; c < tile_side; ++c) tile[r][c] = line[c];
        } else {
            for (int c = 0; c < tile_side; ++c)
                tile[r][c] = r < rows && c < columns ? static_cast<Value>(line[c]) : outside;
        }
    }
}

void store_tile(const Grid& grid, const Nearest<Thread>& nearest, int32_t top, int32_t left,
                int32_t* owners) {
    const int32_t rows = std::min(tile_side, grid.height - top);
    const int32_t columns = std::min(tile_side, grid.width - left);
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < columns; ++c)
            owners[static_cast<int64_t>(top + r) * grid.width + left + c] =
                nearest.site[r][c] == Thread::nobody ? -1 : static_cast<int32_t>(nearest.site[r][c]);
}

void assign(const VoronoiJob& job) {
    const Grid grid = grid_of(job.height, job.width, job.sites);
    const Points points{job.xy, job.scale, job.sites};
    if (job.flood) {
        const int32_t* found = flood(job, grid, points);
        std::copy(found, found + grid.pixels(), job.owners);
        return;
    }
    const Sorted sites = sort_sites(job, grid, points);
    each_row_of_tiles(job, [&](int piece) {
        const Thread thread;
        Nearest<Thread> nearest;
        for (int32_t left = 0; left < grid.width; left += tile_side) {
            search_tile(thread, sites, piece * tile_side, left, nearest);
            store_tile(grid, nearest, piece * tile_side, left, job.owners);
        }
    });
}

double evaluate(const VoronoiJob& job) {
    const Grid grid = grid_of(job.height, job.width, job.sites);
    const Points points{job.xy, job.scale, job.sites};
    const Sorted sites = job.flood ? Sorted{} : sort_sites(job, grid, points);
    const int32_t* found = job.flood ? flood(job, grid, points) : nullptr;
    std::fill(job.moments, job.moments + moments_per_site * points.count, 0);
    std::vector<Spread> spreads(pieces_of(job.height, tile_side));
    each_row_of_tiles(job, [&](int piece) {
        const Thread thread;
        Nearest<Thread> nearest;
        Spread spread{0, 0};
        const int32_t top = piece * tile_side;
        for (int32_t left = 0; left < grid.width; left += tile_side) {
            double weight[tile_side][tile_side];
            load_tile(grid, job.weights, top, left, 0.0, weight);
            double mass = 0;
            for (const auto& row : weight)
                for (double w : row) mass += w;
            if (mass == 0) continue;  // nobody's mass depends on it
            if (found) {
                load_tile(grid, found, top, left, Thread::nobody, nearest.site);
                // Where no site has a finite position a pixel has no owner.
                for (auto& row : nearest.site)
                    for (double& site : row) site = site < 0 ? Thread::nobody : site;
            } else {
                search_tile(thread, sites, top, left, nearest);
            }
            add_tile(thread, points, grid, top, left, weight, nearest, job.moments, spread);
        }
        spreads[piece] = spread;
    });
    std::vector<double> parts(pieces_of(points.count, sites_in_piece));
    Pool::instance().run(static_cast<int>(parts.size()), job.threads, [&](int piece, int) {
        const int64_t begin = static_cast<int64_t>(piece) * sites_in_piece;
        double sum = 0;
        for (int64_t i = begin; i < std::min(begin + sites_in_piece, points.count); ++i) {
            double gx, gy;
            sum += finish_site(points, grid, i, job.moments, gx, gy);
            job.gradient[2 * i] = gx * job.gradient_factor;
            job.gradient[2 * i + 1] = gy * job.gradient_factor;
        }
        parts[piece] = sum;
    });
    Spread total{0, 0};
    for (const Spread& spread : spreads) {
        total.low += spread.low;
        total.high += spread.high;
    }
    double rest = 0;
    for (double part : parts) rest += part;
    return (total.value() + rest) * job.energy_factor;
}

int64_t buckets(int32_t height, int32_t width, int64_t sites) {
    return grid_of(height, width, sites).buckets();
}

}  // namespace
}  // namespace voronoi

SW_END

namespace stepwell {
namespace SW_ISA {
const VoronoiKernels& voronoi_kernels() {
    static const VoronoiKernels kernels{voronoi::buckets, voronoi::assign, voronoi::evaluate};
    return kernels;
}
}  // namespace SW_ISA
}  // namespace stepwell
