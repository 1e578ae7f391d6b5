#include "host/quasi_newton/rank_bindings.hpp"

#include <nanobind/stl/vector.h>

#include <cstring>
#include <numeric>

#include "host/quasi_newton/tile_sums.hpp"

namespace nb = nanobind;

namespace stepwell {

namespace {

nb::object array_of(std::vector<double>&& values, std::initializer_list<size_t> shape) {
    auto* kept = new std::vector<double>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<double>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, double>(kept->data(), shape, owner));
}

// Whether all messages begin as the first does, with no flag.
bool are_alike(const double* messages, const std::vector<int64_t>& counts, int header) {
    const double* const first = messages;
    bool alike = first[0] == 0;
    for (const int64_t count : counts) {
        alike = alike && std::memcmp(messages, first, sizeof(double) * size_t(header)) == 0;
        messages += count;
    }
    return alike;
}

}  // namespace

PythonExchange::PythonExchange(int rank, CutTree cut, int64_t first_variable, nb::object send,
                               const std::vector<int64_t>& homes)
    : send(std::move(send)),
      exchange(
          rank, std::move(cut), first_variable,
          [this](Action phase, bool with_value, std::vector<double>& message,
                 const std::vector<int64_t>& counts) { return call(phase, with_value, message, counts); }) {
    if (!homes.empty()) exchange.go_by_hops(homes, hop_calls());
}

HopCalls PythonExchange::hop_calls() {
    return {
        shared_kind,
        [this](Action phase, bool with_value) {
            const nb::gil_scoped_acquire lock;
            const nb::object said = send.attr("open")(int(phase), with_value);
            return Summary{nb::cast<double>(said[0]), 1, 0, nb::cast<double>(said[1]),
                           nb::cast<double>(said[2])};
        },
        [this](int partner, const double* numbers, int64_t count, int64_t expected) -> const double* {
            const nb::gil_scoped_acquire lock;
            nb::object own = nb::none();
            if (count > 0) {
                const size_t shape[] = {size_t(count)};
                own = nb::cast(nb::ndarray<nb::numpy, const double>(numbers, 1, shape, nb::capsule(numbers)));
            }
            const nb::object found = send.attr("swap")(partner, own, expected);
            if (expected == 0) return nullptr;
            received = nb::cast<Numbers>(found);
            if (int64_t(received.size()) != expected)
                throw nb::value_error("messages of other lengths than announced");
            return received.data();
        },
        [this](bool with_value, const Summary& own) {
            const nb::gil_scoped_acquire lock;
            return nb::cast<double>(send.attr("look_further")(
                with_value, array_of({own.flag, own.digest, own.kind, own.value}, {4})));
        }};
}

void PythonExchange::set_value(nb::object chunks, double given_kind, nb::object given, bool short_way) {
    kept_values = std::move(chunks);
    exchange.chunk_values = kept_values.is_none() ? nullptr : nb::cast<Numbers>(kept_values).data();
    kind = given_kind;
    has_number = !given.is_none();
    if (has_number) number = nb::cast<double>(given);
    may_be_short = short_way;
}

const double* PythonExchange::call(Action phase, bool with_value, std::vector<double>& message,
                                   const std::vector<int64_t>& counts) {
    const nb::gil_scoped_acquire lock;
    // The lists of a walk are as long as they are, and seldom so again.
    const bool kept = phase != Action::list_breaks || message.size() == size_t(message_header + 1);
    Letter once;
    Letter& letter = kept ? letter_for(message, counts) : once = make_letter(message, counts);
    const int header = message_header + (with_value ? message_value : 0);
    if (sent_shortly(letter, with_value, message)) {
        if (with_value) exchange.value = number;
        if (are_alike(letter.received, counts, header)) return letter.received;
        return take(send.attr("read")(with_value, letter.all, letter.counts_object), with_value, counts);
    }
    std::copy(message.begin(), message.end(), letter.numbers);
    nb::object found = send(int(phase), with_value, letter.message, letter.counts_object);
    if (kept && may_be_short && letter.run.is_none()) look_for_short_way(letter);
    return take(std::move(found), with_value, counts);
}

// By what MPI has prepared, if this rank says nothing that others may not say.
bool PythonExchange::sent_shortly(Letter& letter, bool with_value, const std::vector<double>& message) const {
    if (!may_be_short || letter.run.is_none() || (with_value && !has_number)) return false;
    std::copy(message.begin(), message.end(), letter.own);
    if (with_value) letter.own[message_header] = kind, letter.own[message_header + 1] = number;
    const bool sent = nb::cast<bool>(letter.run());
    if (!sent) letter.run = nb::none();  // it may be forgotten
    return sent;
}

const double* PythonExchange::take(nb::object found, bool with_value, const std::vector<int64_t>& counts) {
    if (with_value) {
        exchange.value = nb::cast<double>(found[1]);
        found = found[0];
    }
    received = nb::cast<Numbers>(found);
    const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t(0));
    if (int64_t(received.size()) != all) throw nb::value_error("messages of other lengths than announced");
    return received.data();
}

void PythonExchange::look_for_short_way(Letter& letter) const {
    const nb::object found = send.attr("prepared")(letter.counts_object);
    if (found.is_none()) return;
    letter.own = nb::cast<nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(found[0]).data();
    letter.all = found[1];
    letter.received = nb::cast<Numbers>(letter.all).data();
    letter.run = found[2];
}

PythonExchange::Letter PythonExchange::make_letter(const std::vector<double>& message,
                                                   const std::vector<int64_t>& counts) {
    std::vector<double> numbers(message);
    double* const begin = numbers.data();  // moving a vector leaves its numbers where they are
    return {counts, nb::tuple(nb::cast(counts)), array_of(std::move(numbers), {message.size()}), begin};
}

PythonExchange::Letter& PythonExchange::letter_for(const std::vector<double>& message,
                                                   const std::vector<int64_t>& counts) {
    for (Letter& letter : letters) {
        if (letter.counts == counts) return letter;
    }
    if (letters.size() < most_letters) return letters.emplace_back(make_letter(message, counts));
    last_letter = (last_letter + 1) % most_letters;
    return letters[last_letter] = make_letter(message, counts);
}

namespace {

using Whole = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
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
    if (rows.shape(0) != tree.rows().size()) throw nb::value_error("rows: those of this rank");
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

// Of one number a chunk, where one rank has them all.
double total_of_all(RankTree& tree, const Row& values) {
    if (tree.ranks() != 1 || values.size() != tree.rows().size())
        throw nb::value_error("values: one a chunk, on one rank");
    std::vector<double> rows(values.data(), values.data() + values.size());
    add_rows(rows.data(), int(rows.size()), 1);
    return rows.empty() ? 0.0 : rows[0];
}

// Of so many tiles each, what their chunks sum up to.
nb::object add_tiles(const Row& sums, const Whole& counts) {
    std::vector<double> totals;
    double memory[TileSums::most_levels];
    const double *next = sums.data(), *const end = next + sums.size();
    for (size_t chunk = 0; chunk < counts.size(); ++chunk) {
        if (counts.data()[chunk] < 0 || counts.data()[chunk] > end - next)
            throw nb::value_error("sums: one a tile");
        TileSums tiles(memory, 1);
        for (int64_t k = 0; k < counts.data()[chunk]; ++k) {
            *tiles.row() = *next++;
            tiles.add();
        }
        totals.push_back(*tiles.total());
    }
    const size_t size = totals.size();
    return array_of(std::move(totals), {size});
}

// One rank on its way, to be simulated: see TreeSums.
TreeSums make_tree_sums(int rank, const Whole& cuts, int64_t tiles, const Whole& homes) {
    if (cuts.size() != homes.size() + 1) throw nb::value_error("cuts: one more than homes");
    if (rank < 0 || size_t(rank) >= homes.size()) throw nb::value_error("rank: one of those with a home");
    return TreeSums(rank, {{cuts.data(), cuts.data() + cuts.size()}, tiles}, homes.data(), shared_kind);
}

void begin_sums(TreeSums& sums, const Rows& rows, double share, int maxima, int minima) {
    if (rows.shape(0) != sums.rows()) throw nb::value_error("rows: those of this rank");
    std::vector<double> copy(rows.data(), rows.data() + rows.size());
    sums.begin({0, 1, 0, shared_kind, share}, true, copy.data(), shape_of(rows.shape(1), maxima, minima),
               true);
}

nb::object outgoing_of(TreeSums& sums, size_t hop) {
    if (sums.hops().at(hop).sent.empty()) return nb::none();
    std::vector<double> copy = sums.outgoing();
    const size_t size = copy.size();
    return array_of(std::move(copy), {size});
}

void take_incoming(TreeSums& sums, size_t hop, const Row& numbers) {
    if (int64_t(numbers.size()) != sums.expected(hop)) throw nb::value_error("numbers: as many as expected");
    sums.incoming(hop, numbers.data());
}

nb::object total_of(const TreeSums& sums, size_t width) {
    return array_of(std::vector<double>(sums.total(), sums.total() + width), {width});
}

void bind_tree_sums(nb::module_& m) {
    nb::class_<TreeSums>(m, "TreeSums")
        .def(
            "__init__",
            [](TreeSums* self, int rank, const Whole& cuts, const Whole& homes, int64_t tiles) {
                new (self) TreeSums(make_tree_sums(rank, cuts, tiles, homes));
            },
            nb::arg("rank"), nb::arg("cuts"), nb::arg("homes"), nb::arg("tiles") = 1)
        .def_prop_ro("partners",
                     [](const TreeSums& sums) {
                         std::vector<int> found;
                         for (const Hop& hop : sums.hops()) found.push_back(hop.partner);
                         return found;
                     })
        .def_prop_ro("rows", &TreeSums::rows)
        .def_prop_ro("additions", &TreeSums::additions)
        .def_prop_ro("share", &TreeSums::value)
        .def("begin", &begin_sums, nb::arg("rows"), nb::arg("share"), nb::arg("maxima") = 0,
             nb::arg("minima") = 0)
        .def("expected", &TreeSums::expected, nb::arg("hop"))
        .def("outgoing", &outgoing_of, nb::arg("hop"))
        .def("incoming", &take_incoming, nb::arg("hop"), nb::arg("numbers"))
        .def("total", &total_of, nb::arg("width"));
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
    bind_tree_sums(m);
    m.def("chunk_length", &Chunks::length_of, nb::arg("n"), nb::arg("align") = 1,
          "The length of the chunks that n variables are cut into.");
    m.def("add_tiles", &add_tiles, nb::arg("sums"), nb::arg("counts"),
          "Sums of chunks from those of their tiles, of which each has so many.");
    m.def("numbers_of_all", &numbers_of_all, nb::arg("received"), nb::arg("counts"), nb::arg("begin"),
          nb::arg("end"), "Some numbers of every rank's message, one list for each of them.");
    m.attr("MESSAGE_HEADER") = message_header;
    m.attr("SHARED_KIND") = shared_kind;
    m.attr("ACTION_AIM") = int(Action::aim);
    nb::class_<RankTree>(m, "RankTree")
        .def(
            "__init__",
            [](RankTree* self, int rank, const nb::sequence& cuts, int64_t tiles) {
                new (self) RankTree(rank, {read_cuts(cuts), tiles});
            },
            nb::arg("rank"), nb::arg("cuts"), nb::arg("tiles") = 1)
        .def_prop_ro("nodes",
                     [](const RankTree& tree) {
                         std::vector<int> found;
                         for (int r = 0; r < tree.ranks(); ++r) found.push_back(tree.nodes_of(r));
                         return found;
                     })
        .def_prop_ro("rows",
                     [](const RankTree& tree) {
                         std::vector<int64_t> found;
                         for (const TreeNode& row : tree.rows()) found.push_back(row.begin);
                         return found;
                     })
        .def("fold_own", &fold_own, nb::arg("rows"), nb::arg("maxima") = 0, nb::arg("minima") = 0)
        .def("total_of_all", &total_of_all, nb::arg("values"))
        .def("finish", &finish, nb::arg("nodes"), nb::arg("maxima") = 0, nb::arg("minima") = 0);
    nb::class_<PythonExchange>(m, "RankExchange")
        .def(
            "__init__",
            [](PythonExchange* self, int rank, const nb::sequence& cuts, int64_t tiles,
               int64_t first_variable, nb::object send, const nb::sequence& homes) {
                new (self) PythonExchange(rank, {read_cuts(cuts), tiles}, first_variable, std::move(send),
                                          read_cuts(homes));
            },
            nb::arg("rank"), nb::arg("cuts"), nb::arg("tiles"), nb::arg("first_variable"), nb::arg("send"),
            nb::arg("homes"))
        .def("set_value", &PythonExchange::set_value, nb::arg("chunks").none(), nb::arg("kind"),
             nb::arg("number").none(), nb::arg("may_be_short"));
}

}  // namespace stepwell
