// Memory for vectors that are swept end to end. From a few megabytes on it asks for large pages: a sweep
// reads twenty streams at once, and with small pages each of them misses the translation cache every 4 KiB,
// which is dear on a virtual machine.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace stepwell {

class LargeMemory {
public:
    LargeMemory() = default;
    explicit LargeMemory(size_t bytes) : aligned(bytes < worth_large_pages ? cache_line : large_page) {
        start = ::operator new(bytes, aligned);
#if defined(__linux__)
        // A wish: where it is not granted, small pages serve. Never the last page in part, so as not to grow.
        if (bytes >= worth_large_pages) {
            madvise(start, bytes / size_t(large_page) * size_t(large_page), MADV_HUGEPAGE);
        }
#endif
    }
    LargeMemory(LargeMemory&& other) noexcept { *this = std::move(other); }
    LargeMemory& operator=(LargeMemory&& other) noexcept {
        std::swap(start, other.start);
        std::swap(aligned, other.aligned);
        return *this;
    }
    ~LargeMemory() {
        if (start) ::operator delete(start, aligned);
    }

    void* data() const { return start; }

private:
    static constexpr auto cache_line = std::align_val_t(64), large_page = std::align_val_t(size_t(2) << 20);
    static constexpr size_t worth_large_pages = size_t(4) << 20;

    void* start = nullptr;
    std::align_val_t aligned = cache_line;
};

}  // namespace stepwell
