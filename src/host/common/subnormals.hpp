// Numbers below 1e-308 count as zero while this object lives: they cost a hundred cycles each and, after
// scaling, mean nothing. One per thread.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "core/common/config.hpp"

SW_BEGIN

class FlushSubnormals {
public:
#if defined(__x86_64__)
    FlushSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040u); }
    ~FlushSubnormals() { _mm_setcsr(before_); }

private:
    unsigned before_;
#elif defined(__aarch64__)
    FlushSubnormals() {
        asm volatile("mrs %0, fpcr" : "=r"(before_));
        asm volatile("msr fpcr, %0" : : "r"(before_ | (1ull << 24)));
    }
    ~FlushSubnormals() { asm volatile("msr fpcr, %0" : : "r"(before_)); }

private:
    unsigned long long before_;
#else
    FlushSubnormals() {}
#endif

public:
    FlushSubnormals(const FlushSubnormals&) = delete;
    FlushSubnormals& operator=(const FlushSubnormals&) = delete;
};

SW_END
