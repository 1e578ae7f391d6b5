// Runs CUDA C++ on the CPU without a device: the threads of a block are contexts that run in turn and change
// places at barriers and warp-wide operations. Blocks run one after the other, or as processes of the
// program.
#pragma once

#include <sched.h>
#include <setjmp.h>
#include <ucontext.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#define __CUDACC__
#define __host__
#define __device__
#define __global__
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#undef __noinline__
#define __noinline__ __attribute__((noinline))

inline double rsqrt(double value) {
    return 1 / std::sqrt(value);
}

struct Dimensions {
    unsigned x;
};
inline Dimensions threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

constexpr int lanes = 32;

struct Barrier {
    int arrived = 0;
    unsigned turn = 0;
};

// A thread of the block. It is entered by setcontext() once and by _longjmp() from then on: swapcontext()
// asks the system for the mask of signals at every change.
struct Context {
    static constexpr size_t bytes = 1 << 17;
    ucontext_t begin;
    jmp_buf place;
    std::unique_ptr<char[]> stack{new char[bytes]};
    bool begun = false, ended = false;
};

inline jmp_buf scheduler;
inline std::vector<std::unique_ptr<Context>> contexts;
inline std::function<void()> body;
inline Barrier whole;
inline std::vector<Barrier> warps;
inline std::vector<uint64_t> slots;

inline void give_way() {
    if (!_setjmp(contexts[threadIdx.x]->place)) _longjmp(scheduler, 1);
}

inline void wait(Barrier& barrier, int size) {
    const unsigned turn = barrier.turn;
    if (++barrier.arrived == size) {
        barrier.arrived = 0;
        ++barrier.turn;
        return;
    }
    while (barrier.turn == turn) give_way();
}

inline void start() {
    const unsigned self = threadIdx.x;
    body();
    contexts[self]->ended = true;
    _longjmp(scheduler, 1);
}

// Runs a thread until it gives way or ends.
inline void resume(Context& context) {
    if (_setjmp(scheduler)) return;
    if (context.begun) _longjmp(context.place, 1);
    context.begun = true;
    setcontext(&context.begin);
}

// Launches some blocks of a grid: kernel() is called by every thread of each.
inline void launch(unsigned first, unsigned last, unsigned blocks, unsigned threads,
                   std::function<void()> kernel) {
    body = std::move(kernel);
    gridDim.x = blocks;
    blockDim.x = threads;
    for (blockIdx.x = first; blockIdx.x < last; ++blockIdx.x) {
        whole = {};
        warps.assign(threads / lanes, {});
        slots.assign(threads, 0);
        while (contexts.size() < threads) contexts.push_back(std::make_unique<Context>());
        for (unsigned k = 0; k < threads; ++k) {
            Context& context = *contexts[k];
            context.begun = context.ended = false;
            getcontext(&context.begin);
            context.begin.uc_stack.ss_sp = context.stack.get();
            context.begin.uc_stack.ss_size = Context::bytes;
            context.begin.uc_link = nullptr;
            makecontext(&context.begin, start, 0);
        }
        unsigned running = threads;
        for (int64_t round = 0; running; ++round) {
            if (round > 10'000'000) {
                std::fprintf(stderr, "threads wait for each other\n");
                std::exit(1);
            }
            running = 0;
            for (unsigned k = 0; k < threads; ++k) {
                if (contexts[k]->ended) continue;
                threadIdx.x = k;
                resume(*contexts[k]);
                running += !contexts[k]->ended;
            }
        }
    }
}

// Launches a kernel: all its blocks, one after the other.
inline void launch(unsigned blocks, unsigned threads, std::function<void()> kernel) {
    launch(0, blocks, blocks, threads, std::move(kernel));
}

// All lanes of the calling thread's warp show a value; visit(lane, value) sees them in order.
template <class T, class Visit>
void exchange(T value, Visit visit) {
    const unsigned self = threadIdx.x, first = self / lanes * lanes;
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    slots[self] = bits;
    wait(warps[self / lanes], lanes);
    for (int lane = 0; lane < lanes; ++lane) {
        T other;
        __builtin_memcpy(&other, &slots[first + lane], sizeof other);
        visit(lane, other);
    }
    wait(warps[self / lanes], lanes);
}

}  // namespace emulator

inline void __syncthreads() {
    emulator::wait(emulator::whole, int(blockDim.x));
}
inline void __threadfence() {}
inline void __syncwarp() {
    emulator::wait(emulator::warps[threadIdx.x / emulator::lanes], emulator::lanes);
}

template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
    const int own = int(threadIdx.x % emulator::lanes);
    T found = value;
    emulator::exchange(value, [&](int lane, T other) { found = lane == (own ^ mask) ? other : found; });
    return found;
}
template <class T>
T __shfl_sync(unsigned, T value, int from) {
    T found = value;
    emulator::exchange(value,
                       [&](int lane, T other) { found = lane == from % emulator::lanes ? other : found; });
    return found;
}
template <class T>
T __shfl_up_sync(unsigned, T value, int offset) {
    const int own = int(threadIdx.x % emulator::lanes);
    T found = value;
    emulator::exchange(value, [&](int lane, T other) { found = lane == own - offset ? other : found; });
    return found;
}
inline unsigned __ballot_sync(unsigned, bool value) {
    unsigned found = 0;
    emulator::exchange(value, [&](int lane, bool other) { found |= unsigned(other) << lane; });
    return found;
}
inline bool __any_sync(unsigned mask, bool value) {
    return __ballot_sync(mask, value) != 0;
}
inline unsigned __reduce_add_sync(unsigned, unsigned value) {
    unsigned found = 0;
    emulator::exchange(value, [&](int, unsigned other) { found += other; });
    return found;
}
inline int __reduce_min_sync(unsigned, int value) {
    int found = value;
    emulator::exchange(value, [&](int, int other) { found = other < found ? other : found; });
    return found;
}
struct double2 {
    double x, y;
};
struct float2 {
    float x, y;
};
struct uint2 {
    unsigned x, y;
};
struct uint4 {
    unsigned x, y, z, w;
};
inline double __dmul_rn(double a, double b) {
    return a * b;
}
inline double2 make_double2(double x, double y) {
    return {x, y};
}
template <class T>
T __ldcg(const T* from) {
    return *from;
}
template <class T>
void __stcg(T* to, T value) {
    *to = value;
}
inline long long __double_as_longlong(double value) {
    return std::bit_cast<long long>(value);
}
inline double __longlong_as_double(long long bits) {
    return std::bit_cast<double>(bits);
}
inline int __ffs(int value) {
    return __builtin_ffs(value);
}
// The blocks of a grid may be processes.
template <class T>
T atomicAdd(T* where, T value) {
    return __atomic_fetch_add(where, value, __ATOMIC_ACQ_REL);
}
template <class T>
T atomicExch(T* where, T value) {
    return __atomic_exchange_n(where, value, __ATOMIC_ACQ_REL);
}
template <class T>
T atomicMin(T* where, T value) {
    const T before = *where;
    *where = value < before ? value : before;
    return before;
}
