// Sweeps over one vector, dealt out over a team: by vector registers for teams of CPU threads
// (host/lsq/vectors.hpp), by lanes for a device's (cuda/lsq/vectors.cuh). The order of every sum is fixed.
#pragma once

#include "core/lsq/dot.hpp"

SW_BEGIN
namespace lsq {

// This member's part of a . b; the team's sum of the parts is the dot product.
template <class Team>
SW_CALL double part_of_dot(const Team& team, const double* a, const double* b, int count);

// a . b by the lanes of one group, the same value in each lane.
template <class Team>
SW_HD double lane_dot(const Team& team, const double* a, const double* b, int count);

// values[c] = values[c + 1] for c < count. By one group; ends in a lane_sync.
template <class Team, class T>
SW_HD void shift_left(const Team& team, T* values, int count);

// The largest magnitude in values[0..count), infinite where one is NaN or infinite; the same in every member.
template <class Team, class Scalar>
SW_HD double largest_magnitude(const Team& team, const Scalar* values, int count);

// Whether no number of a large matrix is NaN or infinite; the same in every member. Many loads at a time: one
// after the other would take long.
template <class Team>
SW_CALL bool all_finite(const Team& team, const double* values, int64_t count);

// The largest of values[0..count) and the lowest index that has it, the same in every member.
struct Peak {
    double value;
    int index;
};

template <class Team>
SW_CALL Peak largest(const Team& team, const double* values, int count);

// The indices of the `limit` largest values above a threshold, largest first, into `out`; their values become
// -1. Returns how many there are. On a device `spare` holds `crowd` indices, and where more pass the
// threshold it is raised: there may then be fewer. Ends in a sync.
constexpr int crowd = 128;

template <class Team>
SW_CALL int take_largest(const Team& team, double* values, int count, double threshold, double top, int limit,
                         int32_t* spare, int32_t* out);

}  // namespace lsq
SW_END
