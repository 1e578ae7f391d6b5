// Compiled once per instruction set. Columns are cut and chunks added as in the sweeps: the result depends
// neither on the number of threads nor on timing.
#include <algorithm>
#include <vector>

#include "host/common/panel.hpp"
#include "host/quasi_newton/chunks.hpp"
#include "host/quasi_newton/gram.hpp"

namespace stepwell {
namespace SW_ISA {
namespace {

// Adds the product of one tile's columns; a row's last columns, short of a pack, are added one by one.
void add_tile(int rows, int columns, std::int64_t length, const double* left, const double* right,
              std::int64_t at, int count, Pack* sums, double* rest) {
    const int packs = count / lanes;
    for (int i = 0; i < rows; i += 4) {
        const int r = min_of(4, rows - i);
        const double* a[4];
        for (int k = 0; k < r; ++k) a[k] = left + (i + k) * length + at;
        for (int j = 0; j < columns; j += 4) {
            const int c = min_of(4, columns - j);
            const double* b[4];
            Pack* out[4];
            for (int k = 0; k < c; ++k) b[k] = right + (j + k) * length + at;
            for (int k = 0; k < r; ++k) out[k] = sums + (i + k) * columns + j;
            dot_rows(a, r, b, c, packs, out);
        }
    }
    for (int k = packs * lanes; k < count; ++k)
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < columns; ++j)
                rest[i * columns + j] += left[i * length + at + k] * right[j * length + at + k];
}

void product(int rows, int columns, std::int64_t length, const double* left, const double* right, double* out,
             int threads) {
    const int size = rows * columns;
    const Chunks chunks(length, threads);
    std::vector<double> partial(size_t(chunks.count) * size_t(size));
    chunks.each([&](int c, int64_t begin, int64_t end, int) {
        Pack sums[panel_most_rows * panel_most_rows];
        double rest[panel_most_rows * panel_most_rows];
        for (int k = 0; k < size; ++k) sums[k] = splat(0), rest[k] = 0;
        for (int64_t at = begin; at < end; at += tile)
            add_tile(rows, columns, length, left, right, at, int(min_of<int64_t>(tile, end - at)), sums,
                     rest);
        for (int k = 0; k < size; ++k)
            partial[size_t(c) * size_t(size) + size_t(k)] = add_lanes(sums[k]) + rest[k];
    });
    add_rows(partial.data(), chunks.count, size);
    std::copy(partial.begin(), partial.begin() + size, out);
}

}  // namespace

extern const PanelProduct panel_product;
const PanelProduct panel_product = product;

}  // namespace SW_ISA
}  // namespace stepwell
