// Picks, once, the best instruction set this machine has among those the module was compiled for.
#pragma once

// Declares what every instruction set defines in a namespace of its own (CMakeLists.txt, sw_multiversion),
// and names the one of the best that this machine has. Where SW_ISA is set its namespace is inline, as
// config.hpp opens it first.
#include "core/common/config.hpp"

#if defined(__x86_64__)
#define SW_FOR_EACH_ISA(...) \
    namespace baseline {     \
    __VA_ARGS__              \
    }                        \
    namespace avx2 {         \
    __VA_ARGS__              \
    }                        \
    namespace avx512 {       \
    __VA_ARGS__              \
    }
#define SW_BEST(name)                                                             \
    (::stepwell::best_isa() == ::stepwell::Isa::avx512 ? ::stepwell::avx512::name \
     : ::stepwell::best_isa() == ::stepwell::Isa::avx2 ? ::stepwell::avx2::name   \
                                                       : ::stepwell::baseline::name)
// Of a source that is not compiled for AVX-512 (TO_AVX2 in CMakeLists.txt).
#define SW_BEST_TO_AVX2(name)                                                         \
    (::stepwell::best_isa() == ::stepwell::Isa::baseline ? ::stepwell::baseline::name \
                                                         : ::stepwell::avx2::name)
#else
#define SW_FOR_EACH_ISA(...) \
    namespace baseline {     \
    __VA_ARGS__              \
    }
#define SW_BEST(name) (::stepwell::baseline::name)
#define SW_BEST_TO_AVX2(name) SW_BEST(name)
#endif

namespace stepwell {

enum class Isa { baseline, avx2, avx512 };

inline Isa best_isa() {
#if defined(__x86_64__)
    static const Isa best = [] {
        __builtin_cpu_init();
        const bool avx2 =
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
        const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
        return avx512 ? Isa::avx512 : avx2 ? Isa::avx2 : Isa::baseline;
    }();
    return best;
#else
    return Isa::baseline;
#endif
}

inline const char* isa_name(Isa isa) {
    switch (isa) {
        case Isa::avx512:
            return "AVX-512";
        case Isa::avx2:
            return "AVX2";
        default:
#if defined(__aarch64__)
            return "NEON";
#elif defined(__x86_64__)
            return "SSE2";
#else
            return "baseline";
#endif
    }
}

}  // namespace stepwell
