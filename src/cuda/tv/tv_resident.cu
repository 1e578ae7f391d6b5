// The inner loop of total variation on a CUDA device for images of two axes that shared memory holds: a block
// runs all sweeps of a problem, and problems do not wait for each other. The image lies in shared memory as
// complex lines of two real ones. Between sweeps w - over z and h - over s stand for w = z + u and h = s + v,
// and beside them 2z - w and 2s - h are kept, in device memory: then nothing is shrunk or clipped twice.
#include "cuda/tv/problem.cuh"

// Rows of the model that are read together: so many loads are on their way at a time.
constexpr int chunk = 5;

// Walks over rows of `width` entries, neighbours by neighbouring threads.
struct Walk {
    int width, column, row, columns, rows;

    __device__ explicit Walk(int w)
        : width(w),
          column(int(threadIdx.x) % w),
          row(int(threadIdx.x) / w),
          columns(threads % w),
          rows(threads / w) {}

    template <class Body>
    __device__ void each(int count, Body body) const {
        for (int i = row, j = column; i < count;) {
            body(i, j);
            i += rows, j += columns;
            if (j >= width) j -= width, ++i;
        }
    }
};

// An image as complex lines along one axis: element i of line l of either half at i * step + l * apart.
struct Lines {
    CosinePlan<Scalar> plan;
    const int32_t* radix;
    int lanes, step, apart;
    Walk walk;

    // `numbers` and `places` are the tables of this axis.
    __device__ Lines(int n, int other, bool down, const Scalar* numbers, const int32_t* places)
        : radix(places + 1),
          lanes((other + 1) / 2),
          step(down ? lanes | 1 : 1),
          apart(down ? 1 : n | 1),
          walk(lanes) {
        plan.n = n;
        plan.stages = places[0];
        plan.place = places + 1 + max_stages;
        plan.roots = numbers;
        plan.turns = numbers + 2 * n;
    }
    __device__ int size() const { return (plan.n - 1) * step + (lanes - 1) * apart + 1; }

    struct Line {
        Element* first;
        int step;
        __device__ Element& operator()(int i) const { return first[i * step]; }
    };
    __device__ Line line(Element* from, int lane) const { return {from + lane * apart, step}; }

    template <int radix>
    __device__ void stage(Element* image, int m, Scalar sign) const {
        const bool power = (m & (m - 1)) == 0;
        walk.each(plan.n / radix, [&](int item, int lane) {
            const int j = power ? item & (m - 1) : item % m;
            butterfly<radix, Scalar>(plan, m, (item - j) * radix + j, j, sign, line(image, lane));
        });
        __syncthreads();
    }

    __device__ void stages(Element* image, Scalar sign) const {
        each_stage(radix, plan.stages, [&](auto of, int m) { stage<of.value>(image, m, sign); });
    }

    // Coefficients of lines that lie where stages want them.
    __device__ void forward(Element* image) const {
        stages(image, Scalar(1));
        walk.each(plan.n / 2 + 1, [&](int k, int lane) { untangle<Scalar>(plan, k, line(image, lane)); });
        __syncthreads();
    }

    // Pixels, in the order of `sorted`, from coefficients that lie elsewhere.
    __device__ void backward(const Element* coefficients, Element* image) const {
        walk.each(plan.n / 2 + 1, [&](int k, int lane) {
            tangle<Scalar>(plan, k, line(const_cast<Element*>(coefficients), lane), line(image, lane));
        });
        __syncthreads();
        stages(image, Scalar(-1));
    }

    __device__ int place(int pixel) const { return plan.place[sorted(pixel, plan.n)]; }
};

struct Resident {
    const DeviceTvProblem& p;
    const int height, width;
    Lines down, along;  // lines of the first axis, and of the last
    Element *here, *there;

    // `numbers` and `places` are the tables of both axes, `memory` has room for two copies of the image.
    __device__ Resident(const DeviceTvProblem& problem, const Scalar* numbers, const int32_t* places,
                        Element* memory)
        : p(problem),
          height(problem.side(0)),
          width(problem.side(1)),
          down(height, width, true, numbers, places),
          along(width, height, false, numbers + 4 * height, places + 1 + max_stages + height),
          here(memory),
          there(memory + max_of(down.size(), along.size())) {}

    // From lines of the first axis, in their order, to lines of the last where its stages want them.
    __device__ void turn(const Element* from, Element* to) const {
        along.walk.each(down.lanes, [&](int c, int r) {
            const Element upper = from[r * down.step + c];
            const Element lower =
                r + along.lanes < height ? from[(r + along.lanes) * down.step + c] : Element{};
            to[r * along.apart + along.place(c)] = {upper.re, lower.re};
            if (c + down.lanes < width)
                to[r * along.apart + along.place(c + down.lanes)] = {upper.im, lower.im};
        });
        __syncthreads();
    }

    // Back, from the order in which stages leave pixels.
    __device__ void turn_back(const Element* from, Element* to) const {
        along.walk.each(down.lanes, [&](int c, int r) {
            const Element* line = from + r * along.apart;
            const Element left = line[sorted(c, width)];
            const Element right = c + down.lanes < width ? line[sorted(c + down.lanes, width)] : Element{};
            to[r * down.step + c] = {left.re, right.re};
            if (r + along.lanes < height) to[(r + along.lanes) * down.step + c] = {left.im, right.im};
        });
        __syncthreads();
    }

    // What the state of a pixel is made of: w and h, or what stands for them; -∇x0 and the bounds.
    struct Pixel {
        int at;
        Scalar w[2], h, origin[2], lower, upper;
    };

    __device__ Pixel load(int pixel) const {
        const Scalar* w = p.at(p.job.w) + pixel;
        Pixel found = {pixel, {w[0], w[p.block]}, 0, {}, 0, 0};
        p.to_origin(pixel, found.origin);
        if (!p.job.bounded) return found;
        found.h = p.at(p.job.h)[pixel];
        p.bounds(pixel, found.lower, found.upper);
        return found;
    }

    // Stores the state for the next sweep from w and h; after the last one these themselves.
    __device__ void store(const Pixel& pixel, Scalar over) const {
        Scalar z[2] = {pixel.origin[0], pixel.origin[1]};
        p.shrink(pixel.w, z);
        Scalar *w = p.at(p.job.w) + pixel.at, *d = p.at(p.job.reflected) + pixel.at;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            w[k * p.block] = pixel.w[k] - over * z[k];
            d[k * p.block] = 2 * z[k] - pixel.w[k];
        }
        if (!p.job.bounded) return;
        const Scalar s = clipped(pixel.h, pixel.lower, pixel.upper);
        p.at(p.job.h)[pixel.at] = pixel.h - over * s;
        d[2 * p.block] = 2 * s - pixel.h;
    }

    __device__ void begin() const {
        for (int pixel = threadIdx.x; pixel < p.pixels; pixel += threads)
            store(load(pixel), Scalar(p.job.over));
        __syncthreads();
    }

    // ρ (∇ᵀ(2z - w) + (2s - h)) at a pixel.
    __device__ Scalar pull(int i, int j) const {
        if (j >= width) return 0;
        const Scalar* d = p.at(p.job.reflected) + i * width + j;
        const Scalar* e = d + p.block;
        Scalar total = p.weight(0) * ((i ? d[-width] : Scalar(0)) - d[0]);
        total += p.weight(1) * ((j ? e[-1] : Scalar(0)) - e[0]);
        if (p.job.bounded) total += e[p.block];
        return Scalar(p.job.rho) * total;
    }

    __device__ void gather(Element* to) const {
        down.walk.each(height, [&](int i, int c) {
            to[down.place(i) * down.step + c] = {pull(i, c), pull(i, c + down.lanes)};
        });
        __syncthreads();
    }

    // Calls body(pixel, other, element) for all elements of lines of the last axis; `other` is the pixel of
    // the second half, or the same where there is none.
    template <class Body>
    __device__ void each(Element* image, const Walk& walk, Body body) const {
        walk.each(along.lanes, [&](int r, int k) {
            const int pixel = r * width + k;
            body(pixel, r + along.lanes < height ? pixel + along.lanes * width : pixel,
                 image[r * along.apart + k]);
        });
    }

    // Rows of the model from `first` on at two pixels; behind the last one, the last one again.
    __device__ void read_rows(const Scalar* solved, int first, int pixel, int other, Scalar (&upper)[chunk],
                              Scalar (&lower)[chunk]) const {
#pragma unroll
        for (int r = 0; r < chunk; ++r) {
            const Scalar* row = solved + min_of(first + r, p.job.rows - 1) * p.pixels;
            upper[r] = row[pixel];
            lower[r] = row[other];
        }
    }

    // From the transform of the right-hand side to that of the solution.
    __device__ void solve(Element* image, double* shared) const {
        const Walk walk(width);
        const Scalar *linear = p.at(p.job.linear), *inverse = p.at(p.job.inverse);
        const int rows = p.job.rows, most = (rows + chunk - 1) / chunk * chunk;
        const Scalar* solved = static_cast<const Scalar*>(p.job.solved) + p.index * rows * p.pixels;
        if (!rows) {
            each(image, walk, [&](int pixel, int other, Element& c) {
                c.re = inverse[pixel] * (c.re + linear[pixel]);
                c.im = inverse[other] * (c.im + linear[other]);
            });
            return __syncthreads();
        }
        constexpr int warps = threads / 32;
        for (int first = 0; first < rows; first += chunk) {
            Scalar sums[chunk] = {};
            each(image, walk, [&](int pixel, int other, Element& c) {
                Scalar upper[chunk], lower[chunk];
                read_rows(solved, first, pixel, other, upper, lower);
                if (!first) c = {c.re + linear[pixel], other == pixel ? Scalar(0) : c.im + linear[other]};
                const Element value = c;
#pragma unroll
                for (int r = 0; r < chunk; ++r) sums[r] += value.re * upper[r] + value.im * lower[r];
            });
#pragma unroll
            for (int r = 0; r < chunk; ++r) {
                const double total = warp_sum(sums[r]);
                if ((threadIdx.x & 31) == 0 && first + r < rows)
                    shared[(first + r) * warps + (threadIdx.x >> 5)] = total;
            }
        }
        __syncthreads();
        const Scalar* small = static_cast<const Scalar*>(p.job.small) + p.index * rows * rows;
        double* products = shared + max_rows * warps;
        if (int(threadIdx.x) < rows) {
            double total = 0;
            for (int warp = 0; warp < warps; ++warp) total += shared[threadIdx.x * warps + warp];
            products[threadIdx.x] = total;
        }
        __syncthreads();
        Scalar* mix = reinterpret_cast<Scalar*>(shared);
        if (int(threadIdx.x) < most) {
            double total = 0;
            for (int q = 0; q < (int(threadIdx.x) < rows ? rows : 0); ++q)
                total += double(small[threadIdx.x * rows + q]) * products[q];
            mix[threadIdx.x] = Scalar(total);
        }
        __syncthreads();
        each(image, walk, [&](int pixel, int other, Element& c) {
            Element value = {inverse[pixel] * c.re, inverse[other] * c.im};
            for (int first = 0; first < rows; first += chunk) {
                Scalar upper[chunk], lower[chunk];
                read_rows(solved, first, pixel, other, upper, lower);
#pragma unroll
                for (int r = 0; r < chunk; ++r) {
                    value.re -= mix[first + r] * upper[r];
                    value.im -= mix[first + r] * lower[r];
                }
            }
            c = value;
        });
        __syncthreads();
    }

    // w⁺ = w + over (∇x - z), h⁺ = h + over (x - s) from the new x; the last x goes to memory.
    __device__ void update(const Element* image, bool last) const {
        const Scalar over = Scalar(p.job.over);
        const auto one = [&](Pixel& pixel, Scalar x, Scalar right, Scalar below) {
            pixel.w[0] += over * p.weight(0) * (below - x);
            pixel.w[1] += over * p.weight(1) * (right - x);
            pixel.h += over * x;
            store(pixel, last ? Scalar(0) : over);
            if (last) p.at(p.job.image)[pixel.at] = x;
        };
        down.walk.each(height, [&](int i, int c) {
            const int other = c + down.lanes;
            Pixel left = load(i * width + c), right = load(i * width + (other < width ? other : c));
            const Element* line = image + sorted(i, height) * down.step;
            const Element x = line[c];
            const Element below = i + 1 < height ? image[sorted(i + 1, height) * down.step + c] : x;
            const bool end = c + 1 == down.lanes;  // its neighbour is the first of the second half
            const Element next = end ? line[0] : line[c + 1];
            one(left, x.re, c + 1 == width ? x.re : end ? next.im : next.re, below.re);
            if (other < width) one(right, x.im, other + 1 == width ? x.im : next.im, below.im);
        });
        __syncthreads();
    }
};

// All sweeps of a problem by one block.
extern "C" __global__ void __launch_bounds__(threads) tv_resident(const __grid_constant__ TvLaunch job) {
    extern __shared__ __align__(16) double memory[];
    __shared__ double sums[max_rows * (threads / 32) + max_rows];
    const DeviceTvProblem p(job, blockIdx.x);
    // The tables of both axes, and behind them two copies of the image, from an even number on.
    const int sides = int(job.side0 + job.side1), entries = 2 * (1 + max_stages) + sides;
    Scalar* numbers = reinterpret_cast<Scalar*>(memory);
    int32_t* places = reinterpret_cast<int32_t*>(numbers + 4 * sides);
    for (int i = threadIdx.x; i < 4 * sides; i += threads)
        numbers[i] = static_cast<const Scalar*>(job.numbers)[i];
    for (int i = threadIdx.x; i < entries; i += threads)
        places[i] = static_cast<const int32_t*>(job.places)[i];
    __syncthreads();
    const int used = 4 * sides * int(sizeof(Scalar)) + 4 * entries;
    const Resident image(p, numbers, places, reinterpret_cast<Element*>(memory + (used + 15) / 16 * 2));
    Element *here = image.here, *there = image.there;
    const int64_t count = static_cast<const int64_t*>(job.counts)[p.index];
    if (!count) return;
    image.begin();
    for (int64_t turn = 0; turn < count; ++turn) {
        image.gather(here);
        image.down.forward(here);
        image.turn(here, there);
        image.along.forward(there);
        image.solve(there, sums);
        image.along.backward(there, here);
        image.turn_back(here, there);
        image.down.backward(there, here);
        image.update(here, turn + 1 == count);
    }
}
