// The 32 lanes of a warp as those of one small system: see core/lsq/small/lanes.hpp.
#pragma once

#include "core/lsq/small/lanes.hpp"
#include "cuda/lsq/warp.cuh"

SW_BEGIN
namespace lsq {
namespace small {

struct WarpLanes {
    static constexpr int width = 32;
    static constexpr bool has_sweeps = false;
    __device__ int lane() const { return threadIdx.x & 31; }
    __device__ void sync() const { __syncwarp(); }
    __device__ double sum(double value) const { return warp::sum(value); }
    // Numbers that are not negative are in the order of their bits, which a warp compares in two
    // instructions.
    __device__ double most(double value) const {
        const unsigned high = __reduce_max_sync(all, __double2hiint(value));
        const bool among = static_cast<unsigned>(__double2hiint(value)) == high;
        const unsigned low =
            __reduce_max_sync(all, among ? static_cast<unsigned>(__double2loint(value)) : 0u);
        return __hiloint2double(static_cast<int>(high), static_cast<int>(low));
    }
    __device__ double least(double value) const {
        const unsigned high = __reduce_min_sync(all, static_cast<unsigned>(__double2hiint(value)));
        const bool among = static_cast<unsigned>(__double2hiint(value)) == high;
        const unsigned low =
            __reduce_min_sync(all, among ? static_cast<unsigned>(__double2loint(value)) : ~0u);
        return __hiloint2double(static_cast<int>(high), static_cast<int>(low));
    }
    __device__ int place_of_most(double& value, int place) const {
        const double highest = most(value);
        const unsigned with = __ballot_sync(all, value == highest);
        value = highest;
        return __shfl_sync(all, place, with ? __ffs(static_cast<int>(with)) - 1 : 0);
    }
    __device__ uint64_t join(uint64_t bits) const {
        const unsigned low = __reduce_or_sync(all, static_cast<unsigned>(bits));
        const unsigned high = __reduce_or_sync(all, static_cast<unsigned>(bits >> 32));
        return static_cast<uint64_t>(high) << 32 | low;
    }
    __device__ bool any(bool yes) const { return __any_sync(all, yes); }
    __device__ unsigned votes(bool yes) const { return __ballot_sync(all, yes); }
    __device__ double pick(double value, int lane) const { return __shfl_sync(all, value, lane); }

private:
    static constexpr unsigned all = 0xffffffffu;
};

}  // namespace small
}  // namespace lsq
SW_END
