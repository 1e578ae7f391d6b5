// The inner loop of total variation on a CUDA device: cosine transforms of lines, and the update of
// differences and bounds. A block takes a panel of lines of one problem into shared memory, two lines to a
// complex one; one kernel along an axis there and back where nothing has to be known of the other panels.
// w = z + u and h = s + v alone are kept (src/core/tv/pixel.hpp). Compiled with
//   SW_SCALAR    float or double
//   SW_THREADS   threads of a block
#include "cuda/tv/problem.cuh"

// A panel of lines in shared memory.
struct Panel {
    const DeviceTvProblem& problem;
    CosinePlan<Scalar> plan;
    Element* elements;
    int first, lines, step, lanes, apart;

    __device__ Panel(const DeviceTvProblem& p, Element* memory, int panel) : problem(p), elements(memory) {
        const int axis = p.job.axis;
        plan.n = p.side(axis);
        const int32_t* places = static_cast<const int32_t*>(p.job.places);
        plan.stages = places[0];
        plan.place = places + 1 + max_stages;
        plan.roots = static_cast<const Scalar*>(p.job.numbers);
        plan.turns = plan.roots + 2 * plan.n;
        lanes = p.job.lanes, apart = p.job.row_lanes;
        first = panel * 2 * lanes;
        lines = p.pixels / plan.n;
        step = p.stride(axis);
    }

    __device__ Scalar& number(int place, int line) const {
        Element& element = elements[place * apart + (line < lanes ? line : line - lanes)];
        return line < lanes ? element.re : element.im;
    }

    // Calls body(i, line, pixel) for the panel's pixels, neighbours in memory by neighbouring threads; pixel
    // is -1 where there is no such line.
    template <class Body>
    __device__ void each(Body body) const {
        const int width = 2 * lanes, n = plan.n;
        if (step > 1) {  // a thread keeps its line: widths divide the number of threads
            const int line = int(threadIdx.x) & (width - 1), which = first + line;
            const int start = which / step * step * (n - 1) + which;
            for (int i = int(threadIdx.x) / width; i < n; i += threads / width)
                body(i, line, which < lines ? start + i * step : -1);
            return;
        }
        for (int line = int(threadIdx.x) / 32; line < width; line += threads / 32) {
            const int which = first + line;
            for (int i = int(threadIdx.x) & 31; i < n; i += 32)
                body(i, line, which < lines ? which * n + i : -1);
        }
    }

    template <class Value>
    __device__ void load(bool back, Value value) const {
        each([&](int i, int line, int pixel) {
            number(plan.place[back ? i : sorted(i, plan.n)], line) = pixel < 0 ? Scalar(0) : value(pixel);
        });
        __syncthreads();
    }

    template <class Take>
    __device__ void store(bool back, Take take) const {
        each([&](int i, int line, int pixel) {
            if (pixel >= 0) take(pixel, number(back ? sorted(i, plan.n) : i, line));
        });
        __syncthreads();
    }

    struct Place {
        Element* line;
        int apart;
        __device__ Element& operator()(int i) const { return line[i * apart]; }
    };

    template <int radix>
    __device__ void stage(int m, Scalar sign) const {
        const int items = plan.n / radix, lane = int(threadIdx.x) & (lanes - 1);
        const bool power = (m & (m - 1)) == 0;
        for (int item = int(threadIdx.x) / lanes; item < items; item += threads / lanes) {
            const int j = power ? item & (m - 1) : item % m;
            butterfly<radix, Scalar>(plan, m, (item - j) * radix + j, j, sign, Place{elements + lane, apart});
        }
        __syncthreads();
    }

    __device__ void stages(Scalar sign) const {
        const int32_t* radix = static_cast<const int32_t*>(problem.job.places) + 1;
        each_stage(radix, plan.stages, [&](auto of, int m) { stage<of.value>(m, sign); });
    }

    __device__ void transform(bool back) const {
        const int pairs = plan.n / 2 + 1, lane = int(threadIdx.x) & (lanes - 1);
        if (back) {
            for (int k = int(threadIdx.x) / lanes; k < pairs; k += threads / lanes)
                tangle<Scalar>(plan, k, Place{elements + lane, apart});
            __syncthreads();
            stages(Scalar(-1));
            return;
        }
        stages(Scalar(1));
        for (int k = int(threadIdx.x) / lanes; k < pairs; k += threads / lanes)
            untangle<Scalar>(plan, k, Place{elements + lane, apart});
        __syncthreads();
    }
};

// Coefficients plus the linear part, stored; their inner products with the rows of Woodbury's formula.
static __device__ void finish_with_dots(const DeviceTvProblem& p, const Panel& panel, int index) {
    constexpr int warps = threads / 32;
    __shared__ double shared[max_rows * warps];
    Scalar* image = p.at(p.job.image);
    const Scalar* linear = p.at(p.job.linear);
    panel.each([&](int k, int line, int pixel) {
        if (pixel >= 0) image[pixel] = panel.number(k, line) += linear[pixel];
    });
    __syncthreads();
    const Scalar* solved = static_cast<const Scalar*>(p.job.solved) + p.index * p.job.rows * p.pixels;
    double* partial = static_cast<double*>(p.job.partial) + (p.index * p.job.panels + index) * p.job.rows;
    for (int r = 0; r < p.job.rows; ++r) {
        Scalar sum = 0;
        panel.each([&](int k, int line, int pixel) {
            if (pixel >= 0) sum += panel.number(k, line) * solved[int64_t(r) * p.pixels + pixel];
        });
        const double total = warp_sum(sum);
        if ((threadIdx.x & 31) == 0) shared[r * warps + (threadIdx.x >> 5)] = total;
    }
    __syncthreads();
    for (int r = threadIdx.x; r < p.job.rows; r += threads) {
        double total = 0;
        for (int warp = 0; warp < warps; ++warp) total += shared[r * warps + warp];
        partial[r] = total;
    }
}

// The factors by which Woodbury's formula takes off the rows, from the inner products of all panels.
static __device__ void mix_rows(const DeviceTvProblem& p, Scalar* mix) {
    __shared__ double products[max_rows];
    const int rows = p.job.rows;
    const double* partial = static_cast<const double*>(p.job.partial) + p.index * p.job.panels * rows;
    for (int r = threadIdx.x; r < rows; r += threads) {
        double total = 0;
        for (int64_t k = 0; k < p.job.panels; ++k) total += partial[k * rows + r];
        products[r] = total;
    }
    __syncthreads();
    const Scalar* small = static_cast<const Scalar*>(p.job.small) + p.index * rows * rows;
    for (int r = threadIdx.x; r < rows; r += threads) {
        double total = 0;
        for (int q = 0; q < rows; ++q) total += double(small[r * rows + q]) * products[q];
        mix[r] = Scalar(total);
    }
    __syncthreads();
}

static __device__ bool is_done(const TvLaunch& job, int64_t problem) {
    return job.turn && *job.turn >= static_cast<const int64_t*>(job.counts)[problem];
}

// Transforms of lines along one axis: a block per panel and problem.
extern "C" __global__ void __launch_bounds__(threads) tv_lines(const __grid_constant__ TvLaunch job) {
    extern __shared__ __align__(16) double memory[];
    __shared__ Scalar mix[max_rows];
    const int64_t index = blockIdx.x / job.panels;
    if (is_done(job, index)) return;
    const DeviceTvProblem p(job, index);
    const int own = int(blockIdx.x % job.panels);
    const Panel panel(p, reinterpret_cast<Element*>(memory), own);
    Scalar* image = p.at(job.image);
    const Scalar* inverse = p.at(job.inverse);
    if (job.source == tv_pull) {
        panel.load(false, [&](int pixel) { return p.pull(pixel); });
    } else if (job.source == tv_model) {
        mix_rows(p, mix);
        const Scalar* solved = static_cast<const Scalar*>(job.solved) + index * job.rows * p.pixels;
        panel.load(true, [&](int pixel) {
            Scalar value = inverse[pixel] * image[pixel];
            for (int r = 0; r < job.rows; ++r) value -= mix[r] * solved[int64_t(r) * p.pixels + pixel];
            return value;
        });
    } else {
        panel.load(job.back, [&](int pixel) { return image[pixel]; });
    }
    panel.transform(job.back);
    if (job.finish == tv_dots) return finish_with_dots(p, panel, own);
    if (job.finish == tv_through) {
        const Scalar* linear = p.at(job.linear);
        panel.store(false, [&](int pixel, Scalar c) { image[pixel] = inverse[pixel] * (c + linear[pixel]); });
        panel.load(true, [&](int pixel) { return image[pixel]; });
        panel.transform(true);
        panel.store(true, [&](int pixel, Scalar value) { image[pixel] = value; });
        return;
    }
    panel.store(job.back, [&](int pixel, Scalar value) { image[pixel] = value; });
}

// After the last launch of a sweep.
extern "C" __global__ void tv_next(const __grid_constant__ TvLaunch job) {
    ++*job.turn;
}

// w⁺ = w + over (∇x - z), h⁺ = h + over (x - s): a thread per pixel, a whole number of blocks per problem.
extern "C" __global__ void __launch_bounds__(threads) tv_update(const __grid_constant__ TvLaunch job) {
    const int64_t blocks = gridDim.x / job.batch, index = blockIdx.x / blocks;
    if (is_done(job, index)) return;
    const DeviceTvProblem p(job, index);
    const Scalar over = Scalar(job.over);
    const Scalar* x = p.at(job.image);
    Scalar* to = p.at(job.w);
    const int pixel = int(blockIdx.x % blocks) * threads + int(threadIdx.x);
    if (pixel < p.pixels) {
        Scalar w[3], z[3];
        int place[3];
        p.locate(pixel, place);
        p.shrink(pixel, w, z);
        const Scalar here = x[pixel];
#pragma unroll
        for (int k = 0; k < 3; ++k)
            if (k < job.axes) {
                const bool end = place[k] == p.side(k) - 1;
                const Scalar step = end ? Scalar(0) : p.weight(k) * (x[pixel + p.stride(k)] - here);
                to[k * p.block + pixel] = w[k] + over * (step - z[k]);
            }
        if (job.bounded) {
            Scalar* h = p.at(job.h);
            h[pixel] += over * (here - p.clip(h[pixel], pixel));
        }
    }
}
