// Sums over the chunks of many ranks, hop by hop (rank_route.hpp): what a rank holds of them, sends, and
// makes of what it gets. The tree is that of RankTree, and so are the bits.
//
// A message is a summary, the nodes of a second tree, over ranks, with their shares of f, and rows.
#pragma once

#include <algorithm>
#include <cstring>

#include "host/quasi_newton/rank_route.hpp"
#include "host/quasi_newton/rank_tree.hpp"

SW_BEGIN

constexpr double shared_kind = 1;  // of a value of f: this rank's share

// What several ranks have said: the highest flag, and whether all else is alike.
struct Summary {
    double flag = 0, alike = 1, digest = 0, kind = 0, value = 0;
    static constexpr int numbers = 5;

    // `shared`: values are shares, of which each rank has its own.
    void take(const Summary& other, double shared) {
        flag = max_of(flag, other.flag);
        const bool same = other.alike == 1 && same_bits(digest, other.digest) && kind == other.kind &&
                          (kind == shared || same_bits(value, other.value));
        if (!same) alike = 0;
    }

    static bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof(double)) == 0; }
};

// The nodes of one tree that a rank holds on its way.
class HeldNodes {
public:
    HeldNodes(int rank, const CutTree& cut, const std::vector<Hop>& hops)
        : tree(cut.tree), own_rows(cut.rows(rank).size()), own(cut.nodes(rank, rank + 1)), folder(tree) {
        RankRange held{rank, rank + 1};
        for (const Hop& hop : hops) {
            received.push_back(cut.nodes(hop.received.begin, hop.received.end));
            if (!hop.received.empty())
                held = {min_of(held.begin, hop.received.begin), max_of(held.end, hop.received.end)};
            joined.push_back(cut.nodes(held.begin, held.end));
        }
    }

    // Begins with the rows of this rank, which are overwritten.
    void begin(const RowShape& of, double* own_rows) {
        begin(of);
        fold_into_nodes(tree, own.data(), int(own.size()), own_rows, shape, rows.data());
    }
    size_t rows_of_own() const { return own_rows; }
    int64_t received_nodes(size_t hop) const { return int64_t(received[hop].size()); }
    int64_t additions() const { return folder.additions; }

    void begin(const RowShape& of) {
        shape = of;
        held = own;
        rows.resize(held.size() * size_t(shape.width()));
    }

    // Of the nodes that are held, one after the other.
    std::vector<double> rows;

    void take(size_t hop, const double* theirs, bool is_lower, bool replaces) {
        const size_t width = size_t(shape.width());
        if (replaces) {
            held = received[hop];
            rows.assign(theirs, theirs + held.size() * width);
            return;
        }
        below.clear(), places.clear();
        const auto list = [&](const Cover& nodes, const double* from) {
            below.insert(below.end(), nodes.begin(), nodes.end());
            for (size_t k = 0; k < nodes.size(); ++k) places.push_back(from + k * width);
        };
        if (is_lower) list(received[hop], theirs);
        list(held, rows.data());
        if (!is_lower) list(received[hop], theirs);
        next_rows.resize(joined[hop].size() * width);
        size_t next = 0, row = 0;
        for (const TreeNode& node : joined[hop])
            folder.fold(node, below, places.data(), next, shape, next_rows.data() + width * row++);
        held = joined[hop];
        rows.swap(next_rows);
    }

private:
    const SumTree tree;
    const size_t own_rows;
    const Cover own;
    Cover held, below;
    std::vector<Cover> received, joined;  // by hop
    std::vector<double> next_rows;
    std::vector<const double*> places;
    NodeFolder folder;
    RowShape shape = {0, 0, 0};
};

class TreeSums {
public:
    TreeSums(int rank, const CutTree& cut, const int64_t* homes, double shared)
        : rank(rank),
          shared(shared),
          route(rank, homes, cut.ranks()),
          nodes(rank, cut, route.hops),
          shares(rank, leaf_a_rank(cut.ranks()), route.hops) {}

    const std::vector<Hop>& hops() const { return route.hops; }
    int64_t additions() const { return nodes.additions() + shares.additions(); }
    size_t rows() const { return nodes.rows_of_own(); }

    // Begins with what this rank has. `tree`: the rows of SumTree, which are overwritten; else one row of
    // whole numbers, exact in any order, of every rank. with_value: the summary has a kind and a value.
    void begin(const Summary& of, bool with_value, double* rows, const RowShape& of_rows, bool tree) {
        summary = of, has_value = with_value, by_tree = tree, shape = of_rows;
        const size_t width = size_t(shape.width());
        if (!has_value) {
            summary.kind = summary.value = 0;
        } else {
            shares.begin({1, 0, 0});
            shares.rows[0] = summary.kind == shared ? summary.value : 0.0;
        }
        if (!by_tree) {
            plain.assign(rows, rows + width);
            return;
        }
        nodes.begin(shape, rows);
    }

    // What goes with a hop; stays until the next.
    const std::vector<double>& outgoing() {
        message.clear();
        message.insert(message.end(), {summary.flag, summary.alike, summary.digest});
        if (has_value) {
            message.insert(message.end(), {summary.kind, summary.value});
            message.insert(message.end(), shares.rows.begin(), shares.rows.end());
        }
        const std::vector<double>& rows = by_tree ? nodes.rows : plain;
        message.insert(message.end(), rows.begin(), rows.end());
        return message;
    }

    // How many numbers come with one.
    int64_t expected(size_t hop) const {
        if (route.hops[hop].received.empty()) return 0;
        const int64_t before = has_value ? Summary::numbers + shares.received_nodes(hop) : without_value;
        return before + (by_tree ? nodes.received_nodes(hop) : 1) * shape.width();
    }

    void incoming(size_t hop, const double* from) {
        const RankRange& theirs = route.hops[hop].received;
        const bool is_lower = theirs.begin < rank, replaces = theirs.holds({rank, rank + 1});
        Summary other{from[0], from[1], from[2], has_value ? from[3] : 0, has_value ? from[4] : 0};
        if (replaces)
            summary = other;
        else
            summary.take(other, shared);
        from += has_value ? Summary::numbers : without_value;
        if (has_value) {
            shares.take(hop, from, is_lower, replaces);
            from += shares.received_nodes(hop);
        }
        if (by_tree)
            nodes.take(hop, from, is_lower, replaces);
        else if (replaces)
            plain.assign(from, from + shape.width());
        else
            fold_row(plain.data(), from, shape);
    }

    // After the last hop.
    const Summary& all() const { return summary; }
    const double* total() const { return by_tree ? nodes.rows.data() : plain.data(); }
    double value() const { return summary.kind == shared ? shares.rows[0] : summary.value; }
    // In between: of whole numbers.
    double held_plain() const { return plain[0]; }

private:
    static constexpr int without_value = 3;
    const int rank;
    const double shared;
    const RankRoute route;
    HeldNodes nodes, shares;
    Summary summary;
    bool has_value = false, by_tree = true;
    RowShape shape = {0, 0, 0};
    std::vector<double> plain, message;

    static CutTree leaf_a_rank(int ranks) {
        std::vector<int64_t> cuts;
        for (int r = 0; r <= ranks; ++r) cuts.push_back(r);
        return {std::move(cuts), 1};
    }
};

SW_END
