// One problem of total variation on a CUDA device: its arrays, its pixels and their neighbours. Compiled with
//   SW_SCALAR    float or double
//   SW_THREADS   threads of a block
#pragma once

#include "core/tv/cosine.hpp"
#include "core/tv/launch.hpp"
#include "core/tv/pixel.hpp"

using namespace stepwell;

typedef SW_SCALAR Scalar;
typedef Complex<Scalar> Element;
constexpr int threads = SW_THREADS, max_rows = 16;

struct DeviceTvProblem {
    const TvLaunch& job;
    int64_t index, offset, block;  // offset of its images; fields of differences are `block` apart
    int pixels;
    Shrinking<Scalar> how;

    __device__ DeviceTvProblem(const TvLaunch& given, int64_t problem)
        : job(given), index(problem), pixels(int(given.side0 * given.side1 * given.side2)) {
        offset = index * pixels;
        block = job.batch * pixels;
        if (!job.threshold) return;
        how = {Scalar(static_cast<const double*>(job.threshold)[index]),
               Scalar(static_cast<const double*>(job.least)[index])};
    }

    // Sides that an image does not have are 1, behind those that it has.
    __device__ int side(int axis) const {
        return int(axis == 0 ? job.side0 : axis == 1 ? job.side1 : job.side2);
    }
    __device__ int stride(int axis) const {
        return int(axis == 0 ? job.side1 * job.side2 : axis == 1 ? job.side2 : 1);
    }
    __device__ const Scalar* at(const void* images) const {
        return static_cast<const Scalar*>(images) + offset;
    }
    __device__ Scalar* at(void* images) const { return static_cast<Scalar*>(images) + offset; }
    __device__ Scalar weight(int axis) const {
        return Scalar(axis == 0 ? job.weight0 : axis == 1 ? job.weight1 : job.weight2);
    }

    __device__ Scalar bound(const void* values, int64_t problem_stride, int per_pixel, int pixel,
                            Scalar missing) const {
        if (!values) return missing;
        return static_cast<const Scalar*>(values)[index * problem_stride + (per_pixel ? pixel : 0)];
    }
    __device__ void bounds(int pixel, Scalar& low, Scalar& high) const {
        const Scalar none = Scalar(double_infinity);
        low = bound(job.lower, job.lower_stride, job.lower_per_pixel, pixel, -none);
        high = bound(job.upper, job.upper_stride, job.upper_per_pixel, pixel, none);
    }
    __device__ Scalar clip(Scalar value, int pixel) const {
        Scalar low, high;
        bounds(pixel, low, high);
        return clipped(value, low, high);
    }

    // The place of a pixel along every axis.
    __device__ void locate(int pixel, int (&place)[3]) const {
        const int rest = job.axes > 2 ? pixel / side(2) : pixel;
        place[2] = pixel - rest * side(2);
        place[0] = job.axes > 1 ? rest / side(1) : rest;
        place[1] = rest - place[0] * side(1);
    }

    // z of a pixel from its w; z comes as -∇x0.
    template <int axes>
    __device__ void shrink(const Scalar (&w)[axes], Scalar (&z)[axes]) const {
        Scalar square = 0, whole[axes];
#pragma unroll
        for (int k = 0; k < axes; ++k) {
            whole[k] = w[k] - z[k];
            square += whole[k] * whole[k];
        }
        const Scalar together = job.anisotropic ? Scalar(0) : shrink_factor(root_of(square), how);
#pragma unroll
        for (int k = 0; k < axes; ++k)
            z[k] += whole[k] *
                    (job.anisotropic ? shrink_factor(whole[k] < 0 ? -whole[k] : whole[k], how) : together);
    }

    // -∇x0 at a pixel.
    template <int axes>
    __device__ void to_origin(int pixel, Scalar (&z)[axes]) const {
        const Scalar* origin = job.origin ? at(job.origin) + pixel : nullptr;
#pragma unroll
        for (int k = 0; k < axes; ++k) z[k] = origin && k < job.axes ? -origin[k * block] : Scalar(0);
    }

    // w and z of a pixel.
    __device__ void shrink(int pixel, Scalar (&w)[3], Scalar (&z)[3]) const {
        const Scalar* from = at(job.w) + pixel;
#pragma unroll
        for (int k = 0; k < 3; ++k) w[k] = k < job.axes ? from[k * block] : Scalar(0);
        to_origin(pixel, z);
        shrink(w, z);
    }

    // ρ (∇ᵀ(z - u) + (s - v)) at a pixel; z - u = 2z - w.
    __device__ Scalar pull(int pixel) const {
        Scalar w[3], z[3], total = 0;
        int place[3];
        locate(pixel, place);
        shrink(pixel, w, z);
#pragma unroll
        for (int k = 0; k < 3; ++k) total -= k < job.axes ? weight(k) * (2 * z[k] - w[k]) : Scalar(0);
#pragma unroll
        for (int k = 0; k < 3; ++k)
            if (k < job.axes && place[k] > 0) {
                shrink(pixel - stride(k), w, z);
                total += weight(k) * (2 * z[k] - w[k]);
            }
        if (job.bounded) {
            const Scalar h = at(job.h)[pixel];
            total += 2 * clip(h, pixel) - h;
        }
        return Scalar(job.rho) * total;
    }
};

static __device__ double warp_sum(double value) {
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}
