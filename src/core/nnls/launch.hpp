// What a CUDA launch carries by value.
#pragma once

#include "core/nnls/workspace.hpp"

SW_BEGIN
namespace nnls {

struct Launch {
    Job job;
    Shared shared;
    uint64_t* queue;  // the next system, where there are more than teams; or null
    char* slow;
    int64_t slow_bytes, fast_bytes;  // of one team
};

}  // namespace nnls
SW_END
