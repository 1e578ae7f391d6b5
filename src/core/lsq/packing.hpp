// An upper triangle of numbers that grows by a column at a time: where its rows lie.
//
// Rows are contiguous, so that both triangular solves and the rotations of a removal run along memory. On the
// CPU their stride grows with the factor: a factor of 40 columns is compact whatever memory there is. On a
// device rows are packed, for as many columns as its fast memory takes, and move to the slow when they are
// more.
#pragma once

#include "core/lsq/types.hpp"
#include "core/lsq/vectors.hpp"

SW_BEGIN
namespace lsq {

constexpr int first_capacity = 16;
constexpr int stride_gap = 8;  // keeps the elements of a column off one cache set

// Memory of a triangle: from the arena's fast memory what fits, from the slow the rest.
struct TriangleStorage {
    double* near_entries;
    double* far_entries;  // where entries go when the fast memory is too small for them
    int near_capacity, far_capacity;
    double* inverse_diagonal;
    double* target;              // Q'b
    IfConstrained<double*> sum;  // R^-T c of a bound sum c'x; or null
    double* cosine;              // the rotations of the last removal
    double* sine;
    double* scratch;  // a number a member

    template <class Arena>
    SW_HD void carve(Arena& arena, int columns) {
        near_capacity = 0;
        for (far_capacity = first_capacity; far_capacity < columns;) far_capacity = after(far_capacity);
        for (int capacity = first_capacity; capacity <= far_capacity; capacity = after(capacity))
            if (arena.used_fast + bytes(capacity) <= arena.fast_bytes) near_capacity = capacity;
        near_entries = near_capacity ? arena.template take<double>(bytes(near_capacity) / 8) : nullptr;
        far_entries =
            near_capacity < far_capacity ? arena.template take<double>(bytes(far_capacity) / 8) : nullptr;
    }

#if defined(__CUDACC__)
    SW_HD static int after(int capacity) { return capacity + 8; }
    SW_HD static int64_t bytes(int64_t capacity) {
        return (capacity * (capacity + 1) / 2 * 8 + 63) / 64 * 64;
    }
#else
    // Doubling: no row then moves onto one that has not moved.
    SW_HD static int after(int capacity) { return 2 * capacity; }
    SW_HD static int64_t bytes(int64_t capacity) { return capacity * (capacity + stride_gap) * 8; }
#endif
};

// Where row t lies, less t, in a triangle of `capacity` columns whose rows follow one another.
SW_HD int64_t packed_row(int capacity, int t) {
    return static_cast<int64_t>(t) * (2 * capacity - t - 1) >> 1;
}

// What each member of a team knows of a triangle. Passed by value, so that it stays in registers.
struct Packing {
    const TriangleStorage* storage;
    double* entries;
    int capacity;

    SW_HD explicit Packing(const TriangleStorage& storage)
        : storage(&storage),
          entries(storage.near_capacity ? storage.near_entries : storage.far_entries),
#if defined(__CUDACC__)
          capacity(storage.near_capacity ? storage.near_capacity : storage.far_capacity) {
    }
#else
          capacity(first_capacity) {
    }
#endif

    // R_tc is row(t)[c], c >= t.
    SW_HD double* row(int t) const {
#if defined(__CUDACC__)
        return entries + packed_row(capacity, t);
#else
        return entries + static_cast<int64_t>(t) * (capacity + stride_gap);
#endif
    }

    SW_HD bool is_full(int count) const { return count >= capacity; }

    // The same triangle of `count` columns with memory for more.
    template <class Team>
    static SW_CALL Packing widened(const Team& team, const Packing old, int count) {
        Packing wide = old;
#if defined(__CUDACC__)
        wide.capacity = old.storage->far_capacity;
        wide.entries = old.storage->far_entries;
#else
        wide.capacity = TriangleStorage::after(old.capacity);
        if (old.entries == old.storage->near_entries && wide.capacity > old.storage->near_capacity)
            wide.entries = old.storage->far_entries;
#endif
        team.sync();
        if (team.row() == 0)
            for (int t = count - 1; t >= 0; --t) {
                const double* from = old.row(t);
                double* to = wide.row(t);
                if (to == from) continue;
                team.lane_each(count - t, [&](int c) { to[t + c] = from[t + c]; });
                team.lane_sync();
            }
        team.sync();
        return wide;
    }
};

}  // namespace lsq
SW_END
