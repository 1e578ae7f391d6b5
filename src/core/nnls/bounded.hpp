// Bounds, a bound sum, weights of rows and a penalty: how a general problem begins, and how columns leave at
// a bound. All in scaled units. A column out of the factor is at its reference, a bound; ws.b is b less what
// the references take of it, so that x of the columns in the factor counts from theirs.
#pragma once

#include "core/nnls/insertion.hpp"
#include "core/nnls/stacked.hpp"

SW_BEGIN
namespace nnls {

template <class Team, class Matrix>
struct Bounded : Insertion<Team, Matrix> {
    using Base = Insertion<Team, Matrix>;
    using Base::b_norm;
    using Base::b_scale;
    using Base::factor;
    using Base::fresh;
    using Base::from_gram;
    using Base::given_up;
    using Base::multiplier;
    using Base::reference_size;
    using Base::squared_residual;
    using Base::tally;
    using Base::task;
    using Base::team;
    using Base::ws;

    const double *given_lower = nullptr, *given_upper = nullptr;  // of this system
    double sum_low = 0, sum_high = 0;

    SW_HD Bounded(const Team& team, const Task<Matrix>& task) : Base(team, task) {}

    // Reads the system, measures its columns, and finds the dual of the references. What is wrong with it, or
    // `converged`.
    template <class Scalar>
    SW_CALL int begin_general(const Job& job, int64_t system, const Scalar* b, double penalty) {
        const Family& family = job.family;
        const Matrix& matrix = task.matrix;
        given_lower = family.lower + system * family.lower_stride;
        given_upper = family.upper + system * family.upper_stride;
        const uint8_t* mask = family.mask ? family.mask + system * family.mask_stride : nullptr;
        const double* weights = family.weights ? family.weights + system * family.weights_stride : nullptr;
        if (family.summed) {
            sum_low = family.sum_low[system * family.sum_stride];
            sum_high = family.sum_high[system * family.sum_stride];
        }
        team.each_short(4, [&](int k) { ws.costs[k] = 0; });
        if (!task.shared.columns) team.each(task.extent.positions(), [&](int p) { ws.slot[p] = p; });
        if (task.extent.square_q) this->square_identity();
        if (task.extent.gram_only ? !read_gram(family, system)
                                  : !read_b(b, weights) || !measure_columns(weights))
            return non_finite;
        if (!read_bounds(mask)) return infeasible;
        subtract_references();
        set_penalty(penalty);
        from_gram = task.shared.gram != nullptr;
        dual_of_references();
        if (family.summed && !sum_is_possible()) return infeasible;
        return converged;
    }

    // Makes lambda^2 what is given. The dual is then to be found anew, and the factor, if there is one.
    SW_CALL void set_penalty(double penalty) {
        factor.penalty = penalty;
        if (ws.metric) {
            const int first = task.matrix.below + task.matrix.summed, last = task.matrix.rows;
            team.each(last - first, [&](int i) { ws.metric[first + i] = penalty; });
            team.sync();
            team.each(task.extent.row_length(), [&](int i) {
                const double root = square_root(ws.metric[i]);
                ws.root[i] = root;
                ws.inverse_root[i] = root > 0 ? 1.0 / root : 0.0;
                ws.weighed_b[i] = ws.metric[i] * ws.b[i];
            });
        }
        if (ws.square)
            team.each(this->columns(), [&](int j) {
                const double square =
                    ws.square[j] + (ws.penalty_square ? penalty * ws.penalty_square[j] : 0.0);
                ws.norm[j] = square_root(square);
                ws.inverse_norm[j] = square > 0 ? 1.0 / ws.norm[j] : 0.0;
            });
        team.sync();
        double size = 0;
        team.each(this->columns(), [&](int j) {
            this->mark(j, ws.state[j]);
            const double reference = task.reference_of(j);
            if (reference != 0) size += task.norm_of(j) * absolute(reference);
        });
        reference_size = team.sum(size);
        fresh = false;
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
        const int state = (ws.state[j] & ~(reflected | leaving | from_zero)) | (up ? reflected : 0);
        const double before = absolute(task.reference_of(j));
        team.sync();
        if (team.rank() == 0) this->mark(j, state);
        team.sync();
        reference_size += task.norm_of(j) * (absolute(task.reference_of(j)) - before);
    }

    // x of a column in the factor counts from zero instead of from a bound, or from that bound again. Far
    // from a large bound the distance from it has few of x's digits.
    SW_CALL void count_from_zero(int position, bool from) {
        const int j = ws.order[position];
        const double before = task.reference_of(j);
        team.sync();
        if (team.rank() == 0) this->mark(j, from ? ws.state[j] | from_zero : ws.state[j] & ~from_zero);
        team.sync();
        const double after = task.reference_of(j), d = after - before;
        factor.shift_target(position, d);
        take_from_b(position, j, d);
        if (team.rank() == 0) ws.x[position] -= d;
        reference_size += task.norm_of(j) * (absolute(after) - absolute(before));
        fresh = false;
        team.sync();
    }

    // Lets the columns in the factor count from zero where the bounds they count from are much larger than
    // they and b are. Whether any does that did not.
    SW_HD bool leave_large_bounds() {
        double bounds = 0, size = 0;
        team.lane_each(factor.count, [&](int p) {
            const int j = ws.order[p];
            const double reference = task.reference_of(j), norm = task.norm_of(j);
            bounds += norm * absolute(reference);
            size += norm * absolute(reference + ws.x[p]);
        });
        bounds = team.lane_sum(bounds);
        size = team.lane_sum(size) + (reference_size - bounds) + b_norm;
        if (!(bounds > large_bounds * size)) return false;
        given_up = max_of(given_up, bounds);
        for (int p = 0; p < factor.count; ++p)
            if (task.reference_of(ws.order[p]) != 0) count_from_zero(p, true);
        return true;
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
        reference_size += task.norm_of(j) * (absolute(task.reference_of(j)) - before);
        fresh = false;
    }

    // Called rather than inlined, as all that a general problem does in several places: a device's code stays
    // small.
    SW_CALL Entry insert_called(int j) { return this->insert_alone(j); }

    // The free columns enter first, and never leave; those that depend on others of them stay out.
    SW_HD void insert_free() {
        for (int j = 0; j < this->columns(); ++j)
            if ((ws.state[j] & is_free) && task.norm_of(j) > 0) insert_called(j);
    }

    // With a bound sum: goes to a point that has it. The columns that lower the residual most are filled, one
    // after the other; the last is in the factor then.
    SW_CALL void fill_up() {
        const double e = factor.remainder;
        double* cost = ws.score;
        bool any_free = false;
        for (int j = 0; j < this->columns(); ++j) any_free = any_free || (ws.state[j] & is_free);
        if (any_free) return insert_free();
        team.each(this->columns(), [&](int j) { cost[j] = value_of_filling(j, e); });
        team.sync();
        for (;;) {
            const Peak best = largest(team, cost, this->columns());
            if (!(best.value > -double_infinity)) return;
            const int j = best.index;
            const double left = factor.remainder, wanted = left / ws.sum_of[j];
            const double most = task.most_of(j), least = task.least_of(j);
            team.sync();
            if (team.rank() == 0) cost[j] = -double_infinity;
            team.sync();
            const bool fits = left > 0 ? wanted < most : left < 0 ? wanted > least : true;
            const bool last = !fits && !any_above(cost);
            team.sync();
            if (!fits && !last) {
                cross(j);
                continue;
            }
            insert_called(j);
            if (team.rank() == 0) ws.x[0] = clamp_to(wanted, least, most);
            team.sync();
            return;
        }
    }

    // Where a bound sum has all columns at bounds and the one in the factor is not the one to be exchanged:
    // that one takes its place. Of those at an upper bound it is the one that asks most to go down.
    SW_CALL void reseat() {
        if (!ws.sum_of || factor.count != 1) return;
        const int seated = ws.order[0];
        const double x = ws.x[0];
        if (x < task.most_of(seated) && x > task.least_of(seated)) return;
        team.sync();
        team.each(this->columns(), [&](int j) {
            const int state = ws.state[j] & ~barred;
            ws.score[j] = state == reflected && ws.sum_of[j] > 0 ? -ws.w[j] / ws.sum_of[j] : -double_infinity;
        });
        team.sync();
        const Peak asks = largest(team, ws.score, this->columns());
        const double own = !(x < task.most_of(seated)) ? -ws.w[seated] / ws.sum_of[seated] : -double_infinity;
        team.sync();
        if (asks.value > own) {
            leave_at_bound(0);
            insert_called(asks.index);
            factor.settled = 1;
            fresh = false;
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
        if (team.rank() == 0 && missing != 0 && highest > absolute(missing))
            ws.x[where] += missing / ws.sum_of[ws.order[where]];
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

private:
    template <class Scalar>
    SW_HD bool read_b(const Scalar* b, const double* weights) {
        const int length = task.extent.row_length(), rows = task.matrix.top.rows, below = task.matrix.below;
        double magnitude;
        if (weights) {
            double highest = 0;
            team.each(rows, [&](int i) {
                const double value = weights[i] > 0 ? absolute(double(b[i])) : 0.0;
                highest = max_of(highest, is_finite(value) ? value : double_infinity);
            });
            magnitude = team.max(highest);
        } else {
            magnitude = largest_magnitude(team, b, rows);
        }
        if (!is_finite(magnitude)) return false;
        b_scale = magnitude >= 1e-290 ? power_below(magnitude) : 1.0;
        const int before = static_cast<int>(padded(task.matrix.zeros_before()));
        double square = 0;
        team.each(length, [&](int i) {
            const double weight = weights && i < rows ? weights[i] * weights[i] : i < below ? 1.0 : 0.0;
            const double value = i < rows && weight > 0 ? b_scale * double(b[i]) : 0.0;
            ws.b[i] = value;
            ws.r[i] = weight * value;
            if (ws.metric) ws.metric[i] = weight;
            square += weight * value * value;
        });
        team.each(before, [&](int i) { ws.r[i - before] = 0; });
        team.each(task.matrix.zeros_after(), [&](int i) { ws.r[length + i] = 0; });
        team.sync();
        b_norm = square_root(team.sum(square));
        return true;
    }

    // Scales and norms, what the sum's row weighs, and A'b in ws.w, unscaled.
    SW_HD bool measure_columns(const double* weights) {
        const Matrix& matrix = task.matrix;
        const int n = matrix.columns;
        const bool shared = task.shared.scale != nullptr;
        double bad = 0;
        if (shared) {
            matrix.prepare(team);
            if (ws.square && !weights) {
                team.each(n,
                          [&](int j) { ws.square[j] = task.shared.top_norm[j] * task.shared.top_norm[j]; });
            } else if (weights) {
                const Shared& common = task.shared;
                const Columns all{common.columns, common.column_stride,    nullptr, common.low, common.high,
                                  nullptr,        task.extent.row_length()};
                const int rows = matrix.top.rows;
                for (int j = team.row(); j < n; j += team.rows()) {
                    const double* column = all.at(j);
                    double part = 0;
                    team.lane_each(rows, [&](int i) { part += ws.metric[i] * column[i] * column[i]; });
                    part = team.lane_sum(part);
                    if (team.lane() == 0) ws.square[j] = part;
                }
            }
        } else {
            matrix.measure(team, ws.r, task.envelope, ws.score, ws.w);
            if (weights) matrix.weighted_squares(team, ws.metric, ws.score);
            team.each(n, [&](int j) {
                double scale, norm;
                if (!scale_stacked(matrix, j, ws.score[j], scale, norm)) bad = 1;
                // (Of a column so large or so small that its norm was found in another way the weights do not
                // count in its norm: it is for tests of rounding alone.)
                if (weights && ws.score[j] > 1e-200 && ws.score[j] < 1e200)
                    norm = scale * square_root(ws.score[j]);
                ws.scale[j] = scale;
                ws.norm[j] = norm;
                ws.inverse_norm[j] = norm > 0 ? 1.0 / norm : 0.0;
                if (ws.square) ws.square[j] = norm * norm;
            });
        }
        bad = team.max(bad);
        team.sync();
        if (bad != 0) return false;
        if (ws.square) add_rows_beneath(shared);
        return true;
    }

    // The squares of the rows beneath A.
    SW_HD void add_rows_beneath(bool shared) {
        const Matrix& matrix = task.matrix;
        const int n = matrix.columns;
        if (matrix.summed) {
            double row_weight = weight_of_sum();
            factor.row_weight = row_weight;
            if (team.rank() == 0) ws.metric[matrix.below] = row_weight;
        }
        team.sync();
        team.each(n, [&](int j) {
            const double row_weight = factor.row_weight;
            if (ws.penalty_square) {
                ws.penalty_square[j] = shared ? task.shared.penalty_diagonal[j]
                                              : ws.scale[j] * ws.scale[j] * square_in_penalty(matrix, j);
            }
            if (matrix.summed) {
                ws.sum_of[j] = task.scale_of(j) * matrix.coefficient(j);
                ws.square[j] += row_weight * ws.sum_of[j] * ws.sum_of[j];
            }
        });
        team.sync();
    }

    // A power of four near the mean square of the largest column's entries, over the largest coefficient's:
    // the row then counts as much as one of A.
    SW_HD double weight_of_sum() {
        const Matrix& matrix = task.matrix;
        double highest = 0, coefficient = 0;
        team.each(matrix.top.columns, [&](int j) {
            const double scale = task.scale_of(j);
            if (scale > 0) highest = max_of(highest, ws.square[j] / (scale * scale));
            coefficient = max_of(coefficient, matrix.coefficient(j));
        });
        highest = team.max(highest);
        coefficient = team.max(coefficient);
        const double root =
            highest > 0 ? square_root(highest / max_of(matrix.top.rows, 1)) / coefficient : 1 / coefficient;
        const double power = power_below(root);
        return 1 / (power * power);
    }

    // Bounds in scaled units and states. False where a lower bound is above its upper.
    SW_HD bool read_bounds(const uint8_t* mask) {
        const Matrix& matrix = task.matrix;
        double crossed = 0;
        team.each(matrix.columns, [&](int j) {
            const bool slack = j >= matrix.top.columns;
            double lower = slack ? slack_low() : given_lower[j],
                   upper = slack ? slack_high() : given_upper[j];
            const bool masked = !slack && mask && !mask[j];
            if (masked) lower = upper = 0;
            if (!(lower <= upper)) crossed = 1;
            const double scale = task.scale_of(j), unit = scale > 0 ? b_scale / scale : 0.0;
            int state = zero;
            if (masked || lower == upper)
                state = excluded;
            else if (is_finite(lower))
                state = zero;
            else
                state = is_finite(upper) ? reflected : is_free;
            ws.lower[j] = is_finite(lower) ? lower * unit : lower;
            ws.upper[j] = is_finite(upper) ? upper * unit : upper;
            ws.state[j] = state;
            if (ws.sum_of && masked) ws.sum_of[j] = 0;
        });
        crossed = team.max(crossed);
        team.sync();
        return crossed == 0;
    }

    SW_HD double slack_low() const { return is_finite(sum_high) ? 0.0 : -double_infinity; }
    SW_HD double slack_high() const {
        if (!is_finite(sum_high)) return is_finite(sum_low) ? 0.0 : double_infinity;
        return sum_high - sum_low;
    }
    SW_HD double wanted_sum() const {
        return is_finite(sum_high) ? sum_high : is_finite(sum_low) ? sum_low : 0.0;
    }

    // b less what the references take of it.
    SW_HD void subtract_references() {
        const Matrix& matrix = task.matrix;
        double* x = ws.score;
        double any = 0;
        team.each(matrix.columns, [&](int j) {
            const double reference = task.reference_of(j);
            if (reference != 0) any = 1;
            x[j] = reference * task.scale_of(j);
        });
        any = team.max(any);
        team.sync();
        if (matrix.summed) {
            factor.remainder = wanted_sum() * b_scale;
            if (team.rank() == 0) ws.b[matrix.below] = factor.remainder;
            team.sync();
        }
        if (any == 0) return;
        matrix.subtract_product(team, x, ws.b);
        if (matrix.summed) factor.remainder = ws.b[matrix.below];
        team.sync();
        team.each(task.extent.row_length(), [&](int i) {
            ws.r[i] = i < matrix.below ? (ws.metric ? ws.metric[i] : 1.0) * ws.b[i] : 0.0;
        });
        team.sync();
        // What was found of A'b is that of b itself.
        if (!task.shared.scale && !task.extent.gram_only)
            matrix.top.multiply(team, ws.r, task.envelope, ws.w, ws.scratch);
    }

    // Normal equations in place of A and b: scales, norms, scaled products, and A'b in ws.w.
    SW_HD bool read_gram(const Family& family, int64_t system) {
        const int n = task.matrix.top.columns, all = this->columns();
        const double *gram = family.gram + system * family.gram_stride,
                     *linear = family.linear + system * family.linear_stride;
        double odd = 0, highest = 0;
        team.each(n * n, [&](int i) { odd += gram[i] - gram[i]; });
        team.each(all, [&](int j) {
            const double square = j < n ? gram[static_cast<int64_t>(j) * n + j] : 0.0,
                         c = j < n ? linear[j] : 0.0;
            odd += c - c;
            double scale = square > 0 && is_finite(square) ? power_below(square_root(square)) : 0.0;
            if (scale == 0 && task.matrix.summed) scale = 1;
            ws.scale[j] = scale;
            ws.norm[j] = square > 0 ? scale * square_root(square) : 0.0;
            ws.inverse_norm[j] = ws.norm[j] > 0 ? 1.0 / ws.norm[j] : 0.0;
            if (ws.square) ws.square[j] = ws.norm[j] * ws.norm[j];
            highest = max_of(highest, absolute(c) * scale);
        });
        odd = team.max(odd == 0 ? 0.0 : 1.0);
        highest = team.max(highest);
        team.sync();
        if (odd != 0 || !is_finite(highest)) return false;
        b_scale = highest >= 1e-290 ? power_below(highest) : 1.0;
        const int64_t stride = padded(all);
        for (int j = 0; j < all; ++j) {
            double* row = ws.own_gram + j * stride;
            const double own = ws.scale[j];
            team.each(static_cast<int>(stride), [&](int i) {
                row[i] = i < n && j < n ? own * ws.scale[i] * gram[static_cast<int64_t>(j) * n + i] : 0.0;
            });
        }
        team.each(all, [&](int j) { ws.w[j] = j < n ? b_scale * linear[j] : 0.0; });
        const double given = family.squared_b ? family.squared_b[system * family.squared_b_stride] : 0.0;
        b_norm = given > 0 ? b_scale * square_root(given) : b_scale * highest;
        team.each(task.extent.row_length(), [&](int i) {
            ws.b[i] = ws.r[i] = 0;
            if (ws.metric) ws.metric[i] = 0;
        });
        team.sync();
        if (ws.square) add_rows_beneath(false);
        return true;
    }

    // Whether any x within its bounds has the sum that is wanted, but for rounding; and drops upper bounds
    // that the sum keeps anyway, so that a point at one of them is no corner.
    SW_HD bool sum_is_possible() {
        double lowest = 0, highest = 0, size = absolute(factor.remainder);
        for (int j = 0; j < this->columns(); ++j) {
            const double c = ws.sum_of[j];
            if (!(c > 0) || (ws.state[j] & excluded)) continue;
            lowest += c * task.least_of(j);
            highest += c * task.most_of(j);
            const double reference = task.reference_of(j);
            size += c * absolute(reference);
        }
        const double room = 8 * double_epsilon * size;
        const double e = factor.remainder;
        team.sync();
        if (!(lowest <= e + room) || !(highest >= e - room)) return false;
        team.each(this->columns(), [&](int j) {
            const double c = ws.sum_of[j];
            if (lowest == 0 && ws.state[j] == zero && c > 0 && c * ws.upper[j] - c * ws.lower[j] >= e)
                ws.upper[j] = double_infinity;
        });
        team.sync();
        return true;
    }

    // The dual where all columns are at their references; the row of a bound sum does not count in it.
    SW_HD void dual_of_references() {
        const Matrix& matrix = task.matrix;
        const int n = matrix.columns;
        if (task.shared.scale) matrix.top.multiply(team, ws.r, task.envelope, ws.w, ws.scratch);
        team.each(n - matrix.top.columns, [&](int q) { ws.w[matrix.top.columns + q] = 0; });
        team.sync();
        this->scale_dual();
        ++tally.passes;
        if (ws.c_penalty) {
            const int length = static_cast<int>(padded(n));
            team.each(length, [&](int j) { ws.c_penalty[j] = 0; });
            team.sync();
            matrix.add_beneath(team, ws.b + matrix.below, matrix.summed, matrix.rows_beneath(), ws.c_penalty);
            team.each(n, [&](int j) { ws.c_penalty[j] *= task.scale_of(j); });
        }
        team.sync();
        if (task.extent.gram_only) {
            for (int k = 0; k < n; ++k) {
                const double reference = task.reference_of(k),
                             *row = ws.own_gram + k * task.shared.gram_stride;
                if (reference != 0) team.each(n, [&](int j) { ws.w[j] -= reference * row[j]; });
            }
            team.sync();
        }
        if (from_gram) team.each(n, [&](int j) { ws.c[j] = ws.w[j]; });
        if (ws.c_penalty) team.each(n, [&](int j) { ws.w[j] += factor.penalty * ws.c_penalty[j]; });
        double square = 0;
        team.each(task.extent.row_length(), [&](int i) {
            const double weight = i < matrix.below || i >= matrix.below + matrix.summed ? 1.0 : 0.0;
            square += weight * (ws.metric ? ws.metric[i] : 1.0) * ws.b[i] * ws.b[i];
            ws.r[i] = ws.weighed_b[i];
        });
        squared_residual = team.sum(square);
        multiplier = 0;
        this->mask_scores();
        fresh = true;
        team.sync();
    }

    // ws.b, and A'b where it is kept, less d times the column at a position.
    SW_HD void take_from_b(int position, int j, double d) {
        const int length = task.extent.row_length();
        copy_column(team, factor.positive(), position, ws.v, length);
        team.sync();
        team.each(length, [&](int i) {
            const double b = ws.b[i] - d * ws.v[i];
            ws.b[i] = b;
            if (ws.metric) ws.weighed_b[i] = ws.metric[i] * b;
        });
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

    // How much less the squared residual is with column j filled as far as it can be.
    SW_HD double value_of_filling(int j, double e) const {
        const double c = ws.sum_of[j];
        if (!(c > 0) || (ws.state[j] & excluded)) return -double_infinity;
        const double most = task.most_of(j), least = task.least_of(j);
        if (e > 0 ? !(most > 0) : e < 0 ? !(least < 0) : false) return -double_infinity;
        const double x = e > 0 ? min_of(most, e / c) : e < 0 ? max_of(least, e / c) : 0.0;
        const double square = task.norm_of(j) * task.norm_of(j) - factor.row_weight * c * c;
        const double w = ws.w[j] - multiplier * c;
        return x == 0 ? task.sign_of(j) * w : x * (2 * w - x * square);
    }

    SW_HD bool any_above(const double* cost) const {
        return largest(team, cost, this->columns()).value > -double_infinity;
    }
};

}  // namespace nnls
SW_END
