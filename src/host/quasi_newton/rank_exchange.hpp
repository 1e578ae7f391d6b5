// What stands between sums and decisions where the variables are spread over ranks: messages of rows, put
// together to the totals over all variables. How messages travel is the caller's matter.
//
// A message is a header, [flag, digest], and rows; those of an evaluation begin with [kind of f, f]. The flag
// is the caller's. The digest is of what all ranks must have in common: the state and what was decided on it.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "core/quasi_newton/cauchy_walk.hpp"
#include "host/quasi_newton/engine.hpp"
#include "host/quasi_newton/hop_exchange.hpp"
#include "host/quasi_newton/rank_tree.hpp"

SW_BEGIN

constexpr int message_header = 2, message_value = 2;

class RankExchange {
public:
    // Sends a message, whose header but for the digest it fills in, and returns those of all ranks, `counts`
    // numbers from each, one after the other. They must stay until the next call.
    using Send = std::function<const double*(Action phase, bool with_value, std::vector<double>& message,
                                             const std::vector<int64_t>& counts)>;

    RankExchange(int rank, CutTree cut, int64_t first_variable, Send send)
        : tree(rank, std::move(cut)), first_variable(first_variable), send(std::move(send)) {}

    // The hook of the engine.
    Exchange hook() {
        return {[](void* context, const PhaseSums& found) { (*static_cast<RankExchange*>(context))(found); },
                this};
    }

    // From now on messages go from rank to rank, as many as the logarithm of their number; homes[r] is the
    // same number for neighbouring ranks of one node.
    void go_by_hops(const std::vector<int64_t>& homes, HopCalls calls) {
        hops.emplace(tree.own_rank(), tree.cuts(), homes, first_variable, std::move(calls));
    }

    void operator()(const PhaseSums& found) {
        if (hops) {
            hops->exchange(found, chunk_values);
        } else if (found.list) {
            exchange_list(found);
        } else {
            exchange_rows(found);
        }
    }

    // The value of f at the point that is evaluated: one a row of this rank; or what `send` finds out.
    const double* chunk_values = nullptr;
    double value = 0;

private:
    RankTree tree;
    int64_t first_variable;
    Send send;
    std::optional<HopExchange> hops;
    std::vector<double> message;
    std::vector<int64_t> counts;
    std::vector<const double*> places;

    void begin_message(const PhaseSums& found, int64_t numbers) {
        message.resize(size_t(message_header + numbers));
        message[0] = 0;
        message[1] = digest_of(*found.state, found.decided);
    }

    void exchange_rows(const PhaseSums& found) {
        const int width = found.shape.width(), before = message_header + (found.f ? message_value : 0);
        // Counts are whole numbers, exact in any order: one row a rank.
        const bool whole = found.phase == Action::count_breaks;
        const auto rows_of = [&](int r) { return whole ? int(tree.cuts().has_leaves(r)) : tree.nodes_of(r); };
        counts.clear();
        for (int r = 0; r < tree.ranks(); ++r) counts.push_back(before + int64_t(rows_of(r)) * width);
        begin_message(found, counts[size_t(tree.own_rank())] - message_header);
        if (found.f && chunk_values) {
            for (int c = 0; c < found.chunks; ++c) found.rows[int64_t(c) * width + 1] = chunk_values[c];
        }
        if (whole) {
            fold_rows(found.rows, found.chunks, found.shape);
            if (found.chunks > 0) std::copy_n(found.rows, width, message.data() + before);
        } else {
            tree.fold_own(found.rows, found.shape, message.data() + before);
        }
        const double* received = send(found.phase, found.f != nullptr, message, counts);
        places.clear();
        for (int r = 0; r < tree.ranks(); ++r) {
            for (int k = 0; k < rows_of(r); ++k) places.push_back(received + before + int64_t(k) * width);
            received += counts[size_t(r)];
        }
        if (whole) {
            std::copy_n(places[0], width, found.rows);
            for (size_t r = 1; r < places.size(); ++r) fold_row(found.rows, places[r], found.shape);
        } else {
            tree.finish(places.data(), found.shape, found.rows);
        }
        if (found.f) *found.f = chunk_values ? found.rows[1] : value;
    }

    // How many breakpoints every rank has listed; then, if all together are few, the breakpoints.
    void exchange_list(const PhaseSums& found) {
        const int row = 2 * found.state->pairs + 1;
        double own = 0, all = 0;
        for (int c = 0; c < found.chunks; ++c) own += found.rows[c];
        counts.assign(size_t(tree.ranks()), message_header + 1);
        begin_message(found, 1);
        message[message_header] = own;
        const double* received = send(found.phase, false, message, counts);
        for (size_t r = 0; r < counts.size(); ++r) {
            const double theirs = received[r * (message_header + 1) + message_header];
            all += theirs;
            counts[r] = message_header + int64_t(theirs) * (2 + row);
        }
        found.rows[0] = all;
        BreakList& list = *found.list;
        if (all > list.length) return;
        begin_message(found, int64_t(own) * (2 + row));
        double* next = message.data() + message_header;
        for (int k = 0; k < int(own); ++k, next += 2 + row) {
            std::memcpy(next, &list.breaks[k].time, sizeof(double));
            next[1] = double(first_variable + list.breaks[k].variable());
            std::copy_n(list.rows + int64_t(k) * row, row, next + 2);
        }
        received = send(found.phase, false, message, counts);
        int record = 0;
        for (const int64_t count : counts) {
            const double* from = received + message_header;
            for (int64_t k = 0; k < (count - message_header) / (2 + row); ++k, from += 2 + row, ++record) {
                uint64_t time;
                std::memcpy(&time, from, sizeof(time));
                list.breaks[record] = make_break(time, int64_t(from[1]), record);
                std::copy_n(from + 2, row, list.rows + int64_t(record) * row);
            }
            received += count;
        }
    }
};

SW_END
