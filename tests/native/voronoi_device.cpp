// The kernels of src/cuda/voronoi/voronoi.cu on the CPU, launched as the package launches them. Reads sizes,
// sites and weights from standard input; writes owners, flooded owners, and energy and gradient of both. The
// exit status is 1 if something was written in front of the moments.
#define SW_THREADS 64
#include "device_emulator.hpp"
#include "pipes.hpp"
//
#include "../../src/cuda/voronoi/voronoi.cu"

namespace {

template <class T>
int64_t address(std::vector<T>& values) {
    return reinterpret_cast<int64_t>(values.data());
}

}  // namespace

int main() {
    int64_t sizes[3];
    receive(sizes, 3);
    const int64_t height = sizes[0], width = sizes[1], count = sizes[2], pixels = height * width;
    const Grid grid = grid_of(int32_t(height), int32_t(width), count);
    const unsigned spans = unsigned((grid.buckets() + buckets_in_span - 1) / buckets_in_span), blocks = 3;
    std::vector<double> xy(2 * count), gradient(2 * count), x(count), y(count), parts(blocks), history(2),
        energy(1);
    std::vector<float> weights(pixels);
    std::vector<int32_t> first(grid.buckets() + 1), slot(count), totals(spans), site(count), owners(pixels);
    std::vector<int32_t> known(pixels), next(pixels), ticket(1);
    // In front of the first site's moments lie some that nobody may write to.
    std::vector<int64_t> moments(moments_per_site * (count + 1)), spread(2), entries(1);
    receive(xy.data(), xy.size());
    receive(weights.data(), weights.size());
    const VoronoiPlan plan{height,
                    width,
                    count,
                    double(height > width ? height : width),
                    address(weights),
                    address(first),
                    address(slot),
                    address(totals),
                    address(x),
                    address(y),
                    address(site),
                    address(moments) + moments_per_site * int64_t(sizeof(int64_t)),
                    address(spread),
                    address(parts),
                    address(ticket),
                    address(history),
                    2,
                    address(entries)};
    const VoronoiPlan* p = &plan;
    const double* sites = xy.data();
    const auto run = [](unsigned grid_blocks, auto kernel) {
        emulator::launch(grid_blocks, threads, kernel);
    };
    run(blocks, [&] { voronoi_clear(p); });
    run(blocks, [&] { voronoi_count(p, sites); });
    run(spans, [&] { voronoi_totals(p); });
    run(spans, [&] { voronoi_firsts(p); });
    run(blocks, [&] { voronoi_scatter(p, sites); });
    run(blocks, [&] { voronoi_owners(p, sites, owners.data()); });
    send(owners.data(), owners.size());
    run(blocks, [&] { voronoi_moments(p, sites, nullptr); });
    run(blocks, [&] { voronoi_finish(p, sites, gradient.data(), energy.data(), 1.0, 1.0); });
    send(energy.data(), 1);
    send(gradient.data(), gradient.size());
    run(blocks, [&] { voronoi_flood_clear(p, known.data()); });
    run(blocks, [&] { voronoi_flood_seed(p, sites, known.data()); });
    int32_t steps[32];
    const int passes = jump_steps(grid.height, grid.width, steps);
    for (int pass = 0; pass < passes; ++pass) {
        run(blocks, [&] { voronoi_flood_jump(p, sites, known.data(), next.data(), steps[pass]); });
        known.swap(next);
    }
    send(known.data(), known.size());
    run(blocks, [&] { voronoi_clear(p); });
    run(blocks, [&] { voronoi_moments(p, sites, known.data()); });
    run(blocks, [&] { voronoi_finish(p, sites, gradient.data(), energy.data(), 1.0, 1.0); });
    send(energy.data(), 1);
    send(gradient.data(), gradient.size());
    send(history.data(), 2);
    return moments[0] || moments[1] || moments[2];
}
