// The quasi-Newton core and the host engine, to be run under the sanitizers. Prints one JSON object a line;
// the Python test compares the numbers with NumPy. Usage: engine_check PART...
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/common/team.hpp"
#include "core/quasi_newton/decide.hpp"
#include "host/common/pool.hpp"
#include "host/quasi_newton/chunks.hpp"
#include "host/quasi_newton/engine.hpp"
#include "host/quasi_newton/history_rows.hpp"
#include "host/quasi_newton/kept_grams.hpp"
#include "host/quasi_newton/rank_exchange.hpp"
#include "host/quasi_newton/simd_matrices.hpp"
#include "host/quasi_newton/walk_sums.hpp"

namespace stepwell {
namespace baseline {
const EngineKernels& engine_table();
}
}  // namespace stepwell

using namespace stepwell;

namespace {

// Numbers in (-1, 1), the same everywhere.
struct Random {
    uint64_t state;
    double operator()() {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        return double(int64_t(state >> 11)) / double(int64_t(1) << 52) - 1;
    }
};

void print(const char* name, const std::vector<double>& values, const char* end = ", ") {
    std::printf("\"%s\": [", name);
    for (size_t i = 0; i < values.size(); ++i) std::printf("%s%.17g", i ? ", " : "", values[i]);
    std::printf("]%s", end);
}

// Quasi-definite matrices: minus a positive definite block, a coupling, a positive definite block.
void check_ldlt() {
    Lone team;
    for (int half : {1, 2, 5, 16}) {
        Random random{uint64_t(half)};
        const int size = 2 * half;
        std::vector<double> factor(half * half), a(size * size), l, b(size), x;
        auto definite = [&](int i, int j) {
            double sum = i == j ? 0.5 : 0.0;
            for (int k = 0; k < half; ++k) sum += factor[i * half + k] * factor[j * half + k];
            return sum;
        };
        for (double& v : factor) v = random();
        for (int i = 0; i < half; ++i)
            for (int j = 0; j < half; ++j) a[i * size + j] = -definite(i, j);
        for (double& v : factor) v = random();
        for (int i = 0; i < half; ++i)
            for (int j = 0; j < half; ++j) {
                a[(half + i) * size + half + j] = definite(i, j);
                a[(half + i) * size + j] = a[j * size + half + i] = random();
            }
        for (double& v : b) v = random();
        DecidingThread deciding;
        std::vector<double> l_too = a, x_too = b;
        const bool sound_too = factor_ldlt(deciding, l_too.data(), size, half);
        solve_ldlt(deciding, l_too.data(), size, x_too.data());
        l = a, x = b;
        const bool sound = factor_ldlt(team, l.data(), size, half) && sound_too;
        solve_ldlt(team, l.data(), size, x.data());
        std::vector<double> wrong = a;
        const bool wrong_sign = factor_ldlt(team, wrong.data(), size, half - 1);
        std::vector<double> singular(size * size, 0.0);
        const bool zero_pivot = factor_ldlt(team, singular.data(), size, half);
        std::vector<double> poisoned = a;
        poisoned[size * size - 1] = double_infinity;
        const bool infinite = factor_ldlt(team, poisoned.data(), size, half);
        std::printf("{\"part\": \"ldlt\", \"size\": %d, \"sound\": %d, \"refused\": [%d, %d, %d], ", size,
                    sound, wrong_sign, zero_pivot, infinite);
        print("a", a);
        print("b", b);
        print("x by registers", x_too);
        print("x", x, "}\n");
    }
}

// A ring of pairs that has wrapped: the step over all variables, from sums formed here.
void check_compact() {
    Lone team;
    for (int capacity : {1, 3, 7}) {
        Random random{uint64_t(100 + capacity)};
        const int n = 12, head = capacity / 2, pairs = capacity;
        std::vector<double> s(capacity * n), y(capacity * n), g(n), d(n);
        for (int slot = 0; slot < capacity; ++slot)
            for (int i = 0; i < n; ++i) {
                s[slot * n + i] = random();
                y[slot * n + i] = (1 + i) * s[slot * n + i] + 0.01 * random();
            }
        for (double& v : g) v = random();
        auto dot = [n](const double* a, const double* b) {
            double sum = 0;
            for (int i = 0; i < n; ++i) sum += a[i] * b[i];
            return sum;
        };
        std::vector<double> memory(small_matrices_length(capacity)), work(scratch_length(capacity));
        const SmallMatrices m = small_matrices(memory.data(), capacity);
        for (int i = 0; i < capacity; ++i)
            for (int j = 0; j < capacity; ++j) {
                m.ss[i * capacity + j] = dot(&s[i * n], &s[j * n]);
                m.sy[i * capacity + j] = dot(&s[i * n], &y[j * n]);
                m.yy[i * capacity + j] = dot(&y[i * n], &y[j * n]);
            }
        State state;
        start_state(state);
        state.head = head, state.pairs = pairs, state.gamma = 0.3;
        Options options{};
        options.capacity = options.slots = capacity;
        const SumLayout layout = sum_layout(options, pairs);
        std::vector<double> sums(layout.length());
        for (int age = 0; age < pairs; ++age) {
            const int slot = slot_of(age, head, pairs, capacity);
            sums[layout.q() + age] = dot(&y[slot * n], g.data());
            sums[layout.q() + pairs + age] = dot(&s[slot * n], g.data());
        }
        const Scratch w = scratch_views(work.data(), capacity);
        form_model(team, w, m, state, layout, sums.data(), 1 / state.gamma, false);
        for (int a = 0; a < 2 * pairs; ++a)
            w.coefficients[a] =
                state.gamma * stacked_sum(sums.data() + layout.q(), pairs, pairs, 1 / state.gamma, a);
        const bool sound = factor_with(team, Factoring{w.kg, w.coefficients}, 2 * pairs, pairs);
        solve_upper(team, w.kg, 2 * pairs, w.coefficients);
        std::vector<double> old_first_s, old_first_y;
        d = g;
        for (int i = 0; i < n; ++i) {
            double from_s = 0;
            for (int age = 0; age < pairs; ++age) {
                const int slot = slot_of(age, head, pairs, capacity);
                d[i] += w.coefficients[age] * y[slot * n + i];
                from_s += w.coefficients[pairs + age] * s[slot * n + i];
            }
            d[i] = -state.gamma * d[i] - from_s;
        }
        for (int age = 0; age < pairs; ++age) {
            const int slot = slot_of(age, head, pairs, capacity);
            old_first_s.insert(old_first_s.end(), &s[slot * n], &s[slot * n] + n);
            old_first_y.insert(old_first_y.end(), &y[slot * n], &y[slot * n] + n);
        }
        std::printf("{\"part\": \"compact\", \"n\": %d, \"gamma\": %.17g, \"sound\": %d, ", n, state.gamma,
                    sound);
        print("s", old_first_s);
        print("y", old_first_y);
        print("g", g);
        print("d", d, "}\n");
    }
}

// The end of a segment of the Cauchy path, also where rounding has made the curvature vanish or negative.
void check_settles() {
    const double inf = double_infinity;
    const double cases[][4] = {
        // offset, curvature, from, to
        {-2, 1, 0, 5},  {-2, 1, 0, 1},   {-2, 1, 2, 5},     {-2, 1, 3, 5},        {0, 1, 0, 1},
        {-1, 0, 0, 4},  {-1, 0, 0, inf}, {-1, -1, 2, 4},    {-1, -1, 2, inf},     {-2, 1, 0, inf},
        {1, 1, 0, inf}, {NAN, 1, 1, 2},  {-1, NAN, 1, inf}, {-1, 1e-300, 0, inf},
    };
    for (const auto& c : cases) {
        double t = -1;
        const bool settled = settles(PathSlope{c[0], c[1]}, c[2], c[3], t);
        std::printf("{\"part\": \"settles\", \"settled\": %d, \"finite\": %d, \"t\": %.17g}\n", settled,
                    is_finite(t), is_finite(t) ? t : -1.0);
    }
}

// Forty variables that were free, of which a walk in two lists crosses the first few: what is left of the
// sums, and whether it is known.
void check_walk_sums() {
    constexpr int n = 40, pairs = 3, size = 2 * pairs;
    Random random{7};
    std::vector<double> stacked(n * size), g(n), h(n);  // rows y √h, s / √h
    for (double& one : stacked) one = random();
    for (double& one : g) one = random();
    for (double& one : h) one = 1.5 + random();
    Options options{};
    options.bounded = 1;
    const SumLayout layout = sum_layout(options, pairs);
    const auto one_list = [&](WalkSums& sums, State& s, int begin, int end, int crossed) {
        std::vector<Break> breaks;
        std::vector<double> rows(size_t(end - begin) * (size + 1));
        for (int i = begin; i < end; ++i) {
            const int record = end - 1 - i;  // in another order than that of their times
            breaks.push_back(make_break(number_of_time(1 + i), i, record));
            double* row = rows.data() + record * (size + 1);
            for (int c = 0; c < size; ++c)
                row[c] = std::sqrt(h[i]) * g[i] * stacked[i * size + c] / (c < pairs ? 1 : s.gamma);
            row[size] = h[i] * g[i] * g[i];
        }
        for (int i = begin; i < crossed; ++i) s.walk.moving -= h[i] * g[i] * g[i];
        if (crossed > begin) s.carry_time = crossed;
        sums.cross(s, {breaks.data(), rows.data(), nullptr, end - begin}, end - begin);
    };
    for (const int crossed : {0, 5, 12, n}) {
        State s{};
        s.pairs = pairs, s.gamma = 0.7, s.carry_time = -1;
        std::vector<double> all(size_t(layout.length())), wanted(all.size());
        for (int i = 0; i < n; ++i) {
            s.movable_descent += h[i] * g[i] * g[i];
            for (int a = 0; a < size; ++a) {
                const double w = stacked[i * size + a], product = w * std::sqrt(h[i]) * g[i];
                all[layout.q() + a] += product;
                (i < crossed ? wanted[layout.carried() + a] : wanted[layout.q() + a]) +=
                    i < crossed ? -(1 + i) * product : product;
                for (int b = 0; b <= a; ++b) {
                    const double square = w * stacked[i * size + b];
                    all[layout.free_gram() + triangle(a, b)] += square;
                    if (i >= crossed) wanted[layout.free_gram() + triangle(a, b)] += square;
                }
            }
        }
        s.walk.moving = s.movable_descent;
        WalkSums sums;
        sums.begin(s, layout, all.data());
        one_list(sums, s, 0, 8, std::min(crossed, 8));
        if (crossed > 8) one_list(sums, s, 8, n, crossed);
        WalkSums tied = sums;
        tied.forget();
        const double* left = sums.left(s);
        std::printf("{\"crossed\": %d, \"known\": %d, \"known with ties\": %d, ", crossed, left != nullptr,
                    tied.left(s) != nullptr);
        print("left", left ? std::vector<double>(left, left + layout.length()) : std::vector<double>());
        print("wanted", wanted, "}\n");
    }
}

LineSearchOptions preset(bool va15) {
    LineSearchOptions o{};
    o.decrease = 1e-3, o.curvature = 0.9, o.interval = 0.1, o.step_max = 1e10, o.max_evaluations = 20;
    o.extrapolate_low = 1.1, o.extrapolate_high = 4;
    o.first_step_gradient = va15;
    o.stage_two_needs_rise = !va15;
    o.guard_first_case = o.last_at_best = va15;
    o.warning_is_step = !va15;
    if (va15)
        o.decrease = 1e-4, o.interval = double_epsilon, o.step_min = 1e-20, o.step_max = 1e20,
        o.extrapolate_low = 0;
    return o;
}

// Searches on a function that is hard for interpolation, with values that turn not finite beyond a wall.
void check_search() {
    for (int va15 = 0; va15 < 2; ++va15)
        for (double wall : {double_infinity, 0.4})
            for (double first : {1e-3, 0.1, 10.0, 1e3}) {
                const LineSearchOptions o = preset(va15 != 0);
                auto f = [](double a) { return -a / (a * a + 0.01); };
                auto slope = [](double a) { return (a * a - 0.01) / ((a * a + 0.01) * (a * a + 0.01)); };
                LineSearch s;
                start_search(s, o, f(0), slope(0), first, o.step_max, 0.0);
                SearchInfo info = SearchInfo::searching;
                double trial = 0;
                while (info == SearchInfo::searching) {
                    trial = s.step;
                    info = trial < wall ? advance_search(s, o, f(trial), slope(trial)) : retreat_search(s, o);
                }
                std::printf(
                    "{\"part\": \"search\", \"info\": %d, \"step\": %.17g, \"evaluations\": %d, "
                    "\"decrease\": %.17g, "
                    "\"curvature\": %.17g, \"f\": %.17g, \"slope\": %.17g, \"slope0\": %.17g}\n",
                    int(info), trial, s.evaluations, o.decrease, o.curvature, f(trial), slope(trial),
                    slope(0));
            }
}

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
    view.kept_stride = KeptGrams::doubles_of(options, chunks);
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

// One problem over ranks, which are threads here, each with chunks of the variables and an engine of its own;
// the messages that they exchange are all that they share.
constexpr int most_ranks = 4;

struct Board {
    std::barrier<> all;
    std::vector<double> messages[most_ranks];

    explicit Board(int ranks) : all(ranks) {}
    // What RankExchange sends: returns the messages of all ranks, in the memory of the caller.
    const double* send(int rank, std::vector<double>& message, const std::vector<int64_t>& counts,
                       std::vector<double>& received) {
        messages[rank] = message;
        all.arrive_and_wait();
        received.clear();
        for (size_t r = 0; r < counts.size(); ++r) {
            if (int64_t(messages[r].size()) != counts[r] || messages[r][1] != messages[0][1]) std::abort();
            received.insert(received.end(), messages[r].begin(), messages[r].end());
        }
        all.arrive_and_wait();
        return received.data();
    }
};

// A piece of the chain's variables, or all of it.
struct Piece {
    Options options{};
    State state;
    int64_t n;
    std::vector<double> small, x, g, d, trial, s, y, lower, upper;
    void* workspaces;
    EngineView<double> view;

    // `slots`: one more than m where a pair is written before its point is accepted.
    Piece(int64_t first, int64_t n, int m, int slots)
        : n(n), small(small_matrices_length(slots)), x(n), g(n), d(n) {
        options.capacity = m, options.slots = slots;
        options.search = preset(false);
        options.gtol = 1e-6, options.ftol = 0, options.target = -double_infinity;
        options.max_iterations = 400, options.max_evaluations = 15000;
        options.bounded = options.boxed = 1;
        start_state(state);
        trial.resize(n), lower.resize(n), upper.resize(n), s.resize(n * slots), y.resize(n * slots);
        for (int64_t k = 0; k < n; ++k) {
            const int64_t i = first + k;
            lower[k] = i % 7 == 0 ? 0.25 : 0;
            upper[k] = i % 7 == 0 ? 0.25 : 0.3 + 0.1 * double(i % 5);
            trial[k] = i % 2 ? upper[k] : lower[k];
        }
        workspaces = baseline::engine_table().make_workspaces(1, m);
        const HostMemory<double> memory =
            memory_of<double>(1, n, &state, small, x, g, d, trial, s, y, lower.data(), upper.data(), nullptr);
        view = {memory, &options, 1, workspaces, {}};
    }
    ~Piece() { baseline::engine_table().free_workspaces(workspaces); }
    void turn(double f, const double* gradient) {
        baseline::engine_table().turn_double(view, &f, gradient, TurnPart::whole);
    }
};

// By ranks that have so many chunks each; some of them none.
void check_exchange(const std::vector<int64_t>& chunks_of, bool ahead, int iterations) {
    const int64_t length = Chunks::min_length;
    const int m = 4, count = int(chunks_of.size());
    std::vector<int64_t> cuts{0};
    for (const int64_t chunks : chunks_of) cuts.push_back(cuts.back() + chunks);
    const int64_t n = cuts.back() * length - 700;  // the last chunk is shorter
    std::vector<double> point(n), gradient(n), alone, apart;
    auto report = [](const State& state, std::vector<double>& out) {
        out = {double(state.iterations), double(state.evaluations),  state.f,
               state.projected_gradient, double(state.cauchy_walks), double(state.status),
               state.cauchy_time,        state.carry_time,           state.gamma};
    };
    Piece whole(0, n, m, m);
    whole.options.max_iterations = iterations;
    whole.view.chunk_length = length;
    while (whole.state.action != Action::done) {
        const double f = chain(whole.trial.data(), gradient.data(), n, 0.02);
        whole.turn(f, gradient.data());
    }
    report(whole.state, alone);
    Board board(count);
    std::vector<std::unique_ptr<Piece>> pieces;
    for (int r = 0; r < count; ++r) {
        const int64_t first = std::min(cuts[r] * length, n), last = std::min(cuts[r + 1] * length, n);
        pieces.push_back(std::make_unique<Piece>(first, last - first, m, ahead ? m + 1 : m));
    }
    for (auto& piece : pieces) piece->options.max_iterations = iterations;
    double f = 0;
    long long messages = 0;
    auto run = [&](int rank) {
        Piece& mine = *pieces[rank];
        const int64_t first = std::min(cuts[rank] * length, n);
        std::vector<double> received;
        RankExchange between(
            rank, cuts, first,
            [&](Action, bool, std::vector<double>& message, const std::vector<int64_t>& counts) {
                if (rank == 0) ++messages;
                return board.send(rank, message, counts, received);
            });
        mine.view.exchange = between.hook();
        mine.view.chunk_length = length;
        while (mine.state.action != Action::done) {
            std::copy(mine.trial.begin(), mine.trial.end(), point.begin() + first);
            board.all.arrive_and_wait();
            if (rank == 0) f = chain(point.data(), gradient.data(), n, 0.02);
            board.all.arrive_and_wait();
            between.value = f;
            mine.turn(f, gradient.data() + first);
        }
    };
    std::vector<std::thread> others;
    for (int r = 1; r < count; ++r) others.emplace_back(run, r);
    run(0);
    for (std::thread& other : others) other.join();
    report(pieces[0]->state, apart);
    bool same = true;
    for (int r = 0; r < count; ++r) {
        std::copy(pieces[r]->x.begin(), pieces[r]->x.end(), point.begin() + std::min(cuts[r] * length, n));
        const bool states = ahead || std::memcmp(&pieces[r]->state, &pieces[0]->state, sizeof(State)) == 0;
        same = same && states;
    }
    same = same && std::memcmp(point.data(), whole.x.data(), sizeof(double) * size_t(n)) == 0;
    std::printf("{\"part\": \"exchange\", \"same\": %d, \"messages\": %lld, ", same, messages);
    print("alone", alone);
    print("apart", apart, "}\n");
}

void check_exchange() {
    check_exchange({1, 1}, false, 400);
}

void check_ranks() {
    check_exchange({1, 0, 2}, true, 25);
    check_exchange({1, 1, 1, 1}, true, 12);
}

// Jobs of changing length, one after the other and from two callers at once: each piece once, on an allowed
// thread.
void check_pool() {
    Pool& pool = Pool::instance();
    long long wrong = 0, jobs = 0;
    for (int round = 0; round < 3000; ++round) {
        const int count = 2 + (round * 7) % 23, threads = 2 + round % 3;
        std::vector<int> done(count, 0), by(count, -1);
        pool.run(count, threads, [&](int piece, int thread) { ++done[piece], by[piece] = thread; });
        for (int i = 0; i < count; ++i) wrong += done[i] != 1 || by[i] < 0 || by[i] >= threads;
        ++jobs;
    }
    auto caller = [&pool](long long& sum) {
        for (int round = 0; round < 500; ++round) {
            std::vector<int> done(5 + round % 9, 0);
            pool.run(int(done.size()), 3, [&](int piece, int) { done[piece] += piece; });
            for (int value : done) sum += value;
        }
    };
    long long first = 0, second = 0, expected = 0;
    std::thread other(caller, std::ref(second));
    caller(first);
    other.join();
    for (int round = 0; round < 500; ++round)
        for (int i = 0; i < 5 + round % 9; ++i) expected += i;
    std::printf("{\"part\": \"pool\", \"jobs\": %lld, \"wrong\": %lld, \"sums\": [%lld, %lld, %lld]}\n", jobs,
                wrong, expected, first, second);
}

}  // namespace

int main(int count, char** arguments) {
    for (int i = 1; i < count; ++i) {
        const std::string part = arguments[i];
        if (part == "ldlt") check_ldlt();
        if (part == "compact") check_compact();
        if (part == "settles") check_settles();
        if (part == "walk sums") check_walk_sums();
        if (part == "search") check_search();
        if (part == "engine") check_engine();
        if (part == "threads") check_threads();
        if (part == "exchange") check_exchange();
        if (part == "ranks") check_ranks();
        if (part == "pool") check_pool();
    }
    return 0;
}
