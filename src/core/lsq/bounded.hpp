// How columns of a problem with bounds, a bound sum, weights of rows and a penalty leave at a bound and come
// from there. All in scaled units. A column out of the factor is at its reference, a bound; ws.b is b less
// what the references take of it, so that x of the columns in the factor counts from theirs.
#pragma once

#include "core/lsq/insertion.hpp"
#include "core/lsq/stacked.hpp"

SW_BEGIN
namespace lsq {

template <class Team, class Matrix>
struct Bounded : Insertion<Team, Matrix> {
    using Base = Insertion<Team, Matrix>;
    using Base::b_norm;
    using Base::b_scale;
    using Base::factor;
    using Base::fresh;
    using Base::from_gram;
    using Base::multiplier;
    using Base::reference_size;
    using Base::squared_residual;
    using Base::tally;
    using Base::task;
    using Base::team;
    using Base::ws;

    SW_HD Bounded(const Team& team, const Task<Matrix>& task) : Base(team, task) {}

    // Makes lambda^2 what is given. The dual is then to be found anew, and the factor, if there is one.
    SW_CALL void set_penalty(double penalty) {
        factor.penalty = penalty;
        if (ws.metric) {
            const int first = task.matrix.below + task.matrix.summed, last = task.matrix.rows;
            team.each(last - first, [&](int i) { ws.metric[first + i] = penalty; });
            team.sync();
            weigh_b();
            if (factor.keeps_q()) find_roots();
        }
        if (ws.square)
            team.each(this->columns(), [&](int j) {
                const double square =
                    ws.square[j] + (ws.penalty_square ? penalty * ws.penalty_square[j] : 0.0);
                const double sum = ws.sum_of ? factor.row_weight * ws.sum_of[j] * ws.sum_of[j] : 0.0;
                ws.norm[j] = square_root(square + sum);
                // The row of a bound sum is for the factor. The dual is rounded to what A and b are, and the
                // sum's part of it is in the multiplier; but for columns of zeros there is nothing else.
                const double judged = square > 0 ? square_root(square) : ws.norm[j];
                ws.inverse_norm[j] = judged > 0 ? 1.0 / judged : 0.0;
            });
        team.sync();
        double size = 0;
        team.each(this->columns(), [&](int j) {
            this->mark(j, ws.state[j]);
            const double reference = task.reference_of(j);
            if (reference != 0) size += task.size_of(j) * absolute(reference);
        });
        reference_size = team.sum(size);
        fresh = false;
        team.sync();
    }

    // b under the metric. No sync.
    SW_HD void weigh_b() const {
        double* weighed = ws.weighed_b;
        const double *b = ws.b, *metric = ws.metric;
        const int first = task.extent.weighted ? 0 : task.extent.rows_of_a;
        team.each(first, [=](int i) { weighed[i] = b[i]; });
        team.each(task.extent.row_length() - first,
                  [=](int i) { weighed[first + i] = metric[first + i] * b[first + i]; });
    }

    // The roots of the metric, which Q is kept under. Ends in a sync.
    SW_CALL void find_roots() const {
        team.each(task.extent.row_length(), [&](int i) {
            const double root = square_root(ws.metric[i]);
            ws.root[i] = root;
            ws.inverse_root[i] = root > 0 ? 1.0 / root : 0.0;
        });
        team.sync();
    }

    // Removes the column at a position, whose x is at one of its limits.
    SW_CALL void leave_at_bound(int position) {
        const int j = ws.order[position];
        const double d = ws.x[position];
        const bool up = !(d < task.most_of(j));
        team.sync();
        if (d != 0) {
            factor.shift_target(position, d);
            take_from_b(position, j, d);
        }
        this->remove(position);
        const int state = (ws.state[j] & ~(reflected | leaving)) | (up ? reflected : 0);
        const double before = absolute(task.reference_of(j));
        team.sync();
        if (team.rank() == 0) this->mark(j, state);
        team.sync();
        reference_size += task.size_of(j) * (absolute(task.reference_of(j)) - before);
    }

    // Takes a column that is out of the factor, which is empty, from one of its bounds to the other.
    SW_CALL void cross(int j) {
        const double d = task.sign_of(j) > 0 ? task.most_of(j) : task.least_of(j);
        const double before = absolute(task.reference_of(j));
        if (team.rank() == 0) ws.order[0] = j;
        team.sync();
        if (team.row() == 0) this->fetch(0);
        team.sync();
        take_from_b(0, j, d);
        if (team.rank() == 0) this->mark(j, ws.state[j] ^ reflected);
        team.sync();
        reference_size += task.size_of(j) * (absolute(task.reference_of(j)) - before);
        fresh = false;
    }

    // Called rather than inlined, as all that a general problem does in several places: a device's code stays
    // small.
    SW_CALL Entry insert_called(int j) { return this->insert_alone(j); }

    // The free columns enter first, and never leave; those that depend on others of them stay out. False
    // where the Gram factor must give way to Q and R, which have the digits of one that nearly does.
    SW_HD bool insert_free() {
        bool all = true;
        for (int j = 0; j < this->columns(); ++j)
            if ((ws.state[j] & (is_free | is_positive)) == is_free && task.norm_of(j) > 0)
                all = insert_called(j) != Entry::escalate && all;
        return all;
    }

    // With a bound sum: goes to a point that has it. The columns that lower the residual most are filled, one
    // after the other; the last is in the factor then. False as insert_free() has it.
    SW_CALL bool fill_up() {
        const double e = factor.remainder;
        double* cost = ws.score;
        bool any_free = false;
        for (int j = 0; j < this->columns(); ++j) any_free = any_free || (ws.state[j] & is_free);
        if (any_free) return insert_free();
        team.each(this->columns(), [&](int j) { cost[j] = value_of_filling(j, e); });
        team.sync();
        for (;;) {
            const Peak best = largest(team, cost, this->columns());
            if (!(best.value > -double_infinity)) return true;
            const int j = best.index;
            const double left = factor.remainder, wanted = left / ws.sum_of[j];
            const double most = task.most_of(j), least = task.least_of(j);
            team.sync();
            if (team.rank() == 0) cost[j] = -double_infinity;
            team.sync();
            // (Rounding may take what is left beyond zero: no column goes the other way then.)
            const bool fits = e > 0 ? wanted < most : e < 0 ? wanted > least : true;
            const bool last = !fits && !any_above(cost);
            team.sync();
            if (!fits && !last) {
                cross(j);
                continue;
            }
            insert_called(j);
            if (team.rank() == 0) ws.x[0] = clamp_to(wanted, least, most);
            team.sync();
            return true;
        }
    }

    // Where a bound sum has all columns at bounds and the one in the factor is not the one to be exchanged:
    // that one takes its place. Of those at an upper bound it is the one that asks most to go down.
    SW_CALL void reseat() {
        if (!ws.sum_of || factor.count != 1) return;
        const int seated = ws.order[0];
        const double x = ws.x[0];
        if (x < task.most_of(seated) && x > task.least_of(seated)) return;
        // Every member looks at all of them: this is rare, and the scores stay what insert_several() needs.
        Peak asks{-double_infinity, -1};
        for (int j = 0; j < this->columns(); ++j) {
            const int state = ws.state[j] & ~barred;
            const bool could = state == reflected && ws.sum_of[j] > 0;
            const double value = could ? -ws.w[j] / ws.sum_of[j] : -double_infinity;
            if (value > asks.value) asks = {value, j};
        }
        const double own = !(x < task.most_of(seated)) ? -ws.w[seated] / ws.sum_of[seated] : -double_infinity;
        team.sync();
        if (asks.value > own) {
            leave_at_bound(0);
            insert_called(asks.index);
            factor.settled = 1;
            fresh = false;
            this->inserted_count = 0;  // the next point is no worse for what was inserted before
        }
    }

    // The sum of x is what it has to be, but for one rounding: the largest x takes what is missing.
    SW_HD void mend_sum() {
        if (!ws.sum_of || factor.count == 0) return;
        double part = 0, highest = -1;
        int where = 0;
        team.lane_each(factor.count, [&](int p) { part += ws.sum_of[ws.order[p]] * ws.x[p]; });
        const double missing = factor.remainder - team.lane_sum(part);
        for (int p = 0; p < factor.count; ++p) {
            const int j = ws.order[p];
            const double room = min_of(task.most_of(j) - ws.x[p], ws.x[p] - task.least_of(j));
            if (room * ws.sum_of[j] > highest) {
                highest = room * ws.sum_of[j];
                where = p;
            }
        }
        team.sync();
        if (team.rank() == 0 && missing != 0) {
            if (highest > absolute(missing))
                ws.x[where] += missing / ws.sum_of[ws.order[where]];
            else
                share_out(missing);
        }
        team.sync();
    }

    // r . r over the rows of A alone, r = b - A x; ws.r becomes the residual without the metric.
    SW_CALL double squared_fit() {
        const int length = task.extent.row_length(), rows = task.matrix.top.rows;
        double *r = ws.r, part = 0;
        const double* b = ws.b;
        team.each(length, [=](int i) { r[i] = b[i]; });
        team.sync();
        subtract_columns(team, factor.positive(), factor.count, ws.x, r, length);
        if (ws.metric)
            team.each(rows, [&](int i) { part += ws.metric[i] * r[i] * r[i]; });
        else
            part = part_of_dot(team, r, r, length);
        fresh = false;
        return team.sum(part);
    }

protected:
    // What is missing of a bound sum goes to the columns in the factor one after the other, as far as their
    // bounds let it: where b is so much larger than the sum that a solution has no digits of it. By one
    // member.
    SW_HD void share_out(double missing) const {
        for (int p = 0; p < factor.count && missing != 0; ++p) {
            const int j = ws.order[p];
            const double c = ws.sum_of[j], before = ws.x[p];
            if (!(c > 0)) continue;
            ws.x[p] = clamp_to(before + missing / c, task.least_of(j), task.most_of(j));
            missing -= c * (ws.x[p] - before);
        }
    }

    // ws.b, and A'b where it is kept, less d times the column at a position.
    SW_HD void take_from_b(int position, int j, double d) {
        const int length = task.extent.row_length();
        this->has_moved = true;
        copy_column(team, factor.positive(), position, ws.v, length);
        team.sync();
        double* b = ws.b;
        const double* v = ws.v;
        team.each(length, [=](int i) { b[i] -= d * v[i]; });
        team.sync();
        if (ws.metric) weigh_b();
        if (ws.sum_of) factor.remainder -= ws.sum_of[j] * d;
        if (task.shared.gram) {
            const double* row = task.shared.gram + j * task.shared.gram_stride;
            team.each(this->columns(), [&](int i) { ws.c[i] -= d * row[i]; });
        }
        if (ws.c_penalty && task.shared.scale) {
            const Shared& shared = task.shared;
            const double* row = shared.penalty_gram ? shared.penalty_gram + j * shared.gram_stride : nullptr;
            team.each(this->columns(), [&](int i) {
                if (row)
                    ws.c_penalty[i] -= d * row[i];
                else if (i == j)
                    ws.c_penalty[i] -= d * shared.penalty_diagonal[j];
            });
        }
        team.sync();
    }

private:
    // How much less the squared residual is with column j filled as far as it can be.
    SW_HD double value_of_filling(int j, double e) const {
        const double c = ws.sum_of[j];
        if (!(c > 0) || (ws.state[j] & excluded)) return -double_infinity;
        const double most = task.most_of(j), least = task.least_of(j);
        if (e > 0 ? !(most > 0) : e < 0 ? !(least < 0) : false) return -double_infinity;
        const double x = e > 0 ? min_of(most, e / c) : e < 0 ? max_of(least, e / c) : 0.0;
        const double square =
            ws.square[j] + (ws.penalty_square ? factor.penalty * ws.penalty_square[j] : 0.0);
        const double w = ws.w[j] - multiplier * c;
        return x == 0 ? task.sign_of(j) * w : x * (2 * w - x * square);
    }

    SW_HD bool any_above(const double* cost) const {
        return largest(team, cost, this->columns()).value > -double_infinity;
    }
};

}  // namespace lsq
SW_END
