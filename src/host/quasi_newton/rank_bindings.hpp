// Ranks as Python sees them: the tree over their chunks, and the exchange that an engine calls.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "host/quasi_newton/rank_exchange.hpp"

namespace stepwell {

// Messages travel by a Python function, called with the interpreter's lock held.
class PythonExchange {
public:
    // send(phase, with_value, message, counts) -> all messages, a contiguous float64 array; with_value: and f
    PythonExchange(int rank, std::vector<int64_t> cuts, int64_t first_variable, nanobind::object send);

    Exchange hook() { return exchange.hook(); }
    void set_chunk_values(nanobind::object values);

private:
    using Numbers =
        nanobind::ndarray<const double, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

    nanobind::object send;
    nanobind::object kept_values;
    Numbers received;
    std::vector<int64_t> counts_before;
    nanobind::object counts_object;
    RankExchange exchange;

    const double* call(Action phase, bool with_value, std::vector<double>& message,
                       const std::vector<int64_t>& counts);
};

void bind_ranks(nanobind::module_& m);

}  // namespace stepwell
