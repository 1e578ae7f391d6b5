// What the next problem of a batch will read, asked for a little at a time while the present one has
// arithmetic to do: all at once it would hold up the loads of the present one.
#pragma once

#include "core/common/simd.hpp"

SW_BEGIN

class Prefetcher {
public:
    void clear() { count = at = 0; }
    void add(const void* from, int64_t bytes) {
        pieces[count++] = {static_cast<const unsigned char*>(from), int((bytes + line - 1) / line)};
    }
    // So many lines of the cache.
    void prefetch(int lines) {
        for (; lines > 0 && at < count; ++at) {
            const auto [from, left] = pieces[at];
            const int now = min_of(lines, left);
            for (int k = 0; k < now; ++k) stepwell::prefetch(from + k * line);
            if (now < left) {
                pieces[at] = {from + now * line, left - now};
                return;
            }
            lines -= now;
        }
    }
    void prefetch_rest() { prefetch(1 << 20); }

private:
    static constexpr int64_t line = 64;
    struct Piece {
        const unsigned char* from;
        int lines;
    };
    Piece pieces[8];
    int count = 0, at = 0;
};

SW_END
