// Many short jobs of very different lengths: a worker that is late from one job must not touch the next.
// Built without a sanitizer, whose slowness hides the moment in question. Prints how many pieces were not
// done exactly once.
#include <cstdio>
#include <vector>

#include "host/common/pool.hpp"

int main() {
    stepwell::Pool& pool = stepwell::Pool::instance();
    std::vector<std::atomic<int>> done(40);
    long wrong = 0;
    for (int round = 0; round < 600000; ++round) {
        const int count = round % 2 ? 2 : 40;
        for (int i = 0; i < count; ++i) done[i].store(0, std::memory_order_relaxed);
        pool.run(count, 2, [&](int piece, int) { done[piece].fetch_add(1, std::memory_order_relaxed); });
        for (int i = 0; i < count; ++i) wrong += done[i].load(std::memory_order_relaxed) != 1;
    }
    std::printf("%ld\n", wrong);
    return 0;
}
