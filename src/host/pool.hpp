// A thread pool whose caller never waits for a worker that has not begun: pieces of work are claimed one by
// one, the caller claims too, and only pieces already claimed are waited for. On a machine shared with other
// programs this matters: at the end of an OpenMP region every thread of the team must arrive, and one that
// the operating system has not scheduled costs milliseconds where the work itself takes a tenth of one
// (docs/design.md has the figures).
#pragma once

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace stepwell {

class Pool {
public:
    static Pool& instance() {
        // Never destroyed, so that workers asleep at exit are harmless; made anew in a forked child, where no
        // worker lives.
        static std::mutex guard;
        static Pool* pool = nullptr;
        static pid_t owner = 0;
        const std::lock_guard<std::mutex> lock(guard);
        if (!pool || owner != getpid()) {
            pool = new Pool;
            owner = getpid();
        }
        return *pool;
    }

    // Calls work(piece, thread) for pieces 0 .. count - 1 on at most `threads` threads, the caller's being
    // thread 0.
    template <class Work>
    void run(int count, int threads, const Work& work) {
        // A pool serves one job at a time; a second caller works alone rather than wait.
        std::unique_lock<std::mutex> turn(busy, std::defer_lock);
        if (threads <= 1 || count <= 1 || !turn.try_lock()) {
            for (int piece = 0; piece < count; ++piece) work(piece, 0);
            return;
        }
        grow(threads - 1);
        function = [](const void* context, int piece, int thread) {
            (*static_cast<const Work*>(context))(piece, thread);
        };
        context = &work;
        pieces = count;
        allowed = threads;
        finished.store(0, std::memory_order_relaxed);
        const uint32_t generation = uint32_t(claim.load(std::memory_order_relaxed) >> 32) + 1;
        claim.store(uint64_t(generation) << 32 | uint32_t(count), std::memory_order_release);
        epoch.store(generation, std::memory_order_release);
        epoch.notify_all();
        take_pieces(generation, 0);
        for (int spins = 0; finished.load(std::memory_order_acquire) < count; ++spins) {
            if (spins > 1000) std::this_thread::yield();
        }
    }

private:
    std::mutex busy;
    std::vector<std::thread> workers;
    // The job. Written before `claim` is published; read only by a thread that has claimed a piece of it.
    void (*function)(const void*, int, int) = nullptr;
    const void* context = nullptr;
    int pieces = 0;
    std::atomic<int> allowed{0};
    // generation << 32 | pieces left: a worker late from a job that is done finds nothing left in this one
    // word, however many pieces the next job has.
    std::atomic<uint64_t> claim{0};
    std::atomic<uint32_t> epoch{0};
    std::atomic<int> finished{0};

    void grow(int wanted) {
        while (int(workers.size()) < wanted) {
            const int thread = int(workers.size()) + 1;
            workers.emplace_back([this, thread] { serve(thread); });
            workers.back().detach();
        }
    }

    // Claims pieces of one generation until none is left or another job has begun.
    void take_pieces(uint32_t generation, int thread) {
        uint64_t current = claim.load(std::memory_order_acquire);
        for (;;) {
            const uint32_t left = uint32_t(current);
            if (uint32_t(current >> 32) != generation || left == 0) return;
            if (!claim.compare_exchange_weak(current, current - 1, std::memory_order_acq_rel)) continue;
            function(context, pieces - int(left), thread);
            finished.fetch_add(1, std::memory_order_release);
            current = claim.load(std::memory_order_acquire);
        }
    }

    void serve(int thread) {
        uint32_t seen = 0;
        for (;;) {
            // A sweep follows a sweep within microseconds: look for a while before sleeping.
            uint32_t now = epoch.load(std::memory_order_acquire);
            for (int spins = 0; now == seen && spins < 2000; ++spins)
                now = epoch.load(std::memory_order_acquire);
            if (now == seen) {
                epoch.wait(seen, std::memory_order_acquire);
                now = epoch.load(std::memory_order_acquire);
            }
            seen = now;
            if (thread < allowed.load(std::memory_order_relaxed)) take_pieces(seen, thread);
        }
    }
};

}  // namespace stepwell
