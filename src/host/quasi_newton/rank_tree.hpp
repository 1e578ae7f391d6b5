// The tree by which rows of chunks are folded, cut among ranks. Each rank folds inside the largest nodes that
// lie wholly in its range of chunks and sends those; whoever has all nodes finishes the tree. Sums have the
// bits of one process that has all the chunks, on any number of ranks.
#pragma once

#include <cstring>
#include <vector>

#include "host/quasi_newton/chunks.hpp"

SW_BEGIN

class RankTree {
public:
    // Rank r has chunks cuts[r] to cuts[r + 1].
    RankTree(int rank, std::vector<int64_t> cuts) : rank(rank), cuts(std::move(cuts)) {
        first_node.push_back(0);
        for (int r = 0; r < ranks(); ++r) {
            cover(0, this->cuts.back(), r, nodes);
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
        finish(0, cuts.back(), places, shape, total, 0);
        next = 0;
    }

private:
    struct Node {
        int64_t begin, end;
    };
    int rank;
    std::vector<int64_t> cuts;
    std::vector<Node> nodes;
    std::vector<int> first_node;
    std::vector<std::vector<double>> second;  // by depth
    size_t next = 0;

    static int64_t middle_of(int64_t begin, int64_t end) { return begin + (end - begin) / 2; }

    // The largest nodes of the tree over [begin, end) that make up what rank r has of it.
    void cover(int64_t begin, int64_t end, int r, std::vector<Node>& out) const {
        const int64_t from = cuts[size_t(r)], to = cuts[size_t(r) + 1];
        if (from >= to || end <= from || to <= begin) return;
        if (from <= begin && end <= to) {
            out.push_back({begin, end});
            return;
        }
        cover(begin, middle_of(begin, end), r, out);
        cover(middle_of(begin, end), end, r, out);
    }

    void finish(int64_t begin, int64_t end, const double* const* places, const RowShape& shape, double* out,
                size_t depth) {
        if (nodes[next].begin == begin && nodes[next].end == end) {
            std::memcpy(out, places[next++], sizeof(double) * size_t(shape.width()));
            return;
        }
        if (second.size() <= depth) second.resize(depth + 1);
        if (second[depth].size() < size_t(shape.width())) second[depth].resize(size_t(shape.width()));
        finish(begin, middle_of(begin, end), places, shape, out, depth + 1);
        finish(middle_of(begin, end), end, places, shape, second[depth].data(), depth + 1);
        fold_row(out, second[depth].data(), shape);
    }
};

SW_END
