// Ctrl-C while a long call runs without Python's lock: the thread that called asks Python now and then
// whether a signal has come, and all threads learn of it here.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace stepwell {

class Watch {
public:
    // `asks` is called by the thread that makes this, at most every `pause`.
    explicit Watch(bool (*asks)()) : asks_(asks), caller_(std::this_thread::get_id()) {
        before_ = of_thread();
        of_thread() = this;
    }
    ~Watch() { of_thread() = before_; }
    Watch(const Watch&) = delete;

    // Whether the call is to end.
    bool look() {
        if (ended_.load(std::memory_order_relaxed)) return true;
        if (std::this_thread::get_id() != caller_ || now() - last_ < pause) return false;
        const bool ends = asks_();
        last_ = now();
        if (ends) ended_.store(true, std::memory_order_relaxed);
        return ends;
    }
    static int32_t look_at(void* watch) { return static_cast<Watch*>(watch)->look(); }

    bool has_ended() const { return ended_.load(std::memory_order_relaxed); }

    // Of the calling thread, or null: for who waits for others.
    static Watch*& of_thread() {
        static thread_local Watch* current = nullptr;
        return current;
    }

private:
    typedef std::chrono::steady_clock Clock;
    static constexpr std::chrono::milliseconds pause{50};
    static Clock::time_point now() { return Clock::now(); }

    bool (*asks_)();
    std::thread::id caller_;
    Clock::time_point last_ = now();
    std::atomic<bool> ended_{false};
    Watch* before_ = nullptr;
};

}  // namespace stepwell
