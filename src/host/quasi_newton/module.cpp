// Python bindings of the quasi-Newton engine: memory, turns, and views of the state.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <optional>

#include "core/quasi_newton/decide.hpp"
#include "host/common/bindings.hpp"
#include "host/common/dispatch.hpp"
#include "host/common/large_memory.hpp"
#include "host/quasi_newton/chunks.hpp"
#include "host/quasi_newton/device_bindings.hpp"
#include "host/quasi_newton/engine.hpp"
#include "host/quasi_newton/history_rows.hpp"
#include "host/quasi_newton/layout.hpp"
#include "host/quasi_newton/point_copy.hpp"
#include "host/quasi_newton/rank_bindings.hpp"
#include "host/quasi_newton/tile_gram_cache.hpp"

namespace nb = nanobind;

namespace stepwell {

SW_FOR_EACH_ISA(const EngineKernels& engine_table();)

const EngineKernels& engine_kernels() {
    return SW_BEST_TO_AVX2(engine_table)();
}

namespace {

template <class T>
using Vector = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <class T>
using Numpy = nb::ndarray<nb::numpy, T, nb::c_contig>;

// Memory of a batch of problems on the host. Vectors take (2m + 4) n words a problem; bounds and weights are
// the caller's arrays, kept alive by the Python side.
template <class T>
class Engine : public EngineView<T> {
public:
    using EngineView<T>::batch, EngineView<T>::n, EngineView<T>::states, EngineView<T>::small;
    using EngineView<T>::x, EngineView<T>::g, EngineView<T>::d, EngineView<T>::trial;
    using EngineView<T>::s, EngineView<T>::y;

    using Numbers = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

    Engine(int64_t batch, int64_t n, const Options& wanted, int threads)
        : EngineView<T>{},
          chosen(wanted),
          all_states(size_t(batch)),
          all_small(size_t(batch * small_matrices_length(wanted.slots))),
          memory(bytes_of_vectors(batch, n, wanted)) {
        this->batch = batch, this->n = n, this->stride = stride_of(n, wanted);
        this->options = &chosen;
        // Each takes memory that grows with the square of the history.
        this->threads = batch == 1 ? Chunks(n, threads).useful_threads() : threads;
        states = all_states.data(), small = all_small.data();
        for (State& one : all_states) start_state(one);
        const int64_t m = chosen.slots;
        T* next = static_cast<T*>(memory.data());
        trial = next, next += batch * n;
        x = next, next += batch * n;
        g = next, next += batch * n;
        d = next, next += batch * n;
        s = reinterpret_cast<Byte*>(next);
        y = s + batch * m * this->stride;
        // The history is not touched: its pages are the operating system's until the first pair is written.
        std::memset(d, 0, size_t(batch * n) * sizeof(T));
        std::memset(x, 0, size_t(batch * n) * sizeof(T));
        std::fill(g, g + batch * n,
                  std::numeric_limits<T>::quiet_NaN());  // not known before the first evaluation
        this->workspaces = engine_kernels().make_workspaces(this->threads, chosen.capacity);
        forget();
    }
    Engine(const Engine&) = delete;
    ~Engine() { engine_kernels().free_workspaces(this->workspaces); }

    void set_bounds(Vector<T> low, Vector<T> high) {
        const size_t longer = std::max(low.size(), high.size());
        require_size(longer == 1 || longer == size_t(n) || longer == size_t(batch * n));
        require_size((low.size() == longer || low.size() == 1) &&
                     (high.size() == longer || high.size() == 1));
        this->lower = low.data(), this->upper = high.data();
        this->lower_step = low.size() > 1, this->upper_step = high.size() > 1;
        this->own_bounds = longer > 1 && longer != size_t(n);
    }
    void set_weights(Vector<T> h) {
        require_size(h.size() == size_t(n) || h.size() == size_t(batch * n));
        this->weights = h.data();
        this->own_weights = h.size() != size_t(n);
    }

    // A piece of the variables of a problem over several ranks; `begins`: of its chunks and parts of them.
    void set_chunks(int64_t length, int64_t before, bool whole, const nb::sequence& begins) {
        chunk_begins.clear();
        for (const nb::handle begin : begins) chunk_begins.push_back(nb::cast<int64_t>(begin));
        this->cut = {length, before, chunk_begins.data(), int(chunk_begins.size())};
        this->whole = whole;
        forget();
    }
    // What is kept of the products of pairs is taken anew, and who still runs; before the first turn, and
    // where pairs and states have changed.
    void forget() {
        is_listed = false;
        const Chunks chunks(n, 1, this->cut);
        this->kept_stride = TileGramCache::doubles_of(chosen, chunks);
        kept_products.assign(size_t(batch * this->kept_stride), 0.0);
        this->kept = kept_products.empty() ? nullptr : kept_products.data();
    }
    // Every turn leaves its trial point there as well, by the threads that have found it: each writes what
    // its own cache holds. One problem alone.
    void set_copy(std::optional<Numbers> to) {
        require_size(!to || (batch == 1 && to->size() == size_t(n)));
        this->copy = to ? to->data() : nullptr;
        kept_copy = std::move(to);
    }
    void set_exchange(PythonExchange& between) { this->exchange = between.hook(); }

    void turn(const double* f, const T* gradient, TurnPart part) {
        if constexpr (sizeof(T) == 8) {
            engine_kernels().turn_double(*this, f, gradient, part);
        } else {
            engine_kernels().turn_float(*this, f, gradient, part);
        }
    }

    // Flags of one problem: 1 an iteration was accepted, 2 it ended, 4 it waits for the diagonal of H0.
    static int flags(const State& state) {
        return (state.accepted ? 1 : 0) | (state.action == Action::done ? 2 : 0) |
               (state.action == Action::absorb ? 4 : 0);
    }
    int turn_one(double f, Vector<T> gradient, int part) {
        require_size(batch == 1 && gradient.size() == size_t(n));
        {
            nb::gil_scoped_release release;
            this->running = nullptr, is_listed = false;
            turn(&f, gradient.data(), TurnPart(part));
        }
        return flags(states[0]);
    }
    // A batch, with values and gradients of all problems or of those that still run: returns how many do
    // then.
    int64_t turn_all(Vector<double> f, Vector<T> gradient, int part) {
        list_running();
        const size_t given = f.size();
        require_size((given == size_t(batch) || given == still_running.size()) &&
                     gradient.size() == given * size_t(n));
        nb::gil_scoped_release release;
        this->running = still_running.data(), this->running_count = int64_t(still_running.size());
        this->of_running_alone = given != size_t(batch);
        turn(f.data(), gradient.data(), TurnPart(part));
        // The rest of a turn that was cut comes with the same values.
        if (TurnPart(part) != TurnPart::begin) {
            std::erase_if(still_running, [this](int64_t p) { return states[p].action == Action::done; });
        }
        return int64_t(still_running.size());
    }
    // Their indices.
    Numpy<int64_t> running_problems() {
        list_running();
        return Numpy<int64_t>(still_running.data(), {still_running.size()});
    }
    void stop(int64_t problem, int status) {
        require_size(problem >= 0 && problem < batch);
        State& state = states[problem];
        if (state.action == Action::done) return;
        is_listed = false;
        state.status = Status(status);
        state.action = Action::done;
        if (state.started) std::memcpy(trial + problem * n, x + problem * n, size_t(n) * sizeof(T));
    }

    int64_t bytes() const {
        return int64_t(bytes_of_vectors(batch, n, chosen)) +
               int64_t(sizeof(double) * (all_small.size() + kept_products.size())) +
               int64_t(sizeof(State) * all_states.size() + sizeof(int64_t) * still_running.capacity()) +
               engine_kernels().bytes_of_workspaces(this->workspaces);
    }

    Options chosen;
    std::vector<State> all_states;
    std::vector<double> all_small;

private:
    std::vector<double> kept_products;
    std::vector<int64_t> chunk_begins;
    LargeMemory memory;
    std::optional<Numbers> kept_copy;
    std::vector<int64_t> still_running;
    bool is_listed = false;

    void list_running() {
        if (is_listed) return;
        still_running.clear();
        still_running.reserve(size_t(batch));
        for (int64_t p = 0; p < batch; ++p)
            if (states[p].action != Action::done) still_running.push_back(p);
        is_listed = true;
    }

    // Rows of the history begin where every type may, and neighbours may lie side by side.
    static int64_t stride_of(int64_t n, const Options& o) { return n * bytes_of(o.history); }
    static size_t bytes_of_vectors(int64_t batch, int64_t n, const Options& o) {
        return size_t(batch * (4 * n * int64_t(sizeof(T)) + 2 * o.slots * stride_of(n, o)));
    }

    // The Python side has checked all arguments; this one costs nothing and keeps memory whole.
    static void require_size(bool fits) {
        if (!fits) throw nb::value_error("an array of another size than the engine's");
    }
};

template <class T>
void bind_engine(nb::module_& m, const char* name) {
    using E = Engine<T>;
    auto rows = [](T* E::* member) {
        return [member](E& e) { return Numpy<T>(e.*member, {size_t(e.batch), size_t(e.n)}); };
    };
    auto ring = [](Byte* E::* member) {  // of bfloat16, which NumPy has not, the bits
        return [member](E& e) {
            const size_t shape[] = {size_t(e.batch), size_t(e.chosen.slots), size_t(e.n)};
            const HistoryType type = e.chosen.history;
            return nb::ndarray<nb::numpy, nb::c_contig>(e.*member, 3, shape, nb::handle(), nullptr,
                                                        type == HistoryType::float64 ? nb::dtype<double>()
                                                        : type == HistoryType::float32
                                                            ? nb::dtype<float>()
                                                            : nb::dtype<uint16_t>());
        };
    };
    nb::class_<E>(m, name)
        .def(nb::init<int64_t, int64_t, const Options&, int>(), nb::arg("batch"), nb::arg("n"),
             nb::arg("options"), nb::arg("threads"))
        .def("set_bounds", &E::set_bounds, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
        .def("set_weights", &E::set_weights, nb::keep_alive<1, 2>())
        .def("set_chunks", &E::set_chunks, nb::arg("length"), nb::arg("before"), nb::arg("whole"),
             nb::arg("begins"))
        .def("forget", &E::forget)
        .def("set_copy", &E::set_copy, nb::arg("to").none())
        .def("set_exchange", &E::set_exchange, nb::keep_alive<1, 2>())
        .def("turn_one", &E::turn_one, nb::arg("f"), nb::arg("g"), nb::arg("part") = 0)
        .def("turn_all", &E::turn_all, nb::arg("f"), nb::arg("g"), nb::arg("part") = 0)
        .def("stop", &E::stop)
        .def_prop_ro("running", &E::running_problems, nb::rv_policy::reference_internal)
        .def_prop_ro("bytes", &E::bytes)
        .def_prop_ro("trial", rows(&E::trial), nb::rv_policy::reference_internal)
        .def_prop_ro("x", rows(&E::x), nb::rv_policy::reference_internal)
        .def_prop_ro("g", rows(&E::g), nb::rv_policy::reference_internal)
        .def_prop_ro("d", rows(&E::d), nb::rv_policy::reference_internal)
        .def_prop_ro("s", ring(&E::s), nb::rv_policy::reference_internal)
        .def_prop_ro("y", ring(&E::y), nb::rv_policy::reference_internal)
        .def_prop_ro(
            "states",
            [](E& e) {
                return Numpy<uint8_t>(reinterpret_cast<uint8_t*>(e.states), {size_t(e.batch), sizeof(State)});
            },
            nb::rv_policy::reference_internal)
        .def_prop_ro(
            "small",
            [](E& e) {
                return Numpy<double>(e.small, {size_t(e.batch), e.all_small.size() / size_t(e.batch)});
            },
            nb::rv_policy::reference_internal);
}

}  // namespace

void bind_quasi_newton(nb::module_& m) {
    bind_engine<double>(m, "EngineFloat64");
    bind_engine<float>(m, "EngineFloat32");
    m.attr("MAX_CAPACITY") = max_capacity;
    nb::class_<PointCopy>(m, "PointCopy")
        .def(nb::init<PointCopy::To, int>(), nb::arg("to"), nb::arg("threads"), nb::keep_alive<1, 2>())
        .def("__call__", &PointCopy::copy, nb::arg("vector"))
        .def("rows", &PointCopy::copy_rows, nb::arg("vectors"), nb::arg("rows"));

    using L = LineSearchOptions;
    nb::class_<L>(m, "LineSearchOptions")
        .def_rw("decrease", &L::decrease)
        .def_rw("curvature", &L::curvature)
        .def_rw("interval", &L::interval)
        .def_rw("step_min", &L::step_min)
        .def_rw("step_max", &L::step_max)
        .def_rw("max_evaluations", &L::max_evaluations)
        .def_rw("first_step_gradient", &L::first_step_gradient)
        .def_rw("extrapolate_low", &L::extrapolate_low)
        .def_rw("extrapolate_high", &L::extrapolate_high)
        .def_rw("stage_two_needs_rise", &L::stage_two_needs_rise)
        .def_rw("guard_first_case", &L::guard_first_case)
        .def_rw("last_at_best", &L::last_at_best)
        .def_rw("warning_is_step", &L::warning_is_step);
    nb::class_<Options>(m, "Options")
        .def("__init__", [](Options* o) { new (o) Options{}; })
        .def_rw("capacity", &Options::capacity)
        .def_rw("slots", &Options::slots)
        .def_prop_rw(
            "cauchy", [](const Options& o) { return int(o.cauchy); },
            [](Options& o, int value) { o.cauchy = Cauchy(value); })
        .def_rw("search", &Options::search)
        .def_rw("gtol", &Options::gtol)
        .def_rw("ftol", &Options::ftol)
        .def_rw("patience", &Options::patience)
        .def_rw("f_rounding", &Options::f_rounding)
        .def_rw("eps", &Options::eps)
        .def_rw("target", &Options::target)
        .def_rw("max_iterations", &Options::max_iterations)
        .def_rw("max_evaluations", &Options::max_evaluations)
        .def_rw("bounded", &Options::bounded)
        .def_rw("boxed", &Options::boxed)
        .def_rw("weighted", &Options::weighted)
        .def_prop_rw(
            "weights_vary", [](const Options& o) { return int(o.weights_vary); },
            [](Options& o, int value) { o.weights_vary = uint8_t(value); })
        .def_prop_rw(
            "history", [](const Options& o) { return int(o.history); },
            [](Options& o, int value) { o.history = HistoryType(value); })
        .def_prop_rw(
            "narrowed", [](const Options& o) { return int(o.narrowed); },
            [](Options& o, int value) { o.narrowed = uint8_t(value); })
        .def("to_bytes",
             [](const Options& o) { return nb::bytes(reinterpret_cast<const char*>(&o), sizeof(o)); })
        .def_static("from_bytes", [](nb::bytes b) {
            if (b.size() != sizeof(Options)) throw nb::value_error("options of another version of stepwell");
            Options o;
            std::memcpy(&o, b.c_str(), sizeof(o));
            return o;
        });

    // Device memory as an object that every array library takes by DLPack, without a copy.
    m.def(
        "device_array",
        [](uintptr_t pointer, nb::tuple shape, int bytes, int device, nb::object owner) {
            size_t dims[4] = {1, 1, 1, 1};
            const size_t count = nb::len(shape);
            if (count > 4) throw nb::value_error("device_array: at most four dimensions");
            for (size_t i = 0; i < count; ++i) dims[i] = nb::cast<size_t>(shape[i]);
            const nb::dlpack::dtype type = bytes == 8   ? nb::dtype<double>()
                                           : bytes == 4 ? nb::dtype<float>()
                                                        : nb::dtype<int16_t>();
            return nb::ndarray<nb::array_api>(reinterpret_cast<void*>(pointer), count, dims, owner, nullptr,
                                              type, nb::device::cuda::value, device);
        },
        nb::arg("pointer"), nb::arg("shape"), nb::arg("bytes"), nb::arg("device"), nb::arg("owner"));

    m.def("small_length", [](int slots) { return small_matrices_length(slots); });
    m.def("workspace_bytes", [](int capacity) { return engine_kernels().bytes_of_one(capacity); });
    m.def("kept_bytes", [](const Options& o, int64_t n) {
        return int64_t(sizeof(double)) * TileGramCache::doubles_of(o, Chunks(n, 1));
    });
    m.def("scratch_length", [](int capacity) { return scratch_length(capacity); });
    m.def("sums_length", [](const Options& o) { return sum_layout(o, o.capacity).length(); });
    m.def("start_state_bytes", [] {
        State state;
        start_state(state);
        return nb::bytes(reinterpret_cast<const char*>(&state), sizeof(state));
    });

    bind_state_layout(m);
    bind_ranks(m);
    bind_device_problem(m);
    bind_device_layout(m);
}

}  // namespace stepwell
