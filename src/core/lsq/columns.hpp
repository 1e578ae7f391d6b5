// Sweeps over a few long columns: products, sums, rotations (host/lsq/columns.hpp, cuda/lsq/columns.cuh).
#pragma once

#include "core/lsq/vectors.hpp"

SW_BEGIN
namespace lsq {

// Columns by position: the p-th is at base + slot[p] * stride, non-zero within [low[slot], high[slot]), and
// multiplied with factor[slot]. Without slots the p-th is the p-th; without bounds it is `length` long;
// without factors it is as it is.
struct Columns {
    const double* base;
    int64_t stride;
    const int32_t* slot;
    const int32_t* low;
    const int32_t* high;
    const double* factor;
    int length;

    SW_HD int place(int position) const { return slot ? slot[position] : position; }
    SW_HD double factor_of(int position) const { return factor ? factor[place(position)] : 1.0; }
    SW_HD const double* at(int position) const { return base + place(position) * stride; }
    // Of the four positions from p on, the last for those past it.
    SW_HD void places(int p, int count, int* place) const {
        SW_UNROLL
        for (int q = 0; q < 4; ++q) place[q] = min_of(p + q, count - 1);
        if (!slot) return;
        SW_UNROLL
        for (int q = 0; q < 4; ++q) place[q] = slot[place[q]];
    }
    SW_HD int first(int position) const { return low ? low[place(position)] : 0; }
    SW_HD int last(int position) const { return low ? high[place(position)] : length; }
};

// v = column_p, zero where it is. No sync.
template <class Team>
SW_HD void copy_column(const Team& team, const Columns& columns, int p, double* v, int length) {
    const double* column = columns.at(p);
    const int first = columns.first(p), last = columns.last(p);
    const double factor = columns.factor_of(p);
    team.each(length, [&](int i) { v[i] = i >= first && i < last ? factor * column[i] : 0.0; });
}

// out[p] = column_p . v for p < count, v non-zero within [first, last). Ends in a sync.
template <class Team>
SW_CALL void dot_columns(const Team& team, const Columns columns, int count, const double* v, int first,
                         int last, double* out);

// v -= sum of f[p] column_p of columns without bounds, by a device's wide team: rows of lanes share an entry
// of v, each with every so many of the columns. `scratch` has a number a member. Ends in a sync.
template <class Team>
SW_CALL void subtract_in_slices(const Team& team, const Columns columns, int count, const double* f,
                                double* v, int length, double* scratch);

// v -= sum of f[p] column_p. Ends in a sync.
template <class Team>
SW_CALL void subtract_columns(const Team& team, const Columns columns, int count, const double* f, double* v,
                              int length);

// Applies the rotations of a removal to the columns base + t * stride, t = position .. count - 1: each member
// its own rows, one read and one write of every column. Ends in a sync.
template <class Team>
SW_CALL void rotate_columns(const Team& team, double* base, int64_t stride, int position, int count,
                            const double* cosine, const double* sine, int length);

}  // namespace lsq
SW_END
