// How columns of a problem with bounds, a bound sum, weights of rows and a penalty leave at a bound and come
// from there. All in scaled units. A column out of the factor is at its reference, a bound; ws.b is b less
// what the references take of it, so that x of the columns in the factor counts from theirs.
#pragma once

#include "core/lsq/insertion.hpp"
#include "core/lsq/stacked.hpp"
#include "core/lsq/sum.hpp"

SW_BEGIN
namespace lsq {

// Makes lambda^2 what is given. The dual is then to be found anew, and the factor, if there is one.
template <class State>
SW_CALL void set_penalty(State& s, double penalty) {
    s.factor.penalty = penalty;
    if (s.ws.metric) {
        const int first = s.task.matrix.below + s.task.matrix.summed, last = s.task.matrix.rows;
        s.team.each(last - first, [&](int i) { s.ws.metric[first + i] = penalty; });
        s.team.sync();
        weigh_b(s);
        if (s.factor.keeps_q()) find_roots(s);
    }
    if (s.ws.square)
        s.team.each(s.columns(), [&](int j) {
            const double square =
                s.ws.square[j] + (s.ws.penalty_square ? penalty * s.ws.penalty_square[j] : 0.0);
            const double sum = s.ws.sum_of ? s.factor.row_weight * s.ws.sum_of[j] * s.ws.sum_of[j] : 0.0;
            s.ws.norm[j] = square_root(square + sum);
            // The row of a bound sum is for the factor. The dual is rounded to what A and b are, and the
            // sum's part of it is in the multiplier; but for columns of zeros there is nothing else.
            const double judged = square > 0 ? square_root(square) : s.ws.norm[j];
            s.ws.inverse_norm[j] = judged > 0 ? 1.0 / judged : 0.0;
        });
    s.team.sync();
    double size = 0;
    s.team.each(s.columns(), [&](int j) {
        s.mark(j, s.ws.state[j]);
        const double reference = s.task.reference_of(j);
        if (reference != 0) size += s.task.size_of(j) * absolute(reference);
    });
    s.reference_size = s.team.sum(size);
    s.fresh = false;
    s.team.sync();
}

// b under the metric. No sync.
template <class State>
SW_HD void weigh_b(const State& s) {
    double* weighed = s.ws.weighed_b;
    const double *b = s.ws.b, *metric = s.ws.metric;
    const int first = s.task.extent.weighted ? 0 : s.task.extent.rows_of_a;
    s.team.each(first, [=](int i) { weighed[i] = b[i]; });
    s.team.each(s.task.extent.row_length() - first,
                [=](int i) { weighed[first + i] = metric[first + i] * b[first + i]; });
}

// The roots of the metric, which Q is kept under. Ends in a sync.
template <class State>
SW_CALL void find_roots(const State& s) {
    s.team.each(s.task.extent.row_length(), [&](int i) {
        const double root = square_root(s.ws.metric[i]);
        s.ws.root[i] = root;
        s.ws.inverse_root[i] = root > 0 ? 1.0 / root : 0.0;
    });
    s.team.sync();
}

// Removes the column at a position, whose x is at one of its limits.
template <class State>
SW_CALL void leave_at_bound(State& s, int position) {
    const int j = s.ws.order[position];
    const double d = s.ws.x[position];
    const bool up = !(d < s.task.most_of(j));
    s.team.sync();
    if (d != 0) {
        s.factor.shift_target(position, d);
        take_from_b(s, position, j, d);
    }
    remove(s, position);
    const int state = (s.ws.state[j] & ~(reflected | leaving)) | (up ? reflected : 0);
    const double before = absolute(s.task.reference_of(j));
    s.team.sync();
    if (s.team.rank() == 0) s.mark(j, state);
    s.team.sync();
    s.reference_size += s.task.size_of(j) * (absolute(s.task.reference_of(j)) - before);
}

// Takes a column that is out of the factor, which is empty, from one of its bounds to the other.
template <class State>
SW_CALL void cross(State& s, int j) {
    const double d = s.task.sign_of(j) > 0 ? s.task.most_of(j) : s.task.least_of(j);
    const double before = absolute(s.task.reference_of(j));
    if (s.team.rank() == 0) s.ws.order[0] = j;
    s.team.sync();
    if (s.team.row() == 0) fetch(s, 0);
    s.team.sync();
    take_from_b(s, 0, j, d);
    if (s.team.rank() == 0) s.mark(j, s.ws.state[j] ^ reflected);
    s.team.sync();
    s.reference_size += s.task.size_of(j) * (absolute(s.task.reference_of(j)) - before);
    s.fresh = false;
}

// Called rather than inlined, as all that a general problem does in several places: a device's code stays
// small.
template <class State>
SW_CALL Entry insert_called(State& s, int j, double least = 0) {
    return insert_alone(s, j, least);
}

// Inserts the free columns that are not in the factor, in order; those that depend on others stay out.
// False where one has little outside the others, or normal equations do not say how little.
template <class State>
SW_HD bool insert_free(State& s, double least) {
    bool all = true;
    for (int j = 0; j < s.columns(); ++j)
        if ((s.ws.state[j] & (is_free | is_in_factor)) == is_free && s.task.norm_of(j) > 0) {
            const Entry outcome = insert_called(s, j, least);
            const bool in_doubt = outcome == Entry::dependent && s.task.extent.gram_only;
            all = outcome != Entry::escalate && !in_doubt && all;
        }
    return all;
}

template <class State>
SW_HD bool insert_free(State& s) {
    return insert_free(s, s.numbers.rounds ? doubtful_in_single : escalate_below);
}

// With a bound sum: goes to a point that has it. The columns that lower the residual most are filled, one
// after the other; the last is in the factor then. False as insert_free() has it.
template <class State>
SW_CALL bool fill_up(State& s) {
    const double e = s.factor.remainder;
    double* cost = s.ws.score;
    bool any_free = false;
    for (int j = 0; j < s.columns(); ++j) any_free = any_free || (s.ws.state[j] & is_free);
    if (any_free) return insert_free(s);
    s.team.each(s.columns(), [&](int j) { cost[j] = value_of_filling(s, j, e); });
    s.team.sync();
    for (;;) {
        const Peak best = largest(s.team, cost, s.columns());
        if (!(best.value > -double_infinity)) return true;
        const int j = best.index;
        const double left = s.factor.remainder, wanted = left / s.ws.sum_of[j];
        const double most = s.task.most_of(j), least = s.task.least_of(j);
        s.team.sync();
        if (s.team.rank() == 0) cost[j] = -double_infinity;
        s.team.sync();
        // (Rounding may take what is left beyond zero: no column goes the other way then.)
        const bool fits = takes_all(e, wanted, e > 0 ? most : least);
        const bool last = !fits && !any_above(s, cost);
        s.team.sync();
        if (!fits && !last) {
            cross(s, j);
            continue;
        }
        insert_called(s, j);
        if (s.team.rank() == 0) s.ws.x[0] = clamp_to(wanted, least, most);
        s.team.sync();
        return true;
    }
}

// Where a bound sum has all columns at bounds and the one in the factor is not the one to be exchanged:
// that one takes its place. Of those at an upper bound it is the one that asks most to go down.
template <class State>
SW_CALL void reseat(State& s) {
    if (!s.ws.sum_of || s.factor.count != 1) return;
    const int seated = s.ws.order[0];
    const double x = s.ws.x[0];
    if (x < s.task.most_of(seated) && x > s.task.least_of(seated)) return;
    // Every member looks at all of them: this is rare, and the scores stay what insert_several() needs.
    Peak asks{-double_infinity, -1};
    for (int j = 0; j < s.columns(); ++j) {
        const int state = s.ws.state[j] & ~barred;
        const bool could = state == reflected && s.ws.sum_of[j] > 0;
        const double value = could ? -s.ws.w[j] / s.ws.sum_of[j] : -double_infinity;
        if (value > asks.value) asks = {value, j};
    }
    const double own =
        !(x < s.task.most_of(seated)) ? -s.ws.w[seated] / s.ws.sum_of[seated] : -double_infinity;
    s.team.sync();
    if (asks.value > own) {
        leave_at_bound(s, 0);
        insert_called(s, asks.index);
        s.factor.settled = 1;
        s.fresh = false;
        s.inserted_count = 0;  // the next point is no worse for what was inserted before
    }
}

// The sum of x is what it has to be, but for one rounding: the largest x takes what is missing.
template <class State>
SW_HD void mend_sum(State& s) {
    if (!s.ws.sum_of || s.factor.count == 0) return;
    double part = 0, highest = -1;
    int where = 0;
    s.team.lane_each(s.factor.count, [&](int p) { part += s.ws.sum_of[s.ws.order[p]] * s.ws.x[p]; });
    const double missing = s.factor.remainder - s.team.lane_sum(part);
    for (int p = 0; p < s.factor.count; ++p) {
        const int j = s.ws.order[p];
        const double room = min_of(s.task.most_of(j) - s.ws.x[p], s.ws.x[p] - s.task.least_of(j));
        if (room * s.ws.sum_of[j] > highest) {
            highest = room * s.ws.sum_of[j];
            where = p;
        }
    }
    s.team.sync();
    if (s.team.rank() == 0 && missing != 0) {
        if (highest > absolute(missing))
            s.ws.x[where] += missing / s.ws.sum_of[s.ws.order[where]];
        else
            share_out(s, missing);
    }
    s.team.sync();
}

// r . r over the rows of A alone, r = b - A x; ws.r becomes the residual without the metric.
template <class State>
SW_CALL double squared_fit(State& s) {
    const int length = s.task.extent.row_length(), rows = s.task.matrix.top.rows;
    double *r = s.ws.r, part = 0;
    const double* b = s.ws.b;
    s.team.each(length, [=](int i) { r[i] = b[i]; });
    s.team.sync();
    subtract_columns(s.team, s.factor.positive(), s.factor.count, s.ws.x, r, length);
    if (s.ws.metric)
        s.team.each(rows, [&](int i) { part += s.ws.metric[i] * r[i] * r[i]; });
    else
        part = part_of_dot(s.team, r, r, length);
    s.fresh = false;
    return s.team.sum(part);
}

// What is missing of a bound sum goes to the columns in the factor one after the other, as far as their
// bounds let it: where b is so much larger than the sum that a solution has no digits of it. By one
// member.
template <class State>
SW_HD void share_out(const State& s, double missing) {
    for (int p = 0; p < s.factor.count && missing != 0; ++p) {
        const int j = s.ws.order[p];
        const double c = s.ws.sum_of[j], before = s.ws.x[p];
        if (!(c > 0)) continue;
        s.ws.x[p] = clamp_to(before + missing / c, s.task.least_of(j), s.task.most_of(j));
        missing -= c * (s.ws.x[p] - before);
    }
}

// ws.b, and A'b where it is kept, less d times the column at a position.
template <class State>
SW_HD void take_from_b(State& s, int position, int j, double d) {
    const int length = s.task.extent.row_length();
    s.has_moved = true;
    copy_column(s.team, s.factor.positive(), position, s.ws.v, length);
    s.team.sync();
    double* b = s.ws.b;
    const double* v = s.ws.v;
    s.team.each(length, [=](int i) { b[i] -= d * v[i]; });
    s.team.sync();
    if (s.ws.metric) weigh_b(s);
    if (s.ws.sum_of) s.factor.remainder -= s.ws.sum_of[j] * d;
    if (s.task.shared.gram) {
        const double* row = s.task.shared.gram + j * s.task.shared.gram_stride;
        s.team.each(s.columns(), [&](int i) { s.ws.c[i] -= d * row[i]; });
    }
    if (s.ws.c_penalty && s.task.shared.scale) {
        const Shared& shared = s.task.shared;
        const double* row = shared.penalty_gram ? shared.penalty_gram + j * shared.gram_stride : nullptr;
        s.team.each(s.columns(), [&](int i) {
            if (row)
                s.ws.c_penalty[i] -= d * row[i];
            else if (i == j)
                s.ws.c_penalty[i] -= d * shared.penalty_diagonal[j];
        });
    }
    s.team.sync();
}

template <class State>
SW_HD double value_of_filling(const State& s, int j, double e) {
    if (s.ws.state[j] & excluded) return -double_infinity;
    const double c = s.ws.sum_of[j], room = e > 0 ? s.task.most_of(j) : s.task.least_of(j);
    const double square =
        s.ws.square[j] + (s.ws.penalty_square ? s.factor.penalty * s.ws.penalty_square[j] : 0.0);
    return value_of_filling(c, room, e, s.ws.w[j] - s.multiplier * c, square, s.task.sign_of(j) > 0);
}

template <class State>
SW_HD bool any_above(const State& s, const double* cost) {
    return largest(s.team, cost, s.columns()).value > -double_infinity;
}

}  // namespace lsq
SW_END
