// The discrete Voronoi diagram and its moments on a CUDA device: sites are counted into buckets and sorted,
// then a warp takes a tile of 8 x 8 pixels at a time, two pixels to a lane. The mathematics is that of
// src/core/voronoi; everything added up across warps is a whole number, so results do not depend on timing.
#include "core/voronoi/jump.hpp"
#include "core/voronoi/moments.hpp"
#include "core/voronoi/plan.hpp"

using namespace stepwell;
using namespace stepwell::voronoi;

// Lies in device memory and stays the same from call to call.

template <class T>
static __device__ T* at(int64_t address) {
    return reinterpret_cast<T*>(address);
}

constexpr int threads = SW_THREADS;  // of a block
constexpr int buckets_in_span = threads * 16;

static __device__ Grid grid_of_plan(const VoronoiPlan& plan) {
    return grid_of(static_cast<int32_t>(plan.height), static_cast<int32_t>(plan.width), plan.count);
}

static __device__ Sorted sorted_of(const VoronoiPlan& plan) {
    return {grid_of_plan(plan), at<const int32_t>(plan.first), at<const double>(plan.sorted_x),
            at<const double>(plan.sorted_y), at<const int32_t>(plan.sorted_site)};
}

static __device__ int64_t thread_number() {
    return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

static __device__ int64_t thread_count() {
    return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// A tile's team of 32 lanes: a lane has one column and two rows of the tile.
struct TileWarp {
    typedef int32_t Number;
    static constexpr int32_t nobody = 0x7fffffff;
    static constexpr int rows = 2, columns = 1;

    __device__ int rank() const { return threadIdx.x & 31; }
    __device__ int size() const { return 32; }
    __device__ double column(int) const { return rank() & 7; }
    __device__ double row(int r) const { return (rank() >> 3) + 4 * r; }
    __device__ int32_t where_min(double value, int32_t where) const {
        for (int mask = 16; mask > 0; mask >>= 1) {
            const double other = __shfl_xor_sync(0xffffffffu, value, mask);
            const int32_t there = __shfl_xor_sync(0xffffffffu, where, mask);
            const bool better = other < value || (other == value && there < where);
            value = better ? other : value;
            where = better ? there : where;
        }
        return where;
    }
    __device__ int32_t lowest(int32_t number) const { return __reduce_min_sync(0xffffffffu, number); }
    // Of numbers from 0 to 2^38, in two halves that fit the warp's 32-bit sum.
    __device__ int64_t total(int64_t value) const {
        const unsigned low = static_cast<unsigned>(value & 0x3ffffff),
                       high = static_cast<unsigned>(value >> 26);
        return (static_cast<int64_t>(__reduce_add_sync(0xffffffffu, high)) << 26) +
               __reduce_add_sync(0xffffffffu, low);
    }
    static __device__ void add(int64_t* sum, int64_t value) {
        atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(value));
    }
    template <class Test, class Take>
    __device__ void select(int32_t begin, int32_t end, Test test, Take take) const {
        for (int32_t base = begin; base < end; base += 32) {
            const int32_t i = base + rank();
            unsigned found = __ballot_sync(0xffffffffu, i < end && test(i));
            for (; found; found &= found - 1) take(base + __ffs(static_cast<int>(found)) - 1);
        }
    }
};

extern "C" __global__ void __launch_bounds__(threads) voronoi_clear(const VoronoiPlan* plan) {
    int32_t* first = at<int32_t>(plan->first);
    int64_t* moments = at<int64_t>(plan->moments);
    const int64_t buckets = grid_of_plan(*plan).buckets();
    for (int64_t k = thread_number(); k <= buckets; k += thread_count()) first[k] = 0;
    if (moments)
        for (int64_t k = thread_number(); k < moments_per_site * plan->count; k += thread_count())
            moments[k] = 0;
    if (thread_number() < 2) at<int64_t>(plan->spread)[thread_number()] = 0;
}

extern "C" __global__ void __launch_bounds__(threads)
    voronoi_count(const VoronoiPlan* plan, const double* xy) {
    const Points points{xy, plan->scale, plan->count};
    const Grid grid = grid_of_plan(*plan);
    for (int64_t i = thread_number(); i < points.count; i += thread_count())
        at<int32_t>(plan->slot)[i] =
            atomicAdd(at<int32_t>(plan->first) + bucket_of(grid, points.x(i), points.y(i)), 1);
}

static __device__ int32_t warp_sum(int32_t value) {
    return static_cast<int32_t>(__reduce_add_sync(0xffffffffu, static_cast<unsigned>(value)));
}

static __device__ int32_t block_sum(int32_t value) {
    __shared__ int32_t sums[threads / 32];
    value = warp_sum(value);
    if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = value;
    __syncthreads();
    int32_t total = 0;
    for (int w = 0; w < threads / 32; ++w) total += sums[w];
    __syncthreads();
    return total;
}

// A block adds up the counts of its span of buckets.
extern "C" __global__ void __launch_bounds__(threads) voronoi_totals(const VoronoiPlan* plan) {
    const int64_t buckets = grid_of_plan(*plan).buckets();
    const int64_t begin = static_cast<int64_t>(blockIdx.x) * buckets_in_span;
    const int64_t end = min_of(begin + buckets_in_span, buckets);
    int32_t sum = 0;
    for (int64_t k = begin + threadIdx.x; k < end; k += threads) sum += at<int32_t>(plan->first)[k];
    sum = block_sum(sum);
    if (threadIdx.x == 0) at<int32_t>(plan->totals)[blockIdx.x] = sum;
}

// Counts become firsts: what the spans before hold, then a running sum within the span.
extern "C" __global__ void __launch_bounds__(threads) voronoi_firsts(const VoronoiPlan* plan) {
    __shared__ int32_t ends[threads / 32];
    const int64_t buckets = grid_of_plan(*plan).buckets();
    int32_t* first = at<int32_t>(plan->first);
    int32_t before = 0;
    for (int k = threadIdx.x; k < blockIdx.x; k += threads) before += at<int32_t>(plan->totals)[k];
    before = block_sum(before);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int64_t begin = static_cast<int64_t>(blockIdx.x) * buckets_in_span;
    for (int64_t base = begin; base < min_of(begin + buckets_in_span, buckets); base += threads) {
        const int64_t k = base + threadIdx.x;
        const int32_t own = k < buckets ? first[k] : 0;
        int32_t running = own;
        for (int offset = 1; offset < 32; offset <<= 1) {
            const int32_t other = __shfl_up_sync(0xffffffffu, running, offset);
            if (lane >= offset) running += other;
        }
        if (lane == 31) ends[warp] = running;
        __syncthreads();
        int32_t total = 0, ahead = 0;
        for (int w = 0; w < threads / 32; ++w) {
            if (w == warp) ahead = total;
            total += ends[w];
        }
        if (k < buckets) first[k] = before + ahead + running - own;
        before += total;
        __syncthreads();
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) first[buckets] = static_cast<int32_t>(plan->count);
}

extern "C" __global__ void __launch_bounds__(threads)
    voronoi_scatter(const VoronoiPlan* plan, const double* xy) {
    const Points points{xy, plan->scale, plan->count};
    const Grid grid = grid_of_plan(*plan);
    for (int64_t i = thread_number(); i < points.count; i += thread_count()) {
        const double x = points.x(i), y = points.y(i);
        const int32_t place = at<int32_t>(plan->first)[bucket_of(grid, x, y)] + at<int32_t>(plan->slot)[i];
        at<double>(plan->sorted_x)[place] = x;
        at<double>(plan->sorted_y)[place] = y;
        at<int32_t>(plan->sorted_site)[place] = static_cast<int32_t>(i);
    }
}

// Tiles, dealt out to warps in turn: their owners if `owners` is asked for, else their moments, which are
// those of the owners in `known` if there are any.
static __device__ void each_tile(const VoronoiPlan* plan, const double* xy, int32_t* owners,
                                 const int32_t* known) {
    const Points points{xy, plan->scale, plan->count};
    const Sorted sites = sorted_of(*plan);
    const Grid& grid = sites.grid;
    const TileWarp team;
    const float* weights = at<const float>(plan->weights);
    Spread spread{0, 0};
    const int32_t across = (grid.width + tile_side - 1) / tile_side,
                  down = (grid.height + tile_side - 1) / tile_side;
    const int64_t tiles = static_cast<int64_t>(across) * down, warps = thread_count() / 32;
    const int32_t column_in_tile = team.rank() & 7, row_in_tile = team.rank() >> 3;
    for (int64_t tile = thread_number() / 32; tile < tiles; tile += warps) {
        const int32_t top = static_cast<int32_t>(tile / across) * tile_side;
        const int32_t left = static_cast<int32_t>(tile % across) * tile_side;
        const int32_t column = left + column_in_tile;
        Nearest<TileWarp> nearest;
        int64_t pixel[TileWarp::rows];
        bool inside[TileWarp::rows];
        for (int r = 0; r < TileWarp::rows; ++r) {
            const int32_t row = top + row_in_tile + 4 * r;
            inside[r] = row < grid.height && column < grid.width;
            pixel[r] = static_cast<int64_t>(row) * grid.width + column;
        }
        if (owners) {
            search_tile(team, sites, top, left, nearest);
            for (int r = 0; r < TileWarp::rows; ++r)
                if (inside[r])
                    owners[pixel[r]] = nearest.site[r][0] == TileWarp::nobody ? -1 : nearest.site[r][0];
            continue;
        }
        double weight[TileWarp::rows][TileWarp::columns];
        bool any = false;
        for (int r = 0; r < TileWarp::rows; ++r) {
            weight[r][0] = inside[r] ? weights[pixel[r]] : 0.0f;
            any |= weight[r][0] != 0;
        }
        if (!__any_sync(0xffffffffu, any)) continue;  // nobody's mass depends on it
        if (known) {
            // -1, where no site has a finite position, is nobody too.
            for (int r = 0; r < TileWarp::rows; ++r)
                nearest.site[r][0] = inside[r] && known[pixel[r]] >= 0 ? known[pixel[r]] : TileWarp::nobody;
        } else {
            search_tile(team, sites, top, left, nearest);
        }
        add_tile(team, points, grid, top, left, weight, nearest, at<int64_t>(plan->moments), spread);
    }
    if (owners || team.rank() != 0) return;
    TileWarp::add(at<int64_t>(plan->spread), spread.low);
    TileWarp::add(at<int64_t>(plan->spread) + 1, spread.high);
}

extern "C" __global__ void __launch_bounds__(threads)
    voronoi_owners(const VoronoiPlan* plan, const double* xy, int32_t* owners) {
    each_tile(plan, xy, owners, nullptr);
}

extern "C" __global__ void __launch_bounds__(threads)
    voronoi_moments(const VoronoiPlan* plan, const double* xy, const int32_t* known) {
    each_tile(plan, xy, nullptr, known);
}

static __device__ double block_sum(double value) {
    __shared__ double sums[threads / 32];
    for (int mask = 16; mask > 0; mask >>= 1) value += __shfl_xor_sync(0xffffffffu, value, mask);
    if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = value;
    __syncthreads();
    double total = 0;
    for (int w = 0; w < threads / 32; ++w) total += sums[w];
    __syncthreads();
    return total;
}

// Gradient and energy; the last block to finish adds up the parts of all, in their order.
extern "C" __global__ void __launch_bounds__(threads)
    voronoi_finish(const VoronoiPlan* plan, const double* xy, double* gradient, double* energy,
                   double energy_factor, double gradient_factor) {
    __shared__ bool last;
    const Points points{xy, plan->scale, plan->count};
    const Grid grid = grid_of_plan(*plan);
    double sum = 0;
    for (int64_t i = thread_number(); i < points.count; i += thread_count()) {
        double gx, gy;
        sum += finish_site(points, grid, i, at<const int64_t>(plan->moments), gx, gy);
        gradient[2 * i] = gx * gradient_factor;
        gradient[2 * i + 1] = gy * gradient_factor;
    }
    sum = block_sum(sum);
    double* parts = at<double>(plan->parts);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(at<unsigned>(plan->ticket), 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    sum = 0;
    for (int k = threadIdx.x; k < gridDim.x; k += threads)
        sum += reinterpret_cast<volatile double*>(parts)[k];
    sum = block_sum(sum);
    if (threadIdx.x != 0) return;
    const int64_t* spread = at<const int64_t>(plan->spread);
    *energy = (Spread{spread[0], spread[1]}.value() + sum) * energy_factor;
    *at<unsigned>(plan->ticket) = 0;
    if (plan->history) {
        int64_t* entry = at<int64_t>(plan->history_count);
        if (*entry < plan->history_capacity) at<double>(plan->history)[*entry] = *energy;
        ++*entry;
    }
}

// Jump flooding. Of the sites in one pixel the lowest stays: -1, nobody, is the largest unsigned number.
extern "C" __global__ void __launch_bounds__(threads)
    voronoi_flood_clear(const VoronoiPlan* plan, int32_t* known) {
    for (int64_t k = thread_number(); k < plan->height * plan->width; k += thread_count()) known[k] = -1;
}

extern "C" __global__ void __launch_bounds__(threads)
    voronoi_flood_seed(const VoronoiPlan* plan, const double* xy, int32_t* known) {
    const Points points{xy, plan->scale, plan->count};
    const Grid grid = grid_of_plan(*plan);
    for (int64_t i = thread_number(); i < points.count; i += thread_count()) {
        const int64_t row = pixel_of(points.y(i), grid.height);
        atomicMin(reinterpret_cast<unsigned*>(known) + row * grid.width + pixel_of(points.x(i), grid.width),
                  static_cast<unsigned>(i));
    }
}

extern "C" __global__ void __launch_bounds__(threads)
    voronoi_flood_jump(const VoronoiPlan* plan, const double* xy, const int32_t* known, int32_t* next,
                       int64_t step) {
    const Points points{xy, plan->scale, plan->count};
    const Grid grid = grid_of_plan(*plan);
    for (int64_t k = thread_number(); k < grid.pixels(); k += thread_count())
        next[k] = jump_pixel(grid, points, known, static_cast<int32_t>(k / grid.width),
                             static_cast<int32_t>(k % grid.width), static_cast<int32_t>(step));
}
