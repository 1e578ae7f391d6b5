// Where the discrete Voronoi diagram of a CUDA device has its memory: addresses, and the sizes they follow
// from.
#pragma once

#include "core/common/config.hpp"

namespace stepwell {

struct VoronoiPlan {
    int64_t height, width, count;
    double scale;  // pixels to the caller's unit of length
    int64_t weights;
    int64_t first, slot, totals;  // buckets: firsts, a site's place in its bucket, sums of spans
    int64_t sorted_x, sorted_y, sorted_site;
    int64_t moments, spread, parts, ticket;
    int64_t history, history_capacity, history_count;
};

}  // namespace stepwell
