// The shared memory of a block during a turn.
#pragma once

#include "cuda/quasi_newton/absorb.cuh"
#include "cuda/quasi_newton/absorb_pieces.cuh"
#include "cuda/quasi_newton/aim.cuh"
#include "cuda/quasi_newton/sums.cuh"

SW_BEGIN

// Up to this capacity decisions are taken on matrices in shared memory; beyond it, in global memory.
constexpr bool small_history = capacity <= 10;
// Where G comes from sums, yᵀy is not kept, and nobody asks for it.
constexpr bool keeps_yy = !(bounded || SW_WEIGHTS_VARY);
constexpr int shared_products = int(small_matrices_length(slots)) - (keeps_yy ? 0 : slots * slots);

// What free_memory() is for: the numbers of a fold, and blocks of sums, which one warp has in its registers.
constexpr int free_length = staged ? staged_bytes / int(sizeof(double)) : fold_length;
static_assert(free_length >= fold_length && (lone_warp || free_length >= 64 * warps * blocks_at_once));

// Scratch of the decisions there: two factors, of which a lone warp uses the memory while it sweeps, and the
// lines. G lies behind the sums that it is formed of.
constexpr int shared_square = 4 * capacity * capacity, shared_lines = 3 * 2 * capacity;
constexpr int shared_factors = lone_warp ? max_of(2 * shared_square, fold_length) : 2 * shared_square;
constexpr int most_sums = 8 * capacity + capacity * (2 * capacity + 1) +
                          (SW_WEIGHTS_VARY ? capacity * (capacity + 1) / 2 : 0) + chunk_numbers;

using AbsorbMemory = Choice<in_pieces, AbsorbPieces, AbsorbTiles>::type;

struct SharedMemory {
    union {
        AbsorbMemory absorb;
        double exchange[staged ? 64 * warps : fold_length];
        double sums[max_of(int(sizeof(AbsorbMemory) / sizeof(double)),
                           small_history ? most_sums + shared_square : 1)];
        Break breaks[sorted_at_once(threads)];
    };
    double reduce[warps + 1];
    AimPlan plan;
    double factors[small_history ? shared_factors : 1];
    double lines[small_history ? shared_lines : 1];
    double products[small_history ? shared_products : 1];
    double totals[4];  // few enough to have a place of their own: of the slope and aim sweeps
    double more_coefficients[small_history ? 1 : 2 * capacity];
    uint32_t more_words[staged || lone_warp ? 1 : sizeof(State) / 4];
    State state;
    Vectors vectors;
    Engine engine;
    alignas(8) unsigned char option_bytes[sizeof(Options)];  // shared memory takes no default values

    // For an exchange of numbers when the tile is done with, and with it the stages of the history.
    __device__ double* free_memory() {
        return staged ? reinterpret_cast<double*>(dynamic_shared) : lone_warp ? factors : exchange;
    }

    __device__ Scratch scratch() {
        return {factors, factors + shared_square, sums + most_sums,
                lines,   lines + 2 * capacity,    lines + 4 * capacity};
    }

    // Two blocks to a multiprocessor have no memory to spare: what only member 0 or only the others need has
    // a place that they do not use otherwise.
    __device__ uint32_t* kept_state() {  // member 0's, while it warms up
        return staged ? reinterpret_cast<uint32_t*>(dynamic_shared) : more_words;
    }
    __device__ double* received_coefficients() {  // the others', from member 0
        return small_history ? scratch().coefficients : more_coefficients;
    }

    __device__ Options& options() { return *reinterpret_cast<Options*>(option_bytes); }
};

// At file scope, so that the compiler knows it for shared memory wherever it is used.
__shared__ SharedMemory m;

// So many words for all threads. One warp has them all on their way before the first arrives: what a block's
// threads wait for once, it would wait for several times.
template <int count, class Word>
struct WordsOnTheirWay {
    static constexpr int each = (count + threads - 1) / threads;
    Word mine[each];

    __device__ explicit WordsOnTheirWay(const Word* from) {
#pragma unroll
        for (int k = 0; k < each; ++k) {
            const int i = int(threadIdx.x) + k * threads;
            mine[k] = i < count ? __ldcg(from + i) : Word();
        }
    }
    __device__ void put(Word* to) const {
#pragma unroll
        for (int k = 0; k < each; ++k) {
            const int i = int(threadIdx.x) + k * threads;
            if (i < count) to[i] = mine[k];
        }
    }
};

template <class T>
using Arriving = WordsOnTheirWay<int(sizeof(T) / 4), uint32_t>;

template <class T>
__device__ inline Arriving<T> arriving(const T* from) {
    return Arriving<T>(reinterpret_cast<const uint32_t*>(from));
}

template <class T>
__device__ inline void copy_words(T* to, const T* from) {
    SW_ROLLED
    for (int i = threadIdx.x; i < int(sizeof(T) / 4); i += threads) {
        reinterpret_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
    }
}

SW_END
