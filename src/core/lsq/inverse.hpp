// S = R^-1, which a device keeps instead of R where Q is not kept: what a solve with R does in a chain, one
// unknown after the other, a product with S does at once. S S' is the inverse of the Gram matrix; Q'b lies
// beside it as it does beside R. By the whole team, with the numbers of one triangle (packing.hpp).
#pragma once

#include "core/lsq/packing.hpp"

SW_BEGIN
namespace lsq {

struct Inverse {
    // out = S v, the solution of R z = v; or S'v, that of R'h = v. In place too. Ends in a sync.
    //
    // A row of lanes takes as many unknowns as it has lanes; where rows are left over, several share those
    // unknowns, each with every so many of the terms.
    template <bool transposed, class Team>
    static SW_CALL void multiply(const Team& team, const Packing s, int count, const double* v, double* out) {
        const bool large = team.rows() > 1 && count >= 4 * team.lanes();
        if (!transposed && large) return multiply_by_rows(team, s, count, v, out);
        double* scratch = s.storage->scratch;
        const int lanes = team.lanes(), pieces = (count + lanes - 1) / lanes;
        int at_once = 1, doublings = 0;
        for (; at_once < pieces && 2 * at_once <= team.rows(); at_once *= 2) ++doublings;
        const int own = team.row() & (at_once - 1), slice = team.row() >> doublings;
        const int slices = team.rows() >> doublings;
        // In the order in which what is written is no longer read.
        for (int done = 0; done < pieces; done += at_once) {
            const int piece = transposed ? pieces - 1 - done - own : done + own;
            const int at = piece * lanes + team.lane();
            const bool mine = slice < slices && at >= 0 && at < count;
            double part = 0;
            if (mine)
                part = !transposed ? part_of_row(s, at, count, v, slice, slices)
                       : large     ? part_of_column<16>(s, at, v, slice, slices)
                                   : part_of_column<4>(s, at, v, slice, slices);
            if (slices > 1) {
                scratch[team.rank()] = part;
                team.sync();
                if (mine && slice == 0) {
                    out[at] = sum_of_slices(scratch + team.rank(), at_once * lanes, slices);
                }
            } else {
                team.sync();
                if (mine) out[at] = part;
            }
            team.sync();
        }
    }

    // Appends the column that R's new column (h, pivot) brings, (-S h, 1) / pivot, and its entries of Q'b and
    // of the sum. h is lost. No sync at the end.
    template <class Team>
    static SW_CALL void append(const Team& team, const Packing s, int count, double* h, double inverse,
                               double entry, double share) {
        multiply<false>(team, s, count, h, h);
        team.each_short(count, [&](int t) { s.row(t)[count] = -inverse * h[t]; });
        if (team.rank() != 0) return;
        s.row(count)[count] = inverse;
        s.storage->target[count] = entry;
        if (s.storage->sum) s.storage->sum[count] = share;
    }

    // Removes position p: row p of S goes, and with it one dimension. Rotations of the columns from p on, in
    // turn, bring all of row p into the last column, which then goes as well: what is left is the inverse of
    // the smaller triangle. A rotation follows from the norm of the row up to it, so all are known at once.
    template <class Team>
    static SW_CALL void remove(const Team& team, const Packing s, int count, int position) {
        const double* leaving = s.row(position);
        double *cosine = s.storage->cosine, *sine = s.storage->sine;
        team.each_short(count - 1 - position, [&](int q) {
            const int t = position + q;
            const double square = square_up_to(leaving, position, t + 1), next = leaving[t + 1];
            const double inverse = inverse_root(square + next * next);
            cosine[t] = square * inverse_root(square) * inverse;
            sine[t] = next * inverse;
        });
        team.sync();
        // A member takes a row, and writes it one place higher where it was below p. Q'b counts as a row,
        // and so does what stands beside it for the sum.
        const int last = s.storage->sum ? count + 1 : count;
        for (int base = 0; base <= last; base += team.size()) {
            const int own = base + team.rank();
            const bool below = own > position && own < count;
            const bool above = own < position || (own >= count && own <= last);
            double* beside = own == count ? s.storage->target : s.storage->sum;
            const double* from = own < count ? s.row(own) : beside;
            double* to = below ? s.row(own - 1) : own < count ? s.row(own) : beside;
            const double carry = above ? from[position] : 0.0;
            if (is_wide(team))  // whose sync takes longer
                rotate_row<32>(team, s, count, position, below ? own : position, above || below, from, to,
                               carry);
            else
                rotate_row<8>(team, s, count, position, below ? own : position, above || below, from, to,
                              carry);
        }
    }

private:
    // out = S v where S is large: a row of lanes goes along four rows of S at a time, which lie in memory as
    // the lanes do. What is written is not read by the rows that follow. Ends in a sync.
    template <class Team>
    SW_HD static void multiply_by_rows(const Team& team, const Packing& s, int count, const double* v,
                                       double* out) {
        SW_ROLLED
        for (int base = 0; base < count; base += 4 * team.rows()) {
            const int first = base + 4 * team.row();
            const double* row[4];
            double sum[4] = {0, 0, 0, 0};
            SW_UNROLL
            for (int q = 0; q < 4; ++q) row[q] = s.row(min_of(first + q, count - 1));
            SW_UNROLL_BY(2)
            for (int c = first + team.lane(); c < count; c += team.lanes()) {
                const double value = v[c];
                SW_UNROLL
                for (int q = 0; q < 4; ++q) sum[q] += (c >= first + q ? row[q][c] : 0.0) * value;
            }
            SW_UNROLL
            for (int q = 0; q < 4; ++q) sum[q] = team.lane_sum(sum[q]);
            team.sync();
            SW_UNROLL
            for (int q = 0; q < 4; ++q)
                if (team.lane() == q % team.lanes() && first + q < count) out[first + q] = sum[q];
            team.sync();
        }
    }

    // One row along the rotations: its entry in the column that takes all up is `carry`. It has entries from
    // column `start` on. So many entries are read `ahead`: before they are needed, and before any is written.
    template <int ahead, class Team>
    SW_HD static void rotate_row(const Team& team, const Packing& s, int count, int position, int start,
                                 bool works, const double* from, double* to, double carry) {
        const double *cosine = s.storage->cosine, *sine = s.storage->sine;
        const int last = count - 1;
        SW_ROLLED
        for (int t = position; t < last; t += ahead) {
            double entry[ahead];
            SW_UNROLL
            for (int u = 0; u < ahead; ++u) {
                const int column = t + u + 1;
                entry[u] = works && column <= last && column >= start ? from[column] : 0.0;
            }
            SW_UNROLL
            for (int u = 0; u < ahead; ++u) {
                const double c = t + u < last ? cosine[t + u] : 1.0, sn = t + u < last ? sine[t + u] : 0.0;
                const double moved = c * entry[u] - sn * carry;
                carry = c * carry + sn * entry[u];
                entry[u] = moved;
            }
            // The row above is written where its own member has read it.
            team.sync();
            SW_UNROLL
            for (int u = 0; u < ahead; ++u)
                if (works && t + u < last && t + u + 1 >= start) to[t + u] = entry[u];
        }
    }

    SW_HD static double sum_of_slices(const double* parts, int stride, int slices) {
        double sum[4] = {0, 0, 0, 0};
        SW_ROLLED
        for (int q = 0; q < slices; q += 4) {
            SW_UNROLL
            for (int u = 0; u < 4; ++u) sum[u] += q + u < slices ? parts[(q + u) * stride] : 0.0;
        }
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }

    // Of (S v)_p, every so many of its terms.
    SW_HD static double part_of_row(const Packing& s, int p, int count, const double* v, int slice,
                                    int slices) {
        double sum[4] = {0, 0, 0, 0};
        const double* row = s.row(p);
        SW_ROLLED
        for (int c = p + slice; c < count; c += 4 * slices) {
            SW_UNROLL
            for (int u = 0; u < 4; ++u) {
                const int at = c + u * slices;
                const bool inside = at < count;
                sum[u] += (inside ? row[at] : 0.0) * (inside ? v[at] : 0.0);
            }
        }
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }

    // Of (S'v)_c, every so many of its terms; so many loads at a time.
    template <int at_a_time>
    SW_HD static double part_of_column(const Packing& s, int c, const double* v, int slice, int slices) {
        double sum[4] = {0, 0, 0, 0};
        const double* entry = s.row(slice) + c;
        // From row t to row t + slices of a packed triangle; so many less the next time.
        int64_t step = static_cast<int64_t>(slices) * (s.capacity - slice) - slices * (slices + 1) / 2;
        SW_ROLLED
        for (int t = slice; t <= c; t += at_a_time * slices) {
            SW_UNROLL
            for (int u = 0; u < at_a_time; ++u) {
                const int at = t + u * slices;
                const bool inside = at <= c;
                sum[u % 4] += (inside ? entry[0] : 0.0) * (inside ? v[at] : 0.0);
                entry += step;
                step -= slices * slices;
            }
        }
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }

    SW_HD static double square_up_to(const double* row, int first, int end) {
        double sum[4] = {0, 0, 0, 0};
        SW_ROLLED
        for (int c = first; c < end; c += 4) {
            SW_UNROLL
            for (int u = 0; u < 4; ++u) {
                const double entry = c + u < end ? row[c + u] : 0.0;
                sum[u] += entry * entry;
            }
        }
        return (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
};

}  // namespace lsq
SW_END
