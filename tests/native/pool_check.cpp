// Many short jobs of very different lengths: a worker that is late from one job must not touch the next. Then
// two callers at once, one of whom works alone until the pool is free and has its help from there on.
// Built without a sanitizer, whose slowness hides the moment in question. Prints how many pieces were not
// done exactly once.
#include <cstdio>
#include <thread>
#include <vector>

#include "host/common/pool.hpp"

static long wrong_of_jobs(stepwell::Pool& pool, int rounds) {
    std::vector<std::atomic<int>> done(40);
    long wrong = 0;
    for (int round = 0; round < rounds; ++round) {
        const int count = round % 2 ? 2 : 40;
        for (int i = 0; i < count; ++i) done[i].store(0, std::memory_order_relaxed);
        pool.run(count, 2, [&](int piece, int) { done[piece].fetch_add(1, std::memory_order_relaxed); });
        for (int i = 0; i < count; ++i) wrong += done[i].load(std::memory_order_relaxed) != 1;
    }
    return wrong;
}

int main() {
    stepwell::Pool& pool = stepwell::Pool::instance();
    long wrong = wrong_of_jobs(pool, 600000), other = 0;
    std::thread caller([&] { other = wrong_of_jobs(pool, 100000); });
    wrong += wrong_of_jobs(pool, 100000);
    caller.join();
    std::printf("%ld\n", wrong + other);
    return 0;
}
