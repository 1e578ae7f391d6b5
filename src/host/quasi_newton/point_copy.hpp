// Copies of points for Python: whole vectors, or rows of a batch, by all threads at once.
#pragma once

#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstring>

#include "host/common/pool.hpp"
#include "host/quasi_newton/chunks.hpp"
#include "host/quasi_newton/history_rows.hpp"

namespace stepwell {

// Copies vectors into one of its own, by the threads that have worked on them: each copies what its own cache
// holds, where one thread would wait for the others' caches.
class PointCopy {
public:
    using To = nanobind::ndarray<nanobind::c_contig, nanobind::device::cpu>;
    using From = nanobind::ndarray<nanobind::ro, nanobind::c_contig, nanobind::device::cpu>;
    using Rows = nanobind::ndarray<const int64_t, nanobind::c_contig, nanobind::device::cpu>;

    PointCopy(To to, int threads)
        : to(static_cast<Byte*>(to.data())),
          item(int64_t(to.itemsize())),
          row(to.ndim() > 0 && to.shape(0) > 0 ? int64_t(to.nbytes() / to.shape(0)) : 0),
          chunks(int64_t(to.size()), threads) {}
    void copy(From vector) const {
        if (int64_t(vector.nbytes()) != chunks.n * item)
            throw nanobind::value_error("vectors of different sizes");
        const Byte* const from = static_cast<const Byte*>(vector.data());
        nanobind::gil_scoped_release release;
        const auto copy_chunk = [this, from](int c, int) {
            const int64_t begin = chunks.begin(c), end = chunks.end(c);
            std::memcpy(to + begin * item, from + begin * item, size_t((end - begin) * item));
        };
        Pool::instance().run_awake(chunks.count, chunks.useful_threads(), copy_chunk);
    }

    // The named rows of vectors, of which there may be fewer than it has room for.
    void copy_rows(From vectors, Rows rows) const {
        const auto count = int64_t(rows.size()), all = row ? int64_t(vectors.nbytes()) / row : 0;
        const int64_t* const index = rows.data();
        for (int64_t k = 0; k < count; ++k)
            if (index[k] < 0 || index[k] >= all) throw nanobind::value_error("no such row");
        if (count * row > chunks.n * item) throw nanobind::value_error("more rows than there is room for");
        const Byte* const from = static_cast<const Byte*>(vectors.data());
        nanobind::gil_scoped_release release;
        constexpr int64_t length = 256;
        const auto copy_some = [this, from, index, count](int piece, int) {
            for (int64_t k = piece * length; k < std::min((piece + 1) * length, count); ++k)
                std::memcpy(to + k * row, from + index[k] * row, size_t(row));
        };
        Pool::instance().run_awake(int(quotient_up(count, length)), chunks.threads, copy_some);
    }

private:
    Byte* const to;
    const int64_t item, row;
    const Chunks chunks;
};

}  // namespace stepwell
