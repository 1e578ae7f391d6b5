// The host engine on a chain of springs between obstacles: every type, policy and history, alone and in
// batches, by one thread and by several.
#pragma once

#include <cstdio>
#include <vector>

#include "engine_decisions.hpp"
#include "host/common/pool.hpp"
#include "host/quasi_newton/chunks.hpp"
#include "host/quasi_newton/engine.hpp"
#include "host/quasi_newton/history_rows.hpp"
#include "host/quasi_newton/tile_gram_cache.hpp"

namespace stepwell {
namespace baseline {
const EngineKernels& engine_table();
}
}  // namespace stepwell

namespace {

// A chain of springs between obstacles, minimised by the engine: f = Σ (x_i - x_{i-1})²/2 - Σ load_i x_i.
template <class T>
double chain(const T* x, T* g, int64_t n, double load) {
    double f = 0;
    for (int64_t i = 0; i < n; ++i) {
        const double left = i > 0 ? x[i - 1] : 0.0, right = i + 1 < n ? x[i + 1] : 0.0;
        const double pull = load * double((7 * i) % 11 - 4);
        f += 0.5 * (x[i] - left) * (x[i] - left) - pull * x[i];
        g[i] = T(2 * x[i] - left - right - pull);
    }
    return f + 0.5 * double(x[n - 1]) * x[n - 1];
}

// Vectors as the engine takes them; bounds and weights are shared by the batch.
template <class T>
HostMemory<T> memory_of(int64_t batch, int64_t n, State* states, std::vector<double>& small,
                        std::vector<T>& x, std::vector<T>& g, std::vector<T>& d, std::vector<T>& trial,
                        std::vector<T>& s, std::vector<T>& y, const T* lower, const T* upper,
                        const T* weights) {
    return {batch,
            n,
            n * int64_t(sizeof(T)),
            states,
            small.data(),
            x.data(),
            g.data(),
            d.data(),
            trial.data(),
            reinterpret_cast<Byte*>(s.data()),
            reinterpret_cast<Byte*>(y.data()),
            lower,
            upper,
            weights,
            1,
            1,
            false,
            false};
}

template <class T>
void run_engine(int64_t batch, int64_t n, int m, int threads, Cauchy policy, bool bounded, bool weighted,
                HistoryType narrowest = HistoryType::float64) {
    Options options{};
    options.capacity = options.slots = m;
    options.cauchy = policy;
    options.search = preset(false);
    options.gtol = sizeof(T) == 8 ? 1e-6 : 1e-3;
    options.ftol = 0;
    options.target = -double_infinity;
    options.max_iterations = 400, options.max_evaluations = 15000;
    options.bounded = options.boxed = bounded;
    options.weighted = weighted;
    const HistoryType own = sizeof(T) == 8 ? HistoryType::float64 : HistoryType::float32;
    options.history = own < narrowest ? narrowest : own;
    options.narrowed = options.history != own;
    std::vector<State> states(batch);
    for (State& s : states) start_state(s);
    std::vector<double> small(batch * small_matrices_length(m)), f(batch);
    std::vector<T> x(batch * n), g(batch * n), d(batch * n), trial(batch * n), s(batch * n * m),
        y(batch * n * m);
    std::vector<T> lower(n), upper(n), weights(n, T(0.5)), gradient(batch * n);
    for (int64_t i = 0; i < n; ++i) {
        lower[i] = i % 7 == 0 ? T(0.25) : T(0);
        upper[i] = i % 7 == 0 ? T(0.25) : T(0.3 + 0.1 * (i % 5));
        for (int64_t b = 0; b < batch; ++b) trial[b * n + i] = i % 2 ? upper[i] : lower[i];
    }
    const EngineKernels& kernels = baseline::engine_table();
    void* workspaces = kernels.make_workspaces(threads, m);
    const HostMemory<T> memory =
        memory_of(batch, n, states.data(), small, x, g, d, trial, s, y, bounded ? lower.data() : nullptr,
                  bounded ? upper.data() : nullptr, weighted ? weights.data() : nullptr);
    EngineView<T> view{memory, &options, threads, workspaces};
    const Chunks chunks(n, threads);
    view.kept_stride = TileGramCache::doubles_of(options, chunks);
    std::vector<double> kept(size_t(batch * view.kept_stride));
    if (!kept.empty()) view.kept = kept.data();
    bool running = true, inside = true;
    while (running) {
        for (int64_t b = 0; b < batch; ++b)
            f[b] = chain(&trial[b * n], &gradient[b * n], n, 0.02 * double(b + 1));
        for (int64_t i = 0; bounded && i < batch * n; ++i) {
            inside &= trial[i] >= lower[i % n] && trial[i] <= upper[i % n];
        }
        if constexpr (sizeof(T) == 8) {
            kernels.turn_double(view, f.data(), gradient.data(), TurnPart::whole);
        } else {
            kernels.turn_float(view, f.data(), gradient.data(), TurnPart::whole);
        }
        running = false;
        for (const State& state : states) running |= state.action != Action::done;
    }
    kernels.free_workspaces(workspaces);
    std::vector<double> last(x.end() - std::min<int64_t>(n, 60), x.end()), status, iterations, projected,
        walks;
    for (const State& state : states) {
        status.push_back(int(state.status)), iterations.push_back(double(state.iterations));
        projected.push_back(state.projected_gradient), walks.push_back(double(state.cauchy_walks));
    }
    std::printf(
        "{\"part\": \"engine\", \"bits\": %d, \"n\": %d, \"threads\": %d, \"bounded\": %d, \"weighted\": %d, "
        "\"inside\": %d, ",
        int(8 * sizeof(T)), int(n), threads, bounded, weighted, inside);
    print("status", status);
    print("iterations", iterations);
    print("projected", projected);
    print("walks", walks);
    print("x", last, "}\n");
}

void check_engine() {
    for (Cauchy policy : {Cauchy::exact, Cauchy::first_interval, Cauchy::none}) {
        run_engine<double>(1, 37, 5, 1, policy, true, false);
    }
    run_engine<double>(1, 37, 5, 1, Cauchy::exact, true, true);
    run_engine<double>(1, 37, 5, 1, Cauchy::exact, false, true);
    run_engine<double>(1, 37, 64, 1, Cauchy::exact, false, false);
    run_engine<double>(3, 30, 4, 1, Cauchy::exact, true, false);
    run_engine<float>(1, 37, 5, 1, Cauchy::exact, true, false);
    run_engine<float>(2, 257, 3, 1, Cauchy::exact, true, true);
    run_engine<double>(1, 37, 5, 1, Cauchy::exact, true, false, HistoryType::float32);
    run_engine<double>(1, 37, 5, 1, Cauchy::exact, true, true, HistoryType::bfloat16);
    run_engine<float>(1, 37, 5, 1, Cauchy::exact, true, false, HistoryType::bfloat16);
}

// Several chunks, several threads; a batch over threads.
void check_threads() {
    for (int threads : {1, 3}) {
        run_engine<double>(1, 9001, 4, threads, Cauchy::exact, true, false);
        run_engine<double>(70, 20, 4, threads, Cauchy::exact, true, false);
    }
}

}  // namespace
