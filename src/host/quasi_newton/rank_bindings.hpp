// Ranks as Python sees them: the tree over their chunks, and the exchange that an engine calls.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "host/quasi_newton/rank_exchange.hpp"

namespace stepwell {

// Messages travel by a Python function, called with the interpreter's lock held. After a sweep nothing of
// Python's is in the caches any more, which makes every step in it dear: objects are kept for the next call.
class PythonExchange {
public:
    // send(phase, with_value, message, counts) -> all messages, a contiguous float64 array; with_value: and f
    PythonExchange(int rank, std::vector<int64_t> cuts, int64_t first_variable, nanobind::object send);

    Exchange hook() { return exchange.hook(); }
    void set_chunk_values(nanobind::object values);

private:
    using Numbers =
        nanobind::ndarray<const double, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

    // A message as Python sees it, kept for the next of these lengths.
    struct Letter {
        std::vector<int64_t> counts;
        nanobind::object counts_object, message;
        double* numbers;
    };
    static constexpr size_t most_letters = 4;

    nanobind::object send;
    nanobind::object kept_values;
    Numbers received;
    std::vector<Letter> letters;
    size_t last_letter = 0;
    RankExchange exchange;

    const double* call(Action phase, bool with_value, std::vector<double>& message,
                       const std::vector<int64_t>& counts);
    const Letter& letter_for(const std::vector<double>& message, const std::vector<int64_t>& counts);
};

void bind_ranks(nanobind::module_& m);

}  // namespace stepwell
