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

#include "engine_decisions.hpp"
#include "engine_runs.hpp"
#include "host/quasi_newton/rank_exchange.hpp"

namespace {

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

// By ranks that have so many chunks each or, where chunks have several, tiles; some of them none.
void check_exchange(const std::vector<int64_t>& leaves_of, bool ahead, int iterations, int64_t tiles = 1) {
    const int64_t length = Chunks::min_length;
    const int m = 4, count = int(leaves_of.size());
    std::vector<int64_t> cuts{0};
    for (const int64_t leaves : leaves_of) cuts.push_back(cuts.back() + leaves);
    const auto variable = [&](int64_t leaf) { return leaf / tiles * length + leaf % tiles * tile; };
    const int64_t n = variable(cuts.back()) - (tiles == 1 ? 700 : 60);  // the last chunk is shorter
    std::vector<double> point(n), gradient(n), alone, apart;
    auto report = [](const State& state, std::vector<double>& out) {
        out = {double(state.iterations), double(state.evaluations),  state.f,
               state.projected_gradient, double(state.cauchy_walks), double(state.status),
               state.cauchy_time,        state.carry_time,           state.gamma};
    };
    Piece whole(0, n, m, m);
    whole.options.max_iterations = iterations;
    whole.view.cut.length = length;
    while (whole.state.action != Action::done) {
        const double f = chain(whole.trial.data(), gradient.data(), n, 0.02);
        whole.turn(f, gradient.data());
    }
    report(whole.state, alone);
    Board board(count);
    std::vector<std::unique_ptr<Piece>> pieces;
    for (int r = 0; r < count; ++r) {
        const int64_t first = std::min(variable(cuts[r]), n), last = std::min(variable(cuts[r + 1]), n);
        pieces.push_back(std::make_unique<Piece>(first, last - first, m, ahead ? m + 1 : m));
    }
    for (auto& piece : pieces) piece->options.max_iterations = iterations;
    double f = 0;
    long long messages = 0;
    auto run = [&](int rank) {
        Piece& mine = *pieces[rank];
        const int64_t first = std::min(variable(cuts[rank]), n);
        std::vector<double> received;
        RankExchange between(
            rank, {cuts, tiles}, first,
            [&](Action, bool, std::vector<double>& message, const std::vector<int64_t>& counts) {
                if (rank == 0) ++messages;
                return board.send(rank, message, counts, received);
            });
        mine.view.exchange = between.hook();
        std::vector<int64_t> begins;
        for (const TreeNode& row : CutTree(cuts, tiles).rows(rank))
            begins.push_back(variable(row.begin) - first);
        mine.view.cut = {length, first % length, tiles > 1 ? begins.data() : nullptr, int(begins.size())};
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
        std::copy(pieces[r]->x.begin(), pieces[r]->x.end(), point.begin() + std::min(variable(cuts[r]), n));
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
    check_exchange({3, 0, 17, 23}, true, 12, Chunks::min_length / tile);
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
