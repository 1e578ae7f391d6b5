// Memory sized for the worst case, which is not touched before it is used.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "core/common/config.hpp"

SW_BEGIN

// Where it is much, it is an address only, until it is used: a long convolution by its Gram matrix never
// comes to the memory for Q.
template <class T>
class LazyBuffer {
public:
    explicit LazyBuffer(int64_t count) {
        const size_t bytes = (static_cast<size_t>(count) * sizeof(T) + 127) / 64 * 64;
        memory_ = {static_cast<T*>(reserved(bytes)), Free{bytes}};
        if (!memory_) throw std::bad_alloc();
    }
    T* get() const { return memory_.get(); }

private:
#if defined(__linux__)
    static constexpr size_t large_page = size_t(2) << 20;
    static bool is_large(size_t bytes) { return bytes >= size_t(1) << 30; }

    static void* reserved(size_t bytes) {
        if (!is_large(bytes)) {
            // From a few megabytes on in large pages, where they are granted: a call that takes memory anew
            // would spend more time on thousands of small ones than on a Gram matrix.
            if (bytes < 2 * large_page) return std::aligned_alloc(64, bytes);
            void* found = std::aligned_alloc(large_page, (bytes + large_page - 1) / large_page * large_page);
            if (found) madvise(found, bytes / large_page * large_page, MADV_HUGEPAGE);
            return found;
        }
        void* found =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return found == MAP_FAILED ? nullptr : found;
    }
    struct Free {
        size_t bytes;
        void operator()(T* p) const { is_large(bytes) ? void(munmap(p, bytes)) : std::free(p); }
    };
#else
    static void* reserved(size_t bytes) { return std::aligned_alloc(64, bytes); }
    struct Free {
        size_t bytes;
        void operator()(T* p) const { std::free(p); }
    };
#endif
    std::unique_ptr<T[], Free> memory_{nullptr, Free{0}};
};

SW_END
