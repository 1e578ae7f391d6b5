// The way of a message among many ranks: hops from rank to rank, as many as the logarithm of their number.
//
// Two levels. Ranks of one node, neighbours that say so, swap what they hold until each has the sum of the
// node; the first of each, its leader, does the same with other leaders; and the total goes down to the
// others by a tree. Whoever swaps holds a range of ranks without gaps: such a range has few nodes of the tree
// of sums.
#pragma once

#include <vector>

#include "core/common/config.hpp"

namespace stepwell {

struct RankRange {
    int begin, end;

    bool empty() const { return begin >= end; }
    bool holds(const RankRange& other) const { return begin <= other.begin && other.end <= end; }
};

// What goes to one partner and comes from it, at the same time: the sums over these ranks, if any.
struct Hop {
    int partner;
    RankRange sent, received;
};

class RankRoute {
public:
    // homes[r] is the same number for neighbouring ranks of one node.
    RankRoute(int rank, const int64_t* homes, int ranks) : rank(rank) {
        int own = 0;
        for (int r = 0; r < ranks; ++r) {
            if (r == 0 || homes[r] != homes[r - 1]) leaders.push_back(r);
            if (r == rank) own = int(leaders.size()) - 1;
        }
        const int groups = int(leaders.size());
        leaders.push_back(ranks);
        const int first = leaders[size_t(own)], size = leaders[size_t(own) + 1] - first;
        swap_all(size, rank - first, groups == 1, [&](int k) { return first + k; });
        if (groups == 1) return;
        if (rank == first) swap_all(groups, own, true, [&](int k) { return leaders[size_t(k)]; });
        go_down(first, size, {0, ranks});
    }

    std::vector<Hop> hops;

private:
    const int rank;
    std::vector<int> leaders;

    // Blocks of ranks, the k-th of which begins with the rank first(k) that stands for it: afterwards those
    // hold the sum of all. Where their number is no power of two, some hand theirs to a neighbour before, and
    // hear of the sum afterwards; not `back`: by other ways.
    template <class First>
    void swap_all(int count, int own, bool back, const First& first) {
        int power = 1;
        while (2 * power <= count) power *= 2;
        const int extra = count - power;
        const auto block = [&](int place) { return place < extra ? 2 * place : place + extra; };
        const auto range = [&](int from, int to) { return RankRange{first(from), first(to)}; };
        const RankRange none{0, 0}, all = range(0, count);
        if (own < 2 * extra && own % 2 == 1) {
            hops.push_back({first(own - 1), range(own, own + 1), none});
            if (back) hops.push_back({first(own - 1), none, all});
            return;
        }
        if (own < 2 * extra) hops.push_back({first(own + 1), none, range(own + 1, own + 2)});
        const int place = own < 2 * extra ? own / 2 : own - extra;
        for (int distance = 1; distance < power; distance *= 2) {
            const int other = place ^ distance, mine = place / distance * distance,
                      theirs = other / distance * distance;
            hops.push_back({first(block(other)), range(block(mine), block(mine + distance)),
                            range(block(theirs), block(theirs + distance))});
        }
        if (own < 2 * extra && back) hops.push_back({first(own + 1), all, none});
    }

    // From the first of some ranks to the others: to the farthest half first.
    void go_down(int begin, int size, RankRange all) {
        const int place = rank - begin;
        int distance = 1;
        while (2 * distance < size) distance *= 2;
        for (; distance > 0; distance /= 2) {
            if (place % (2 * distance) == distance) {
                hops.push_back({rank - distance, {0, 0}, all});
            } else if (place % (2 * distance) == 0 && place + distance < size) {
                hops.push_back({rank + distance, all, {0, 0}});
            }
        }
    }
};

}  // namespace stepwell
