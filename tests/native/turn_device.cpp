// The turns of src/cuda/quasi_newton.cu on the CPU, by one block, as the package runs small problems. Reads
// sizes, options, the start and bounds or a diagonal from standard input; then, for as long as the run wants
// evaluations, writes its point and reads value and gradient; at the end writes point and state.
#include "device_emulator.hpp"
//
#include "../../src/cuda/quasi_newton.cu"

using namespace stepwell;

namespace {

template <class T>
void receive(T* values, size_t count) {
    if (std::fread(values, sizeof(T), count, stdin) != count) std::exit(2);
}

template <class T>
void send(const T* values, size_t count) {
    std::fwrite(values, sizeof(T), count, stdout);
}

// An engine is followed by the options, as in device memory.
struct Arguments {
    Engine engine;
    alignas(8) unsigned char options[sizeof(Options)];
};

}  // namespace

int main() {
    int64_t sizes[3];  // variables, numbers in the sums of a chunk, length of a walk's list
    receive(sizes, 3);
    const int64_t n = sizes[0], stride = (n + 3) / 4 * 4, chunks = (n + span - 1) / span;
    const int64_t groups = (chunks + group_size - 1) / group_size;
    Arguments arguments{};
    receive(arguments.options, sizeof(Options));
    std::vector<Real> trial(n), x(n), g(n), d(n), s(slots * stride), y(slots * stride), gradient(n);
    std::vector<Real> lower(bounded ? n : 0), upper(bounded ? n : 0), weights(weighted ? n : 0);
    receive(trial.data(), n);
    receive(lower.data(), lower.size());
    receive(upper.data(), upper.size());
    receive(weights.data(), weights.size());
    std::vector<double> small(small_matrices_length(slots)), coefficients(2 * capacity);
    std::vector<double> scratch(scratch_length(capacity)), partials(sizes[1] * (chunks + groups + 1));
    const int64_t walk_words = (int64_t(sizeof(WalkState)) + 7) / 8 + sizes[2] * (3 + 4 * capacity);
    std::vector<double> walk(walk_words);
    std::vector<unsigned int> counter(2);
    unsigned int running = 1;
    State state, report;
    start_state(state);
    Engine& e = arguments.engine;
    e.batch = 1, e.n = n, e.stride = stride, e.states = &state, e.small = small.data();
    e.x = x.data(), e.g = g.data(), e.d = d.data(), e.trial = trial.data(), e.s = s.data(), e.y = y.data();
    e.lower = bounded ? lower.data() : nullptr, e.upper = bounded ? upper.data() : nullptr;
    e.weights = weighted ? weights.data() : nullptr;
    e.partials = partials.data(), e.coefficients = coefficients.data(), e.scratch = scratch.data();
    e.walk = walk.data(), e.report = &report, e.running = &running, e.counter = counter.data();
    e.partial_stride = int64_t(partials.size()), e.walk_stride = walk_words;
    e.chunks = int32_t(chunks), e.gangs_are_blocks = 1, e.walk_length = int32_t(sizes[2]);
    e.sums = int32_t(sizes[1]);
    while (running) {
        double f;
        send(&running, 1);
        send(trial.data(), n);
        std::fflush(stdout);
        receive(&f, 1);
        receive(gradient.data(), n);
        emulator::launch(1, threads, [&] { stepwell_turn(&e, gradient.data(), &f, 0); });
    }
    send(&running, 1);
    send(x.data(), n);
    send(&state, 1);
}
