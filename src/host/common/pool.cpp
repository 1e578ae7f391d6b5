#include "host/common/pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>
#include <utility>

#include "host/common/watch.hpp"

namespace stepwell {

namespace {

// Never destroyed, so that workers asleep at exit are harmless; made anew in a forked child, where no worker
// lives. (To ask for the process's number with every job would take as long as to hand it over.)
constinit std::atomic<Pool*> of_process{nullptr};
// When the module is loaded. Where it fails, the callers of children work alone.
[[maybe_unused]] const int forgotten_by_children =
    pthread_atfork(nullptr, nullptr, [] { of_process.store(nullptr, std::memory_order_relaxed); });

}  // namespace

Pool& Pool::instance() {
    Pool* pool = of_process.load(std::memory_order_acquire);
    if (pool) return *pool;
    Pool* const fresh = new Pool;
    if (of_process.compare_exchange_strong(pool, fresh, std::memory_order_acq_rel)) return *fresh;
    delete fresh;
    return *pool;
}

namespace {

// Pieces of a job whose first ones are done.
struct Rest {
    void (*work)(const void* context, int piece, int thread);
    const void* context;
    int done;
    static void call(const void* rest, int piece, int thread) {
        const Rest& r = *static_cast<const Rest*>(rest);
        r.work(r.context, r.done + piece, thread);
    }
};

}  // namespace

void Pool::run_job(int count, int threads, Function work, const void* with, bool wakes) {
    // A pool serves one job at a time; a second caller works alone rather than wait, and is helped with what
    // it has left once the pool is free. (Of two jobs at once, the second would end long after the first.)
    std::unique_lock<std::mutex> turn(busy, std::defer_lock);
    Rest rest{work, with, 0};
    while (threads <= 1 || count <= 1 || !turn.try_lock()) {
        if (count-- <= 0) return;
        work(with, rest.done++, 0);
    }
    grow(threads - 1);
    function = &Rest::call;
    context = &rest;
    pieces = count;
    const int shares = std::min(threads, max_stretches);
    stretches.store(shares, std::memory_order_relaxed);
    allowed.store(threads, std::memory_order_relaxed);
    finished.store(0, std::memory_order_relaxed);
    const uint32_t generation = epoch.load(std::memory_order_relaxed) + 1;
    for (int share = 0; share < shares; ++share) {
        const auto length = uint32_t(begin_of(share + 1, shares) - begin_of(share, shares));
        claims[share].word.store(uint64_t(generation) << 32 | length, std::memory_order_release);
    }
    epoch.store(generation, std::memory_order_release);
    if (wakes) epoch.notify_all();
    take_pieces(generation, 0);
    Watch* const watch = Watch::of_thread();
    for (int spins = 0; finished.load(std::memory_order_acquire) < count; ++spins) {
        if (spins <= 1000) continue;
        std::this_thread::yield();
        if (watch) watch->look();
    }
    if (failed.exchange(false, std::memory_order_acquire)) {
        std::rethrow_exception(std::exchange(failure, nullptr));
    }
}

void Pool::grow(int wanted) {
    while (grown < wanted) {
        const int thread = grown + 1;
        try {
            std::thread([this, thread] { serve(thread); }).detach();
        } catch (const std::system_error&) {
            return;  // no more threads than these
        } catch (const std::bad_alloc&) {
            return;
        }
        ++grown;
    }
}

void Pool::do_piece(int piece, int thread) noexcept {
    try {
        function(context, piece, thread);
    } catch (...) {
        if (!failed.exchange(true, std::memory_order_relaxed)) failure = std::current_exception();
    }
}

// Claims pieces of one generation, the thread's own stretch first, until none is left or another job has
// begun. What it has done it says once: the caller waits for the last piece, and every word of it would take
// the line that all threads write from one core to another.
void Pool::take_pieces(uint32_t generation, int thread) {
    const int shares = stretches.load(std::memory_order_relaxed);
    int done = 0;
    for (int k = 0; k < shares; ++k) {
        const int share = (thread + k) % shares;
        std::atomic<uint64_t>& word = claims[share].word;
        uint64_t current = word.load(std::memory_order_acquire);
        for (;;) {
            const auto left = uint32_t(current);
            if (uint32_t(current >> 32) != generation || left == 0) break;
            if (!word.compare_exchange_weak(current, current - 1, std::memory_order_acq_rel)) continue;
            do_piece(begin_of(share + 1, shares) - int(left), thread);
            ++done;
            current = word.load(std::memory_order_acquire);
        }
    }
    if (done > 0) finished.fetch_add(done, std::memory_order_release);
}

int64_t Pool::now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

bool Pool::is_worth_watching(int looks, int thread) const {
    if (thread >= allowed.load(std::memory_order_relaxed)) return false;
    if (expecting.load(std::memory_order_relaxed) > 0 && looks < 100) return true;
    return comes_soon.load(std::memory_order_relaxed) && since_last() < longest_watch;
}

// Looks for the next job for some microseconds and, where one is expected, for longer, giving way to others.
uint32_t Pool::look_for_job(uint32_t seen, int thread) const {
    uint32_t found = epoch.load(std::memory_order_acquire);
    for (int spins = 0; found == seen && spins < 4000; ++spins) found = epoch.load(std::memory_order_acquire);
    for (int looks = 0; found == seen && is_worth_watching(looks, thread); ++looks) {
        std::this_thread::yield();
        for (int spins = 0; found == seen && spins < 100; ++spins)
            found = epoch.load(std::memory_order_acquire);
    }
    return found;
}

void Pool::serve(int thread) {
    uint32_t seen = 0;
    for (;;) {
        uint32_t now = look_for_job(seen, thread);
        if (now == seen) {
            epoch.wait(seen, std::memory_order_acquire);
            now = epoch.load(std::memory_order_acquire);
        }
        seen = now;
        if (thread < allowed.load(std::memory_order_relaxed)) take_pieces(seen, thread);
    }
}

}  // namespace stepwell
