// The panel product on its own: C = L Rᵀ for two panels of a few long rows, with the arithmetic of the absorb
// sweep, so that it can be measured against a library. Columns are cut and chunks added as in the sweeps: the
// result depends neither on the number of threads nor on timing. The study compiles it when it runs.
#include <algorithm>
#include <vector>

#include "host/quasi_newton/chunks.hpp"
#include "host/quasi_newton/gram.hpp"

SW_BEGIN
namespace {

// Adds the product of one tile's columns; a row's last columns, short of a pack, are added one by one.
void add_tile(int rows, int columns, std::int64_t length, const double* left, const double* right,
              std::int64_t at, int count, double* sums) {
    const int packs = count / lanes;
    for (int i = 0; i < rows; i += 4) {
        const int r = min_of(4, rows - i);
        const double* a[4];
        for (int k = 0; k < r; ++k) a[k] = left + (i + k) * length + at;
        for (int j = 0; j < columns; j += most_columns) {
            const int c = min_of(most_columns, columns - j);
            const double* b[4];
            double of_tile[4][4], *out[4];
            for (int k = 0; k < c; ++k) b[k] = right + (j + k) * length + at;
            for (int k = 0; k < r; ++k) out[k] = of_tile[k];
            dot_rows(a, r, b, c, packs, out);
            for (int k = 0; k < r; ++k)
                for (int l = 0; l < c; ++l) sums[(i + k) * columns + j + l] += of_tile[k][l];
        }
    }
    for (int k = packs * lanes; k < count; ++k)
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < columns; ++j)
                sums[i * columns + j] += left[i * length + at + k] * right[j * length + at + k];
}

void product(int rows, int columns, std::int64_t length, const double* left, const double* right, double* out,
             int threads) {
    const int size = rows * columns;
    const Chunks chunks(length, threads);
    std::vector<double> partial(size_t(max_of(chunks.count, 1)) * size_t(size));  // of no columns: zeros
    chunks.each([&](int c, int64_t begin, int64_t end, int) {
        double* const sums = partial.data() + size_t(c) * size_t(size);
        for (int64_t at = begin; at < end; at += tile)
            add_tile(rows, columns, length, left, right, at, int(min_of<int64_t>(tile, end - at)), sums);
    });
    add_rows(partial.data(), chunks.count, size);
    std::copy(partial.begin(), partial.begin() + size, out);
}

}  // namespace
SW_END

// out (rows x columns) = left (rows x length) · right (columns x length)ᵀ, all row-major; at most 16 rows and
// columns.
extern "C" void stepwell_panel_product(int rows, int columns, std::int64_t length, const double* left,
                                       const double* right, double* out, int threads) {
    stepwell::product(rows, columns, length, left, right, out, threads);
}
