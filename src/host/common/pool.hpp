// A thread pool whose caller never waits for a worker that has not begun: pieces of work are claimed one by
// one, the caller claims too, and only pieces already claimed are waited for. On a machine shared with other
// programs this matters: at the end of an OpenMP region every thread of the team must arrive, and one that
// the operating system has not scheduled costs milliseconds where the work itself takes a tenth of one
// (docs/design.md has the figures).
//
// Each thread has a stretch of the pieces of its own, the same in every job of as many pieces, and helps with
// the others' when that is done: what it read in the last sweep is still in its cache in the next.
//
// A piece that throws ends the job with that exception, but not before every piece is done: nothing that the
// pieces work on is gone while one of them runs. Threads that the system does not grant are done without.
//
// One pool for all instruction sets: its code is in pool.cpp, compiled for the baseline alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>

namespace stepwell {

class Pool {
public:
    static Pool& instance();

    // Calls work(piece, thread) for pieces 0 .. count - 1 on at most `threads` threads, the caller's being
    // thread 0.
    template <class Work>
    void run(int count, int threads, const Work& work) {
        run_job(count, threads, &call<Work>, &work, true);
    }

    // The same with those alone who look out for jobs: for what is done before a thread would be awake.
    template <class Work>
    void run_awake(int count, int threads, const Work& work) {
        run_job(count, threads, &call<Work>, &work, false);
    }

    // While one lives, further jobs are about to come: threads look out for them longer before they sleep.
    // Being woken takes as long as a short job. Where the last one had been gone for a moment only, the next
    // is expected as soon, and threads look out until then.
    class MoreToCome {
    public:
        MoreToCome() : pool(instance()) {
            pool.comes_soon.store(pool.since_last() < longest_watch, std::memory_order_relaxed);
            pool.expecting.fetch_add(1, std::memory_order_relaxed);
        }
        ~MoreToCome() {
            pool.last_gone.store(now(), std::memory_order_relaxed);
            pool.expecting.fetch_sub(1, std::memory_order_relaxed);
        }
        MoreToCome(const MoreToCome&) = delete;

    private:
        Pool& pool;
    };

private:
    using Function = void (*)(const void* context, int piece, int thread);

    template <class Work>
    static void call(const void* context, int piece, int thread) {
        (*static_cast<const Work*>(context))(piece, thread);
    }

    std::mutex busy;
    int grown = 0;  // threads that serve, the caller's not among them
    // The job. Written before `claims` are published; read only by a thread that has claimed a piece of it.
    Function function = nullptr;
    const void* context = nullptr;
    int pieces = 0;
    std::atomic<int> allowed{0}, stretches{1};
    // generation << 32 | pieces left of a stretch: a worker late from a job that is done finds nothing left
    // in this one word, however many pieces the next job has. A cache line each.
    static constexpr int max_stretches = 64;
    struct alignas(64) Claim {
        std::atomic<uint64_t> word{0};
    };
    Claim claims[max_stretches];
    alignas(64) std::atomic<uint32_t> epoch{0};  // which those without work look at
    std::atomic<int> expecting{0};
    alignas(64) std::atomic<int> finished{0};
    // Some twenty times what waking a thread takes: who sleeps after that has lost little.
    static constexpr int64_t longest_watch = 300'000;  // nanoseconds
    std::atomic<bool> comes_soon{false};
    std::atomic<int64_t> last_gone{-longest_watch};
    std::atomic<bool> failed{false};
    std::exception_ptr failure;  // of the first piece that threw

    void run_job(int count, int threads, Function function, const void* context, bool wakes);
    int begin_of(int stretch, int count) const { return int(int64_t(pieces) * stretch / count); }
    void grow(int wanted);
    void take_pieces(uint32_t generation, int thread);
    void do_piece(int piece, int thread) noexcept;
    void serve(int thread);
    uint32_t look_for_job(uint32_t seen, int thread) const;
    bool is_worth_watching(int looks, int thread) const;
    static int64_t now();
    int64_t since_last() const { return now() - last_gone.load(std::memory_order_relaxed); }
};

}  // namespace stepwell
