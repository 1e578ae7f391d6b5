// Discrete Voronoi diagrams under the sanitizers: many threads against one, and the tile search by a team of
// four real threads, as a warp would do it, against that by one. Prints one line of JSON a check.
#include <cstdio>
#include <cstring>
#include <random>

#include "../../src/host/voronoi/kernels.cpp"
#include "host/common/thread_team.hpp"

using namespace stepwell;
using namespace stepwell::voronoi;

namespace {

// A tile shared by four members, two rows each.
struct TileTeam {
    typedef double Number;
    static constexpr double nobody = double_infinity;
    static constexpr int rows = 2, columns = tile_side;
    const ThreadTeam& team;

    int rank() const { return team.rank(); }
    int size() const { return team.size(); }
    double column(int c) const { return c; }
    double row(int r) const { return team.rank() + 4 * r; }
    int32_t where_min(double value, int32_t where) const {
        value = -value;
        return static_cast<int32_t>(team.argmax(value, where));
    }
    double lowest(double number) const {
        number = -number;
        team.argmax(number, 0);
        return -number;
    }
    int64_t total(int64_t value) const { return static_cast<int64_t>(team.sum(static_cast<double>(value))); }
    static void add(int64_t* sum, int64_t value) { Thread::add(sum, value); }
    template <class Test, class Take>
    void select(int32_t begin, int32_t end, Test test, Take take) const {
        for (int32_t i = begin; i < end; ++i)
            if (test(i)) take(i);
    }
};

struct Problem {
    int32_t height, width;
    int64_t count;
    std::vector<double> xy, sorted_x, sorted_y, gradient;
    std::vector<float> weights;
    std::vector<int32_t> first, site, images, owners;
    std::vector<int64_t> moments;
    VoronoiJob job{};

    Problem(int32_t height, int32_t width, int64_t count, int threads, bool flood)
        : height(height), width(width), count(count) {
        std::mt19937 random(7);
        const double scale = std::max(height, width);
        std::uniform_real_distribution<double> x(0, width / scale), y(0, height / scale);
        for (int64_t i = 0; i < count; ++i) {
            xy.push_back(x(random));
            xy.push_back(y(random));
        }
        const int64_t pixels = int64_t(height) * width;
        for (int64_t p = 0; p < pixels; ++p) weights.push_back(float(random() % (1 << 24)));
        sorted_x.resize(count);
        sorted_y.resize(count);
        site.resize(count);
        gradient.resize(2 * count);
        moments.resize(moments_per_site * count);
        first.resize(buckets(height, width, count) + 1);
        images.resize(2 * pixels);
        owners.resize(pixels);
        job = {height,
               width,
               count,
               xy.data(),
               scale,
               threads,
               flood,
               first.data(),
               sorted_x.data(),
               sorted_y.data(),
               site.data(),
               {images.data(), images.data() + pixels},
               owners.data(),
               weights.data(),
               moments.data(),
               1.0,
               1.0,
               gradient.data()};
    }
};

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

void by_threads(int32_t height, int32_t width, int64_t count, bool flood) {
    Problem one(height, width, count, 1, flood), many(height, width, count, 4, flood);
    const bool energies = evaluate(one.job) == evaluate(many.job);
    assign(one.job);
    assign(many.job);
    std::printf("{\"energies\": %d, \"gradients\": %d, \"owners\": %d}\n", energies,
                same(one.gradient, many.gradient), same(one.owners, many.owners));
}

void by_team(int32_t height, int32_t width, int64_t count) {
    Problem one(height, width, count, 1, false), shared(height, width, count, 1, false);
    evaluate(one.job);
    assign(one.job);
    const Grid grid = grid_of(height, width, count);
    const Points points{shared.xy.data(), shared.job.scale, count};
    const Sorted sites = sort_sites(shared.job, grid, points);
    run_thread_team(4, [&](const ThreadTeam& threads) {
        const TileTeam team{threads};
        Nearest<TileTeam> nearest;
        Spread spread{0, 0};
        for (int32_t top = 0; top < height; top += tile_side)
            for (int32_t left = 0; left < width; left += tile_side) {
                search_tile(team, sites, top, left, nearest);
                double weight[TileTeam::rows][tile_side];
                for (int r = 0; r < TileTeam::rows; ++r)
                    for (int c = 0; c < tile_side; ++c) {
                        const int32_t row = top + team.rank() + 4 * r, column = left + c;
                        const bool inside = row < height && column < width;
                        const int64_t pixel = int64_t(row) * width + column;
                        weight[r][c] = inside ? shared.weights[pixel] : 0.0;
                        if (inside) shared.owners[pixel] = int32_t(nearest.site[r][c]);
                    }
                add_tile(team, points, grid, top, left, weight, nearest, shared.moments.data(), spread);
            }
    });
    std::printf("{\"owners\": %d, \"moments\": %d}\n", same(one.owners, shared.owners),
                same(one.moments, shared.moments));
}

}  // namespace

int main(int, char** arguments) {
    if (std::strcmp(arguments[1], "threads") == 0) {
        by_threads(70, 101, 300, false);
        by_threads(70, 101, 300, true);
        by_threads(33, 8, 264, false);
    } else {
        by_team(45, 37, 60);
        by_team(16, 9, 144);
    }
}
