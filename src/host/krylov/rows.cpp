// Compiled once per instruction set. The vectors are cut into pieces whose length does not depend on the
// number of threads; a piece of the vector stays in the first cache while the same piece of every row goes
// by.
#include "host/krylov/rows.hpp"

#include <algorithm>
#include <vector>

#include "core/common/simd.hpp"
#include "host/common/pool.hpp"

namespace stepwell {
namespace SW_ISA {
namespace {

constexpr std::int64_t piece = 512;              // entries
constexpr int group = 8;                         // rows at a time: as many streams as the memory serves best
constexpr std::int64_t worth_threads = 1 << 16;  // entries of R below which a second thread is not woken

template <class Value>
Value add_in_order(const Register<Value>& sums) {
    Value total = 0;
    for (int k = 0; k < register_lanes<Value>; ++k) total += sums[k];
    return total;
}

// One piece of `count` rows, read once: adds their combination to out, where wanted, and their inner products
// with v to overlaps, where wanted.
template <int count, bool combined, bool dotted, class Value>
void pass(const Value* const* row, std::int64_t length, const Value* c, Value* out, const Value* v,
          Value* overlaps) {
    constexpr int step = register_lanes<Value>;
    Register<Value> sums[count] = {};
    std::int64_t i = 0;
    for (; i + step <= length; i += step) {
        Register<Value> sum = {}, by = {};
        if constexpr (combined) sum = register_at(out + i);
        if constexpr (dotted) by = register_at(v + i);
        for (int r = 0; r < count; ++r) {
            const Register<Value> entries = register_at(row[r] + i);
            if constexpr (combined) sum += c[r] * entries;
            if constexpr (dotted) sums[r] += entries * by;
        }
        if constexpr (combined) register_at(out + i) = sum;
    }
    for (; i < length; ++i)
        for (int r = 0; r < count; ++r) {
            if constexpr (combined) out[i] += c[r] * row[r][i];
            if constexpr (dotted) sums[r][0] += row[r][i] * v[i];
        }
    if constexpr (dotted)
        for (int r = 0; r < count; ++r) overlaps[r] = add_in_order<Value>(sums[r]);
}

// One piece of all rows.
template <bool combined, bool dotted, class Value>
void pass_all(std::int64_t rows, std::int64_t length, const Value* R, std::int64_t begin, std::int64_t end,
              const Value* c, Value* out, const Value* v, Value* overlaps) {
    for (std::int64_t r = 0; r < rows; r += group) {
        const Value* row[group];
        const int count = int(std::min<std::int64_t>(group, rows - r));
        for (int k = 0; k < count; ++k) row[k] = R + (r + k) * length + begin;
        if constexpr (combined && !dotted)
            if (std::all_of(c + r, c + r + count, [](Value share) { return share == 0; })) continue;
        Value* to = combined ? out + begin : nullptr;
        const Value* by = dotted ? v + begin : nullptr;
        const Value* shares = combined ? c + r : nullptr;
        Value* sums = dotted ? overlaps + r : nullptr;
        if (count == group) {
            pass<group, combined, dotted>(row, end - begin, shares, to, by, sums);
            continue;
        }
        for (int k = 0; k < count; ++k)
            pass<1, combined, dotted>(row + k, end - begin, combined ? shares + k : nullptr, to, by,
                                      dotted ? sums + k : nullptr);
    }
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
        pass_all<false, true, Value>(rows, length, R, begin, end, nullptr, nullptr, v,
                                     partial.data() + p * rows);
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
        if (v)
            pass_all<true, true>(rows, length, R, begin, end, c, out, v, partial.data() + p * rows);
        else
            pass_all<true, false, Value>(rows, length, R, begin, end, c, out, nullptr, nullptr);
    });
    if (v) add_pieces(partial, rows, overlaps);
}

}  // namespace

extern const RowsKernels rows_kernels;
const RowsKernels rows_kernels{{dots<double>, combine<double>}, {dots<float>, combine<float>}};

}  // namespace SW_ISA
}  // namespace stepwell
