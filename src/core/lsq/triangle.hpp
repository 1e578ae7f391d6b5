// R, the upper triangular factor of the positive columns in insertion order, and Q'b beside it.
//
// The solves are work for one group of a team; the others wait at the sync that follows. On a device the
// chain from one unknown to the next is what a solve takes: so a group solves as many unknowns as it has
// lanes at a time, each lane with its own in a register, and what they leave of the others follows in one
// sweep. Where that is too slow a device keeps the inverse instead: inverse.hpp.
#pragma once

#include "core/lsq/packing.hpp"

SW_BEGIN
namespace lsq {

struct Triangle : Packing {
    SW_HD explicit Triangle(const Packing& packing) : Packing(packing) {}

    // Solves R'h = g in place, by columns of R' (rows of R). By one group; ends in a lane_sync.
    template <class Team>
    static SW_CALL void solve_transposed(const Team& team, const Triangle r, int count, double* g);

    // Solves R z = g in place, by rows of R. By one group; ends in a lane_sync.
    template <class Team>
    static SW_CALL void solve(const Team& team, const Triangle r, int count, double* g);

    // Appends column (h, pivot) and its entries of Q'b and of the sum. By one group; ends in a lane_sync.
    template <class Team>
    SW_HD void append(const Team& team, int count, const double* h, double pivot, double inverse,
                      double entry, double share) const {
        team.lane_each(count, [&](int t) { row(t)[count] = h[t]; });
        if (team.lane() == 0) {
            row(count)[count] = pivot;
            storage->inverse_diagonal[count] = inverse;
            storage->target[count] = entry;
            if (storage->sum) storage->sum[count] = share;
        }
        team.lane_sync();
    }

    // Removes column `position` of `count`: Givens rotations bring the Hessenberg rest back to a triangle and
    // are kept in cosine, sine for Q (rotation t acts on columns t and t + 1). By the team; no sync at the
    // end.
    template <class Team>
    static SW_CALL void remove(const Team& team, const Triangle r, int count, int position);

private:
    // Of a device (cuda/lsq/triangle.cuh): a lane takes a column down its rotations: those of the columns
    // before are known, then each lane's own comes in turn. In place; the columns move to the left later.
    template <class Team>
    SW_HD void rotate(const Team& team, int count, int position) const;

    // Rotations `from` to `to`, exclusive, of a column.
    SW_HD double rotate_known(double carry, int column, int from, int to) const;

    // Of a CPU (host/lsq/triangle.hpp): upper[c] = cos upper[c+1] + sin lower[c+1] (one place to the left);
    // lower[c+1] = the other part, in place.
    static void rotate_rows(double* upper, double* lower, int count, double c, double s);
};

}  // namespace lsq
SW_END
