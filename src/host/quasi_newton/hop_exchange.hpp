// The exchange of RankExchange among many ranks: sums go from hop to hop (tree_sums.hpp), and everybody has
// the totals after as many hops as the logarithm of the number of ranks.
//
// Messages carry a summary of what ranks have said. Where that is nothing unusual, nobody looks further; else
// the caller asks all ranks for the whole of it.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "core/quasi_newton/cauchy_walk.hpp"
#include "host/quasi_newton/engine.hpp"
#include "host/quasi_newton/tree_sums.hpp"

SW_BEGIN

// A whole number below 2^53 that tells states apart. (FNV-1a, by words.)
inline double digest_of(const State& state, const double* decided) {
    uint64_t hash = 14695981039346656037ull;
    const auto take = [&](const void* data, size_t words) {
        for (size_t i = 0; i < words; ++i) {
            uint64_t word;
            std::memcpy(&word, static_cast<const char*>(data) + 8 * i, 8);
            hash = (hash ^ word) * 1099511628211ull;
            hash ^= hash >> 29;
        }
    };
    static_assert(sizeof(State) % 8 == 0);
    take(&state, sizeof(State) / 8);
    if (decided) take(decided, size_t(2 * state.pairs));
    return double(hash >> 11);
}

// How the messages travel, and what this rank has to say.
struct HopCalls {
    double shared;  // the kind of values of f that are this rank's share
    // Before the first hop: the flag of this rank and, with a value, its kind and number.
    std::function<Summary(Action phase, bool with_value)> open;
    // Sends `count` numbers to a partner, if any, and returns the `expected` that come from it, if any. They
    // stay until the next call.
    std::function<const double*(int partner, const double* numbers, int64_t count, int64_t expected)> swap;
    // Ranks differ, or have raised a flag: returns f, or throws.
    std::function<double(bool with_value, const Summary& own)> look;
};

class HopExchange {
public:
    HopExchange(int rank, const CutTree& cut, const std::vector<int64_t>& homes, int64_t first_variable,
                HopCalls calls)
        : sums(rank, cut, homes.data(), calls.shared),
          rank(rank),
          first_variable(first_variable),
          calls(std::move(calls)) {}

    // chunk_values: f of the point that is evaluated, one number a row of this rank; or null.
    void exchange(const PhaseSums& found, const double* chunk_values) {
        if (found.list) return exchange_list(found);
        const int width = found.shape.width();
        if (found.f && chunk_values) {
            for (int c = 0; c < found.chunks; ++c) found.rows[int64_t(c) * width + 1] = chunk_values[c];
        }
        const bool whole = found.phase == Action::count_breaks;
        if (whole) {
            if (found.chunks == 0) std::fill_n(found.rows, width, 0.0);
            fold_rows(found.rows, found.chunks, found.shape);
        }
        const double value = run(found, found.rows, found.shape, !whole);
        std::copy_n(sums.total(), width, found.rows);
        if (found.f) *found.f = chunk_values ? found.rows[1] : value;
    }

private:
    TreeSums sums;
    const int rank;
    const int64_t first_variable;
    const HopCalls calls;
    std::vector<double> records, joined;
    struct Lengths {
        int64_t sent, received;
    };
    std::vector<Lengths> lengths;  // of lists, by hop

    // Returns f where the phase has one.
    double run(const PhaseSums& found, double* rows, const RowShape& shape, bool by_tree) {
        const bool with_value = found.f != nullptr;
        Summary own = calls.open(found.phase, with_value);
        own.digest = digest_of(*found.state, found.decided);
        sums.begin(own, with_value, rows, shape, by_tree);
        lengths.clear();
        for (size_t k = 0; k < sums.hops().size(); ++k) {
            const Hop& hop = sums.hops()[k];
            const int64_t expected = sums.expected(k);
            const std::vector<double>& out = sums.outgoing();
            if (!by_tree) lengths.push_back({int64_t(sums.held_plain()), 0});
            const double* in =
                calls.swap(hop.partner, out.data(), hop.sent.empty() ? 0 : int64_t(out.size()), expected);
            if (!expected) continue;
            if (!by_tree) lengths.back().received = int64_t(in[expected - 1]);
            sums.incoming(k, in);
        }
        const Summary& all = sums.all();
        if (all.flag != 0 || all.alike != 1) return calls.look(with_value, own);
        return with_value ? sums.value() : 0;
    }

    // How many breakpoints there are; then, if they are few, the breakpoints, on the same way.
    void exchange_list(const PhaseSums& found) {
        const int row = 2 * found.state->pairs + 1, numbers = 2 + row;
        double own = 0;
        for (int c = 0; c < found.chunks; ++c) own += found.rows[c];
        double count = own;
        run(found, &count, {1, 0, 0}, false);
        found.rows[0] = sums.total()[0];
        BreakList& list = *found.list;
        if (found.rows[0] > list.length) return;
        records.clear();
        for (int k = 0; k < int(own); ++k) {
            double time;
            std::memcpy(&time, &list.breaks[k].time, sizeof(double));
            records.push_back(time);
            records.push_back(double(first_variable + list.breaks[k].variable()));
            records.insert(records.end(), list.rows + int64_t(k) * row, list.rows + int64_t(k + 1) * row);
        }
        for (size_t k = 0; k < sums.hops().size(); ++k) join_records(sums.hops()[k], lengths[k], numbers);
        const double* from = records.data();
        for (int record = 0; record < int(found.rows[0]); ++record, from += numbers) {
            uint64_t time;
            std::memcpy(&time, from, sizeof(time));
            list.breaks[record] = make_break(time, int64_t(from[1]), record);
            std::copy_n(from + 2, row, list.rows + int64_t(record) * row);
        }
    }

    // In the order of the ranks.
    void join_records(const Hop& hop, const Lengths& length, int numbers) {
        const int64_t sent = hop.sent.empty() ? 0 : length.sent * numbers;
        const int64_t received = hop.received.empty() ? 0 : length.received * numbers;
        if (sent == 0 && received == 0) return;
        const double* in = calls.swap(hop.partner, records.data(), sent, received);
        if (received == 0) return;
        if (hop.received.holds({rank, rank + 1})) {
            records.assign(in, in + received);
            return;
        }
        const bool is_lower = hop.received.begin < rank;
        joined.clear();
        if (is_lower) joined.assign(in, in + received);
        joined.insert(joined.end(), records.begin(), records.end());
        if (!is_lower) joined.insert(joined.end(), in, in + received);
        records.swap(joined);
    }
};

SW_END
