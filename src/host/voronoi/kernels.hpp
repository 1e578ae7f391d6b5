// The discrete Voronoi diagram and its moments on the CPU: what the kernels are given.
#pragma once

#include <cstdint>

#include "host/common/dispatch.hpp"

namespace stepwell {

struct VoronoiJob {
    // The image and the sites: x and y in turn, in units of `scale` pixels.
    int32_t height, width;
    int64_t sites;
    const double* xy;
    double scale;
    int32_t threads;
    bool flood;  // by jump flooding, or exactly

    // Scratch: places of the sites in bucket order, buckets + 1 firsts, and two images for flooding.
    int32_t* first;
    double* sorted_x;
    double* sorted_y;
    int32_t* sorted_site;
    int32_t* flooded[2];

    // assign: the owners.
    int32_t* owners;

    // evaluate: whole densities up to 2^24; energy and gradient are returned times these factors. Moments are
    // mass and first moments about the pixel of the site. `flooded` is used if `flood`.
    const float* weights;
    int64_t* moments;
    double energy_factor, gradient_factor;
    double* gradient;
};

struct VoronoiKernels {
    int64_t (*buckets)(int32_t height, int32_t width, int64_t sites);
    void (*assign)(const VoronoiJob& job);
    double (*evaluate)(const VoronoiJob& job);
};

SW_FOR_EACH_ISA(const VoronoiKernels& voronoi_kernels();)

}  // namespace stepwell
