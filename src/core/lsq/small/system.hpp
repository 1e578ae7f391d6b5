// A small system: what is known of it, and where it stands. Everything is in tables of products. Where a
// thread has a system of its own, indices go the same way for all threads of a warp wherever that can be, so
// that what they keep, an entry of each side by side, is read together.
#pragma once

#include "core/lsq/numbers.hpp"
#include "core/lsq/scaling.hpp"
#include "core/lsq/small/report.hpp"
#include "core/lsq/stacked.hpp"

SW_BEGIN
namespace lsq {
namespace small {

template <class Kind, class Lanes>
struct System {
    typedef typename Kind::Numbers Numbers;
    static constexpr int width = Lanes::width;
    static constexpr int chunk = 8;  // columns that one thread sums at once
    // Columns and positions of a lane.
    static constexpr int own_columns = (Kind::capacity + width - 1) / width;
    static constexpr int own_positions = (Kind::positions + width - 1) / width;
    static_assert(sizeof(Store<Kind, width>) ==
                  8 * store_length(Kind::capacity, Kind::positions, Kind::shares, width));

    const Job& job;
    const int64_t system;
    const Products& products;
    const Lanes lanes;
    const Numbers numbers;
    const int n;  // columns, a slack included
    double *const x, *const w, *const table;
    int32_t* const order;
    double* const row_residuals;

    double c[own_columns];
    // A host's thread keeps those of a bound sum for all systems of a matrix.
    static constexpr bool keeps_sum = Lanes::has_sweeps && Kind::summed && Kind::shares && !Kind::penalized;
    static constexpr bool own_norms = Kind::own_norms && !keeps_sum;
    // Whether the inverses of all sets of columns are kept: there is no factor then but to find one, and a
    // column's position is its number.
    static constexpr bool keeps_inverses =
        Lanes::has_sweeps && Kind::source == one_matrix && !Kind::penalized && Kind::capacity <= kept_columns;
    // Whether all columns of a step are looked at at once, as there are no bounds but zero; and some systems.
    static constexpr bool sweeps_signs = keeps_inverses && !Kind::bounded;
    double own_inverse[own_norms ? own_columns : 1];
    // Columns in the factor; out of it at their upper bound; that take no part; and with x other than zero.
    uint64_t passive = 0, at_upper = 0, shut = 0, support = 0;
    uint64_t masked = 0;  // that are not there
    // With bounds so far away that x would lose its digits to them: they do not count while nothing is beyond
    // them (types.hpp: far_bounds).
    uint64_t far_below = 0, far_above = 0;
    double squared_b = 0, b_norm = 0;
    double nu = 0;               // lambda^2 of a penalty
    double rho = 0, wanted = 0;  // what the row of the sum weighs; the sum
    bool drops_upper = false;    // the sum keeps x below upper bounds that are as large as it
    double least_sum = 0;        // with all columns at their references
    int count = 0;               // of columns in the factor

    SW_HD System(const Job& job, int64_t system, const Products& products, const Lanes& lanes,
                 Store<Kind, width>& store)
        : job(job),
          system(system),
          products(products),
          lanes(lanes),
          numbers(job),
          n(job.columns + job.family.slack),
          x(sweeps_signs && products.guess ? products.guess->x : store.x),
          w(store.w),
          table(store.table),
          order(store.order),
          row_residuals(store.residual) {}

    // A lane's own columns, and its positions among `count`: which, and its how manyeth that is.
    template <class Body>
    SW_HD void each_column(Body body) const {
        each<own_columns>(n, body);
    }
    template <class Body>
    SW_HD void each_position(int count, Body body) const {
        each<own_positions>(count, body);
    }
    // A lane's own columns in the factor, and which of its entries of a step is theirs.
    template <class Body>
    SW_HD void each_in_factor(Body body) const {
        if constexpr (keeps_inverses) {
            for (uint64_t rest = passive; rest; rest &= rest - 1) body(lowest_of(rest), lowest_of(rest));
        } else {
            each_position(count, [&](int p, int t) { body(order[p], t); });
        }
    }

    // Columns, and those that fill up a whole number of eights: as many as are swept over.
    SW_HD int swept() const {
        return Kind::capacity <= padding ? Kind::capacity : min_of(Kind::capacity, int(padded(n)));
    }

    SW_HD const void* b() const { return numbers.after(job.b, system * job.b_stride); }
    SW_HD bool is_slack(int j) const { return Kind::has_slack && j >= job.columns; }
    SW_HD double scale(int j) const {
        if constexpr (Kind::shares)
            return products.shared.scale[j];
        else
            return 1.0;
    }
    SW_HD double gram(int i, int j) const {
        if constexpr (Kind::shares)
            return products.gram[i * products.stride + j];
        else
            return table[i * Kind::capacity + j];
    }
    // Of L's columns.
    SW_HD double penalty(int i, int j) const {
        const Shared& shared = products.shared;
        if (shared.penalty_gram) return shared.penalty_gram[i * shared.gram_stride + j];
        return i == j ? shared.penalty_diagonal[j] : 0.0;
    }
    SW_HD double coefficient(int j) const {
        if constexpr (keeps_sum) return products.sum->coefficients[j];
        return find_coefficient(j);
    }
    SW_HD double find_coefficient(int j) const {
        const Family& family = job.family;
        const bool given = family.coefficients && !is_slack(j);
        return (given ? family.coefficients[j] : 1.0) * scale(j);
    }
    // |a_j|^2, the penalty's rows included, not the sum's.
    SW_HD double square(int j) const {
        double value = gram(j, j);
        if constexpr (Kind::penalized) value += nu * penalty(j, j);
        return value;
    }
    // a_i . a_j, with all rows; and that of two that are not the same.
    SW_HD double product(int i, int j) const {
        double value = gram(i, j);
        if constexpr (Kind::penalized) value += nu * penalty(i, j);
        if constexpr (Kind::summed) value += rho * coefficient(i) * coefficient(j);
        return value;
    }
    SW_HD double product_apart(int i, int j) const {
        if constexpr (Lanes::has_sweeps && Kind::penalized && !Kind::summed)
            if (!products.shared.penalty_gram) return gram(i, j);
        return product(i, j);
    }
    // Of column j, which is a lane's own, its t-th.
    SW_HD double inverse_norm(int j, int t) const {
        if constexpr (own_norms)
            return own_inverse[t];
        else
            return inverse_norms()[j];
    }
    // Of all columns, for who has sweeps.
    SW_HD const double* inverse_norms() const {
        if constexpr (own_norms)
            return own_inverse;
        else if constexpr (keeps_sum)
            return products.sum->inverse_norm;
        else
            return products.inverse_norm;
    }
    SW_HD double norm(int j, int t) const { return square(j) * inverse_norm(j, t); }

    SW_HD double in_units_of(int j, double value) const {
        if constexpr (!Kind::shares) return value;
        return products.unit ? value * products.unit[j] : value / products.shared.scale[j];
    }
    // (Of columns of zeros, whose unit is none.)
    SW_HD double dual_in_units(int j) const {
        if constexpr (Lanes::has_sweeps) return in_units_of(j, w[j]);
        return scale(j) > 0 ? in_units_of(j, w[j]) : 0.0;
    }

    // Bounds as given, and in the units of the scaled columns.
    SW_HD double given_bound(int j, bool upper) const {
        const Family& family = job.family;
        if constexpr (!Kind::bounded) return upper ? double_infinity : 0.0;
        if (is_slack(j)) {
            const double low = family.sum_low[system * family.sum_stride],
                         high = family.sum_high[system * family.sum_stride];
            if (!upper) return is_finite(high) ? 0.0 : -double_infinity;
            return is_finite(high) ? high - low : is_finite(low) ? 0.0 : double_infinity;
        }
        if constexpr (!Kind::boxed) return upper ? double_infinity : 0.0;
        return upper ? family.upper[system * family.upper_stride + j]
                     : family.lower[system * family.lower_stride + j];
    }
    // Bounds as they count: far ones are infinite.
    SW_HD double bound(int j, bool upper) const {
        if constexpr (Kind::boxed)
            if ((upper ? far_above : far_below) & bit_of(j))
                return upper ? double_infinity : -double_infinity;
        return given_bound(j, upper);
    }
    SW_HD double lower(int j) const {
        if (!Kind::boxed && !is_slack(j)) return 0.0;
        return in_units_of(j, bound(j, false));
    }
    SW_HD double upper(int j) const {
        if (!Kind::boxed && !is_slack(j)) return double_infinity;
        const double high = in_units_of(j, bound(j, true));
        if (Kind::summed && drops_upper && is_finite(high)) {
            const double low = lower(j), s = coefficient(j);
            if (!(at_upper & bit_of(j)) && s * high - s * low >= wanted - least_sum) return double_infinity;
        }
        return high;
    }
    SW_HD bool is_masked(int j) const { return masked & bit_of(j); }
    // For all lanes at once, when all have read what was there.
    SW_HD void set_x(int j, double value) {
        lanes.sync();
        if (lanes.lane() == 0) x[j] = value;
        lanes.sync();
        support = value != 0 ? support | bit_of(j) : support & ~bit_of(j);
    }
    SW_HD void enter(int j) {
        if constexpr (!keeps_inverses) {
            if (lanes.lane() == 0) order[count] = j;
            lanes.sync();
        }
        ++count;
        passive |= bit_of(j);
        at_upper &= ~bit_of(j);
    }
    // Columns that are out of the factor, as many as it has room for.
    SW_HD void enter_some(uint64_t columns) {
        if constexpr (keeps_inverses) {
            passive |= columns;
            at_upper &= ~columns;
            count = bits_in(static_cast<unsigned>(passive));
            return;
        }
        int place = count;
        SW_ROLLED
        for (; columns && place < Kind::positions; columns &= columns - 1, ++place) {
            const int j = lowest_of(columns);
            if (lanes.lane() == 0) order[place] = j;
            passive |= bit_of(j);
        }
        at_upper &= ~passive;
        count = place;
        lanes.sync();
    }

    // Norms for the scores, with the lambda of this system.
    SW_HD void find_norms() {
        if constexpr (!own_norms) return;
        find_inverse_norms(own_inverse);
    }
    SW_HD void find_inverse_norms(double* inverse) const {
        each_column([&](int j, int t) { inverse[t] = judged_square(j); });
        if constexpr (Lanes::has_sweeps)
            lanes.invert_roots(inverse, n);
        else
            each_column([&](int, int t) { inverse[t] = inverse[t] > 0 ? 1 / square_root(inverse[t]) : 0.0; });
    }
    // For columns of zeros there is nothing but the row of a sum.
    SW_HD double judged_square(int j) const {
        const double square = this->square(j);
        return square > 0 ? square : coefficient_square(j);
    }
    SW_HD double coefficient_square(int j) const {
        if constexpr (Kind::summed)
            return rho * coefficient(j) * coefficient(j);
        else
            return 0.0;
    }

    // Reads what is given, and puts every column at a bound or, without bounds, in the factor. False where
    // another solver has to see to it: it is told apart there what is wrong, if something is.
    SW_HD bool begin() {
        shut = n < 64 ? ~uint64_t(0) << n : 0;
        if constexpr (Lanes::has_sweeps) lanes.clear_two(sweeps_signs && products.guess ? w : x, w, swept());
        each<own_columns>(swept(), [&](int j, int t) {
            if constexpr (!Lanes::has_sweeps) x[j] = w[j] = 0;
            if constexpr (!(Kind::shares && Lanes::has_sweeps)) c[t] = 0;
            if constexpr (own_norms) own_inverse[t] = 0;
        });
        read_mask();
        lanes.sync();
        if constexpr (Kind::shares && Lanes::has_sweeps) {
            lanes.gather(products.linear, products.linear_step, c, swept());
            squared_b = products.squared_b;
        } else if constexpr (Kind::shares) {
            squared_b = residual_of_rows<true>(false);
            each_column([&](int j, int t) { c[t] = w[j]; });
        } else if (!read_table()) {
            return false;
        }
        if (!(squared_b == 0 ? is_zero() : is_in_range(squared_b))) return false;
        b_norm = square_root(squared_b);
        if constexpr (keeps_sum) {
            if (!(products.sum->weight > 0)) keep_sum(*products.sum);
            rho = products.sum->weight;
        } else if constexpr (Kind::summed && Kind::shares && Lanes::has_sweeps) {
            if (!(products.sum->weight > 0)) products.sum->weight = weight_of_sum();
            rho = products.sum->weight;
        } else if constexpr (Kind::summed) {
            rho = weight_of_sum();
        }
        find_norms();
        return put_at_bounds();
    }

    SW_HD void keep_sum(KeptSum& kept) {
        for (int j = 0; j < padded(n); ++j) kept.coefficients[j] = j < n ? find_coefficient(j) : 0.0;
        kept.weight = rho = weight_of_sum();
        for (int j = n; j < padded(n); ++j) kept.inverse_norm[j] = kept.norm[j] = 0;
        find_inverse_norms(kept.inverse_norm);
        for (int j = 0; j < n; ++j) {
            kept.norm[j] = square(j) * kept.inverse_norm[j];
            kept.inverse[j] = 1 / kept.coefficients[j];
            if (!(scale(j) > 0) || !(kept.inverse_norm[j] > 0)) kept.nothing |= bit_of(j);
            const int best = kept.pivot;
            if (kept.coefficients[j] * kept.norm[best] > kept.coefficients[best] * kept.norm[j])
                kept.pivot = j;
        }
    }

    // Columns with x other than zero; where there are no bounds but zero these are in the factor.
    template <class Body>
    SW_HD void each_not_zero(Body body) const {
        if constexpr (width > 1 && !Kind::bounded) {
            SW_UNROLL_BY(2)
            for (int p = 0; p < count; ++p) body(order[p]);
        } else {
            SW_ROLLED
            for (uint64_t rest = support; rest; rest &= rest - 1) body(lowest_of(rest));
        }
    }

    // r . r of r = b - A x over the rows of A, or of b alone; with `wants_product` A'r in w. Eight rows are
    // at work at a time, so that nothing as long as a column is kept.
    template <bool wants_product>
    SW_HD double residual_of_rows(bool subtracts) {
        if constexpr (Lanes::has_sweeps) {
            if constexpr (wants_product && Kind::summed) w[n - 1] = 0;  // perhaps a slack
            return numbers.with(b(), [&](const auto* values) {
                return lanes.template residual<wants_product>(values, job.rows, products.shared, x,
                                                              subtracts ? support : 0, job.columns, w);
            });
        } else if constexpr (width > 1)
            return residual_by_lanes<wants_product>(subtracts);
        else
            return residual_by_thread<wants_product>(subtracts);
    }

private:
    SW_HD void read_mask() {
        const Family& family = job.family;
        if (!family.mask) return;
        const uint8_t* mask = family.mask + system * family.mask_stride;
        each_column([&](int j, int) {
            if (j < job.columns && !mask[j]) masked |= bit_of(j);
        });
        masked = lanes.join(masked);
    }

    template <int most, class Body>
    SW_HD void each(int count, Body body) const {
        if constexpr (width == 1) {
            SW_ROLLED
            for (int j = 0; j < count; ++j) body(j, j);
        } else {
            SW_UNROLL
            for (int t = 0; t < most; ++t) {
                const int j = lanes.lane() + width * t;
                if (j < count) body(j, t);
            }
        }
    }

    // A row a lane, as many at a time as there are lanes.
    template <bool wants_product>
    SW_HD double residual_by_lanes(bool subtracts) {
        const void* b = this->b();
        const int rows = job.rows, all = job.columns;
        double square = 0, sum[own_columns];
        SW_UNROLL
        for (int t = 0; t < own_columns; ++t) sum[t] = 0;
        SW_ROLLED
        for (int first = 0; first < rows; first += width) {
            const int row = first + lanes.lane(), here = min_of(width, rows - first);
            double r = 0;
            if (row < rows) {
                r = numbers.read(b, row);
                const double* entries = products.entries + row * products.row_step;
                if (subtracts)
                    each_not_zero([&](int j) {
                        if (j < all) r -= entries[j * products.column_step] * x[j];
                    });
            }
            square += r * r;
            if constexpr (wants_product) {
                lanes.sync();
                row_residuals[lanes.lane()] = r;
                lanes.sync();
                const double* entries = products.entries + first * products.row_step;
                SW_UNROLL_BY(4)
                for (int k = 0; k < here; ++k) {
                    const double r_k = row_residuals[k];
                    SW_UNROLL
                    for (int t = 0; t < own_columns; ++t) {
                        const int j = lanes.lane() + width * t;
                        if (j < all) sum[t] += entries[j * products.column_step] * r_k;
                    }
                    entries += products.row_step;
                }
            }
        }
        if constexpr (wants_product) each_column([&](int j, int t) { w[j] = sum[t]; });
        lanes.sync();
        return lanes.sum(square);
    }

    template <bool wants_product>
    SW_HD double residual_by_thread(bool subtracts) {
        const void* b = this->b();
        const double* columns = products.shared.columns;
        const int64_t stride = products.shared.column_stride;
        const int rows = job.rows, all = job.columns;
        double square = 0;
        if constexpr (wants_product)
            for (int j = 0; j < n; ++j) w[j] = 0;
        SW_ROLLED
        for (int first = 0; first < rows; first += chunk) {
            double r[chunk];
            SW_UNROLL
            for (int t = 0; t < chunk; ++t) r[t] = first + t < rows ? numbers.read(b, first + t) : 0.0;
            if (subtracts) {
                const double* column = columns + first;
                SW_UNROLL_BY(2)
                for (int j = 0; j < all; ++j, column += stride) {
                    const double value = x[j];
                    SW_UNROLL
                    for (int t = 0; t < chunk; ++t) r[t] -= column[t] * value;
                }
                // (Below A's rows there may be others.)
                if (first + chunk > rows) {
                    SW_UNROLL
                    for (int t = 0; t < chunk; ++t) r[t] = first + t < rows ? r[t] : 0.0;
                }
            }
            SW_UNROLL
            for (int t = 0; t < chunk; ++t) square += r[t] * r[t];
            if constexpr (wants_product) {
                const double* column = columns + first;
                SW_UNROLL_BY(2)
                for (int j = 0; j < all; ++j, column += stride) {
                    double sum[2] = {0, 0};
                    SW_UNROLL
                    for (int t = 0; t < chunk; ++t) sum[t % 2] += column[t] * r[t];
                    w[j] += sum[0] + sum[1];
                }
            }
        }
        return square;
    }

    // The products that are given, of `given` columns, and zeros for a slack. False where one is not finite.
    SW_HD bool read_products(const double* from, int given) {
        if constexpr (Lanes::has_sweeps) {
            return lanes.copy_rows(from, given, n, table, Kind::capacity);
        } else {
            double odd = 0;
            each_column([&](int j, int) {
                for (int i = 0; i < n; ++i) {
                    const double value = i < given && j < given ? from[i * given + j] : 0.0;
                    table[i * Kind::capacity + j] = value;
                    odd += value - value;
                }
            });
            return odd == 0;
        }
    }

    SW_HD bool read_table() {
        double odd = 0, highest = 0;
        const double* linear = nullptr;
        if constexpr (Kind::source == own_matrix) {
            linear = products.table + n * n;
            if (!read_products(products.table, n)) odd = 1;
            squared_b = products.table[n * (n + 1)];
        } else if constexpr (Kind::source == normal_equations) {
            const Family& family = job.family;
            linear = family.linear + system * family.linear_stride;
            if (!read_products(family.gram + system * family.gram_stride, job.columns)) odd = 1;
        }
        each_column([&](int j, int t) {
            double& square = table[j * Kind::capacity + j];
            if (j < job.columns) c[t] = linear[j];
            // (Of general problems the damping is zero.)
            if constexpr (Kind::source == own_matrix) square += job.options.damping * job.options.damping;
            odd += c[t] - c[t];
            // (A square of zero may be one of entries too small for it.)
            if ((Kind::source == own_matrix || square != 0) && !(square > 1e-200 && square < 1e200)) odd = 1;
            if (Kind::source == normal_equations && square > 0)
                highest = max_of(highest, absolute(c[t]) * power_below(square_root(square)));
        });
        lanes.sync();
        if constexpr (Kind::source == normal_equations) {
            const Family& family = job.family;
            const double given = family.squared_b ? family.squared_b[system * family.squared_b_stride] : 0.0;
            highest = lanes.most(highest);
            squared_b = given > 0 ? given : highest * highest;
        }
        return !lanes.any(!(odd == 0));
    }

    // Whether b is, and not only its square.
    SW_HD bool is_zero() const {
        bool none = true;
        if constexpr (Kind::source != normal_equations) {
            SW_ROLLED
            for (int i = lanes.lane(); i < job.rows; i += width) none = none && numbers.read(b(), i) == 0;
        }
        return !lanes.any(!none);
    }

    // A power of four near the mean square of the largest column's entries, over the largest coefficient's:
    // the row then counts as much as one of A.
    SW_HD double weight_of_sum() const {
        double highest = 0, largest = 0;
        SW_ROLLED
        for (int j = 0; j < job.columns; ++j) {
            const double own = scale(j), coefficient = this->coefficient(j) / own;
            if (own > 0) highest = max_of(highest, gram(j, j) / (own * own));
            largest = max_of(largest, coefficient);
        }
        const double root = highest > 0 ? square_root(highest / max_of(job.rows, 1)) / largest : 1 / largest;
        const double power = power_below(root);
        return 1 / (power * power);
    }

    // Which bounds of column j are far, as a BoundSide. Called for few columns.
    SW_CALL int far_sides(double low, double high, double low_in_units, double high_in_units,
                          double reach) const {
        if (!(low < high)) return 0;
        return (is_finite(low) && absolute(low_in_units) > reach ? int(lower_side) : 0) |
               (is_finite(high) && absolute(high_in_units) > reach ? int(upper_side) : 0);
    }
    // What b, or the sum, would make of x_j if nothing else took part in it.
    SW_HD double reach_of(int j, double inverse) const {
        double reach = b_norm * inverse;
        if constexpr (Kind::summed) {
            const Family& family = job.family;
            const double low = family.sum_low[system * family.sum_stride],
                         high = family.sum_high[system * family.sum_stride], s = coefficient(j);
            if (s > 0) reach += absolute(is_finite(high) ? high : is_finite(low) ? low : 0.0) / s;
        }
        return reach;
    }

    SW_HD bool put_at_bounds() {
        uint64_t out = 0, up = 0, nonzero = 0, unbounded = 0;
        bool crossed = false;  // bounds; or a square is beyond the largest number
        if constexpr (Lanes::has_sweeps && Kind::shares && !own_norms && !Kind::bounded) {
            shut |= (keeps_sum ? products.sum->nothing : products.nothing) | masked;
            return true;
        }
        uint64_t below = 0, above = 0;
        each_column([&](int j, int t) {
            const uint64_t bit = bit_of(j);
            const bool nothing = !(scale(j) > 0) || !(inverse_norm(j, t) > 0), masked = is_masked(j);
            if (nothing || masked) out |= bit;
            // For another solver: squares beyond the largest number, and columns that are there in L alone.
            if (Kind::penalized && !masked && (nothing || !(square(j) < double_infinity))) crossed = true;
            if constexpr (Kind::bounded) {
                double low = given_bound(j, false), high = given_bound(j, true);
                if constexpr (Kind::boxed) {
                    // (Of a column that changes nothing any bound but zero is far.)
                    const double reach = nothing ? 0.0 : far_bounds * reach_of(j, inverse_norm(j, t)),
                                 lowest = nothing ? low : in_units_of(j, low),
                                 highest = nothing ? high : in_units_of(j, high);
                    if (max_of(absolute(lowest), absolute(highest)) > reach && !is_slack(j) && !masked) {
                        const int far = far_sides(low, high, lowest, highest, reach);
                        if (far & lower_side) low = -double_infinity, below |= bit;
                        if (far & upper_side) high = double_infinity, above |= bit;
                    }
                }
                const bool fixed = low == high;
                crossed = crossed || !(low <= high);
                if (fixed) out |= bit;
                if (masked) return;
                if (!is_finite(low) && !is_finite(high)) {
                    if (!nothing && !fixed) unbounded |= bit;
                    return;
                }
                if (!is_finite(low)) up |= bit;
                if (scale(j) > 0) x[j] = in_units_of(j, is_finite(low) ? low : high);
                if (x[j] != 0) nonzero |= bit;
            }
        });
        lanes.sync();
        shut |= lanes.join(out);
        if constexpr (Kind::boxed) {
            far_below = lanes.join(below);
            far_above = lanes.join(above);
        }
        if (lanes.any(crossed)) return false;
        if constexpr (Kind::bounded) {
            at_upper = lanes.join(up);
            support = lanes.join(nonzero);
            SW_ROLLED
            for (uint64_t rest = lanes.join(unbounded); rest; rest &= rest - 1) {
                if (count == Kind::positions) return false;
                enter(lowest_of(rest));
            }
        }
        return true;
    }
};

}  // namespace small
}  // namespace lsq
SW_END
