// Fits of many problems by a compiled model on the CPU: what a call hands over.
#pragma once

#include "core/fit/models/job.hpp"
#include "host/common/dispatch.hpp"
#include "host/common/watch.hpp"

namespace stepwell {

struct HostFitJob {
    FitModelJob job;
    int32_t threads;
    Watch* watch;  // asked now and then whether to end; or null
};

// fit_rows: derivatives and then the value at every point of every problem's start, in the caller's type.
SW_FOR_EACH_ISA(void fit_compiled(const HostFitJob& host); void fit_rows(const FitModelJob& job, void* out);)

}  // namespace stepwell
