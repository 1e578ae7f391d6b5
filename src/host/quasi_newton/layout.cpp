// Layouts that Python shares with compiled code: the state of a problem, and what the CUDA kernels expect of
// the host that launches them (core/quasi_newton/device_layout.hpp).
#include "host/quasi_newton/layout.hpp"

#include <type_traits>

#include "core/quasi_newton/decide.hpp"
#include "core/quasi_newton/device_layout.hpp"
#include "host/common/layout.hpp"

namespace nb = nanobind;

namespace stepwell {

namespace {

// NumPy's name of a field's type.
template <class T>
const char* format_of() {
    if constexpr (std::is_same_v<T, double>) return "f8";
    if constexpr (sizeof(T) == 8) return "i8";
    if constexpr (sizeof(T) == 1) return "i1";
    return "i4";  // enumerations among them
}

// Where a field lies in a structure; offsetof is for those without a base alone.
template <class Whole, class Field>
std::size_t offset_in(const Whole& whole, const Field& field) {
    return size_t(reinterpret_cast<const char*>(&field) - reinterpret_cast<const char*>(&whole));
}

}  // namespace

// Name -> (NumPy format, offset) of the state's fields: Python sees the state as a structured array.
void bind_state_layout(nb::module_& m) {
    nb::dict f;
    State state;
#define STATE(name) f[#name] = nb::make_tuple(format_of<decltype(state.name)>(), offset_in(state, state.name))
    STATE(f), STATE(f_before), STATE(slope), STATE(gamma), STATE(projected_gradient), STATE(projected_norm);
    STATE(gradient_norm), STATE(x_norm), STATE(direction_norm), STATE(step), STATE(cauchy_time);
    STATE(carry_time), STATE(iterations), STATE(evaluations), STATE(held), STATE(cauchy_walks);
    STATE(truncations), STATE(resets), STATE(skipped), STATE(head), STATE(pairs), STATE(started);
    STATE(accepted), STATE(own_bounds), STATE(info), STATE(status), STATE(action);
#undef STATE
    m.attr("STATE_FIELDS") = f;
    m.attr("STATE_SIZE") = sizeof(State);
    m.attr("OWN_BOUNDS_NONE") = int(OwnBounds::none);
    m.attr("OWN_BOUNDS_BOXED") = int(OwnBounds::boxed);
    m.attr("ACTION_DONE") = int(Action::done);
    m.attr("ACTION_ABSORB") = int(Action::absorb);
    nb::dict statuses;
#define STATUS(name) statuses[#name] = int(Status::name)
    STATUS(running), STATUS(gradient), STATUS(decrease), STATUS(gradient_norm), STATUS(target);
    STATUS(max_iterations), STATUS(max_evaluations), STATUS(time_limit), STATUS(line_search);
    STATUS(rounding), STATUS(nonfinite_start), STATUS(nonfinite), STATUS(callback);
#undef STATUS
    m.attr("STATUSES") = statuses;
}

void bind_device_layout(nb::module_& m) {
    DeviceEngine<double> engine;
    StructLayout layout(m, "DeviceEngine", sizeof(engine));
#define ENGINE(name) layout.add<decltype(engine.name)>(#name, offset_in(engine, engine.name))
    ENGINE(batch), ENGINE(n), ENGINE(stride), ENGINE(states), ENGINE(small), ENGINE(x), ENGINE(g), ENGINE(d);
    ENGINE(trial), ENGINE(s), ENGINE(y), ENGINE(lower), ENGINE(upper), ENGINE(weights), ENGINE(lower_step);
    ENGINE(upper_step), ENGINE(own_bounds), ENGINE(own_weights), ENGINE(partials), ENGINE(coefficients),
        ENGINE(scratch), ENGINE(walk);
    ENGINE(barrier), ENGINE(report), ENGINE(running), ENGINE(counter), ENGINE(partial_stride);
    ENGINE(walk_stride), ENGINE(chunks), ENGINE(walk_length), ENGINE(sums);
#undef ENGINE
    nb::dict constants;
#define CONSTANT(name) constants[#name] = name
    CONSTANT(max_device_capacity), CONSTANT(block_threads), CONSTANT(warp_threads), CONSTANT(small_problem);
    CONSTANT(small_capacity), CONSTANT(span), CONSTANT(group_size), CONSTANT(chunk_numbers);
    CONSTANT(walk_bins), CONSTANT(read_together);
#undef CONSTANT
    m.attr("DEVICE_CONSTANTS") = constants;
    m.def("device_staged_bytes", &staged_bytes_of, nb::arg("capacity"), nb::arg("real_bytes"),
          nb::arg("kept_bytes"), nb::arg("bound_rows"), nb::arg("weighted"), nb::arg("threads"),
          "Dynamic shared memory of a block, in bytes.");
    m.def("device_walk_length", &device_walk_length, nb::arg("n"), nb::arg("capacity"), nb::arg("threads"),
          nb::arg("grows"), "Breakpoints that a thread group may list at a time.");
    m.def("longest_of_chunks", &longest_of_chunks, nb::arg("chunk_length"), nb::arg("capacity"),
          "Breakpoints that ranks may list together at a time.");
    m.def("device_walk_words", &device_walk_words, nb::arg("capacity"), nb::arg("length"), nb::arg("threads"),
          "Words of memory of a walk that lists so many breakpoints at a time.");
}

}  // namespace stepwell
