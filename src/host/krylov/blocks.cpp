// Compiled once per instruction set. Both products form tiles of sums that stay in registers. What a tile
// reads is copied into panels first, aligned and padded with zeros, so that every tile is a whole one.
#include "host/krylov/blocks.hpp"

#include <algorithm>
#include <cstring>

#include "host/common/pool.hpp"
#include "host/krylov/panels.hpp"

namespace stepwell {
namespace SW_ISA {
namespace {

constexpr int tile_height = 4;
#if defined(__aarch64__) || defined(__AVX512F__)
constexpr int tile_vectors = 4;  // 16 of 32 registers hold sums
#else
constexpr int tile_vectors = 3;  // 12 of 16
#endif
constexpr std::int64_t chunk = 128;             // rows whose panels lie in the caches at a time
constexpr std::int64_t rows_of_a_piece = 1024;  // at the least; a piece has a Gram matrix of its own
constexpr std::int64_t max_pieces = 32;         // fixed, so that sums do not depend on the threads
constexpr std::int64_t products_worth_threads = 1 << 17;  // products below which a second thread is not woken

struct TilePanels : PanelCut {
    std::int64_t numbers(std::int64_t rows) const { return count * width * rows; }

    // All rows of the first panel, then all rows of the next, each with room for so many rows. What lies
    // beyond the columns is left as it is, zero.
    template <int width, class Value>
    void copy(std::int64_t rows, std::int64_t room, const Value* block, Value* to) const {
        for (std::int64_t panel = 0; panel < count; ++panel) {
            const std::int64_t taken = filled(panel);
            const Value* from = block + panel * width;
            Value* at = to + panel * width * room;
            if (taken == width) {
                for (std::int64_t row = 0; row < rows; ++row, from += columns, at += width)
                    std::memcpy(at, from, sizeof(Value) * width);
                continue;
            }
            for (std::int64_t row = 0; row < rows; ++row, from += columns, at += width)
                for (std::int64_t j = 0; j < taken; ++j) at[j] = from[j];
        }
    }
};

// Calls work with the number of vectors in a panel as a constant.
template <class Value, class Work>
void with_vectors(std::int64_t width, const Work& work) {
    const std::int64_t vectors = width / register_lanes<Value>;
    if (vectors == 1) work.template operator()<1>();
    if (vectors == 2) work.template operator()<2>();
    if (vectors == 3) work.template operator()<3>();
    if constexpr (tile_vectors > 3)
        if (vectors == 4) work.template operator()<4>();
}

// Adds to a tile of the Gram matrix what a chunk of rows gives; sums has the width of the panel.
template <int vectors, class Value>
void add_tile(std::int64_t rows, const Value* left, const Value* right, Value* sums) {
    typedef AlignedRegister<Value> Vector;
    constexpr int step = register_lanes<Value>;
    Vector held[tile_height][vectors] = {};
    for (std::int64_t row = 0; row < rows; ++row, left += tile_height, right += vectors * step) {
        const Vector* by = reinterpret_cast<const Vector*>(right);
#pragma GCC unroll 4
        for (int i = 0; i < tile_height; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) held[i][v] += left[i] * by[v];
    }
    for (int i = 0; i < tile_height; ++i)
        for (int v = 0; v < vectors; ++v)
            reinterpret_cast<Vector*>(sums + (i * vectors + v) * step)[0] += held[i][v];
}

template <class Value>
void gram(std::int64_t rows, std::int64_t left_columns, std::int64_t right_columns, const Value* left,
          const Value* right, Value* out, int threads) {
    if (left_columns == 0 || right_columns == 0) return;
    const bool symmetric = left == right && left_columns == right_columns;
    const TilePanels tall{{left_columns, tile_height, (left_columns + tile_height - 1) / tile_height}};
    const TilePanels wide{cut_into_panels<Value>(right_columns, tile_vectors)};
    const std::int64_t tile_numbers = tile_height * wide.width;
    const std::int64_t numbers = tall.count * wide.count * tile_numbers;
    const std::int64_t pieces = std::clamp<std::int64_t>(rows / rows_of_a_piece, 1, max_pieces);
    if (rows * left_columns * right_columns < products_worth_threads) threads = 1;
    threads = int(std::clamp<std::int64_t>(threads, 1, pieces));
    Aligned<Value> sums = aligned<Value>(pieces * numbers);
    // A chunk is a whole number of cache lines in every column, and so are the panels.
    const std::int64_t left_numbers = tall.numbers(chunk), room = left_numbers + wide.numbers(chunk);
    Aligned<Value> scratch = aligned<Value>(threads * room);
    // Symmetric: only tiles that reach the diagonal or lie above it.
    const auto needed = [&](std::int64_t p, std::int64_t q) {
        return !symmetric || (q + 1) * wide.width > p * tile_height;
    };
    Pool::instance().run(int(pieces), threads, [&](int piece, int thread) {
        const std::int64_t begin = rows * piece / pieces, end = rows * (piece + 1) / pieces;
        Value *own = sums.get() + piece * numbers, *tall_panels = scratch.get() + thread * room,
              *wide_panels = tall_panels + left_numbers;
        std::fill(own, own + numbers, Value(0));
        std::fill(tall_panels, tall_panels + room, Value(0));
        for (std::int64_t row = begin; row < end; row += chunk) {
            const std::int64_t count = std::min(chunk, end - row);
            tall.copy<tile_height>(count, chunk, left + row * left_columns, tall_panels);
            with_vectors<Value>(wide.width, [&]<int vectors>() {
                wide.copy<vectors * register_lanes<Value>>(count, chunk, right + row * right_columns,
                                                           wide_panels);
                for (std::int64_t q = 0; q < wide.count; ++q)
                    for (std::int64_t p = 0; p < tall.count; ++p)
                        if (needed(p, q))
                            add_tile<vectors>(count, tall_panels + p * chunk * tile_height,
                                              wide_panels + q * chunk * wide.width,
                                              own + (q * tall.count + p) * tile_numbers);
            });
        }
    });
    for (std::int64_t piece = 1; piece < pieces; ++piece)  // in their order
        for (std::int64_t at = 0; at < numbers; ++at) sums[at] += sums[piece * numbers + at];
    for (std::int64_t i = 0; i < left_columns; ++i)
        for (std::int64_t j = 0; j < right_columns; ++j) {
            const std::int64_t from = symmetric ? std::min(i, j) : i, to = symmetric ? std::max(i, j) : j;
            const std::int64_t p = from / tile_height, q = to / wide.width;
            out[i * right_columns + j] =
                sums[(q * tall.count + p) * tile_numbers + from % tile_height * wide.width + to % wide.width];
        }
}

// A few rows of the combination for one panel of columns; rows beyond `rows` are those of the last again, and
// not stored.
template <int vectors, class Value>
void combine_tile(std::int64_t rows, std::int64_t inner, std::int64_t columns, std::int64_t filled,
                  const Value* left, const Value* panel, const Value* base, Value sign, Value* out) {
    typedef AlignedRegister<Value> Vector;
    constexpr int step = register_lanes<Value>;
    const Value* row[tile_height];
    for (int i = 0; i < tile_height; ++i) row[i] = left + std::min<std::int64_t>(i, rows - 1) * inner;
    Vector held[tile_height][vectors] = {};
    for (std::int64_t k = 0; k < inner; ++k, panel += vectors * step) {
        const Vector* by = reinterpret_cast<const Vector*>(panel);
#pragma GCC unroll 4
        for (int i = 0; i < tile_height; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) held[i][v] += row[i][k] * by[v];
    }
    for (int i = 0; i < std::min<std::int64_t>(tile_height, rows); ++i) {
        const Value* sums = reinterpret_cast<const Value*>(held[i]);
        const Value* from = base ? base + i * columns : nullptr;
        Value* to = out + i * columns;
        for (std::int64_t j = 0; j < filled; ++j) to[j] = (from ? from[j] : Value(0)) + sign * sums[j];
    }
}

template <class Value>
void combine(std::int64_t rows, std::int64_t inner, std::int64_t columns, const Value* left,
             const Value* right, const Value* base, Value sign, Value* out, int threads) {
    if (rows == 0 || columns == 0) return;
    const TilePanels wide{cut_into_panels<Value>(columns, tile_vectors)};
    Aligned<Value> panels = aligned<Value>(std::max<std::int64_t>(1, wide.numbers(inner)));
    std::fill(panels.get(), panels.get() + wide.numbers(inner), Value(0));
    with_vectors<Value>(wide.width, [&]<int vectors>() {
        wide.copy<vectors * register_lanes<Value>>(inner, inner, right, panels.get());
    });
    const std::int64_t stretch = std::max<std::int64_t>(chunk, (rows + 1023) / 1024);
    if (rows * inner * columns < products_worth_threads) threads = 1;
    Pool::instance().run(int((rows + stretch - 1) / stretch), threads, [&](int piece, int) {
        const std::int64_t begin = piece * stretch, end = std::min(rows, begin + stretch);
        with_vectors<Value>(wide.width, [&]<int vectors>() {
            for (std::int64_t q = 0; q < wide.count; ++q)
                for (std::int64_t row = begin; row < end; row += tile_height) {
                    const std::int64_t at = row * columns + q * wide.width;
                    combine_tile<vectors>(end - row, inner, columns, wide.filled(q), left + row * inner,
                                          panels.get() + q * inner * wide.width, base ? base + at : nullptr,
                                          sign, out + at);
                }
        });
    });
}

}  // namespace

extern const BlockKernels block_kernels;
const BlockKernels block_kernels{{gram<double>, combine<double>}, {gram<float>, combine<float>}};

}  // namespace SW_ISA
}  // namespace stepwell
