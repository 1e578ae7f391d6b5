// Turns of the quasi-Newton iteration, compiled once per instruction set.
#include "core/common/team.hpp"
#include "host/quasi_newton/engine.hpp"
#include "host/quasi_newton/lone_ldlt.hpp"  // found by the decisions of core through Lone
#include "host/quasi_newton/sweeps.hpp"
#include "host/quasi_newton/walk.hpp"

SW_BEGIN

namespace {

template <class T>
struct Problem {
    Vectors<T> v;
    State& state;
    const Options& options;
    SmallMatrices matrices;
    const Chunks chunks;
    std::vector<Workspace>& workspaces;
    int first_workspace;  // problems of a batch run one per thread, each with that thread's workspace

    template <class Value>
    double add(const Value& value) const {
        return add_pairwise(value, 0, chunks.count);
    }

    Workspace& workspace(int thread) { return workspaces[first_workspace + thread]; }

    void slope(double f, const T* gradient) {
        double parts[Chunks::most];
        chunks.each(
            [&](int c, int64_t begin, int64_t end, int) { parts[c] = slope_chunk(v, gradient, begin, end); });
        decide_slope(state, options, f, add([&](int c) { return parts[c]; }));
    }

    void absorb(Gather gather, const T* gradient) {
        const int rows = rows_to_gather(gather, state, options);
        const SumLayout layout = sum_layout(options, rows);
        const Absorb<T> sweep(v, state, options, layout, gather, gradient);
        AbsorbScalars parts[Chunks::most];
        const int64_t length = layout.length();
        std::vector<double>& sums = workspace(0).sums;
        sums.resize(size_t(length) * chunks.count);
        chunks.each([&](int c, int64_t begin, int64_t end, int thread) {
            sweep.chunk(begin, end, workspace(thread), parts[c], sums.data() + c * length);
        });
        AbsorbScalars total;
        total.movable_descent = add([&](int c) { return parts[c].movable_descent; });
        total.gradient_squared = add([&](int c) { return parts[c].gradient_squared; });
        total.projected_squared = add([&](int c) { return parts[c].projected_squared; });
        total.x_squared = add([&](int c) { return parts[c].x_squared; });
        total.held = add([&](int c) { return parts[c].held; });
        total.projected_gradient = parts[0].projected_gradient;
        total.first_break = parts[0].first_break;
        for (int c = 1; c < chunks.count; ++c) {
            total.projected_gradient = max_of(total.projected_gradient, parts[c].projected_gradient);
            total.first_break = min_of(total.first_break, parts[c].first_break);
        }
        add_rows(sums.data(), chunks.count, length);
        Lone team;
        if (gather == Gather::again) {
            decide_regather(team, state, matrices, workspace(0).scratch, layout, sums.data());
        } else {
            decide_absorb(team, state, options, matrices, workspace(0).scratch, total, layout, sums.data());
        }
    }

    void walk() {
        CauchyWalk<T> path(v, state, options, workspace(0).scratch);
        double held_time, cauchy_time;
        path.run(chunks, held_time, cauchy_time);
        decide_walk(state, held_time, cauchy_time);
    }

    void aim() {
        const Aim<T> sweep(v, state, options, workspace(0).scratch.coefficients);
        AimScalars parts[Chunks::most];
        chunks.each([&](int c, int64_t begin, int64_t end, int thread) {
            sweep.chunk(begin, end, workspace(thread), parts[c]);
        });
        AimScalars total;
        total.slope = add([&](int c) { return parts[c].slope; });
        total.direction_squared = add([&](int c) { return parts[c].direction_squared; });
        total.step_limit = parts[0].step_limit;
        total.truncation = parts[0].truncation;
        for (int c = 1; c < chunks.count; ++c) {
            total.step_limit = min_of(total.step_limit, parts[c].step_limit);
            total.truncation = min_of(total.truncation, parts[c].truncation);
        }
        decide_aim(state, options, total);
    }

    void step() {
        chunks.each(
            [&](int, int64_t begin, int64_t end, int) { step_chunk(v, state.search.step, begin, end); });
        state.action = Action::evaluate;
    }

    // One evaluation, one turn: from f and g at the trial point to the next trial point or the end. A turn
    // may be cut after the line search has decided, so that the caller can supply the diagonal for an
    // accepted point.
    void turn(double f, const T* gradient, TurnPart part) {
        if (state.action == Action::done) return;
        if (part == TurnPart::finish && state.action == Action::evaluate) return;
        const bool starts = !state.started;
        // A first part that was done already is not done twice: the caller's diagonal failed, and is asked
        // again.
        if (part != TurnPart::finish && state.action == Action::evaluate) slope(f, gradient);
        if (part == TurnPart::begin && state.action == Action::absorb) return;
        if (starts && state.action == Action::done) {
            // Not finite at the start: that point is all there is.
            std::memcpy(v.x, v.trial, sizeof(T) * v.n);
            std::memcpy(v.g, gradient, sizeof(T) * v.n);
        }
        while (state.action != Action::evaluate && state.action != Action::done) {
            switch (state.action) {
                case Action::absorb:
                    absorb(state.iterations == 0 ? Gather::start : Gather::pair, gradient);
                    break;
                case Action::walk:
                    walk();
                    break;
                case Action::regather:
                    absorb(Gather::again, gradient);
                    break;
                case Action::aim:
                    aim();
                    break;
                default:
                    step();
            }
        }
        // The caller sees the solution where it would have seen the next trial.
        if (state.action == Action::done) std::memcpy(v.trial, v.x, sizeof(T) * v.n);
    }
};

template <class T>
void turn(const EngineView<T>& e, const double* f, const T* gradient, TurnPart part) {
    auto& workspaces = *static_cast<std::vector<Workspace>*>(e.workspaces);
    const int m = e.options->capacity;
    auto run = [&](int64_t p, int threads, int workspace) {
        const int64_t at = p * e.n, history = at * m;
        Vectors<T> v{e.n,
                     e.x + at,
                     e.g + at,
                     e.d + at,
                     e.trial + at,
                     e.s + history,
                     e.y + history,
                     e.lower ? e.lower + p * e.bound_stride : nullptr,
                     e.upper ? e.upper + p * e.bound_stride : nullptr,
                     e.weights ? e.weights + p * e.weight_stride : nullptr};
        Problem<T> problem{v,
                           e.states[p],
                           *e.options,
                           small_matrices(e.small + p * small_matrices_length(m), m),
                           Chunks(e.n, threads),
                           workspaces,
                           workspace};
        problem.turn(f[p], gradient + at, part);
    };
    const bool many = e.batch >= 2 * e.threads || (e.batch > 1 && e.n < Chunks::worth_threads);
    if (many && e.threads > 1) {
        // Pieces of 16 problems: one slow problem does not hold the batch.
        const int pieces = int((e.batch + 15) / 16);
        Pool::instance().run(pieces, e.threads, [&](int piece, int thread) {
            const int64_t end = min_of(e.batch, int64_t(piece + 1) * 16);
            for (int64_t p = int64_t(piece) * 16; p < end; ++p) run(p, 1, thread);
        });
    } else {
        for (int64_t p = 0; p < e.batch; ++p) run(p, e.threads, 0);
    }
}

}  // namespace

const EngineKernels& engine_table() {
    static const EngineKernels table{
        [](int threads, int capacity) -> void* {
            auto* all = new std::vector<Workspace>;
            all->reserve(threads);
            for (int i = 0; i < threads; ++i) all->emplace_back(capacity);
            return all;
        },
        [](void* all) { delete static_cast<std::vector<Workspace>*>(all); },
        [](const EngineView<double>& e, const double* f, const double* g, TurnPart part) {
            turn(e, f, g, part);
        },
        [](const EngineView<float>& e, const double* f, const float* g, TurnPart part) {
            turn(e, f, g, part);
        },
    };
    return table;
}

SW_END
