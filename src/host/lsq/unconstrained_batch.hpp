// Some systems with one matrix of few columns at once, a system a lane: the solution on all columns, which
// for many is the answer and is written at once. The others begin there, each by itself (core/lsq/small).
#pragma once

#include <cstring>

#include "core/common/simd.hpp"
#include "core/lsq/frank_wolfe.hpp"
#include "core/lsq/small/report.hpp"
#include "host/lsq/kept_inverses.hpp"

SW_BEGIN
namespace lsq {
namespace small {

constexpr int systems_at_once = 4;

// What guesses need of a matrix. Places beyond the last column hold zeros; their x is 1, and counts nowhere.
struct GuessTable {
    double inverse[kept_columns][kept_columns], gram[kept_columns][kept_columns];
    double start[kept_columns], scale[kept_columns], unit[kept_columns];
    double norm[kept_columns], inverse_norm[kept_columns];
    // Of a bound sum: as in KeptInverses and KeptSum.
    double along[kept_columns], multiplier[kept_columns];
    double coefficients[kept_columns], inverse_coefficients[kept_columns];
    // `pivot`: the column whose x follows from the sum, with zeros in `inverse` and `along`. `takes`: by
    // how much x of a column goes for each unit that the others leave of the sum; zero but for the pivot.
    int pivot;
    double takes[kept_columns];
    Counts counts;  // of a system that a guess solves

    void take(const Products& products, const KeptInverses::Kept& kept, int columns, bool summed,
              const Counts& taken) {
        *this = GuessTable();
        std::memcpy(inverse, kept.inverse, sizeof inverse);
        std::memcpy(along, kept.along, sizeof along);
        std::memcpy(multiplier, kept.multiplier, sizeof multiplier);
        const KeptSum& sum = *products.sum;
        for (int j = 0; j < kept_columns; ++j) start[j] = j < columns ? 0.0 : 1.0;
        for (int j = 0; j < columns; ++j) {
            for (int i = 0; i < columns; ++i) gram[i][j] = products.gram[i * products.stride + j];
            scale[j] = products.shared.scale[j];
            unit[j] = products.unit[j];
            norm[j] = summed ? sum.norm[j] : products.norm[j];
            inverse_norm[j] = summed ? sum.inverse_norm[j] : products.inverse_norm[j];
            coefficients[j] = summed ? sum.coefficients[j] : 0.0;
            inverse_coefficients[j] = summed ? sum.inverse[j] : 0.0;
        }
        counts = taken;
        if (!summed) return;
        pivot = sum.pivot;
        takes[pivot] = sum.inverse[pivot];
        along[pivot] = 0;
        for (int i = 0; i < kept_columns; ++i) inverse[i][pivot] = 0;
    }
};

// The solutions on all columns of some systems, the numbers of a column side by side.
struct GuessedGroup {
    double x[kept_columns][systems_at_once];
    unsigned positive;  // a bit for each system whose x are all positive

    // Writes the point that system k goes on from.
    void hand_over(int k, int columns, Guess& own) const {
        own.is_positive = positive >> k & 1;
        for (int j = 0; j < kept_columns; ++j) own.x[j] = j < columns ? x[j][k] : 0.0;
    }
};

// Of systems of a kind with at most `width` columns. Nothing goes across lanes: the numbers of a system do
// not depend on the others.
template <class Kind, int width>
class UnconstrainedBatch {
public:
    // Of `here` systems from `first` on, from A'b and then b'b, the numbers of a column side by side. Returns
    // a bit for each that is answered. (Numbers are written of those that are not as well: who solves them
    // writes over these.)
    static unsigned find(const Job& job, const GuessTable& table, int64_t first, int here,
                         const double* linear, GuessedGroup& found) {
        Point at;
        for (int j = 0; j < width; ++j) at.c[j] = Systems::from(linear + group * j);
        at.squared_b = Systems::from(linear + group * kept_columns);
        if constexpr (summed) {
            const double* sums = job.constraints.sum_high + first * job.constraints.sum_stride;
            at.wanted = Systems::all(sums[0]);
            for (int k = 1; job.constraints.sum_stride && k < here; ++k)
                at.wanted.set(k, sums[k * job.constraints.sum_stride]);
        }
        at.solve(table);
        // (Whatever becomes of them: whether they are answered is known late, and seldom foreseen.)
        for (int j = 0; j < width; ++j) at.x[j].write(found.x[j], group);
        const unsigned positive = found.positive = at.positive();
        if (!positive || job.constraints.deviation || job.constraints.used_lam) return 0;
        const unsigned held = positive & at.judge(job, table);
        if (!held) return 0;
        if (Numbers(job).rounds) at.round(job, table);
        return held & at.write(job, table, first, here);
    }

private:
    typedef typename Kind::Numbers Numbers;
    static constexpr bool summed = Kind::summed;
    static constexpr int group = systems_at_once;
    static constexpr int side = min_of(group, register_lanes<double>), parts = group / side;
    typedef typename VectorOf<double, side>::anywhere Side;
    typedef typename VectorOf<int64_t, side>::anywhere Bits;

    static Side size_of(Side value) { return Side(Bits(value) & INT64_MAX); }
    static Side root_of(Side value) {
        for (int t = 0; t < side; ++t) value[t] = square_root(value[t]);
        return value;
    }
    // A bit for each system.
    static unsigned joined(const Bits (&yes)[parts]) {
        unsigned bits = 0;
        for (int p = 0; p < parts; ++p)
            for (int t = 0; t < side; ++t) bits |= static_cast<unsigned>(yes[p][t] & 1) << (p * side + t);
        return bits;
    }

    // A number of each system.
    struct Systems {
        Side part[parts] = {};
        static Systems from(const double* numbers) {
            Systems found;
            for (int p = 0; p < parts; ++p)
                found.part[p] = *reinterpret_cast<const Side*>(numbers + p * side);
            return found;
        }
        static Systems all(double number) {
            Systems found;
            for (int p = 0; p < parts; ++p) found.part[p] = Side{} + number;
            return found;
        }
        double of(int k) const { return part[k / side][k % side]; }
        void set(int k, double number) { part[k / side][k % side] = number; }
        void add(const Systems& other, double factor) {
            for (int p = 0; p < parts; ++p) part[p] += other.part[p] * factor;
        }
        void subtract(const Systems& other, double factor) {
            for (int p = 0; p < parts; ++p) part[p] -= other.part[p] * factor;
        }
        void add_product(const Systems& a, const Systems& b) {
            for (int p = 0; p < parts; ++p) part[p] += a.part[p] * b.part[p];
        }
        void take_less(const Systems& other) {
            for (int p = 0; p < parts; ++p) part[p] = min_of<Side>(part[p], other.part[p]);
        }
        void take_more(const Systems& other) {
            for (int p = 0; p < parts; ++p) part[p] = max_of<Side>(part[p], other.part[p]);
        }
        Systems size() const {
            Systems found;
            for (int p = 0; p < parts; ++p) found.part[p] = size_of(part[p]);
            return found;
        }
        Systems operator*(double factor) const {
            Systems found;
            for (int p = 0; p < parts; ++p) found.part[p] = part[p] * factor;
            return found;
        }
        void write(double* to, int here) const {
            if (here == group)
                for (int p = 0; p < parts; ++p) *reinterpret_cast<Side*>(to + p * side) = part[p];
            else
                for (int k = 0; k < here; ++k) to[k] = of(k);
        }
    };

    struct Point {
        Systems c[width], squared_b, wanted;  // A'b, b'b and the sum
        Systems x[width], missed;             // of the sum
        Systems w[width], multiplier, residual, violation;
        Systems product;  // x'w, of a bound sum

        // x on all columns. Of a bound sum the pivot takes what the others leave of it, so that nothing is
        // missed but what rounding does.
        void solve(const GuessTable& table) {
            for (int j = 0; j < width; ++j) {
                x[j] = Systems::all(table.start[j]);
                if constexpr (summed) x[j].add(wanted, table.along[j]);
            }
            for (int i = 0; i < width; ++i)
                for (int j = 0; j < width; ++j) x[j].add(c[i], table.inverse[i][j]);
            if constexpr (summed) {
                find_missed(table);
                for (int j = 0; j < width; ++j) x[j].add(missed, table.takes[j]);
                missed.subtract(missed * table.inverse_coefficients[table.pivot],
                                table.coefficients[table.pivot]);
            }
        }

        // (Two sums wait less for one another, here and below.)
        void find_missed(const GuessTable& table) {
            Systems other;
            missed = wanted;
            for (int j = 0; j < width; j += 2) {
                missed.subtract(x[j], table.coefficients[j]);
                other.add(x[j + 1], table.coefficients[j + 1]);
            }
            missed.subtract(other, 1);
        }

        unsigned positive() const {
            Systems least = x[0];
            for (int j = 1; j < width; ++j) least.take_less(x[j]);
            Bits yes[parts];
            for (int p = 0; p < parts; ++p) yes[p] = least.part[p] > 0;
            return joined(yes);
        }

        // The dual of x, with the multiplier of a sum, and the systems that products certify.
        unsigned judge(const Job& job, const GuessTable& table) {
            for (int j = 0; j < width; ++j) w[j] = c[j];
            for (int i = 0; i < width; ++i)
                for (int j = 0; j < width; ++j) w[j].subtract(x[i], table.gram[i][j]);
            // x'(c + w), w without the multiplier of a sum: with it the residual would be a difference of
            // numbers as large as that sum.
            Systems sizes, slope, inside, other;
            for (int j = 0; j < width; ++j) {
                inside.add_product(x[j], c[j]);
                other.add_product(x[j], w[j]);
            }
            inside.add(other, 1);
            if constexpr (summed) {
                product = other;
                add_multiplier(table);
            }
            for (int j = 0; j < width; ++j) {
                sizes.add(x[j].size(), table.norm[j]);
                slope.take_more(w[j].size() * table.inverse_norm[j]);
            }
            // (The table has the damping in it.)
            if (!summed && job.options.damping > 0)
                for (int j = 0; j < width; ++j) {
                    const Systems damped = x[j] * (job.options.damping * table.scale[j]);
                    inside.add_product(damped, damped);
                }
            Bits holds[parts];
            for (int p = 0; p < parts; ++p) {
                const Side b_norm = root_of(squared_b.part[p]), size = b_norm + sizes.part[p];
                const Side fit = squared_b.part[p] - inside.part[p];
                holds[p] = is_in_range(squared_b.part[p]) & is_large(fit, size) & (fit < double_infinity) &
                           (slope.part[p] <= slack_of(job, b_norm, size));
                residual.part[p] = root_of(fit);
                violation.part[p] = slope.part[p] / measure_of(job, b_norm, size);
            }
            return joined(holds);
        }

        void add_multiplier(const GuessTable& table) {
            Systems other;
            multiplier = Systems();
            for (int j = 0; j < width; j += 2) {
                multiplier.add(w[j], table.multiplier[j]);
                other.add(w[j + 1], table.multiplier[j + 1]);
            }
            multiplier.add(other, 1);
            for (int j = 0; j < width; ++j) w[j].add(multiplier, table.coefficients[j]);
            // x'(w + mu s), where s'x is what was wanted but for what is missed.
            product.add_product(multiplier, wanted);
            for (int p = 0; p < parts; ++p) product.part[p] -= multiplier.part[p] * missed.part[p];
        }

        // The residual and the dual that are reported belong to the x that is returned.
        void round(const Job& job, const GuessTable& table) {
            for (int j = 0; j < width; ++j)
                for (int k = 0; k < group; ++k)
                    x[j].set(k, Numbers(job).rounded(x[j].of(k) * table.scale[j]) * table.unit[j]);
            if constexpr (summed) find_missed(table);
            judge(job, table);
        }

        // Returns the systems of which all x are finite.
        unsigned write(const Job& job, const GuessTable& table, int64_t first, int here) {
            const Constraints& constraints = job.constraints;
            const int columns = job.columns;
            const int64_t row = first * columns;
            Systems odd, out[width];
            for (int j = 0; j < width; ++j) {
                out[j] = x[j] * table.scale[j];
                odd.add(out[j], 0);
            }
            const Numbers numbers(job);
            numbers.with(numbers.after(job.x, row), [&](auto* to) { write_rows(out, columns, here, to); });
            for (int j = 0; j < width; ++j) out[j] = w[j] * table.unit[j];
            numbers.with(numbers.after(job.dual, row), [&](auto* to) { write_rows(out, columns, here, to); });
            const size_t bytes = static_cast<size_t>(here * columns);
            if (job.in_factor) std::memset(job.in_factor + row, 1, bytes);
            residual.write(job.residual + first, here);
            violation.write(job.violation + first, here);
            if (here == group)
                write_counts<group>(job, first, table.counts);
            else
                for (int k = 0; k < here; ++k) write_counts<1>(job, first + k, table.counts);
            if (constraints.general) {
                std::memset(constraints.state + row, 0, bytes);
                multiplier.write(constraints.multiplier + first, here);
                missed.size().write(constraints.equality_error + first, here);
            }
            if (summed && constraints.gap)
                gap_of(out, constraints.coefficients ? &table : nullptr).write(constraints.gap + first, here);
            Bits finite[parts];
            for (int p = 0; p < parts; ++p) finite[p] = odd.part[p] == 0;
            return joined(finite);
        }

        // From the dual, over coefficients where there are others than ones. (With its multiplier it has both
        // signs, or is zero: places beyond the last column do no harm.)
        Systems gap_of(const Systems (&dual)[width], const GuessTable* given) const {
            Systems top = given ? w[0] * given->inverse_coefficients[0] : dual[0], gap;
            for (int j = 1; j < width; ++j)
                top.take_more(given ? w[j] * given->inverse_coefficients[j] : dual[j]);
            for (int p = 0; p < parts; ++p)
                gap.part[p] =
                    frank_wolfe_gap<Side>(top.part[p], product.part[p], wanted.part[p], wanted.part[p]);
            return gap;
        }

        // A row a system, of two columns at a time.
        template <class Scalar>
        static void write_rows(const Systems (&values)[width], int columns, int here, Scalar* to) {
            typedef typename VectorOf<Scalar, 2>::anywhere Two;
            Scalar buffer[group * width];
            const bool fits = here == group && columns == width;
            Scalar* rows = fits ? to : buffer;
            for (int p = 0; p < parts; ++p)
                for (int t = 0; t < side; ++t)
                    for (int j = 0; j < width; j += 2)
                        *reinterpret_cast<Two*>(rows + (p * side + t) * width + j) =
                            Two{Scalar(values[j].part[p][t]), Scalar(values[j + 1].part[p][t])};
            for (int k = 0; !fits && k < here; ++k)
                std::memcpy(to + k * columns, buffer + k * width,
                            sizeof(Scalar) * static_cast<size_t>(columns));
        }
    };
};

}  // namespace small
}  // namespace lsq
SW_END
