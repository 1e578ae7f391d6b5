// The tree of sums (sum_tree.hpp), cut among ranks. Each rank folds inside the largest nodes that lie wholly
// in its range of leaves and sends those; whoever has all nodes finishes the tree. Sums have the bits of one
// process that has all leaves, on any number of ranks.
#pragma once

#include <cstring>
#include <vector>

#include "host/quasi_newton/sum_tree.hpp"

SW_BEGIN

// Makes rows of nodes from rows of nodes below them, which come in order.
class NodeFolder {
public:
    explicit NodeFolder(const SumTree& tree) : tree(tree) {}

    // The row of `node`; places[k] is that of below[k], the next of which is `next`, and is moved on.
    void fold(const TreeNode& node, const Cover& below, const double* const* places, size_t& next,
              const RowShape& shape, double* out, size_t depth = 0) {
        if (below[next] == node) {
            std::memcpy(out, places[next++], sizeof(double) * size_t(shape.width()));
            return;
        }
        if (second.size() <= depth) second.resize(depth + 1);
        if (second[depth].size() < size_t(shape.width())) second[depth].resize(size_t(shape.width()));
        fold(tree.first(node), below, places, next, shape, out, depth + 1);
        fold(tree.second(node), below, places, next, shape, second[depth].data(), depth + 1);
        fold_row(out, second[depth].data(), shape);
        ++additions;
    }

    int64_t additions = 0;  // of rows, so far

private:
    const SumTree tree;
    std::vector<std::vector<double>> second;  // by depth
};

// From the rows of one rank (SumTree::rows), which are overwritten, to those of its nodes.
inline void fold_into_nodes(const SumTree& tree, const TreeNode* nodes, int count, double* rows,
                            const RowShape& shape, double* out) {
    const int width = shape.width();
    for (int k = 0; k < count; ++k, out += width) {
        const int64_t own = tree.chunks_of(nodes[k]);
        fold_rows(rows, int(own), shape);
        std::copy_n(rows, width, out);
        rows += own * width;
    }
}

class RankTree {
public:
    RankTree(int rank, CutTree given)
        : rank(rank), cut(std::move(given)), own_rows(cut.rows(rank)), folder(cut.tree) {
        first_node.push_back(0);
        for (int r = 0; r < ranks(); ++r) {
            const Cover found = cut.nodes(r, r + 1);
            nodes.insert(nodes.end(), found.begin(), found.end());
            first_node.push_back(int(nodes.size()));
        }
    }

    const CutTree& cuts() const { return cut; }
    int ranks() const { return cut.ranks(); }
    int own_rank() const { return rank; }
    int nodes_of(int r) const { return first_node[size_t(r) + 1] - first_node[size_t(r)]; }
    int all_nodes() const { return int(nodes.size()); }
    // What this rank's rows are of.
    const Cover& rows() const { return own_rows; }

    // From this rank's rows, which are overwritten, to those of its nodes, one after the other.
    void fold_own(double* rows, const RowShape& shape, double* out) const {
        fold_into_nodes(cut.tree, nodes.data() + first_node[size_t(rank)], nodes_of(rank), rows, shape, out);
    }

    // From the rows of all nodes, places[k] that of node k, to the total.
    void finish(const double* const* places, const RowShape& shape, double* total) {
        size_t next = 0;
        folder.fold(cut.tree.root(), nodes, places, next, shape, total);
    }

private:
    int rank;
    CutTree cut;
    Cover own_rows, nodes;
    std::vector<int> first_node;
    NodeFolder folder;
};

SW_END
