// Lanes of a CUDA device as real threads, whose lane_sync() and sync() are real barriers; and the solver's
// headers as a device's compiler reads them. Built with ThreadSanitizer, a missing barrier is reported.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#define __CUDACC__
static double rsqrt(double value) {
    return 1.0 / std::sqrt(value);
}
#define __host__
#define __device__
#undef __noinline__
#define __noinline__ __attribute__((noinline))
#include "one_system.hpp"

class Barrier {
public:
    explicit Barrier(int size) : size_(size) {}
    void wait() {
        const unsigned turn = turn_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
            arrived_.store(0, std::memory_order_relaxed);
            turn_.store(turn + 1, std::memory_order_release);
            turn_.notify_all();
            return;
        }
        // Asleep after a while: there are more lanes than cores.
        while (turn_.load(std::memory_order_acquire) == turn) turn_.wait(turn, std::memory_order_acquire);
    }

private:
    const int size_;
    std::atomic<int> arrived_{0};
    std::atomic<unsigned> turn_{0};
};

struct Floor {
    Floor(int rows, int lanes)
        : rows(rows), lanes(lanes), all(rows * lanes), value(2 * rows * lanes), index(2 * rows * lanes) {
        for (int row = 0; row < rows; ++row) row_barriers.push_back(std::make_unique<Barrier>(lanes));
    }
    int rows, lanes;
    Barrier all;
    std::vector<std::unique_ptr<Barrier>> row_barriers;
    std::vector<double> value;
    std::vector<int64_t> index;
};

class Lanes {
public:
    Lanes(Floor& floor, int rank) : floor_(&floor), rank_(rank) {}
    int rank() const { return rank_; }
    int size() const { return floor_->rows * floor_->lanes; }
    int row() const { return rank_ / floor_->lanes; }
    int rows() const { return floor_->rows; }
    int lane() const { return rank_ % floor_->lanes; }
    int lanes() const { return floor_->lanes; }
    void sync() const { floor_->all.wait(); }
    void lane_sync() const { floor_->row_barriers[row()]->wait(); }

    double lane_sum(double value) const {
        lane_sync();
        floor_->value[rank_] = value;
        lane_sync();
        double total = 0;
        for (int lane = 0; lane < lanes(); ++lane) total += floor_->value[row() * lanes() + lane];
        lane_sync();
        return total;
    }
    template <class T>
    T lane_pick(T value, int lane) const {
        lane_sync();
        floor_->value[rank_] = value;
        lane_sync();
        const double picked = floor_->value[row() * lanes() + lane % lanes()];
        lane_sync();
        return static_cast<T>(picked);
    }
    double lane_max(double value) const {
        lane_sync();
        floor_->value[rank_] = value;
        lane_sync();
        double* const first = floor_->value.data() + row() * lanes();
        const double highest = *std::max_element(first, first + lanes());
        lane_sync();
        return highest;
    }
    int lane_max_int(int value) const { return static_cast<int>(lane_max(value)); }
    unsigned lane_votes(bool yes) const {
        return static_cast<unsigned>(lane_sum(yes ? static_cast<double>(1u << lane()) : 0.0));
    }
    int lane_min_int(int value) const { return -lane_max_int(-value); }
    double sum(double value) const {
        double* slots = floor_->value.data() + size();
        sync();
        slots[rank_] = value;
        sync();
        double total = 0;
        for (int member = 0; member < size(); ++member) total += slots[member];
        sync();
        return total;
    }
    double max(double value) const {
        argmax(value, rank_);
        return value;
    }
    int64_t argmax(double& value, int64_t index) const {
        double* slots = floor_->value.data() + size();
        sync();
        slots[rank_] = value;
        floor_->index[rank_] = index;
        sync();
        int64_t where = floor_->index[0];
        value = slots[0];
        for (int member = 1; member < size(); ++member)
            if (slots[member] > value || (slots[member] == value && floor_->index[member] < where)) {
                value = slots[member];
                where = floor_->index[member];
            }
        sync();
        return where;
    }
    int place(bool yes, int& all) const {
        double* slots = floor_->value.data() + size();
        sync();
        slots[rank_] = yes;
        sync();
        int before = 0;
        all = 0;
        for (int member = 0; member < size(); ++member) {
            if (member < rank_) before += slots[member] > 0;
            all += slots[member] > 0;
        }
        sync();
        return before;
    }
    template <class Body>
    void each(int count, Body body) const {
        for (int i = rank_; i < count; i += size()) body(i);
    }
    template <class Body>
    void each_short(int count, Body body) const {
        each(count, body);
    }
    template <class Body>
    void lane_each(int count, Body body) const {
        for (int i = lane(); i < count; i += lanes()) body(i);
    }

private:
    Floor* floor_;
    int rank_;
};
