// The exact Cauchy point on the GPU, without the host. The nearest breakpoints are selected by counting the
// bits of their times in bins, sorted by one block, and their crossings folded into the slope of the model by
// running sums; if the minimiser lies farther out, the next ones follow. Ties too many for the list are
// crossed by one masked sum. The formulas are those of core/quasi_newton/cauchy.hpp, as on the host.
#pragma once

#include "cuda/quasi_newton/problem.cuh"

SW_BEGIN

constexpr int walk_bins = 512;
constexpr uint64_t no_break = ~uint64_t(0);

// What the gang shares during a walk, in global memory; lists of `length` breakpoints follow it.
struct WalkState {
    uint64_t above;       // breakpoints up to here are crossed
    uint64_t low, width;  // bins cover (low, low + walk_bins * width]
    uint64_t high;        // the selection: breakpoints in (above, high]
    int32_t selecting, settled, tied, ranges;
    uint32_t listed;
    double moving, from, held_time, cauchy_time;
    uint32_t bins[walk_bins];
    double q[2 * capacity], r[2 * capacity];  // in the basis of K = L D Lᵀ
};

struct WalkLists {
    uint64_t* times;
    int64_t* variables;
    double *crossing, *weighted, *descent;  // running sums of û, t û and h g²
    int length;
};

__device__ inline WalkLists walk_lists(double* memory, int length) {
    double* next = memory + (sizeof(WalkState) + 7) / 8;
    WalkLists lists;
    lists.times = reinterpret_cast<uint64_t*>(next);
    lists.variables = reinterpret_cast<int64_t*>(next + length);
    lists.crossing = next + 2 * length;
    lists.weighted = lists.crossing + int64_t(length) * 2 * capacity;
    lists.descent = lists.weighted + int64_t(length) * 2 * capacity;
    lists.length = length;
    return lists;
}

__device__ inline double descent_of(const Vectors& v, int64_t i) {
    return weighted ? double(v.weights[i]) * double(v.gradient[i]) : double(v.gradient[i]);
}

__device__ inline uint64_t bits_of(double time) {
    return uint64_t(__double_as_longlong(time));  // ordered as the times are, for times >= 0
}

__device__ inline double time_of(uint64_t bits) {
    return __longlong_as_double(int64_t(bits));
}

// Bits of the breakpoint of a variable that may move; plus one, so that a time of zero lies above zero.
__device__ inline uint64_t break_bits(const Vectors& v, int64_t i) {
    const double x = v.at[i], g = v.gradient[i], lower = v.lower[i], upper = v.upper[i];
    if (is_held(x, g, lower, upper)) return no_break;
    const double t = breakpoint(x, descent_of(v, i), lower, upper);
    return is_finite(t) ? bits_of(max_of(t, 0.0)) + 1 : no_break;
}

// Starts a selection of breakpoints in (w.above, high]. Member 0, all threads.
__device__ __noinline__ void start_selection(WalkState& w, double range) {
    __syncthreads();
    if (threadIdx.x == 0) {
        w.high = is_finite(range) ? bits_of(range) + 1 : bits_of(1.7976931348623157e308) + 1;
        w.low = w.above;
        w.width = (w.high - w.low + walk_bins - 1) / walk_bins;
        w.selecting = 1;
        w.tied = 0;
        w.listed = 0;
    }
    for (int b = threadIdx.x; b < walk_bins; b += threads) w.bins[b] = 0;
    __syncthreads();
}

__device__ __noinline__ void count_bins(const Vectors& v, WalkState& w, const Chunk& c) {
    c.each_element([&](int64_t i) {
        const uint64_t bits = break_bits(v, i);
        if (bits == no_break || bits <= w.low) return;
        const uint64_t bin = (bits - w.low - 1) / w.width;
        if (bin < walk_bins && bits <= w.high) atomicAdd(&w.bins[bin], 1u);
    });
}

// Takes as many bins as the list holds, or looks closer into the first that is too full. Member 0, all
// threads.
__device__ __noinline__ void choose_bins(WalkState& w, int length, uint32_t* shared) {
    for (int b = threadIdx.x; b < walk_bins; b += threads) shared[b] = w.bins[b];
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t count = 0;
        int bin = 0;
        while (bin < walk_bins && count + shared[bin] <= uint32_t(length)) count += shared[bin++];
        if (bin == walk_bins) {
            w.selecting = 0;
        } else if (count > 0) {
            w.high = w.low + uint64_t(bin) * w.width;
            w.selecting = 0;
        } else if (w.width == 1) {
            w.high = w.low + uint64_t(bin) + 1;  // one time, more often than the list is long
            w.low = w.high - 1;
            w.tied = 1;
            w.selecting = 0;
        } else {
            const uint64_t high = w.low + uint64_t(bin + 1) * w.width;
            w.low += uint64_t(bin) * w.width;
            w.high = min_of(w.high, high);
            w.width = (w.high - w.low + walk_bins - 1) / walk_bins;
        }
    }
    for (int b = threadIdx.x; b < walk_bins; b += threads) w.bins[b] = 0;
    __syncthreads();
}

__device__ __noinline__ void list_breaks(const Vectors& v, WalkState& w, const WalkLists& lists,
                                         const Chunk& c) {
    c.each_element([&](int64_t i) {
        const uint64_t bits = break_bits(v, i);
        if (bits == no_break || bits <= w.above || bits > w.high) return;
        const uint32_t at = atomicAdd(&w.listed, 1u);  // any order: the list is sorted next
        lists.times[at] = bits;
        lists.variables[at] = i;
    });
}

// Bitonic sort by (time, variable) in shared memory. Member 0, all threads.
__device__ __noinline__ void sort_breaks(const WalkLists& lists, int count, uint64_t* times,
                                         int64_t* variables) {
    int size = 1;
    while (size < count) size *= 2;
    for (int i = threadIdx.x; i < size; i += threads) {
        times[i] = i < count ? lists.times[i] : no_break;
        variables[i] = i < count ? lists.variables[i] : int64_t(1) << 62;
    }
    __syncthreads();
    for (int span = 2; span <= size; span *= 2) {
        for (int gap = span / 2; gap > 0; gap /= 2) {
            for (int i = threadIdx.x; i < size; i += threads) {
                const int j = i ^ gap;
                if (j > i) {
                    const bool rising = (i & span) == 0;
                    const bool after =
                        times[i] > times[j] || (times[i] == times[j] && variables[i] > variables[j]);
                    if (after == rising) {
                        const uint64_t t = times[i];
                        times[i] = times[j], times[j] = t;
                        const int64_t k = variables[i];
                        variables[i] = variables[j], variables[j] = k;
                    }
                }
            }
            __syncthreads();
        }
    }
}

// Crosses the sorted breakpoints until the minimiser is found. Member 0, all threads.
__device__ __noinline__ void cross_breaks(const Vectors& v, const State& s, const Block& block,
                                          const double* k, WalkState& w, const WalkLists& lists,
                                          const uint64_t* times, const int64_t* variables) {
    const int count = int(w.listed), pairs = s.pairs, size = 2 * pairs;
    for (int at = threadIdx.x; at < count; at += threads) {
        const int64_t i = variables[at];
        const double g = v.gradient[i], descent = descent_of(v, i);
        double* u = lists.crossing + int64_t(at) * size;
        for (int a = 0; a < pairs; ++a) {
            const int64_t row = int64_t(slot_of(a, s.head, pairs, slots)) * v.stride + i;
            u[a] = double(v.y[row]) * descent;
            u[pairs + a] = double(v.s[row]) * g / s.gamma;
        }
        for (int c = 0; c < size; ++c) {
            for (int b = c + 1; b < size; ++b) u[b] -= k[c * size + b] * u[c];
        }
        lists.descent[at] = g * descent;
    }
    __syncthreads();
    for (int c = threadIdx.x; c <= size; c += threads) {
        double sum = 0, weighted = 0;
        for (int at = 0; at < count; ++at) {
            if (c == size) {
                sum += lists.descent[at];
                lists.descent[at] = sum;
            } else {
                const double u = lists.crossing[int64_t(at) * size + c];
                sum += u;
                weighted += time_of(times[at] - 1) * u;
                lists.crossing[int64_t(at) * size + c] = sum;
                lists.weighted[int64_t(at) * size + c] = weighted;
            }
        }
    }
    __syncthreads();
    // Before the first breakpoint of the list (at = -1) and after the last of every group of ties.
    double first = double_infinity;
    for (int at = int(threadIdx.x) - 1; at < count; at += threads) {
        if (at >= 0 && at + 1 < count && times[at + 1] == times[at]) continue;
        double qr = 0, qq = 0;
        for (int c = 0; c < size; ++c) {
            const double q = w.q[c] - (at < 0 ? 0.0 : lists.crossing[int64_t(at) * size + c]);
            const double r = w.r[c] - (at < 0 ? 0.0 : lists.weighted[int64_t(at) * size + c]);
            const double scaled = q * k[c * size + c];
            qr += scaled * r;
            qq += scaled * q;
        }
        const double moving = max_of(0.0, w.moving - (at < 0 ? 0.0 : lists.descent[at]));
        const PathSlope slope{-moving + qr, moving / s.gamma - qq};
        double t;
        const double from = at < 0 ? w.from : time_of(times[at] - 1);
        const double to = at + 1 < count ? time_of(times[at + 1] - 1) : time_of(w.high - 1);
        if ((at >= 0 && path_ends(moving, s.movable_descent)) || settles(slope, from, to, t)) {
            first = at;
            break;
        }
    }
    first = block.least(first);
    __syncthreads();
    const int last = first == double_infinity ? count - 1 : int(first);
    if (last >= 0) {
        for (int c = threadIdx.x; c < size; c += threads) {
            w.q[c] -= lists.crossing[int64_t(last) * size + c];
            w.r[c] -= lists.weighted[int64_t(last) * size + c];
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        if (last >= 0) {
            w.moving = max_of(0.0, w.moving - lists.descent[last]);
            w.from = w.held_time = time_of(times[last] - 1);
        }
        if (first != double_infinity) {
            const PathSlope slope = path_slope(w.moving, s.gamma, w.q, w.r, k, size);
            const double to = last + 1 < count ? time_of(times[last + 1] - 1) : time_of(w.high - 1);
            settles(slope, w.from, to, w.cauchy_time);
            if (last >= 0 && path_ends(w.moving, s.movable_descent)) w.cauchy_time = w.from;
            w.settled = 1;
        }
        w.above = w.high;
    }
    __syncthreads();
}

// Σ h w g over the variables of a chunk whose breakpoint is w.high exactly, and their Σ h g²; `partial` takes
// the sums.
template <class Partial>
__device__ inline void sum_ties(const Vectors& v, const State& s, const WalkState& w, const Block& block,
                                const Chunk& c, const Partial& partial) {
    const int pairs = s.pairs;
    for (int j = 0; j <= 2 * pairs; ++j) {
        double sum = 0;
        c.each_element([&](int64_t i) {
            if (break_bits(v, i) != w.high) return;
            const double g = v.gradient[i], descent = descent_of(v, i);
            if (j == 2 * pairs) {
                sum += g * descent;
            } else {
                const int age = j < pairs ? j : j - pairs;
                const int64_t row = int64_t(slot_of(age, s.head, pairs, slots)) * v.stride + i;
                sum += j < pairs ? double(v.y[row]) * descent : double(v.s[row]) * g / s.gamma;
            }
        });
        sum = block.sum(sum);
        if (threadIdx.x == 0) partial(j, sum);
    }
}

SW_END
