// The team concept: code for a group of workers is written once, against rank(), size(), sync(), sum() and
// argmax(). Lone is one CPU thread; Block (src/cuda/block.cuh) a CUDA thread block; Crew (src/host/crew.hpp) a
// handful of real threads, for tests only, so that ThreadSanitizer sees the very source that a GPU runs.
//
// Contract: every member calls sync(), sum() and argmax() in the same order; both return the same value to all
// members, and the order of summation does not depend on timing.
#pragma once

#include "core/config.hpp"

SW_BEGIN

// Two-dimensional loops are shared as row() of rows() times lane() of lanes(), with rank = row * lanes + lane.
struct Lone {
    SW_HD int rank() const { return 0; }
    SW_HD int size() const { return 1; }
    SW_HD int lane() const { return 0; }
    SW_HD int lanes() const { return 1; }
    SW_HD int row() const { return 0; }
    SW_HD int rows() const { return 1; }
    SW_HD void sync() const {}
    SW_HD double sum(double value) const { return value; }
    // The largest value and where it is; the lowest index wins a tie, whatever the team.
    SW_HD int64_t argmax(double& /*value*/, int64_t index) const { return index; }
};

SW_END
