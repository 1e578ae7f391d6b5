// A problem's variables cut into chunks. The cut depends on n alone, never on the number of threads, and
// partial sums are added in order of chunks: results are the same bits on one thread, on many, alone or in a
// batch.
#pragma once

#include "core/quasi_newton/totals.hpp"
#include "host/common/pool.hpp"

SW_BEGIN

constexpr int max_capacity = 512;  // pairs of history, a limit of stack buffers only

struct Chunks {
    static constexpr int max_count = 128;
    static constexpr int64_t min_length = 4096;
    static constexpr int64_t worth_threads = 8192;  // below, waking a second thread costs more than it does

    int64_t n, length;
    int count, threads;

    Chunks(int64_t n, int threads) : n(n), threads(threads) {
        length = (n + max_count - 1) / max_count;
        if (length < min_length) length = min_length;
        length = (length + 255) / 256 * 256;
        count = int((n + length - 1) / length);
        if (count < 1) count = 1;
    }

    // How many threads, of so many, ever have something to do.
    int useful_threads() const { return n < worth_threads ? 1 : threads < count ? threads : count; }

    int64_t begin(int chunk) const { return chunk * length; }
    int64_t end(int chunk) const { return begin(chunk) + length < n ? begin(chunk) + length : n; }

    // work(chunk, begin, end, thread)
    template <class Work>
    void each(const Work& work) const {
        if (n < worth_threads || threads == 1) {  // a small problem does not even look at the pool
            for (int c = 0; c < count; ++c) work(c, begin(c), end(c), 0);
            return;
        }
        Pool::instance().run(count, threads, [&](int c, int thread) { work(c, begin(c), end(c), thread); });
    }
};

// Folds rows of one shape, one row a chunk: the total is left in the first. Pairwise: the order is fixed, and
// the rounding error of sums grows with the logarithm of their number only.
inline void fold_rows(double* rows, int count, const RowShape& shape) {
    if (count == 1) return;
    const int middle = count / 2, width = shape.width();
    double* second = rows + int64_t(middle) * width;
    fold_rows(rows, middle, shape);
    fold_rows(second, count - middle, shape);
    int i = 0;
    for (; i < shape.sums; ++i) rows[i] += second[i];
    for (; i < shape.sums + shape.maxima; ++i) rows[i] = max_of(rows[i], second[i]);
    for (; i < width; ++i) rows[i] = min_of(rows[i], second[i]);
}

// Rows of sums alone.
inline void add_rows(double* rows, int count, int64_t length) {
    fold_rows(rows, count, RowShape{int(length), 0, 0});
}

SW_END
