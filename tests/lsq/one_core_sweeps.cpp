// The sweeps of a CPU's thread over short vectors against loops of one number at a time, for every length.
// Tolerances: a sum of k products in any order is within k units of rounding of the sum of their sizes, and a
// triangle adds one sum to the next.
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "host/lsq/one_core.hpp"

using namespace stepwell;
using namespace stepwell::lsq;
using namespace stepwell::lsq::small;

namespace {

std::mt19937_64 generator(7);
int wrong = 0;

// As many numbers between -1 and 1 as asked for, where the memory that may be read ends.
std::vector<double> numbers(int count, double size = 1) {
    std::uniform_real_distribution<double> between(-size, size);
    std::vector<double> all(static_cast<size_t>(count));
    for (double& one : all) one = between(generator);
    return all;
}

void expect(const char* what, int length, double got, double wanted, double size) {
    if (std::abs(got - wanted) <= 4 * (length + 1) * double_epsilon * size) return;
    std::printf("%s, %d: %.17g in place of %.17g\n", what, length, got, wanted);
    ++wrong;
}

void check_row(int count) {
    const auto a = numbers(count), b = numbers(count);
    double sum = 0, scaled = 0;
    for (int i = 0; i < count; ++i) {
        sum += a[i] * b[i];
        scaled += a[i] * a[i] * b[i];
    }
    expect("inner", count, OneCore::inner(a.data(), b.data(), count), sum, count);
    std::vector<double> row(static_cast<size_t>(count));
    expect("scale_row", count, OneCore::scale_row(a.data(), b.data(), row.data(), count), scaled, count);
    for (int i = 0; i < count; ++i) expect("scale_row's row", count, row[i], a[i] * b[i], 1);
}

// (Entries of the triangle are small, so that its inverse is as well behaved.)
void check_triangle(int rows, int first) {
    const auto factor = numbers(rows * (rows - 1) / 2, 0.5 / max_of(rows, 1));
    const auto entry = [&](int p, int q) { return factor[static_cast<size_t>(p * (p - 1) / 2 + q)]; };
    auto start = numbers(rows);
    for (int p = 0; p < first; ++p) start[p] = 0;
    auto wanted = start, got = start;
    for (int p = first; p < rows; ++p)
        for (int q = first; q < p; ++q) wanted[p] -= entry(p, q) * wanted[q];
    OneCore::substitute(factor.data(), got.data(), rows, first);
    for (int p = 0; p < rows; ++p) expect("substitute", rows, got[p], wanted[p], 2);
    wanted = got = start;
    for (int p = rows - 1; p > 0; --p)
        for (int q = 0; q < p; ++q) wanted[q] -= entry(p, q) * wanted[p];
    OneCore::substitute_back(factor.data(), got.data(), rows);
    for (int p = 0; p < rows; ++p) expect("substitute_back", rows, got[p], wanted[p], 2);
}

// Four columns at once against one after the other. (Rows are read in fours, whatever the last of them hold.)
void check_four(int rows) {
    const int whole = (rows + 3) / 4 * 4;
    const auto factor = numbers(max_of(whole * (whole - 1) / 2, 1), 0.5 / max_of(rows, 1));
    const auto inverse_pivot = numbers(rows);
    TriangleSweeps::Fours values = {};
    std::vector<double> column[4], row[4];
    double* rows_of_four[4];
    double products[4][4];
    for (int k = 0; k < 4; ++k) {
        column[k] = numbers(rows);
        row[k].resize(static_cast<size_t>(rows));
        rows_of_four[k] = row[k].data();
        for (int p = 0; p < rows; ++p) values[p][k] = column[k][p];
        for (int p = 0; p < rows; ++p)
            for (int q = 0; q < p; ++q) column[k][p] -= factor[p * (p - 1) / 2 + q] * column[k][q];
    }
    OneCore::substitute_four(factor.data(), values, rows);
    OneCore::scale_four(values, inverse_pivot.data(), rows, rows_of_four, products);
    for (int k = 0; k < 4; ++k) {
        for (int p = 0; p < rows; ++p) {
            expect("substitute_four", rows, values[p][k], column[k][p], 2);
            expect("scale_four's row", rows, row[k][p], column[k][p] * inverse_pivot[p], 2);
        }
        for (int i = 0; i < 4; ++i) {
            double sum = 0;
            for (int p = 0; p < rows; ++p) sum += column[k][p] * inverse_pivot[p] * column[i][p];
            expect("scale_four", rows, products[k][i], sum, 4 * (rows + 1));
        }
    }
}

// L D L' of what stays is what it was, whatever is taken out.
void check_take_out(int rows) {
    const auto factor = numbers(rows * (rows - 1) / 2, 0.5 / max_of(rows, 1));
    auto inverse_pivot = numbers(rows);
    for (double& one : inverse_pivot) one = 1.5 + one / 2;
    const auto product = [](const auto& triangle, const auto& inverse, int p, int q) {
        const auto entry = [&](int row, int k) {
            return k < row ? triangle[static_cast<size_t>(row * (row - 1) / 2 + k)] : 1.0;
        };
        double sum = 0;
        for (int k = 0; k <= q; ++k) sum += entry(p, k) * entry(q, k) / inverse[k];
        return sum;
    };
    const uint64_t all = bit_of(rows) - 1;
    for (const uint64_t places : {uint64_t(0), all, generator() & all, all & 1, all & ~(all >> 1)}) {
        auto got = factor, pivots = inverse_pivot;
        OneCore::take_out(got.data(), pivots.data(), rows, places);
        std::vector<int> stays;
        for (int p = 0; p < rows; ++p)
            if (!(places & bit_of(p))) stays.push_back(p);
        for (int p = 0; p < static_cast<int>(stays.size()); ++p)
            for (int q = 0; q <= p; ++q)
                expect("take_out", rows, product(got, pivots, p, q),
                       product(factor, inverse_pivot, stays[p], stays[q]), 2);
    }
}

void check_table(int columns) {
    const int length = static_cast<int>(padded(columns));
    const auto table = numbers(columns * length), c = numbers(length), x = numbers(columns);
    const uint64_t all = columns < 64 ? bit_of(columns) - 1 : ~uint64_t(0);
    std::vector<double> w(static_cast<size_t>(length));
    OneCore core{};
    for (const uint64_t nonzero : {uint64_t(0), all, generator() & all}) {
        core.subtract_rows(c.data(), table.data(), length, x.data(), nonzero, columns, w.data());
        for (int j = 0; j < columns; ++j) {
            double sum = c[j];
            for (int i = 0; i < columns; ++i)
                if (nonzero & bit_of(i)) sum -= table[i * length + j] * x[i];
            expect("subtract_rows", columns, w[j], sum, columns + 1);
        }
    }
}

// Scores of columns at a bound, some of them equal, and what is found among them.
void check_scores(int columns) {
    const int length = static_cast<int>(padded(columns));
    const uint64_t all = bit_of(columns) - 1, at_bound = generator() & all, at_upper = generator() & at_bound;
    auto w = numbers(length), inverse = numbers(length), x = numbers(length), norm = numbers(length);
    for (int j = 0; j < length; ++j) {
        w[j] = std::round(3 * w[j]);
        inverse[j] = j < columns;
        if (j >= columns) x[j] = norm[j] = 0;
    }
    std::vector<double> scores(static_cast<size_t>(length)), wanted(static_cast<size_t>(length) + 2);
    double top = 0;
    for (int j = 0; j < columns; ++j) {
        if (at_bound & bit_of(j)) wanted[j + 1] = at_upper & bit_of(j) ? -w[j] : w[j];
        top = max_of(top, wanted[j + 1]);
    }
    const auto judged = OneCore::judge<true>(w.data(), inverse.data(), x.data(), norm.data(), at_bound,
                                             at_upper, all & ~at_bound, length, scores.data());
    expect("judge", columns, judged.top, top, 0);
    for (int j = 0; j < columns; ++j) expect("scores", columns, scores[j], wanted[j + 1], 0);
    if (!(top > 0)) return;
    const double least = 0.4 * top;
    const auto found = OneCore::find_peaks(least, scores.data(), length);
    int first = -1;
    for (int j = columns - 1; j >= 0; --j) {
        const double own = wanted[j + 1];
        const bool above = own > least, peak = above && own >= wanted[j] && own >= wanted[j + 2];
        if (own == top) first = j;
        expect("above", columns, (found.above & bit_of(j)) != 0, above, 0);
        expect("peaks", columns, (found.peaks & bit_of(j)) != 0, peak, 0);
    }
    expect("place_of_score", columns, OneCore::place_of_score(top, scores.data(), length), first, 0);
}

void check_gather(int count) {
    const auto from = numbers(4 * count);
    std::vector<double> to(static_cast<size_t>(count));
    OneCore::gather(from.data() + 1, 4, to.data(), count);
    for (int j = 0; j < count; ++j) expect("gather", count, to[j], from[4 * j + 1], 0);
}

}  // namespace

int main() {
    for (int count = 0; count <= 70; ++count) check_row(count);
    for (int rows = 0; rows <= 40; ++rows)
        for (int first = 0; first <= rows; ++first) check_triangle(rows, first);
    for (int rows = 1; rows <= 40; ++rows) check_take_out(rows);
    for (int rows = 0; rows < 40; ++rows) check_four(rows);
    for (int columns = 1; columns < 64; ++columns) check_scores(columns);
    for (int count = 8; count <= 64; count += 8) check_gather(count);
    for (int columns = 1; columns <= 64; ++columns) check_table(columns);
    std::printf("%d wrong\n", wrong);
    return wrong > 0;
}
