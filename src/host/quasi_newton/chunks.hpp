// A problem's variables cut into chunks. The cut depends on n alone, never on the number of threads, and
// partial sums are added in order of chunks: results are the same bits on one thread, on many, alone or in a
// batch. A problem over several ranks is cut by the number of all its variables, and ranks have whole chunks
// or, where these cannot be dealt out evenly, parts of some (sum_tree.hpp).
#pragma once

#include <atomic>
#include <vector>

#include "core/common/simd.hpp"
#include "core/quasi_newton/totals.hpp"
#include "host/common/pool.hpp"

namespace stepwell {

// Where a piece of the variables is cut: chunks of `length` (0: by the piece's own size), the first of which
// begins `before` variables before the piece does. With `begins`, `count` numbers: where the piece has parts
// of chunks, and where they and whole ones begin in it.
struct Cut {
    int64_t length = 0, before = 0;
    const int64_t* begins = nullptr;
    int count = 0;
};

}  // namespace stepwell

SW_BEGIN

constexpr int max_capacity = 512;  // pairs of history, a limit of stack buffers only

inline int64_t quotient_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

struct Chunks {
    static constexpr int64_t usual_count = 128;  // chunks, unless they would be shorter or longer than this:
    static constexpr int64_t min_length = 4096;
    static constexpr int64_t max_length = 1 << 19;  // many ranks can share 128 chunks unevenly only
    static constexpr int64_t max_count = 32768;     // rows of one phase that somebody has to add up
    static constexpr int64_t worth_threads = 8192;  // below, waking a second thread costs more than it does
    // Two or three chunks cannot be shared evenly: where there would be fewer than five, there are eight of
    // one length or, of aligned ones, as many as are about this long.
    static constexpr int64_t shared_count = 8, shared_length = 1024;

    int64_t n, length, before;
    const int64_t* begins;  // of parts and chunks, or null
    int count, threads;

    Chunks(int64_t n, int threads, const Cut& cut = {})
        : n(n),
          length(cut.length > 0 ? cut.length : length_of(n)),
          before(cut.before),
          begins(cut.begins),
          count(begins ? cut.count : int((n + before + length - 1) / length)),
          threads(threads) {
        if (n == 0) count = 0;
    }

    // The length of the chunks of n variables: whole tiles, or whole packs where there are few chunks or, if
    // chunks are to consist of `align` variables each (such as a row of a grid), a multiple of that.
    static int64_t length_of(int64_t n, int64_t align = 1) {
        const bool is_shared = n >= worth_threads && n <= 4 * min_length;
        if (is_shared && align <= 1) return quotient_up(quotient_up(n, shared_count), lanes) * lanes;
        const int64_t least = is_shared ? shared_length : min_length;
        const int64_t shortest = quotient_up(n, max_count);
        const int64_t usual =
            max_of(max_of(min_of(quotient_up(n, usual_count), max_length), least), shortest);
        const int64_t unit = align > 1 ? align : tile;
        const int64_t plain = quotient_up(usual, unit) * unit;
        if (plain % tile == 0) return plain;
        // Chunks that end within a tile, and perhaps an odd number of them: of those about as long the ones
        // that leave two ranks the least to do, if that saves more than a hundredth.
        int64_t best = plain;
        const int64_t step = unit * max_of(usual / (64 * unit), int64_t(1));
        for (int64_t length = quotient_up(max_of(usual / 4 * 3, shortest), step) * step;
             length <= usual / 4 * 5; length += step) {
            if (tiles_of_half(n, length) <= tiles_of_half(n, best)) best = length;
        }
        return 100 * tiles_of_half(n, best) < 99 * tiles_of_half(n, plain) ? best : plain;
    }

    // Tiles, begun ones too, in the larger half of the chunks.
    static int64_t tiles_of_half(int64_t n, int64_t length) {
        const int64_t count = quotient_up(n, length), tiles = quotient_up(length, tile);
        const int64_t last = quotient_up(n - (count - 1) * length, tile);
        return max_of(count / 2 * tiles, (count - count / 2 - 1) * tiles + last);
    }

    // How many threads, of so many, ever have something to do.
    int useful_threads() const { return n < worth_threads ? 1 : threads < count ? threads : count; }

    int64_t begin(int chunk) const {
        if (begins) return begins[chunk];
        return chunk == 0 ? 0 : chunk * length - before;
    }
    int64_t end(int chunk) const { return chunk + 1 == count ? n : begin(chunk + 1); }

    // The tiles that begin in the piece before this place, where a tile or a chunk does.
    int64_t tiles_before(int64_t place) const {
        const int64_t at = place + before;
        return at / length * quotient_up(length, tile) + at % length / tile - before / tile;
    }

    // work(chunk, begin, end, thread). `back`: a thread that is alone begins with the last chunk, of which
    // its cache holds most if the sweep before has ended there.
    template <class Work>
    void each(const Work& work, bool back = false) const {
        if (n < worth_threads || threads == 1) {  // a small problem does not even look at the pool
            for (int k = 0; k < count; ++k) {
                const int c = back ? count - 1 - k : k;
                work(c, begin(c), end(c), 0);
            }
            return;
        }
        Pool::instance().run(count, threads, [&](int c, int thread) { work(c, begin(c), end(c), thread); });
    }
};

// Folds one row into another.
inline void fold_row(double* row, const double* second, const RowShape& shape) {
    int i = 0;
    for (; i < shape.sums; ++i) row[i] += second[i];
    for (; i < shape.sums + shape.maxima; ++i) row[i] = max_of(row[i], second[i]);
    for (; i < shape.width(); ++i) row[i] = min_of(row[i], second[i]);
}

// Folds rows of one shape, one row a chunk: the total is left in the first. Pairwise: the order is fixed, and
// the rounding error of sums grows with the logarithm of their number only. (RankTree cuts the same tree.)
inline void fold_rows(double* rows, int count, const RowShape& shape) {
    if (count <= 1) return;
    const int middle = count / 2;
    double* second = rows + int64_t(middle) * shape.width();
    fold_rows(rows, middle, shape);
    fold_rows(second, count - middle, shape);
    fold_row(rows, second, shape);
}

// The same, while rows come: done(row) folds what it can, by the thread that has made the second of two
// neighbours and finds its own in its cache.
class RowFolder {
public:
    RowFolder(double* rows, int count, const RowShape& shape)
        : rows(rows), count(count), shape(shape), arrived(size_t(2) << most_below(count)) {}

    void done(int row) {
        struct {
            int begin, middle, node;
        } path[32];
        int depth = 0;
        for (int begin = 0, length = count, node = 1; length > 1; ++depth) {
            const int half = length / 2;
            path[depth] = {begin, begin + half, node};
            const bool second = row >= begin + half;
            begin += second ? half : 0;
            length = second ? length - half : half;
            node = 2 * node + second;
        }
        while (depth-- > 0) {
            if (!arrived[size_t(path[depth].node)].exchange(true, std::memory_order_acq_rel)) return;
            fold_row(place(path[depth].begin), place(path[depth].middle), shape);
        }
    }

private:
    double* const rows;
    const int count;
    const RowShape shape;
    std::vector<std::atomic<bool>> arrived;  // one of the two below a node of the tree

    // How many nodes of the tree are one below the other, at most.
    static int most_below(int count) {
        int levels = 0;
        while (count > int64_t(1) << levels) ++levels;
        return levels;
    }
    double* place(int row) const { return rows + int64_t(row) * shape.width(); }
};

// Rows of sums alone.
inline void add_rows(double* rows, int count, int64_t length) {
    fold_rows(rows, count, RowShape{int(length), 0, 0});
}

SW_END
