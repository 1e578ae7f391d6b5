#include "host/quasi_newton/device_bindings.hpp"

#include <nanobind/ndarray.h>

#include <cstring>
#include <vector>

#include "core/quasi_newton/decide.hpp"
#include "host/quasi_newton/engine.hpp"
#include "host/quasi_newton/rank_bindings.hpp"

namespace nb = nanobind;

namespace stepwell {

namespace {

// How a kernel is launched: functions of CUDA's driver, by their addresses. (The tests have others.)
struct DeviceLaunch {
    using Launch = int (*)(void* kernel, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned shared_bytes, void* stream, void** arguments, void** extra);
    using Wait = int (*)(void* stream);

    Launch launch;
    Wait wait;
    void *kernel, *stream;
    unsigned blocks, threads, shared_bytes;

    // Returns CUDA's error, or zero.
    int operator()(void* argument, bool waits) const {
        void* arguments[] = {argument};
        const int error =
            launch(kernel, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, arguments, nullptr);
        return error || !waits ? error : wait(stream);
    }
};

// One problem, or this rank's piece of one. The kernels' types of vectors differ in nothing that matters
// here.
class DeviceProblem {
public:
    DeviceProblem(const Options& wanted, nb::bytes engine, uintptr_t rows, uintptr_t breaks,
                  uintptr_t break_rows, uintptr_t f_values, int64_t chunk_length, int64_t chunk_before,
                  int parts)
        : options(wanted), small(size_t(small_matrices_length(wanted.slots))) {
        if (engine.size() != sizeof(arguments.engine)) throw nb::value_error("an engine of another layout");
        std::memcpy(&arguments.engine, engine.c_str(), sizeof(arguments.engine));
        longest = arguments.engine.walk_length;
        std::memcpy(arguments.options, &options, sizeof(options));
        arguments.rows = reinterpret_cast<double*>(rows);
        arguments.breaks = reinterpret_cast<double*>(breaks);
        arguments.break_rows = reinterpret_cast<double*>(break_rows);
        arguments.f_values = reinterpret_cast<double*>(f_values);
        arguments.chunk_length = chunk_length, arguments.chunk_before = chunk_before;
        arguments.parts = parts;
        start_state(state);
        workspaces = engine_kernels().make_workspaces(1, options.capacity);
    }
    DeviceProblem(const DeviceProblem&) = delete;
    ~DeviceProblem() { engine_kernels().free_workspaces(workspaces); }

    void set_launch(uintptr_t function, uintptr_t wait, uintptr_t kernel, uintptr_t stream, unsigned blocks,
                    unsigned threads, unsigned shared_bytes) {
        launch = {reinterpret_cast<DeviceLaunch::Launch>(function),
                  reinterpret_cast<DeviceLaunch::Wait>(wait),
                  reinterpret_cast<void*>(kernel),
                  reinterpret_cast<void*>(stream),
                  blocks,
                  threads,
                  shared_bytes};
    }
    // fails(error) is told of CUDA's errors. The turn goes on to the next exchange, where others wait.
    void set_exchange(PythonExchange& between, nb::object when_failed) {
        exchange = between.hook();
        fails = std::move(when_failed);
    }

    // f: the value, where `f_at` is null; else where its `f_count` values are on the device. Returns whether
    // the problem still runs.
    bool turn(double f, uintptr_t gradient, uintptr_t f_at, int f_count, bool f_is_float, int part) {
        arguments.gradient = reinterpret_cast<const double*>(gradient);
        const void* values = reinterpret_cast<const void*>(f_at);
        arguments.f_count = f_count, arguments.f_is_float = f_is_float;
        {
            nb::gil_scoped_release release;
            const DeviceView view = this->view();
            arguments.f = values;
            engine_kernels().turn_device(view, f, TurnPart(part));
        }
        return state.action != Action::done;
    }
    void stop(int status) {
        if (state.action == Action::done) return;
        state.status = Status(status);
        state.action = Action::done;
        if (state.started && arguments.engine.chunks > 0) sweep(DeviceSweep::end, false, nullptr, false);
    }

    Options options;
    State state;
    std::vector<double> small;

    int64_t bytes() const {
        return int64_t(sizeof(double) * small.size() + sizeof(State)) +
               engine_kernels().bytes_of_workspaces(workspaces);
    }

private:
    SweepArguments<double> arguments{};
    int longest;  // list of breakpoints; the engine is told how long the next may be
    DeviceLaunch launch{};
    Exchange exchange{};
    nb::object fails;
    void* workspaces;

    DeviceView view() {
        return {&state,
                small.data(),
                &options,
                workspaces,
                exchange,
                arguments.engine.chunks,
                arguments.rows,
                arguments.breaks,
                arguments.break_rows,
                longest,
                [](void* context, DeviceSweep kind, bool at_trial, const double* coefficients, bool waits) {
                    static_cast<DeviceProblem*>(context)->sweep(kind, at_trial, coefficients, waits);
                },
                this};
    }

    void sweep(DeviceSweep kind, bool at_trial, const double* coefficients, bool waits) {
        arguments.sweep = kind;
        arguments.at_trial = at_trial;
        arguments.state = state;
        if (kind == DeviceSweep::list_breaks) arguments.engine.walk_length = list_length(state.walk, longest);
        if (kind == DeviceSweep::aim) {
            std::memcpy(arguments.coefficients, coefficients, sizeof(double) * 2 * size_t(state.pairs));
        }
        const int error = launch(&arguments, waits);
        arguments.f = nullptr;  // the host has it
        if (error == 0) return;
        const nb::gil_scoped_acquire lock;
        fails(error);
    }
};

}  // namespace

void bind_device_problem(nb::module_& m) {
    using P = DeviceProblem;
    nb::class_<P>(m, "DeviceProblem")
        .def(nb::init<const Options&, nb::bytes, uintptr_t, uintptr_t, uintptr_t, uintptr_t, int64_t, int64_t,
                      int>(),
             nb::arg("options"), nb::arg("engine"), nb::arg("rows"), nb::arg("breaks"), nb::arg("break_rows"),
             nb::arg("f_values"), nb::arg("chunk_length"), nb::arg("chunk_before"), nb::arg("parts"))
        .def("set_launch", &P::set_launch, nb::arg("launch"), nb::arg("wait"), nb::arg("kernel"),
             nb::arg("stream"), nb::arg("blocks"), nb::arg("threads"), nb::arg("shared_bytes"))
        .def("set_exchange", &P::set_exchange, nb::keep_alive<1, 2>(), nb::arg("exchange"), nb::arg("fails"))
        .def("turn", &P::turn, nb::arg("f"), nb::arg("gradient"), nb::arg("f_at"), nb::arg("f_count"),
             nb::arg("f_is_float"), nb::arg("part"))
        .def("stop", &P::stop)
        .def_prop_ro("bytes", &P::bytes)
        .def_prop_ro(
            "states",
            [](P& p) {
                return nb::ndarray<nb::numpy, uint8_t, nb::c_contig>(reinterpret_cast<uint8_t*>(&p.state),
                                                                     {1, sizeof(State)});
            },
            nb::rv_policy::reference_internal)
        .def_prop_ro(
            "small",
            [](P& p) {
                return nb::ndarray<nb::numpy, double, nb::c_contig>(p.small.data(), {1, p.small.size()});
            },
            nb::rv_policy::reference_internal);
    m.def("device_parts", &parts_of_chunks, nb::arg("chunks"), nb::arg("length"),
          "In how many parts a device works on each of so many chunks.");
}

}  // namespace stepwell
