#include "host/quasi_newton/rank_bindings.hpp"

#include <nanobind/stl/vector.h>

#include <numeric>

namespace nb = nanobind;

namespace stepwell {

namespace {

nb::object array_of(std::vector<double>&& values, std::initializer_list<size_t> shape) {
    auto* kept = new std::vector<double>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<double>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, double>(kept->data(), shape, owner));
}

}  // namespace

PythonExchange::PythonExchange(int rank, std::vector<int64_t> cuts, int64_t first_variable, nb::object send)
    : send(std::move(send)),
      exchange(
          rank, std::move(cuts), first_variable,
          [this](Action phase, bool with_value, std::vector<double>& message,
                 const std::vector<int64_t>& counts) { return call(phase, with_value, message, counts); }) {}

void PythonExchange::set_chunk_values(nb::object values) {
    kept_values = std::move(values);
    exchange.chunk_values = kept_values.is_none() ? nullptr : nb::cast<Numbers>(kept_values).data();
}

const double* PythonExchange::call(Action phase, bool with_value, std::vector<double>& message,
                                   const std::vector<int64_t>& counts) {
    const nb::gil_scoped_acquire lock;
    const Letter& letter = letter_for(message, counts);
    std::copy(message.begin(), message.end(), letter.numbers);
    nb::object found = send(int(phase), with_value, letter.message, letter.counts_object);
    if (with_value) {
        exchange.value = nb::cast<double>(found[1]);
        found = found[0];
    }
    received = nb::cast<Numbers>(found);
    const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t(0));
    if (int64_t(received.size()) != all) throw nb::value_error("messages of other lengths than announced");
    return received.data();
}

const PythonExchange::Letter& PythonExchange::letter_for(const std::vector<double>& message,
                                                         const std::vector<int64_t>& counts) {
    for (const Letter& letter : letters) {
        if (letter.counts == counts) return letter;
    }
    std::vector<double> numbers(message);
    double* const begin = numbers.data();  // moving a vector leaves its numbers where they are
    Letter made{counts, nb::tuple(nb::cast(counts)), array_of(std::move(numbers), {message.size()}), begin};
    if (letters.size() < most_letters) return letters.emplace_back(std::move(made));
    last_letter = (last_letter + 1) % most_letters;
    return letters[last_letter] = std::move(made);
}

namespace {

using Rows = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Row = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// nanobind's own way to read a list may not throw, so that refused memory would end the process.
std::vector<int64_t> read_cuts(const nb::sequence& cuts) {
    std::vector<int64_t> found;
    for (const nb::handle cut : cuts) found.push_back(nb::cast<int64_t>(cut));
    return found;
}

RowShape shape_of(size_t width, int maxima, int minima) {
    if (maxima < 0 || minima < 0 || size_t(maxima) + size_t(minima) > width) {
        throw nb::value_error("a row has no room for so many maxima and minima");
    }
    return {int(width) - maxima - minima, maxima, minima};
}

nb::object fold_own(const RankTree& tree, const Rows& rows, int maxima, int minima) {
    const size_t width = rows.shape(1);
    const RowShape shape = shape_of(width, maxima, minima);
    const int own = tree.own_rank();
    if (int64_t(rows.shape(0)) != tree.chunks_of(own))
        throw nb::value_error("rows: one a chunk of this rank");
    std::vector<double> copy(rows.data(), rows.data() + rows.size());
    std::vector<double> nodes(size_t(tree.nodes_of(own)) * width);
    tree.fold_own(copy.data(), shape, nodes.data());
    return array_of(std::move(nodes), {size_t(tree.nodes_of(own)), width});
}

nb::object finish(RankTree& tree, const Rows& nodes, int maxima, int minima) {
    const size_t width = nodes.shape(1);
    const RowShape shape = shape_of(width, maxima, minima);
    if (int64_t(nodes.shape(0)) != tree.all_nodes()) throw nb::value_error("nodes: those of all ranks");
    std::vector<const double*> places;
    for (size_t k = 0; k < nodes.shape(0); ++k) places.push_back(nodes.data() + k * width);
    std::vector<double> total(width);
    tree.finish(places.data(), shape, total.data());
    return array_of(std::move(total), {width});
}

// Numbers begin to end of every rank's message, one list for each of them.
nb::object numbers_of_all(const Row& received, const nb::sequence& counts, int64_t begin, int64_t end) {
    nb::list found;
    for (int64_t at = begin; at < end; ++at) {
        nb::list numbers;
        int64_t message = 0;
        for (const nb::handle count : counts) {
            if (at < 0 || message + at >= int64_t(received.size())) throw nb::value_error("no such number");
            numbers.append(received.data()[message + at]);
            message += nb::cast<int64_t>(count);
        }
        found.append(numbers);
    }
    return std::move(found);
}

}  // namespace

void bind_ranks(nb::module_& m) {
    m.def("chunk_length", &Chunks::length_of, nb::arg("n"), nb::arg("align") = 1,
          "The length of the chunks that n variables are cut into.");
    m.def("numbers_of_all", &numbers_of_all, nb::arg("received"), nb::arg("counts"), nb::arg("begin"),
          nb::arg("end"), "Some numbers of every rank's message, one list for each of them.");
    m.attr("MESSAGE_HEADER") = message_header;
    m.attr("ACTION_AIM") = int(Action::aim);
    nb::class_<RankTree>(m, "RankTree")
        .def(
            "__init__",
            [](RankTree* self, int rank, const nb::sequence& cuts) {
                new (self) RankTree(rank, read_cuts(cuts));
            },
            nb::arg("rank"), nb::arg("cuts"))
        .def_prop_ro("nodes",
                     [](const RankTree& tree) {
                         std::vector<int> found;
                         for (int r = 0; r < tree.ranks(); ++r) found.push_back(tree.nodes_of(r));
                         return found;
                     })
        .def("fold_own", &fold_own, nb::arg("rows"), nb::arg("maxima") = 0, nb::arg("minima") = 0)
        .def("finish", &finish, nb::arg("nodes"), nb::arg("maxima") = 0, nb::arg("minima") = 0);
    nb::class_<PythonExchange>(m, "RankExchange")
        .def(
            "__init__",
            [](PythonExchange* self, int rank, const nb::sequence& cuts, int64_t first_variable,
               nb::object send) {
                new (self) PythonExchange(rank, read_cuts(cuts), first_variable, std::move(send));
            },
            nb::arg("rank"), nb::arg("cuts"), nb::arg("first_variable"), nb::arg("send"))
        .def("set_chunk_values", &PythonExchange::set_chunk_values, nb::arg("values").none());
}

}  // namespace stepwell
