// What a quasi-Newton kernel is compiled for. Set by the loader: SW_REAL (float or double), SW_CAPACITY (m),
// SW_THREADS (of a block), SW_BOUNDED, SW_WEIGHTED and SW_WEIGHTS_VARY (0 or 1), and SW_STAGED_BYTES (the
// dynamic shared memory of a block).
#pragma once

#include "core/common/config.hpp"

typedef SW_REAL Real;

SW_BEGIN

// A or B. (The standard library's is not at hand.)
template <bool first, class A, class B>
struct Choice {
    using type = A;
};
template <class A, class B>
struct Choice<false, A, B> {
    using type = B;
};

constexpr int threads = SW_THREADS;
constexpr int warps = threads / 32;
constexpr int capacity = SW_CAPACITY;
// Of the ring: a new pair is written before its step is accepted.
constexpr int slots = capacity + 1;
constexpr bool bounded = SW_BOUNDED, weighted = SW_WEIGHTED;
// The history is worked on as one stack of rows, Y by age and then S, in blocks of eight.
constexpr int row_blocks = (2 * capacity + 7) / 8;

// Variables are dealt out to the chunks of a problem in spans of so many.
constexpr int span = 256;
// Elements handled between two block barriers of the absorb sweep. Up to 16 pairs, the history rows of a tile
// are staged through shared memory, two tiles deep. A block of one warp has too little of that, and hides
// latency by the number of its like.
constexpr bool lone_warp = warps == 1;
constexpr bool staged = capacity <= 16 && !lone_warp;
constexpr int tile = lone_warp ? 64 : staged && capacity > 8 ? 128 : 256;
// The aim sweep, too, has few rows on their way through shared memory: each thread a lot of neighbouring
// elements, as many as one load can take. More of them come straight from global memory, by twos.
constexpr bool lots_staged = staged && capacity <= 8;
constexpr int lot = lots_staged ? 16 / int(sizeof(Real)) : 2;
constexpr int longest_walk = lone_warp ? 128 : 512;  // breakpoints walked at a time, at most

SW_END
