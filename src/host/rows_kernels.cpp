// Compiled once per instruction set. The vectors are cut into pieces whose length does not depend on the
// number of threads; a piece of the vector stays in the first cache while the same piece of every row goes
// by.
#include <algorithm>
#include <vector>

#include "host/pool.hpp"
#include "host/rows.hpp"

namespace stepwell {
namespace SW_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif
constexpr std::int64_t piece =
    1024;  // entries: with a hundred rows a piece of all of them fits a second cache
constexpr std::int64_t worth_threads = 1 << 16;  // entries of R below which a second thread is not woken
constexpr int group = 4;  // rows at a time, so that a load of the vector serves them all

template <class Value>
constexpr int lanes = vector_bytes / int(sizeof(Value));

template <class Value>
struct LanesOf {
    typedef Value type __attribute__((vector_size(vector_bytes), aligned(sizeof(Value)), may_alias));
};

template <class Value>
using Lanes = typename LanesOf<Value>::type;

template <class Value>
const Lanes<Value>& at(const Value* from) {
    return *reinterpret_cast<const Lanes<Value>*>(from);
}

template <class Value>
Value add_lanes(const Lanes<Value>& sums) {
    Value total = 0;
    for (int k = 0; k < lanes<Value>; ++k) total += sums[k];
    return total;
}

// Inner products of `count` (at most `group`) rows with the vector, over one piece.
template <int count, class Value>
void dots_of(const Value* const* row, const Value* v, std::int64_t length, Value* out) {
    constexpr int step = lanes<Value>;
    Lanes<Value> sums[count][2] = {};
    std::int64_t i = 0;
    for (; i + 2 * step <= length; i += 2 * step) {
        const Lanes<Value> first = at(v + i), second = at(v + i + step);
        for (int r = 0; r < count; ++r) {
            sums[r][0] += at(row[r] + i) * first;
            sums[r][1] += at(row[r] + i + step) * second;
        }
    }
    for (int r = 0; r < count; ++r) {
        Value total = add_lanes<Value>(sums[r][0] + sums[r][1]);
        for (std::int64_t k = i; k < length; ++k) total += row[r][k] * v[k];
        out[r] = total;
    }
}

template <int count, class Value>
void combination_of(const Value* const* row, const Value* c, std::int64_t length, Value* out) {
    constexpr int step = lanes<Value>;
    std::int64_t i = 0;
    for (; i + step <= length; i += step) {
        Lanes<Value> sum = at(out + i);
        for (int r = 0; r < count; ++r) sum += c[r] * at(row[r] + i);
        *reinterpret_cast<Lanes<Value>*>(out + i) = sum;
    }
    for (; i < length; ++i)
        for (int r = 0; r < count; ++r) out[i] += c[r] * row[r][i];
}

// Calls work(first row, pointers to the piece of up to `group` rows, how many).
template <class Value, class Work>
void for_groups(std::int64_t rows, std::int64_t length, const Value* R, std::int64_t begin,
                const Work& work) {
    for (std::int64_t r = 0; r < rows; r += group) {
        const Value* row[group];
        const int count = int(std::min<std::int64_t>(group, rows - r));
        for (int k = 0; k < count; ++k) row[k] = R + (r + k) * length + begin;
        work(r, row, count);
    }
}

template <class Value>
void dots_of_piece(std::int64_t rows, std::int64_t length, const Value* R, const Value* v, std::int64_t begin,
                   std::int64_t end, Value* out) {
    for_groups(rows, length, R, begin, [&](std::int64_t r, const Value* const* row, int count) {
        if (count == group)
            dots_of<group>(row, v + begin, end - begin, out + r);
        else
            for (int k = 0; k < count; ++k) dots_of<1>(row + k, v + begin, end - begin, out + r + k);
    });
}

template <class Work>
void for_pieces(std::int64_t rows, std::int64_t length, int threads, const Work& work) {
    const int count = int((length + piece - 1) / piece);
    Pool::instance().run(count, rows * length < worth_threads ? 1 : threads,
                         [&](int p, int) { work(p, p * piece, std::min(length, (p + 1) * piece)); });
}

// Sums over pieces, in their order.
template <class Value>
void add_pieces(const std::vector<Value>& partial, std::int64_t rows, Value* out) {
    std::fill(out, out + rows, Value(0));
    for (std::size_t at = 0; at < partial.size(); at += std::size_t(rows))
        for (std::int64_t r = 0; r < rows; ++r) out[r] += partial[at + std::size_t(r)];
}

template <class Value>
std::vector<Value> partial_sums(std::int64_t rows, std::int64_t length) {
    return std::vector<Value>(std::size_t((length + piece - 1) / piece) * std::size_t(rows));
}

template <class Value>
void dots(std::int64_t rows, std::int64_t length, const Value* R, const Value* v, Value* out, int threads) {
    std::vector<Value> partial = partial_sums<Value>(rows, length);
    for_pieces(rows, length, threads, [&](int p, std::int64_t begin, std::int64_t end) {
        dots_of_piece(rows, length, R, v, begin, end, partial.data() + p * rows);
    });
    add_pieces(partial, rows, out);
}

template <class Value>
void combine(std::int64_t rows, std::int64_t length, const Value* R, const Value* c, const Value* base,
             Value* out, const Value* v, Value* overlaps, int threads) {
    std::vector<Value> partial;
    if (v) partial = partial_sums<Value>(rows, length);
    for_pieces(rows, length, threads, [&](int p, std::int64_t begin, std::int64_t end) {
        if (out != base) std::copy(base + begin, base + end, out + begin);
        for_groups(rows, length, R, begin, [&](std::int64_t r, const Value* const* row, int count) {
            if (std::all_of(c + r, c + r + count, [](Value share) { return share == 0; })) return;
            if (count == group)
                combination_of<group>(row, c + r, end - begin, out + begin);
            else
                for (int k = 0; k < count; ++k)
                    combination_of<1>(row + k, c + r + k, end - begin, out + begin);
        });
        if (v) dots_of_piece(rows, length, R, v, begin, end, partial.data() + p * rows);
    });
    if (v) add_pieces(partial, rows, overlaps);
}

}  // namespace

extern const RowsKernels rows_kernels;
const RowsKernels rows_kernels{{dots<double>, combine<double>}, {dots<float>, combine<float>}};

}  // namespace SW_ISA
}  // namespace stepwell
