// The tree by which sums are added: over chunks by halves (fold_rows), and inside a chunk over its tiles, the
// largest power of two of them first (TileSums). A rank that has whole tiles holds the largest nodes that lie
// in its range; whoever has all nodes finishes the tree, to the same bits however the range was cut.
#pragma once

#include <bit>
#include <utility>
#include <vector>

#include "host/quasi_newton/chunks.hpp"

SW_BEGIN

// A node of the tree, by its leaves: those from begin to end.
struct TreeNode {
    int64_t begin, end;

    bool operator==(const TreeNode&) const = default;
};

using Cover = std::vector<TreeNode>;

struct SumTree {
    int64_t leaves;
    // Of a chunk, the last of which may have fewer; one: leaves are chunks, or whatever is added by halves.
    int64_t tiles = 1;

    TreeNode root() const { return {0, leaves}; }
    int64_t chunks_of(const TreeNode& node) const { return quotient_up(node.end - node.begin, tiles); }
    int64_t middle(const TreeNode& node) const {
        const int64_t chunks = chunks_of(node);
        if (chunks > 1) return node.begin + chunks / 2 * tiles;
        return node.begin + int64_t(std::bit_floor(uint64_t(node.end - node.begin - 1)));
    }
    TreeNode first(const TreeNode& node) const { return {node.begin, middle(node)}; }
    TreeNode second(const TreeNode& node) const { return {middle(node), node.end}; }

    // Appends the largest nodes below `node` that make up leaves from `from` to `to`, in order.
    void cover(const TreeNode& node, int64_t from, int64_t to, Cover& out) const {
        if (from >= to || node.end <= from || to <= node.begin) return;
        if (from <= node.begin && node.end <= to) {
            out.push_back(node);
            return;
        }
        cover(first(node), from, to, out);
        cover(second(node), from, to, out);
    }

    // The nodes of which whoever has these leaves forms a row each: chunks, and parts of those at its ends.
    Cover rows(int64_t from, int64_t to) const {
        Cover found;
        for (int64_t begin = from / tiles * tiles; begin < to; begin += tiles)
            cover({begin, min_of(begin + tiles, leaves)}, from, to, found);
        return found;
    }
};

// The tree, dealt out: rank r has leaves cuts[r] to cuts[r + 1].
struct CutTree {
    std::vector<int64_t> cuts;
    SumTree tree;

    CutTree(std::vector<int64_t> given, int64_t tiles) : cuts(std::move(given)), tree{cuts.back(), tiles} {}

    int ranks() const { return int(cuts.size()) - 1; }
    int64_t begin(int rank) const { return cuts[size_t(rank)]; }
    bool has_leaves(int rank) const { return begin(rank + 1) > begin(rank); }
    // What ranks from `first` to `end` send, who have each other's sums.
    Cover nodes(int first, int end) const {
        Cover found;
        tree.cover(tree.root(), begin(first), begin(end), found);
        return found;
    }
    Cover rows(int rank) const { return tree.rows(begin(rank), begin(rank + 1)); }
};

SW_END
