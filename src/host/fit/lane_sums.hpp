// The sums of a turn for problems side by side, one per lane: H = JᵀJ, g = Jᵀr and rᵀr, in double whatever
// the rows are in. Row i of a block is n columns of J and then r. Sums of one lane are taken in the order of
// the points, whatever the other lanes hold: a problem has the same bits alone and in a batch.
#pragma once

#include "core/fit/models/lanes.hpp"
#include "core/fit/size.hpp"

SW_BEGIN
namespace fit {

typedef AlignedRegister<double> Sum;
constexpr int sum_lanes = register_lanes<double>;

// The doubles of part p of a number.
inline Sum wide_part(const Lanes<double>& number, int p) {
    return number.part[p];
}
inline Sum wide_part(const Lanes<float>& number, int p) {
    return load_wide<sum_lanes>(reinterpret_cast<const float*>(&number) + p * sum_lanes);
}

// Where the product of columns i >= j is among the sums; column n is r. (A packed triangle with one row more:
// its last row is g, and then rᵀr.)
template <class T, int N>
inline void add_few_columns(int points, const Lanes<T>* rows, Lanes<double>* sums) {
    constexpr int columns = N + 1;
    for (int p = 0; p < Lanes<double>::parts; ++p) {
        Sum sum[columns * (columns + 1) / 2];
        for (int k = 0; k < at(columns, 0); ++k) sum[k] = sums[k].part[p];
        for (int i = 0; i < points; ++i) {
            const Lanes<T>* row = rows + i * columns;
            Sum value[columns];
#pragma GCC unroll 8
            for (int k = 0; k < columns; ++k) value[k] = wide_part(row[k], p);
#pragma GCC unroll 8
            for (int k = 0; k < columns; ++k)
#pragma GCC unroll 8
                for (int l = 0; l <= k; ++l) sum[at(k, l)] += value[k] * value[l];
        }
        for (int k = 0; k < at(columns, 0); ++k) sums[k].part[p] = sum[k];
    }
}

// Columns j and j + 1 (where pair is set) with `count` columns from `first` on.
template <class T, int count, bool pair>
inline void add_products(int points, int columns, int j, int first, const Lanes<T>* rows,
                         Lanes<double>* sums) {
    for (int p = 0; p < Lanes<double>::parts; ++p) {
        Sum upper[count], lower[count];
#pragma GCC unroll 8
        for (int k = 0; k < count; ++k) {
            upper[k] = first + k <= j ? Sum(sums[at(j, first + k)].part[p]) : Sum{};
            if (pair) lower[k] = sums[at(j + 1, first + k)].part[p];
        }
        for (int i = 0; i < points; ++i) {
            const Lanes<T>* row = rows + i * columns;
            const Sum a = wide_part(row[j], p), b = pair ? wide_part(row[j + 1], p) : a;
#pragma GCC unroll 8
            for (int k = 0; k < count; ++k) {
                const Sum value = wide_part(row[first + k], p);
                upper[k] += a * value;
                if (pair) lower[k] += b * value;
            }
        }
#pragma GCC unroll 8
        for (int k = 0; k < count; ++k) {
            if (first + k <= j) sums[at(j, first + k)].part[p] = upper[k];
            if (pair) sums[at(j + 1, first + k)].part[p] = lower[k];
        }
    }
}

template <class T, bool pair>
inline void add_pair(int points, int columns, int j, const Lanes<T>* rows, Lanes<double>* sums) {
    const int last = j + pair;
    for (int first = 0; first <= last; first += 6) {
        switch (last - first + 1) {
            case 1:
                add_products<T, 1, pair>(points, columns, j, first, rows, sums);
                break;
            case 2:
                add_products<T, 2, pair>(points, columns, j, first, rows, sums);
                break;
            case 3:
                add_products<T, 3, pair>(points, columns, j, first, rows, sums);
                break;
            case 4:
                add_products<T, 4, pair>(points, columns, j, first, rows, sums);
                break;
            case 5:
                add_products<T, 5, pair>(points, columns, j, first, rows, sums);
                break;
            default:
                add_products<T, 6, pair>(points, columns, j, first, rows, sums);
        }
    }
}

template <class T>
void add_sums(int n, int points, const Lanes<T>* rows, Lanes<double>* sums) {
    switch (n) {
        case 1:
            return add_few_columns<T, 1>(points, rows, sums);
        case 2:
            return add_few_columns<T, 2>(points, rows, sums);
        case 3:
            return add_few_columns<T, 3>(points, rows, sums);
        case 4:
            return add_few_columns<T, 4>(points, rows, sums);
        case 5:
            return add_few_columns<T, 5>(points, rows, sums);
    }
    int j = 0;
    for (; j + 1 <= n; j += 2) add_pair<T, true>(points, n + 1, j, rows, sums);
    if (j == n) add_pair<T, false>(points, n + 1, j, rows, sums);
}

}  // namespace fit
SW_END
