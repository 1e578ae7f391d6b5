// The tree by which rows of chunks are folded, cut among ranks. Each rank folds inside the largest nodes that
// lie wholly in its range of chunks and sends those; whoever has all nodes finishes the tree. Sums have the
// bits of one process that has all the chunks, on any number of ranks.
#pragma once

#include <cstring>
#include <vector>

#include "host/quasi_newton/chunks.hpp"

SW_BEGIN

// A node of the tree over some leaves: those from begin to end.
struct TreeNode {
    int64_t begin, end;

    int64_t middle() const { return begin + (end - begin) / 2; }
    TreeNode first() const { return {begin, middle()}; }
    TreeNode second() const { return {middle(), end}; }
    bool operator==(const TreeNode&) const = default;
};

using Cover = std::vector<TreeNode>;

// Appends the largest nodes below `node` that make up leaves from `from` to `to`, in order.
inline void cover_leaves(const TreeNode& node, int64_t from, int64_t to, Cover& out) {
    if (from >= to || node.end <= from || to <= node.begin) return;
    if (from <= node.begin && node.end <= to) {
        out.push_back(node);
        return;
    }
    cover_leaves(node.first(), from, to, out);
    cover_leaves(node.second(), from, to, out);
}

// Makes rows of nodes from rows of nodes below them, which come in order.
class NodeFolder {
public:
    // The row of `node`; places[k] is that of below[k], the next of which is `next`, and is moved on.
    void fold(const TreeNode& node, const Cover& below, const double* const* places, size_t& next,
              const RowShape& shape, double* out, size_t depth = 0) {
        if (below[next] == node) {
            std::memcpy(out, places[next++], sizeof(double) * size_t(shape.width()));
            return;
        }
        if (second.size() <= depth) second.resize(depth + 1);
        if (second[depth].size() < size_t(shape.width())) second[depth].resize(size_t(shape.width()));
        fold(node.first(), below, places, next, shape, out, depth + 1);
        fold(node.second(), below, places, next, shape, second[depth].data(), depth + 1);
        fold_row(out, second[depth].data(), shape);
        ++additions;
    }

    int64_t additions = 0;  // of rows, so far

private:
    std::vector<std::vector<double>> second;  // by depth
};

class RankTree {
public:
    // Rank r has chunks cuts[r] to cuts[r + 1].
    RankTree(int rank, std::vector<int64_t> cuts) : rank(rank), cuts(std::move(cuts)) {
        first_node.push_back(0);
        for (int r = 0; r < ranks(); ++r) {
            cover_leaves(root(), this->cuts[size_t(r)], this->cuts[size_t(r) + 1], nodes);
            first_node.push_back(int(nodes.size()));
        }
    }

    int ranks() const { return int(cuts.size()) - 1; }
    int own_rank() const { return rank; }
    int nodes_of(int r) const { return first_node[size_t(r) + 1] - first_node[size_t(r)]; }
    int all_nodes() const { return int(nodes.size()); }
    int64_t chunks_of(int r) const { return cuts[size_t(r) + 1] - cuts[size_t(r)]; }

    // From the rows of this rank's chunks, which are overwritten, to those of its nodes, one after the other.
    void fold_own(double* rows, const RowShape& shape, double* out) const {
        const int width = shape.width();
        for (int k = first_node[size_t(rank)]; k < first_node[size_t(rank) + 1]; ++k, out += width) {
            double* first = rows + (nodes[size_t(k)].begin - cuts[size_t(rank)]) * width;
            fold_rows(first, int(nodes[size_t(k)].end - nodes[size_t(k)].begin), shape);
            std::memcpy(out, first, sizeof(double) * size_t(width));
        }
    }

    // From the rows of all nodes, places[k] that of node k, to the total.
    void finish(const double* const* places, const RowShape& shape, double* total) {
        size_t next = 0;
        folder.fold(root(), nodes, places, next, shape, total);
    }

private:
    int rank;
    std::vector<int64_t> cuts;
    Cover nodes;
    std::vector<int> first_node;
    NodeFolder folder;

    TreeNode root() const { return {0, cuts.back()}; }
};

SW_END
