// Turns of the quasi-Newton iteration, compiled once per instruction set.
#include <optional>

#include "host/quasi_newton/device_sweeps.hpp"
#include "host/quasi_newton/host_sweeps.hpp"
#include "host/quasi_newton/phases.hpp"

SW_BEGIN

namespace {

template <class T>
void turn(const EngineView<T>& e, const double* f, const T* gradient, TurnPart part) {
    auto& workspaces = *static_cast<std::vector<Workspace>*>(e.workspaces);
    const int slots = e.options->slots;
    // A problem without bounds in a batch with some takes other sums, those that it takes alone.
    Options free = *e.options;
    free.bounded = free.boxed = 0;
    const int64_t count = e.running ? e.running_count : e.batch;
    const auto problem = [&](int64_t k) { return e.running ? e.running[k] : k; };
    const bool many = count >= 2 * e.threads || (count > 1 && e.n < Chunks::worth_threads);
    const Chunks chunks(e.n, many ? 1 : e.threads, e.cut);
    const int64_t tiles = quotient_up(min_of(chunks.length, e.n), tile);
    for (Workspace& one : workspaces) one.hold_tiles(tiles, e.options->capacity);
    const auto run = [&](int64_t k, int workspace) {
        const int64_t p = problem(k), given = e.of_running_alone ? k : p;
        HostVectors vectors = vectors_of<T, Byte>(e, p, slots);
        const bool is_free = e.states[p].own_bounds == OwnBounds::none;
        if (is_free) vectors.lower = vectors.upper = HostVector();
        const Options& options = is_free ? free : *e.options;
        HostSweeps sweeps(vectors, gradient + given * e.n, e.states[p], options, chunks, workspaces,
                          workspace, e.kept && !is_free ? e.kept + p * e.kept_stride : nullptr, e.copy,
                          e.whole, !e.exchange.call);
        Phases phases(sweeps, e.states[p], options,
                      small_matrices(e.small + p * small_matrices_length(slots), slots), e.exchange);
        phases.turn(f[given], part);
    };
    // Small problems one after the other: what the next will read is asked for while one has its turn.
    const int64_t vector = e.n * int64_t(sizeof(T)), history = slots * e.stride,
                  matrices = small_matrices_length(slots) * int64_t(sizeof(double));
    const bool asks = 3 * vector + 2 * history + matrices <= (int64_t(16) << 10);
    const auto expect = [&](int64_t p, Prefetcher& prefetcher) {
        prefetcher.clear();
        prefetcher.add(e.states + p, sizeof(State));
        for (const T* one : {e.trial, e.d, e.g}) prefetcher.add(one + p * e.n, vector);
        for (const Byte* rows : {e.s, e.y}) prefetcher.add(rows + p * history, history);
        // Bounded problems do not keep the last of the three matrices.
        prefetcher.add(reinterpret_cast<const Byte*>(e.small) + p * matrices,
                       e.lower ? matrices / 3 * 2 : matrices);
    };
    const auto run_some = [&](int64_t begin, int64_t end, int workspace) {
        Prefetcher& prefetcher = workspaces[size_t(workspace)].prefetcher;
        for (int64_t k = begin; k < end; ++k) {
            if (asks && k + 1 < end) expect(problem(k + 1), prefetcher);
            run(k, workspace);
            prefetcher.prefetch_rest();
        }
    };
    if (many && e.threads > 1) {
        // Pieces of 64 problems at most: of the first nothing is at hand, and the last must not be waited
        // for.
        const int64_t length = max_of(min_of(count / (8 * e.threads), int64_t(64)), int64_t(1));
        Pool::instance().run(int(quotient_up(count, length)), e.threads, [&](int piece, int thread) {
            run_some(piece * length, min_of(count, (piece + 1) * length), thread);
        });
    } else {
        std::optional<Pool::MoreToCome> sweeps;
        if (e.threads > 1 && e.n >= Chunks::worth_threads) sweeps.emplace();
        run_some(0, count, 0);
    }
}

void turn_on_device(const DeviceView& e, double f, TurnPart part) {
    DeviceSweeps sweeps(e, (*static_cast<std::vector<Workspace>*>(e.workspaces))[0]);
    Phases phases(sweeps, *e.state, *e.options, small_matrices(e.small, e.options->slots), e.exchange);
    phases.turn(f, part);
}

}  // namespace

const EngineKernels& engine_table() {
    static const EngineKernels table{
        [](int threads, int capacity) -> void* {
            auto all = std::make_unique<std::vector<Workspace>>();
            all->reserve(threads);
            for (int i = 0; i < threads; ++i) all->emplace_back(capacity);
            return all.release();
        },
        [](const void* all) {
            int64_t bytes = 0;
            for (const Workspace& one : *static_cast<const std::vector<Workspace>*>(all))
                bytes += one.bytes();
            return bytes;
        },
        Workspace::bytes_for,
        [](void* all) { delete static_cast<std::vector<Workspace>*>(all); },
        [](const EngineView<double>& e, const double* f, const double* g, TurnPart part) {
            turn(e, f, g, part);
        },
        [](const EngineView<float>& e, const double* f, const float* g, TurnPart part) {
            turn(e, f, g, part);
        },
        turn_on_device,
    };
    return table;
}

SW_END
