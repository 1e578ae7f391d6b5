// What a CUDA launch carries by value.
#pragma once

#include "core/lsq/workspace.hpp"

SW_BEGIN
namespace lsq {

struct Launch {
    Job job;
    Shared shared;
    const Shared* dictionary;  // where systems name their matrix: what those of each share; or null
    // Of the kernels that prepare matrices: which one, and the rows of its columns whose products go where.
    int64_t matrix;
    int64_t first_row, last_row;
    double* products;
    uint64_t* queue;  // the next system, where there are more than teams; or null
    // What the solver of small systems left: how many, and which. Null where all are solved by one kernel.
    uint64_t* handed;
    int64_t* list;
    char* slow;
    int64_t slow_bytes, fast_bytes;  // of one team
};

}  // namespace lsq
SW_END
