// A problem's variables cut into chunks. The cut depends on n alone, never on the number of threads, and
// partial sums are added in order of chunks: results are the same bits on one thread, on many, alone or in a
// batch.
#pragma once

#include "core/common/config.hpp"
#include "host/common/pool.hpp"

SW_BEGIN

constexpr int max_capacity = 512;  // pairs of history, a limit of stack buffers only

struct Chunks {
    static constexpr int most = 128;
    static constexpr int64_t least_length = 4096;
    static constexpr int64_t worth_threads = 8192;  // below, waking a second thread costs more than it does

    int64_t n, length;
    int count, threads;

    Chunks(int64_t n, int threads) : n(n), threads(threads) {
        length = (n + most - 1) / most;
        if (length < least_length) length = least_length;
        length = (length + 255) / 256 * 256;
        count = int((n + length - 1) / length);
        if (count < 1) count = 1;
    }

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

// Adds up one value per chunk, pairwise: the order is fixed and the rounding error grows with the logarithm
// only.
template <class Value>
inline double add_pairwise(const Value& value, int begin, int end) {
    if (end - begin == 1) return value(begin);
    const int middle = (begin + end) / 2;
    return add_pairwise(value, begin, middle) + add_pairwise(value, middle, end);
}

// The same for whole rows of sums, one row per chunk: the total is left in the first.
inline void add_rows(double* rows, int count, int64_t length) {
    if (count == 1) return;
    const int middle = count / 2;
    double* second = rows + middle * length;
    add_rows(rows, middle, length);
    add_rows(second, count - middle, length);
    for (int64_t i = 0; i < length; ++i) rows[i] += second[i];
}

SW_END
