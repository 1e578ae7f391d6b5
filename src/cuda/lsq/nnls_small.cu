// Small systems on a CUDA device (core/lsq/small), a thread or a warp each. What they leave to nnls_solve is
// listed for it. Compiled with
//   SW_SCALAR     float or double
//   SW_SOURCE     a Source: where the products come from
//   SW_BOUNDED, SW_SUMMED, SW_PENALIZED  0 or 1: what the systems have beside x >= 0
//   SW_COLUMNS    columns that a system has room for
//   SW_POSITIONS  of them in the factor
//   SW_WIDTH      1: a thread a system; 32: a warp
//   SW_THREADS    threads of a block, at the most
//   SW_BLOCKS     blocks of a multiprocessor that registers have to be there for
//   SW_FORMS_TABLES  1 where there are matrices of one system each, whose products are formed first
#include "core/lsq/launch.hpp"
#include "core/lsq/small/solver.hpp"
#include "cuda/lsq/sweeps.cuh"
#include "cuda/lsq/warp_lanes.cuh"

using namespace stepwell;
using namespace stepwell::lsq;

typedef SW_SCALAR Scalar;
typedef small::Kind<Scalar, small::SW_SOURCE, SW_BOUNDED, SW_SUMMED, SW_PENALIZED, SW_COLUMNS, SW_POSITIONS>
    Kind;

// What all systems have, in shared memory.
static __device__ small::Products share(const Launch& launch, double* fast) {
    const Shared& shared = launch.shared;
    const int n = launch.job.columns + launch.job.constraints.slack, stride = small::shared_row(n);
    const int length = small::shared_products(n), whole = static_cast<int>(padded(n));
    double *inverse = fast + length, *unit = inverse + whole, *entries = unit + whole;
    for (int k = threadIdx.x; k < length; k += blockDim.x) {
        const int i = k / stride, j = k % stride;
        fast[k] = i < n && j < n ? shared.gram[i * shared.gram_stride + j] : 0.0;
    }
    for (int j = threadIdx.x; j < whole; j += blockDim.x) {
        const double square = j < n ? shared.gram[j * shared.gram_stride + j] : 0.0;
        inverse[j] = square > 0 ? 1 / sqrt(square) : 0.0;
        unit[j] = j < n && shared.scale[j] > 0 ? 1 / shared.scale[j] : 0.0;
    }
    const int across = small::shared_entries_row(n);
    if constexpr (SW_WIDTH > 1) {
        const int m = launch.job.rows;
        for (int k = threadIdx.x; k < m * launch.job.columns; k += blockDim.x) {
            const int i = k % m, j = k / m;
            entries[i * across + j] = shared.columns[j * shared.column_stride + i];
        }
    }
    __syncthreads();
    return {shared, fast, stride, Kind::own_norms ? nullptr : inverse, unit, entries, across, 1};
}

#if SW_WIDTH > 1

// A warp a system; a block's first memory is what all systems have, then each warp has its own.
extern "C" __global__ void __launch_bounds__(SW_THREADS, SW_BLOCKS)
    nnls_small(const __grid_constant__ Launch launch) {
    extern __shared__ __align__(16) double fast[];
    typedef small::Store<Kind, SW_WIDTH> Store;
    const Job& job = launch.job;
    small::Products products;
    const small::WarpLanes lanes;
    int64_t before = 0;
    if constexpr (Kind::source == small::one_matrix) {
        products = share(launch, fast);
        before = small::shared_length(job.columns + job.constraints.slack, job.rows, SW_WIDTH);
    }
    Store& store = reinterpret_cast<Store*>(fast + before)[threadIdx.x >> 5];
    for (;;) {
        unsigned long long drawn = 0;
        if (lanes.lane() == 0) drawn = atomicAdd(reinterpret_cast<unsigned long long*>(launch.queue), 1ull);
        const int64_t system = static_cast<int64_t>(__shfl_sync(0xffffffffu, drawn, 0));
        if (system >= job.systems) return;
        if constexpr (Kind::source == small::some_matrices) {
            const Shared& shared = launch.dictionary[matrix_number(job, system)];
            products = {shared,         shared.gram, shared.gram_stride,  nullptr, nullptr,
                        shared.columns, 1,           shared.column_stride};
        }
        if constexpr (Kind::source == small::own_matrix)
            products.table = job.tables + system * small::table_length(job.columns);
        small::State<Kind, small::WarpLanes> state(job, system, products, lanes, store);
        for (bool goes_on = begin(state); goes_on;) goes_on = iterate(state);
        if (!certify(state) && lanes.lane() == 0)
            launch.list[atomicAdd(reinterpret_cast<unsigned long long*>(launch.handed), 1ull)] = system;
        __syncwarp();
    }
}

#else

extern "C" __global__ void __launch_bounds__(SW_THREADS, SW_BLOCKS)
    nnls_small(const __grid_constant__ Launch launch) {
    extern __shared__ __align__(16) double fast[];
    const Job& job = launch.job;
    small::Products products;
    if constexpr (Kind::source == small::one_matrix) products = share(launch, fast);
    const int lane = threadIdx.x & 31;
    // A warp draws 32 systems at a time: its threads begin and end together.
    for (;;) {
        unsigned long long first = 0;
        if (lane == 0) first = atomicAdd(reinterpret_cast<unsigned long long*>(launch.queue), 32ull);
        const int64_t system = static_cast<int64_t>(__shfl_sync(0xffffffffu, first, 0)) + lane;
        if (system - lane >= job.systems) return;
        const bool there = system < job.systems;
        if constexpr (Kind::source == small::some_matrices) {
            const Shared& shared = launch.dictionary[there ? matrix_number(job, system) : 0];
            products = {shared, shared.gram, shared.gram_stride};
        }
        if constexpr (Kind::source == small::own_matrix)
            products.table = job.tables + system * small::table_length(job.columns);
        small::Store<Kind, 1> store;
        small::State<Kind, small::OneLane> state(job, system, products, small::OneLane(), store);
        bool goes_on = there && begin(state);
        // Threads that are done wait here for the others, so that all that are not take each step together.
        while (__any_sync(0xffffffffu, goes_on))
            if (goes_on) goes_on = iterate(state);
        if (there && !certify(state))
            launch.list[atomicAdd(reinterpret_cast<unsigned long long*>(launch.handed), 1ull)] = system;
        __syncwarp();
    }
}

#endif

#if SW_FORMS_TABLES

// c += f' g of two fragments of four rows and eight columns each. A lane has row lane % 4 of column lane / 4,
// and of the products those of column lane / 4 of f with two of g, from 2 (lane % 4) on.
static __device__ void add_products(double (&c)[2], double f, double g) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(c[0]), "+d"(c[1])
        : "d"(f), "d"(g));
}

// The table of each system (core/lsq/small/tables.hpp): A and b are read once, a warp a system, four rows at
// a time.
extern "C" __global__ void __launch_bounds__(SW_THREADS)
    nnls_form_tables(const __grid_constant__ Launch launch) {
    const Job& job = launch.job;
    const int n = job.columns, m = job.rows, lane = threadIdx.x & 31, row = lane & 3, column = lane >> 2;
    const int64_t warps = static_cast<int64_t>(gridDim.x) * (SW_THREADS / 32);
    constexpr int ahead = 8;
    for (int64_t system = static_cast<int64_t>(blockIdx.x) * (SW_THREADS / 32) + (threadIdx.x >> 5);
         system < job.systems; system += warps) {
        const Scalar* a = static_cast<const Scalar*>(job.a) + system * job.a_stride;
        const Scalar* b = static_cast<const Scalar*>(job.b) + system * job.b_stride;
        double c[3][2] = {};
        // The column after the last of A is b.
        const int64_t step = job.row_stride;
        const Scalar* first = column < n ? a + column : b;
        const Scalar* second = column + 8 < n ? a + column + 8 : b;
        const int64_t first_step = column < n ? step : 1, second_step = column + 8 < n ? step : 1;
        const bool has_first = column <= n, has_second = column + 8 <= n;
        for (int i = row; i - row < m; i += 4 * ahead) {
            Scalar f[ahead], g[ahead];
#pragma unroll
            for (int u = 0; u < ahead; ++u) {
                const int at = i + 4 * u;
                f[u] = has_first && at < m ? first[at * first_step] : Scalar(0);
                g[u] = has_second && at < m ? second[at * second_step] : Scalar(0);
            }
#pragma unroll
            for (int u = 0; u < ahead; ++u) {
                add_products(c[0], f[u], f[u]);
                add_products(c[1], f[u], g[u]);
                add_products(c[2], g[u], g[u]);
            }
        }
        double* table = const_cast<double*>(job.tables) + system * small::table_length(n);
#pragma unroll
        for (int tile = 0; tile < 3; ++tile)
#pragma unroll
            for (int q = 0; q < 2; ++q) {
                const int i = column + (tile == 2 ? 8 : 0), j = 2 * row + q + (tile == 0 ? 0 : 8);
                if (i < n && j < n) {
                    table[i * n + j] = c[tile][q];
                    if (tile == 1) table[j * n + i] = c[tile][q];
                } else if (i <= n && j == n) {
                    table[n * n + i] = c[tile][q];
                }
            }
    }
}

#endif
