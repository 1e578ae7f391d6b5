// One sweep over a rank's piece of the variables, in one launch; the host decides what comes next, when it
// has put the sums together with those of other ranks (src/host/quasi_newton/phases.hpp). Chunks are the
// host's, which are the same on any number of ranks. Each is worked on in parts, by a block each, and the
// last of them to finish folds the chunk's row into the host's memory.
#include "cuda/quasi_newton/cauchy_sweeps.cuh"
#include "cuda/quasi_newton/numbers.cuh"

SW_BEGIN

static_assert(staged_bytes == SW_STAGED_BYTES, "the loader asks for other shared memory");

using RankArguments = SweepArguments<Real, Kept>;

// The row of a chunk, as core/quasi_newton/totals.hpp has it, from what its parts have left.
struct RowRule {
    int count;  // numbers of a part that are folded: the first `sums` are sums, `extrema` tells the rest
    int sums;   // (see kind_among)
    unsigned int extrema;
    int careful;  // where the two numbers of a careful sum are, which comes before the others; negative: none
    int before;   // numbers of the row before them: that sum, and a place for f

    __device__ int width() const { return before + count; }
};

class RankSweep {
public:
    __device__ explicit RankSweep(const RankArguments& a)
        : a(a),
          sums(ThreadGroup{Block{m.reduce}, nullptr, 0, 1}, a.engine.partials, a.engine.chunks * a.parts,
               a.engine.sums) {}

    __device__ __noinline__ void slope() {
        const Vectors v = m.vectors;
        const RowRule rule{0, 0, 0, 0, slope_row.width()};
        each_row(rule, [&](int part, const Chunk& c) {
            sums.put_folded(0, part, Numbers{{}, 0, 0, slope_chunk(v, c)}, m.free_memory());
        });
    }

    // `judging`: the row begins with the slope, and a place for f.
    template <Gather gather>
    __device__ __noinline__ void absorb(bool judging) {
        const SumLayout layout = sum_layout(m.options(), rows_to_gather(gather, m.state, m.options()));
        const int length = layout.length();
        constexpr bool again = gather == Gather::again;
        const int count = length + (again ? 0 : AbsorbTotals::count);
        const RowRule rule{count, length, absorb_extrema, judging ? count : -1,
                           judging ? slope_row.width() : 0};
        each_row(
            rule,
            [&](int part, const Chunk& c) {
                AbsorbShare totals;
                absorb_chunk<gather>(m.vectors, m.state, layout, c, m.absorb, m.plan.offsets, m.free_memory(),
                                     totals, sums.place(0, part));
                if (!again) sums.put_folded(length, part, numbers_of(totals), m.free_memory());
            },
            true);
    }

    __device__ void aim() {
        const Vectors v = m.vectors;
        make_plan(m.plan, m.state, v.stride, a.coefficients);
        __syncthreads();
        each_row(RowRule{3, 0, aim_extrema, 3, 1}, [&](int part, const Chunk& c) {
            AimTotals mine;
            CarefulSum slope;
            aim_chunk(v, m.state, m.plan, c, slope, mine);
            sums.put_folded(0, part, numbers_of(mine, slope), m.free_memory());
        });
    }

    __device__ __noinline__ void step() {
        each_part([&](int, int, int, const Chunk& c) { step_chunk(m.vectors, m.state.search.step, c); });
    }

    // The caller sees the solution where it would have seen the next trial.
    __device__ __noinline__ void end() {
        const Vectors& v = m.vectors;
        each_part([&](int, int, int, const Chunk& c) {
            c.each_element([&](int64_t i) {
                if (v.at_trial()) {
                    v.x[i] = v.at[i];
                    v.g[i] = v.gradient[i];
                } else {
                    v.trial[i] = v.x[i];
                }
            });
        });
    }

#if SW_BOUNDED
    __device__ __noinline__ void list_breaks() {
        const DeviceWalk walk = walk_memory();
        each_part([&](int, int, int, const Chunk& c) { list_chunk(m.vectors, m.state, walk, c); });
        if (!last_block() || threadIdx.x != 0) return;
        a.rows[0] = double(__ldcg(walk.listed));
        *walk.listed = 0;
    }

    __device__ __noinline__ void count_breaks() {
        const DeviceWalk walk = walk_memory();
        each_part([&](int, int, int, const Chunk& c) { count_chunk(m.vectors, m.state, walk.bins, c); });
        if (!last_block()) return;
        for (int b = threadIdx.x; b < walk_bins; b += threads) {
            a.rows[b] = double(__ldcg(walk.bins + b));
            walk.bins[b] = 0;
        }
    }

    __device__ __noinline__ void sum_ties() {
        const int count = 2 * m.state.pairs + 1;
        each_row(RowRule{count, count, 0, -1, 0}, [&](int part, const Chunk& c) {
            ties_chunk(m.vectors, m.state, Block{m.reduce}, c,
                       [&](int j, double value) { sums.put(j, part, value); });
        });
    }
#endif

private:
    const RankArguments& a;
    const ChunkSums sums;  // of parts

    // Calls work(part, chunk, parts of that chunk, variables) for every part that this block works on.
    // Neighbouring blocks are at neighbouring parts, whose spans take turns. `backward`: from the last to the
    // first, as the absorb sweep goes (see Chunk).
    template <class Work>
    __device__ void each_part(const Work& work, bool backward = false) const {
        const int count = a.engine.chunks * a.parts;
        for (int k = blockIdx.x; k < count; k += gridDim.x) {
            const int part = backward ? count - 1 - k : k;
            const int chunk = part / a.parts, place = part % a.parts;
            const int64_t before = int64_t(chunk) * a.chunk_length - a.chunk_before;
            const int64_t begin = max_of(before, int64_t(0)),
                          end = min_of(before + a.chunk_length, a.engine.n);
            const int parts = int(min_of(int64_t(a.parts), (end - begin + span - 1) / span));
            if (place < parts)
                work(part, chunk, parts, Chunk{begin + place * span, parts * int64_t(span), end});
        }
    }

    // The same for sweeps that leave a row a chunk.
    template <class Work>
    __device__ void each_row(const RowRule& rule, const Work& work, bool backward = false) const {
        each_part(
            [&](int part, int chunk, int parts, const Chunk& c) {
                work(part, c);
                finish_part(chunk, parts, rule);
            },
            backward);
    }

    // The last part of a chunk to be finished folds them all, in their order.
    __device__ __noinline__ void finish_part(int chunk, int parts, const RowRule& rule) const {
        __shared__ bool last;
        __syncthreads();
        if (threadIdx.x == 0) last = signal::count_up(a.engine.counter + chunk) == unsigned(parts - 1);
        __syncthreads();
        if (!last) return;
        double* row = a.rows + int64_t(chunk) * rule.width();
        SW_ROLLED
        for (int j = threadIdx.x; j < rule.width(); j += threads) {
            row[j] = j >= rule.before ? folded_parts(j - rule.before, chunk, parts, rule)
                     : j == 0         ? careful_parts(rule.careful, chunk, parts)
                                      : 0.0;
        }
        if (threadIdx.x == 0) a.engine.counter[chunk] = 0;
        __syncthreads();
    }
    __device__ double folded_parts(int j, int chunk, int parts, const RowRule& rule) const {
        const Fold fold = j < rule.sums ? Fold::sum : kind_among(rule.extrema, j - rule.sums);
        const double* from = sums.place(j, chunk * a.parts);
        double total = __ldcg(from);
#pragma unroll 4
        for (int k = 1; k < parts; ++k)
            total = folded(fold, total, __ldcg(from + int64_t(k) * a.engine.sums));
        return total;
    }
    __device__ double careful_parts(int j, int chunk, int parts) const {
        const double* from = sums.place(j, chunk * a.parts);
        CarefulSum total;
        SW_ROLLED
        for (int k = 0; k < parts; ++k, from += a.engine.sums)
            total.add(CarefulSum{__ldcg(from), __ldcg(from + 1)});
        return total.value();
    }

#if SW_BOUNDED
    __device__ DeviceWalk walk_memory() const {
        DeviceWalk walk = device_walk(a.engine.walk, capacity, 0);
        walk.list = {reinterpret_cast<Break*>(a.breaks), a.break_rows, nullptr, a.engine.walk_length};
        return walk;
    }

    // Whether this block is the last one to have come here.
    __device__ bool last_block() const {
        __shared__ bool last;
        __syncthreads();
        unsigned int* arrived = a.engine.counter + a.engine.chunks;
        if (threadIdx.x == 0) {
            last = signal::count_up(arrived) == gridDim.x - 1;
            if (last) *arrived = 0;
        }
        __syncthreads();
        return last;
    }
#endif
};

SW_END

extern "C" __global__ void __launch_bounds__(stepwell::threads, 2)
    stepwell_rank_sweep(const __grid_constant__ stepwell::RankArguments a) {
    using namespace stepwell;
    copy_words(&m.engine, &a.engine);
    copy_words(&m.options(), reinterpret_cast<const Options*>(a.options));
    copy_words(&m.state, &a.state);
    __syncthreads();
    if (threadIdx.x == 0) {
        m.vectors = vectors_at(m.engine, 0, a.gradient);
        if (!a.at_trial) {
            m.vectors.at = m.vectors.x;
            m.vectors.gradient = m.vectors.g;
        }
    }
    if (blockIdx.x == 0 && a.f) {  // the host learns of it together with the sums
        for (int k = threadIdx.x; k < a.f_count; k += threads)
            a.f_values[k] =
                a.f_is_float ? double(static_cast<const float*>(a.f)[k]) : static_cast<const double*>(a.f)[k];
    }
    __syncthreads();
    RankSweep sweep(a);
    switch (a.sweep) {
        case DeviceSweep::slope:
            return sweep.slope();
        case DeviceSweep::absorb_start:
            return sweep.absorb<Gather::start>(false);
        case DeviceSweep::absorb_pair:
            return sweep.absorb<Gather::pair>(false);
        case DeviceSweep::slope_and_absorb:
            return sweep.absorb<Gather::pair>(true);
        case DeviceSweep::aim:
            return sweep.aim();
        case DeviceSweep::step:
            return sweep.step();
        case DeviceSweep::end:
            return sweep.end();
#if SW_BOUNDED
        case DeviceSweep::regather:
            return sweep.absorb<Gather::again>(false);
        case DeviceSweep::list_breaks:
            return sweep.list_breaks();
        case DeviceSweep::count_breaks:
            return sweep.count_breaks();
        case DeviceSweep::sum_ties:
            return sweep.sum_ties();
#endif
        default:
            return;
    }
}
