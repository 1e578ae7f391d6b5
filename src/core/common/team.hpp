// The team concept: code for a group of workers is written once, against rank(), size(), sync(), sum(),
// max(), min() and argmax(), or those of them that it needs. Lone is one CPU thread; ThreadTeam
// (src/host/common/thread_team.hpp) several, for one large system, and in tests so that ThreadSanitizer sees
// the very source that a GPU runs; Block (src/cuda/common/block.cuh) is a CUDA thread block; SystemBlock and
// SystemWarp (src/cuda/lsq/system_teams.cuh) are a block and a warp with a small system each, SystemCluster
// (src/cuda/lsq/system_cluster.cuh) several blocks with a large one.
//
// Contract: every member calls sync() and the reductions in the same order; these return the same value to
// all members, and the order of summation does not depend on timing.
#pragma once

#include "core/common/config.hpp"

SW_BEGIN

// In the body of a short loop: keeps the compiler from vectorising it, which would cost more than the loop.
#if defined(__CUDACC__)
#define SW_SHORT_LOOP(index)
#else
#define SW_SHORT_LOOP(index) asm volatile("" : "+r"(index))
#endif

// Two-dimensional loops are shared as row() of rows() times lane() of lanes(), with rank = row * lanes +
// lane. The lanes of a row (a warp) work in step: lane_sum(), lane_max(), lane_max_int(), lane_sync(), and
// lane_pick(), which hands all of them the value of one (counted modulo their number). each() and lane_each()
// deal out a loop.
struct Lone {
    SW_HD int rank() const { return 0; }
    SW_HD int size() const { return 1; }
    SW_HD int lane() const { return 0; }
    SW_HD int lanes() const { return 1; }
    SW_HD int row() const { return 0; }
    SW_HD int rows() const { return 1; }
    SW_HD void sync() const {}
    SW_HD double sum(double value) const { return value; }
    SW_HD double max(double value) const { return value; }
    SW_HD double min(double value) const { return value; }
    // The largest value and where it is; the lowest index wins a tie, whatever the team.
    SW_HD int64_t argmax(double& /*value*/, int64_t index) const { return index; }

    SW_HD double lane_sum(double value) const { return value; }
    SW_HD double lane_max(double value) const { return value; }
    template <class T>
    SW_HD T lane_pick(T value, int /*lane*/) const {
        return value;
    }
    SW_HD int lane_max_int(int value) const { return value; }
    SW_HD void lane_sync() const {}

    // Calls body(i) for every i in [0, count) that is this member's.
    template <class Body>
    SW_HD void each(int count, Body body) const {
        for (int i = 0; i < count; ++i) body(i);
    }
    // The same for a loop that is mostly short.
    template <class Body>
    SW_HD void each_short(int count, Body body) const {
        for (int i = 0; i < count; ++i) {
            SW_SHORT_LOOP(i);
            body(i);
        }
    }
    // The same within one row.
    template <class Body>
    SW_HD void lane_each(int count, Body body) const {
        each_short(count, body);
    }
#if !defined(__CUDACC__)
    // The contiguous piece of [0, count) that is this member's; teams of CPU threads alone.
    void chunk(int count, int& begin, int& end) const {
        begin = 0;
        end = count;
    }
#endif
};

// Whether a team is larger than a block can be: then its members are more than most loops have turns, and
// several share one.
template <class Team>
SW_HD bool is_wide(const Team& team) {
    return team.rows() > 32;
}

SW_END
