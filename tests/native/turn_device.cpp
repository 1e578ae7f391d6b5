// The turns of src/cuda/quasi_newton/quasi_newton.cu on the CPU: by one block, as the package runs small
// problems, or by a grid whose blocks are processes. Reads sizes, options, the start and bounds or a diagonal
// from standard input; then, for as long as the run wants evaluations, writes its point and reads value and
// gradient; at the end writes point, state and counts.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device_emulator.hpp"
#include "pipes.hpp"
//
#include "../../src/cuda/quasi_newton/quasi_newton.cu"

using namespace stepwell;

namespace {

// Memory of the device: all processes see it.
template <class T>
T* allocate(size_t count) {
    void* memory =
        mmap(nullptr, count * sizeof(T) + 64, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::exit(3);
    return static_cast<T*>(memory);
}

template <class T>
T* received(size_t count) {
    T* values = allocate<T>(count);
    receive(values, count);
    return values;
}

// A cooperative launch: a process for each block.
template <class Kernel>
void launch_grid(unsigned blocks, const Kernel& kernel) {
    std::fflush(stdout);
    for (unsigned block = 0; block < blocks; ++block)
        if (fork() == 0) {
            alarm(100);  // blocks that wait for each other in vain end, and the test with them
            emulator::launch(block, block + 1, blocks, threads, kernel);
            _exit(0);
        }
    for (int status; wait(&status) > 0;)
        if (status != 0) std::exit(4);
}

// An engine is followed by the options, as in device memory.
struct Arguments {
    Engine engine;
    alignas(8) unsigned char options[sizeof(Options)];
};

}  // namespace

int main() {
    int64_t sizes[4];  // variables, numbers in the sums of a chunk, length of a walk's list, whether a grid
    receive(sizes, 4);
    const int64_t n = sizes[0], stride = (n + 7) / 8 * 8, chunks = (n + span - 1) / span;
    const int64_t groups = (chunks + group_size - 1) / group_size;
    Arguments& arguments = *allocate<Arguments>(1);
    receive(arguments.options, sizeof(Options));
    Engine& e = arguments.engine;
    e.batch = 1, e.n = n, e.stride = stride;
    e.trial = received<Real>(n);
    if (bounded) {
        e.lower_step = lower_step, e.upper_step = upper_step;
        e.lower = received<Real>(lower_step ? n : 1);
        e.upper = received<Real>(upper_step ? n : 1);
    }
    if (weighted) e.weights = received<Real>(n);
    e.x = allocate<Real>(n), e.g = allocate<Real>(n), e.d = allocate<Real>(n);
    e.s = allocate<Kept>(slots * stride), e.y = allocate<Kept>(slots * stride);
    e.small = allocate<double>(small_matrices_length(slots));
    e.coefficients = allocate<double>(2 * capacity);
    e.scratch = allocate<double>(scratch_length(capacity));
    e.partial_stride = sizes[1] * (chunks + groups + 1);
    e.partials = allocate<double>(e.partial_stride);
    e.walk_stride = device_walk_words(capacity, int(sizes[2]), threads);
    e.walk = allocate<double>(e.walk_stride);
    e.barrier = reinterpret_cast<Barrier*>(allocate<unsigned int>(2 + groups));
    e.counter = allocate<unsigned int>(3), e.running = allocate<unsigned int>(1);
    e.states = allocate<State>(1), e.report = allocate<State>(1);
    const bool groups_are_blocks = !sizes[3];
    e.chunks = int32_t(chunks), e.walk_length = int32_t(sizes[2]);
    e.sums = int32_t(sizes[1]);
    start_state(*e.states);
    *e.running = 1;
    double* f = allocate<double>(1);
    Real* gradient = allocate<Real>(n);
    int64_t hoped = 0, refused = 0;  // points absorbed while they were judged; those of them refused
    int64_t phases = 0;              // of a grid's longest turn
    while (*e.running) {
        const bool hopes = expects_acceptance(*e.states);
        const int64_t released = e.barrier->released >> 1;
        send(e.running, 1);
        send(e.trial, n);
        std::fflush(stdout);
        receive(f, 1);
        receive(gradient, n);
        const auto launch = [&](TurnPart part) {
            const auto turn = [&] {
                stepwell_turn(&e, e.states, groups_are_blocks, gradient, f, 0, int(part));
            };
            if (groups_are_blocks) {
                emulator::launch(1, threads, turn);
            } else {
                launch_grid(unsigned(chunks + 1), turn);
            }
        };
        if (SW_WEIGHTS_VARY) {
            launch(TurnPart::begin);
            launch(TurnPart::finish);
        } else {
            launch(TurnPart::whole);
        }
        phases = max_of(phases, (e.barrier->released >> 1) - released);
        hoped += hopes;
        refused += hopes && !e.states->accepted;
    }
    send(e.running, 1);
    send(e.x, n);
    send(e.states, 1);
    send(&hoped, 1);
    send(&refused, 1);
    send(&phases, 1);
}
