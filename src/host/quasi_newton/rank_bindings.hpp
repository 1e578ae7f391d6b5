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
    // send.prepared(counts) -> None, or the short way: own message, all messages, run() -> whether it has run
    // send.read(with_value, messages, counts) -> what send() would return, of messages that came that way
    // With homes, messages go by hops (hop_exchange.hpp), and these are called in place of the first:
    // send.open(phase, with_value) -> flag, kind, number
    // send.swap(partner, numbers or None, expected) -> as many numbers, a contiguous float64 array, or None
    // send.look_further(with_value, header) -> f, of ranks that are not alike
    PythonExchange(int rank, CutTree cut, int64_t first_variable, nanobind::object send,
                   const std::vector<int64_t>& homes);

    Exchange hook() { return exchange.hook(); }
    // Before a turn: f of this rank as it goes into messages, a number unless other ranks may have another
    // one; whether messages may take the short way.
    void set_value(nanobind::object chunks, double kind, nanobind::object number, bool may_be_short);

private:
    using Numbers =
        nanobind::ndarray<const double, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

    // A message as Python sees it, kept for the next of these lengths; and its short way, once there is one.
    struct Letter {
        std::vector<int64_t> counts;
        nanobind::object counts_object, message;
        double* numbers = nullptr;
        nanobind::object run = nanobind::none(), all = nanobind::none();
        double* own = nullptr;
        const double* received = nullptr;
    };
    static constexpr size_t most_letters = 8;

    nanobind::object send;
    nanobind::object kept_values;
    double kind = 0, number = 0;
    bool has_number = false, may_be_short = false;
    Numbers received;
    std::vector<Letter> letters;
    size_t last_letter = 0;
    RankExchange exchange;

    const double* call(Action phase, bool with_value, std::vector<double>& message,
                       const std::vector<int64_t>& counts);
    Letter& letter_for(const std::vector<double>& message, const std::vector<int64_t>& counts);
    static Letter make_letter(const std::vector<double>& message, const std::vector<int64_t>& counts);
    bool sent_shortly(Letter& letter, bool with_value, const std::vector<double>& message) const;
    HopCalls hop_calls();
    const double* take(nanobind::object found, bool with_value, const std::vector<int64_t>& counts);
    void look_for_short_way(Letter& letter) const;
};

void bind_ranks(nanobind::module_& m);

}  // namespace stepwell
