// What the CUDA kernels and the host that launches them must agree on: the kernels include this, and the
// compiled module hands it to Python (src/host/quasi_newton/layout.cpp).
#pragma once

#include "core/quasi_newton/counted_breaks.hpp"
#include "core/quasi_newton/memory.hpp"

namespace stepwell {

constexpr int max_device_capacity = 64;  // pairs that the kernels are written for
constexpr int block_threads = 256;
constexpr int warp_threads = 32;    // of a block that takes a small problem: so many variables at most, and
constexpr int small_problem = 512;  // so many pairs, whose decisions fit its share of shared memory
constexpr int small_capacity = 10;
constexpr int span = 256;         // variables are dealt out to the chunks of a problem in spans of so many
constexpr int group_size = 20;    // chunks whose sums are added up by the last of them to finish
constexpr int read_together = 8;  // variables of the history that one read takes, at most: 16 bytes
constexpr int max_numbers = 7;    // that a thread finds besides products of rows and a careful sum
constexpr int chunk_numbers = max_numbers + 2;  // the same of a chunk: a careful sum is two

// Grid-wide barrier in device memory; the grid is launched cooperatively, so all blocks are resident.
// `released`: twice how often member 0 has let the others go on, plus one if there is nothing left to do.
struct Barrier {
    unsigned int arrived, released;
    unsigned int in_group[1];  // one for each group of chunks
};

// Everything that a turn works on, in device memory; the Options follow it. History rows are padded so that
// they stay aligned.
template <class Real, class Kept = Real>
struct DeviceEngine : BatchMemory<Real, Kept> {
    double* partials;      // per thread group: sums by chunk, see sums.cuh
    double* coefficients;  // per thread group: 2m
    double* scratch;       // per thread group: decisions, where they do not fit shared memory
    double* walk;          // per thread group: device_walk()
    Barrier* barrier;
    State* report;          // pinned host memory: state of the first problem after each turn
    unsigned int* running;  // pinned host memory: problems still running after the last turn
    unsigned int* counter;  // device memory: the count in the making, blocks that are done, problems taken
    int64_t partial_stride, walk_stride;
    int32_t chunks, walk_length, sums;  // sums: of a chunk, at most
};

// A sweep by a launch of its own, for a problem whose decisions the host takes (rank_sweep.cu): those of
// decide.hpp; a new pair may be absorbed while its point is judged, with the slope.
enum class DeviceSweep : int32_t {
    slope,
    absorb_start,
    absorb_pair,
    slope_and_absorb,
    regather,
    list_breaks,
    count_breaks,
    sum_ties,
    aim,
    step,
    end,
};

// The argument of that launch, by value. Of the engine `partials` has room for `sums` numbers a part of a
// chunk, `counter` one number a chunk and one more, `walk` the counters of device_walk(); all of them zeros
// before the first launch. What the host reads lies in its own memory, pinned.
template <class Real, class Kept = Real>
struct SweepArguments {
    DeviceEngine<Real, Kept> engine;
    alignas(8) unsigned char options[sizeof(Options)];
    State state;
    double coefficients[2 * max_device_capacity];  // of the direction
    const Real* gradient;                          // at the trial point
    const void* f;                                 // on the device, floats or doubles; null: the host has it
    double* f_values;                              // for the host: those of f
    double* rows;                                  // for the host: a row a chunk; of a walk's counts one
    double* breaks;                                // for the host: BreakList::breaks and rows
    double* break_rows;
    int64_t chunk_length, chunk_before;  // of the piece of the variables, as Cut in host/quasi_newton
    int32_t parts;                       // into which a whole chunk is cut
    int32_t f_count, f_is_float;
    int32_t at_trial;  // whether the trial point is (to be) the accepted one
    DeviceSweep sweep;
};

}  // namespace stepwell

SW_BEGIN

// In how many parts a chunk is worked on, each by a block: by the cut of all variables alone, so that sums do
// not depend on how many devices share them. As many as keep the two blocks of each of a device's 132
// multiprocessors evenly at work, a part costing about two spans besides its own.
SW_HD int parts_of_chunks(int64_t chunks, int64_t length) {
    constexpr int64_t blocks = 264, most = 64, cost = 2;
    const int64_t spans = (length + span - 1) / span;
    int64_t best = 1, least = 0;
    for (int64_t parts = 1; parts <= min_of(spans, most); ++parts) {
        const int64_t rounds = (chunks * parts + blocks - 1) / blocks;
        const int64_t time = rounds * ((spans + parts - 1) / parts + cost);
        if (parts == 1 || time < least) best = parts, least = time;
    }
    return int(best);
}

// Variables of a tile of the absorb sweep, of which each warp has its part. Up to 16 pairs, the history rows
// of a tile are staged through shared memory, two tiles deep. A block of one warp has too little of that, and
// hides latency by the number of its like.
SW_HD constexpr bool stages_rows(int capacity, int threads) {
    return capacity <= 16 && threads > warp_threads;
}
SW_HD constexpr int row_blocks_of(int capacity) {
    return (2 * capacity + 7) / 8;
}
SW_HD constexpr int tile_length(int capacity, int kept_bytes, int threads) {
    const bool large = 8 * row_blocks_of(capacity) * kept_bytes > 128;
    return threads == warp_threads ? 64 : stages_rows(capacity, threads) && large ? 128 : 256;
}
// Where x is in float32 and the few pairs in bfloat16, each warp takes pieces of the variables, 128 bytes of
// every row, straight into its registers, and their products by the tensor instruction of that type
// (cuda/quasi_newton/absorb_pieces.cuh). Staged are the vectors, and each thread's sums in double precision.
SW_HD constexpr bool takes_pieces(int capacity, int real_bytes, int kept_bytes, bool weighted, int threads) {
    return real_bytes == 4 && kept_bytes == 2 && capacity <= 10 && !weighted && threads > warp_threads;
}
constexpr int piece_length = 64;
constexpr int piece_sums = 18;  // of a thread, at most
// The aim sweep, too, has few rows on their way through shared memory: each thread a pack of neighbouring
// elements, as many as one load can take. More of them where the history is narrower than the vectors.
SW_HD constexpr bool stages_packs(int capacity, int real_bytes, int kept_bytes, int threads) {
    return stages_rows(capacity, threads) && capacity <= (kept_bytes < real_bytes ? 10 : 8);
}

// The history is worked on as one stack of rows, Y by age and then S, in blocks of eight; behind them come
// the vectors of a tile: g, x, g before, d; lower, upper, but for numbers; weight. Rows of a tile in shared
// memory lie a pitch apart: those that a quarter warp reads together start in different banks.
SW_HD constexpr int input_rows_of(int bound_rows, bool weighted) {
    return 4 + bound_rows + (weighted ? 1 : 0);
}
SW_HD constexpr int pitch_of(int capacity, int kept_bytes, int threads) {
    return tile_length(capacity, kept_bytes, threads) + 8;
}
// Bytes of one stage of the history's rows in the absorb sweep, of which there are two; the vectors of tiles
// lie behind both. With rows of bfloat16, which arrive soon, the vectors of two tiles are under way.
SW_HD constexpr int inputs_ahead_of(int kept_bytes) {
    return kept_bytes == 2 ? 2 : 1;
}
SW_HD constexpr int stage_bytes_of(int capacity, int kept_bytes, int threads) {
    return 8 * row_blocks_of(capacity) * kept_bytes * pitch_of(capacity, kept_bytes, threads);
}
// What a thread takes of a vector at a time in the aim sweep: 16 bytes, where packs are staged. Where a warp
// has a problem to itself it takes so many elements of a row in the absorb sweep as well: of narrow ones
// four, so that the lanes which share a row read all of the 32 bytes that come with each.
SW_HD constexpr int pack_length_of(int capacity, int real_bytes, int kept_bytes, int threads) {
    if (stages_packs(capacity, real_bytes, kept_bytes, threads)) return 16 / real_bytes;
    return threads == warp_threads && kept_bytes < 8 ? 4 : 2;
}
// Numbers of a block that sums over its threads and warps take between the sweeps, in what was staged
// (sums.cuh, strip_sums.cuh).
constexpr int max_blocks_at_once = 5;
SW_HD constexpr int fold_length_of(int threads) {
    return chunk_numbers * (threads + 4);  // those of a thread lie so far apart, in different banks
}
// Dynamic shared memory of a block: what the absorb sweep stages, or a pack of every row for each thread and,
// with a narrow history, of two times the vectors (x, g, bounds, weight).
SW_HD constexpr int staged_bytes_of(int capacity, int real_bytes, int kept_bytes, int bound_rows,
                                    bool weighted, int threads) {
    if (!stages_rows(capacity, threads)) return 0;
    const int pack_bytes = pack_length_of(capacity, real_bytes, kept_bytes, threads) * kept_bytes;
    const int vectors = input_rows_of(bound_rows, weighted) * real_bytes;
    const int tiles = 2 * stage_bytes_of(capacity, kept_bytes, threads) +
                      inputs_ahead_of(kept_bytes) * vectors * pitch_of(capacity, kept_bytes, threads);
    const bool pieces = takes_pieces(capacity, real_bytes, kept_bytes, weighted, threads);
    const int absorb =
        pieces ? threads / 32 * vectors * piece_length + threads * piece_sums * int(sizeof(double)) : tiles;
    const bool packs = stages_packs(capacity, real_bytes, kept_bytes, threads);
    const int ahead = kept_bytes < real_bytes ? 2 * (input_rows_of(bound_rows, weighted) - 2) * 16 : 0;
    const int aim = packs ? threads * (2 * capacity * pack_bytes + ahead) : 0;
    const int numbers = max_of(fold_length_of(threads), 64 * (threads / 32) * max_blocks_at_once);
    return max_of(max_of(absorb, aim), numbers * int(sizeof(double)));
}

// Breakpoints that are sorted at a time in shared memory; the first lists have no more.
SW_HD constexpr int sorted_at_once(int threads) {
    return threads == warp_threads ? 128 : longest_list;
}
// Breakpoints that a thread group may list at a time. `grows`: where it may walk along the path, and then of
// many variables a sixteenth, so that a walk has few lists.
SW_HD constexpr int device_walk_length(int64_t n, int capacity, int threads, bool grows) {
    const int first = int(min_of(n, int64_t(sorted_at_once(threads))));
    return grows && n > first && threads > warp_threads ? longest_by_memory(n / 16, capacity) : first;
}

// What a thread group shares during a walk, in global memory: counters, which bins are counted, and a list
// for `length` breakpoints.
struct DeviceWalk {
    uint32_t *listed, *bins;
    CountedBreaks* counted;
    BreakList list;
};

constexpr int64_t device_walk_head = 1 + sizeof(CountedBreaks) / sizeof(double) + walk_bins / 2;
SW_HD constexpr int64_t device_walk_words(int capacity, int length, int threads) {
    return device_walk_head + int64_t(length) * (2 + 2 * capacity + 1) +
           int64_t(threads) * (4 * capacity + 1);
}

SW_HD DeviceWalk device_walk(double* memory, int capacity, int length) {
    double *bins = memory + device_walk_head - walk_bins / 2, *breaks = memory + device_walk_head,
           *rows = breaks + 2 * int64_t(length);
    return {reinterpret_cast<uint32_t*>(memory), reinterpret_cast<uint32_t*>(bins),
            reinterpret_cast<CountedBreaks*>(memory + 1),
            BreakList{reinterpret_cast<Break*>(breaks), rows, rows + int64_t(length) * (2 * capacity + 1),
                      length}};
}

SW_END
