// One problem in the memory of the CUDA target (core/quasi_newton/device_layout.hpp), as the sweeps see it.
#pragma once

#include "core/common/careful_sum.hpp"
#include "core/quasi_newton/decide.hpp"
#include "core/quasi_newton/variable.hpp"
#include "cuda/quasi_newton/constants.cuh"
#include "cuda/quasi_newton/square.cuh"
#include "cuda/quasi_newton/thread_group.cuh"

SW_BEGIN

// The variables that one member of a thread group handles: every so many spans. Neighbouring spans are worked
// on at the same time by neighbouring blocks, which keeps the many streams of a sweep within few pages of
// memory.
struct Chunk {
    Index begin, stride, n;

    // The absorb sweep goes from the last tile to the first, the aim sweep after it from the first to the
    // last: what the one read at its end is still in the cache when the other begins, and the other way
    // round.
    __device__ Index last_tile() const {
        const Index last = begin + (n - 1 - begin) / stride * stride;
        return last + (min_of(Index(span), n - last) - 1) / tile * tile;
    }
    __device__ Index tile_before(Index at) const {
        return tile == span || (at - begin) % span == 0 ? at + span - tile - stride : at - tile;
    }
    // Where the elements of a chunk lie, `wide` of them at each place; beyond the last one, not below n.
    template <int wide>
    __device__ Index element(int place) const {
        constexpr int places = span / wide;
        return begin + Index(place / places) * stride + place % places * wide;
    }
    // Whether that span and all after it lie beyond the end.
    template <int wide>
    __device__ bool ends(int place) const {
        return begin + Index(place / (span / wide)) * stride >= n;
    }
    // Calls work(i) for every `wide`-th element, thread after thread.
    template <int wide = 1, class Work>
    __device__ void each_element(const Work& work) const {
#pragma unroll 1
        for (int place = threadIdx.x; !ends<wide>(place); place += threads) {
            const Index i = element<wide>(place);
            if (i < n) work(i);
        }
    }
};

// Two neighbouring elements in one load.
struct Two {
    double a, b;
};

__device__ inline Two load_two(const double* p) {
    const double2 v = *reinterpret_cast<const double2*>(p);
    return {v.x, v.y};
}

__device__ inline Two load_two(const float* p) {
    const float2 v = *reinterpret_cast<const float2*>(p);
    return {double(v.x), double(v.y)};
}

__device__ inline Two load_two(const Bfloat16* p) {
    const uint32_t v = *reinterpret_cast<const uint32_t*>(p);  // the first is the lower half
    return {double(widened(Bfloat16{uint16_t(v)})), double(widened(Bfloat16{uint16_t(v >> 16)}))};
}

// Of a row of the history in global memory.
__device__ inline Two load_two_kept(const Kept* p) {
    if constexpr (any_begin) return {double(widened(p[0])), double(widened(p[1]))};
    return load_two(p);
}

// Neighbouring elements of a vector, or of a row of the history, in one load or store.
template <class Element>
struct alignas(pack_length * sizeof(Element)) PackOf {
    Element of[pack_length];
};
using Pack = PackOf<Real>;
template <class Element>
using WordsOf = typename Choice<sizeof(PackOf<Element>) == 16, uint4,
                                typename Choice<sizeof(PackOf<Element>) == 8, uint2, uint32_t>::type>::type;

static_assert(!packs_staged || sizeof(Pack) <= 16, "a copy to shared memory has at most 16 bytes");

// From global memory, past the first-level cache: data that a sweep reads once.
template <class Element>
__device__ inline PackOf<Element> stream_pack(const Element* p) {
    PackOf<Element> found;
    if constexpr (any_begin) {
#pragma unroll
        for (int k = 0; k < pack_length; ++k) found.of[k] = p[k];
    } else {
        *reinterpret_cast<WordsOf<Element>*>(&found) = __ldcg(reinterpret_cast<const WordsOf<Element>*>(p));
    }
    return found;
}

// A product without its rounding error, into a sum that keeps its own. In single precision products are
// exact, and double precision is care enough.
__device__ inline void add_product(CarefulSum& sum, double a, double b) {
    if (sizeof(Real) == 4) {
        sum.sum += a * b;
        return;
    }
    const double product = __dmul_rn(a, b);  // never part of a fused operation
    sum.lost += fma(a, b, -product);
    sum.add(product);
}

struct Vectors : ProblemVectors<Real, Kept> {
    // The point that the sweeps work at, and its gradient: the trial point, until it is refused (then x and
    // g) or the aim sweep has made it the accepted one.
    const Real *at, *gradient;
    bool in_packs;  // all of these begin where a pack may; history rows always do

    __device__ bool at_trial() const { return at == trial; }
    __device__ Real lower_of(int64_t i) const { return lower[lower_step * i]; }
    __device__ Real upper_of(int64_t i) const { return upper[upper_step * i]; }

    // The first `count` elements of a pack. (Where rows come straight from memory, other loads had better not
    // depend on conditions: the compiler would begin fewer of them at a time.)
    __device__ Pack some(const Real* from, int count) const {
        if (packs_staged && in_packs && count == pack_length) return stream_pack(from);
        Pack found = {};
#pragma unroll
        for (int k = 0; k < pack_length; ++k) {
            if (k < count) found.of[k] = __ldcg(from + k);
        }
        return found;
    }
    __device__ void put(Real* to, const Pack& values, int count) const {
        if (packs_staged && in_packs && count == pack_length) {
            *reinterpret_cast<WordsOf<Real>*>(to) = *reinterpret_cast<const WordsOf<Real>*>(&values);
            return;
        }
#pragma unroll
        for (int k = 0; k < pack_length; ++k) {
            if (k < count) to[k] = values.of[k];
        }
    }
};

// Bounds that are numbers: read once a sweep.
struct BoundNumbers {
    Real lower = 0, upper = 0;

    __device__ explicit BoundNumbers(const Vectors& v) {
        if (bounded && !lower_step) lower = *v.lower;
        if (bounded && !upper_step) upper = *v.upper;
    }
};

__device__ inline Vectors vectors_at(const Engine& e, int64_t p, const Real* gradient) {
    const auto begins_pack = [](const Real* from) {
        return reinterpret_cast<uint64_t>(from) % sizeof(Pack) == 0;
    };
    Vectors v{vectors_of<Real, Kept>(e, p, slots), e.trial + p * e.n, gradient + p * e.n, false};
    v.in_packs = !any_begin && begins_pack(v.x) && begins_pack(v.g) && begins_pack(v.d) &&
                 begins_pack(v.trial) && begins_pack(v.gradient) && (!lower_step || begins_pack(v.lower)) &&
                 (!upper_step || begins_pack(v.upper)) && begins_pack(v.weights);
    return v;
}

SW_END
