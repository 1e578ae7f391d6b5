// What a quasi-Newton kernel is compiled for. Set by the loader: SW_REAL (float or double), SW_KEPT (the type
// of the history: that one, or float or Bfloat16 where it is narrower), SW_CAPACITY (m),
// SW_THREADS (of a block), SW_BOUNDED, SW_LOWER_STEP and SW_UPPER_STEP (0 where one number bounds all
// variables), SW_WEIGHTED and SW_WEIGHTS_VARY (0 or 1), and SW_STAGED_BYTES (the dynamic shared memory of a
// block).
#pragma once

#include "core/quasi_newton/device_layout.hpp"
#include "core/quasi_newton/history.hpp"

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

using Kept = SW_KEPT;
constexpr bool narrowed = sizeof(Kept) < sizeof(Real);
constexpr int threads = SW_THREADS;
constexpr int warps = threads / 32;
constexpr int capacity = SW_CAPACITY;
// Of the ring: a new pair is written before its step is accepted.
constexpr int slots = capacity + 1;
constexpr bool bounded = SW_BOUNDED, weighted = SW_WEIGHTED;
constexpr int lower_step = SW_LOWER_STEP, upper_step = SW_UPPER_STEP, bound_rows = lower_step + upper_step;
// See core/quasi_newton/device_layout.hpp for all of these.
constexpr int row_blocks = row_blocks_of(capacity);
constexpr bool lone_warp = warps == 1;
constexpr bool staged = stages_rows(capacity, threads);
constexpr bool packs_staged = stages_packs(capacity, sizeof(Real), sizeof(Kept), threads);
constexpr bool in_pieces = takes_pieces(capacity, sizeof(Real), sizeof(Kept), weighted, threads);
constexpr int tile = tile_length(capacity, sizeof(Kept), threads);
// Rows of the aim sweep that are not staged come straight from global memory, by twos; those of a warp's
// narrow history by fours.
constexpr int pack_length = pack_length_of(capacity, sizeof(Real), sizeof(Kept), threads);
// Rows of the history are read only where a variable is free or has moved: of those that are held, nothing
// but the new pair's sᵀy and yᵀy counts. (Not where products over all variables are taken anew. In small
// problems too few neighbours are held together to be worth the looking.)
constexpr bool selective = bounded && !SW_WEIGHTS_VARY && !lone_warp;
using Engine = DeviceEngine<Real, Kept>;
// Counts variables of a problem. (Those of a warp are few: it needs its registers for other things.)
using Index = Choice<lone_warp, int, int64_t>::type;

// Chunks may begin anywhere, not only where several elements can be read at a time: of ranks alone.
#if !defined(SW_ANY_BEGIN)
#define SW_ANY_BEGIN 0
#endif
constexpr bool any_begin = SW_ANY_BEGIN;

SW_END
