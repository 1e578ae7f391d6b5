// A team of real threads with a real barrier. The tests run the solver's source on it under ThreadSanitizer,
// as a thread block would; the host runs one large system on all cores with it.
#pragma once

#include <atomic>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "core/common/team.hpp"

SW_BEGIN

class ThreadTeam;

// What the members of a team share.
class TeamBarrier {
public:
    explicit TeamBarrier(int size) : size_(size), values_(2 * size), indices_(2 * size) {}

    int size() const { return size_; }

    // Spins for a while, then gives way: a team may be larger than the cores that are free.
    void wait() {
        const unsigned turn = turn_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
            arrived_.store(0, std::memory_order_relaxed);
            turn_.store(turn + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; turn_.load(std::memory_order_acquire) == turn; ++spins)
            if (spins > 400) std::this_thread::yield();
    }

    double& value(int side, int rank) { return values_[side * size_ + rank].number; }
    int64_t& index(int side, int rank) { return indices_[side * size_ + rank].number; }

private:
    template <class T>
    struct alignas(64) Slot {
        T number;
    };
    const int size_;
    std::atomic<int> arrived_{0};
    std::atomic<unsigned> turn_{0};
    std::vector<Slot<double>> values_;
    std::vector<Slot<int64_t>> indices_;
};

class ThreadTeam {
public:
    ThreadTeam(TeamBarrier& shared, int rank) : shared_(&shared), rank_(rank), size_(shared.size()) {}

    int rank() const { return rank_; }
    int size() const { return size_; }
    void sync() const { shared_->wait(); }

    // Two sides in turn: nobody writes a side before all have left the reduction that last read it.
    double sum(double value) const {
        side_ ^= 1;
        shared_->value(side_, rank_) = value;
        shared_->wait();
        double total = 0;
        for (int member = 0; member < size_; ++member) total += shared_->value(side_, member);
        return total;
    }

    double max(double value) const {
        argmax(value, rank_);
        return value;
    }

    int64_t argmax(double& value, int64_t index) const {
        side_ ^= 1;
        shared_->value(side_, rank_) = value;
        shared_->index(side_, rank_) = index;
        shared_->wait();
        int64_t where = shared_->index(side_, 0);
        value = shared_->value(side_, 0);
        for (int member = 1; member < size_; ++member) {
            const double theirs = shared_->value(side_, member);
            const int64_t there = shared_->index(side_, member);
            if (theirs > value || (theirs == value && there < where)) {
                value = theirs;
                where = there;
            }
        }
        return where;
    }

    int row() const { return rank_; }
    int rows() const { return size_; }
    int lane() const { return 0; }
    int lanes() const { return 1; }
    double lane_sum(double value) const { return value; }
    double lane_max(double value) const { return value; }
    template <class T>
    T lane_pick(T value, int /*lane*/) const {
        return value;
    }
    int lane_max_int(int value) const { return value; }
    void lane_sync() const {}

    template <class Body>
    void each(int count, Body body) const {
        int begin, end;
        chunk(count, begin, end);
        for (int i = begin; i < end; ++i) body(i);
    }

    template <class Body>
    void each_short(int count, Body body) const {
        each(count, body);
    }

    template <class Body>
    void lane_each(int count, Body body) const {
        for (int i = 0; i < count; ++i) body(i);
    }

    // Pieces are multiples of 8 long, but for the last: a whole vector register, a whole cache line.
    void chunk(int count, int& begin, int& end) const {
        const int64_t pieces = (static_cast<int64_t>(count) + 7) / 8;
        begin = static_cast<int>(8 * (pieces * rank_ / size_));
        end = static_cast<int>(8 * (pieces * (rank_ + 1) / size_));
        if (begin > count) begin = count;
        if (end > count) end = count;
    }

private:
    TeamBarrier* shared_;
    int rank_, size_;
    mutable int side_ = 0;
};

// Calls work(team) in `size` threads, the caller's among them; in fewer, where the system grants no more.
template <class Work>
void run_thread_team(int size, const Work& work) {
    std::vector<std::thread> others;
    others.reserve(size - 1);
    std::unique_ptr<TeamBarrier> shared;
    std::atomic<int> members{0};  // not known before all threads are there; -1: there is no team
    try {
        while (int(others.size()) + 1 < size) {
            const int rank = int(others.size()) + 1;
            others.emplace_back([&shared, &members, &work, rank] {
                members.wait(0, std::memory_order_acquire);
                if (members.load(std::memory_order_acquire) > 0) work(ThreadTeam(*shared, rank));
            });
        }
    } catch (const std::system_error&) {
    } catch (const std::bad_alloc&) {
    }
    int found = int(others.size()) + 1;
    try {
        shared = std::make_unique<TeamBarrier>(found);
    } catch (const std::bad_alloc&) {
        found = -1;
    }
    members.store(found, std::memory_order_release);
    members.notify_all();
    if (found > 0) work(ThreadTeam(*shared, 0));
    for (std::thread& other : others) other.join();
    if (found < 0) throw std::bad_alloc();
}

SW_END
