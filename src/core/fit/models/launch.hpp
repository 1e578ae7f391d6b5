// What a launch of the fused kernel carries by value.
#pragma once

#include "core/fit/models/job.hpp"

namespace stepwell {

struct FitLaunch {
    FitModelJob job;
    uint64_t* queue;  // the next problem
};

}  // namespace stepwell
