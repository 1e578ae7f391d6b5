"""A billion variables with x >= 0 on one GPU: a rough signal is made smooth and non-negative.

    minimise  sum (x_i - b_i)² / 2 + WEIGHT sum (x_{i+1} - x_i)² / 2   over x >= 0

What makes it fit in the memory of one GPU, and fast: x in float32, the history of ten pairs in bfloat16, the bound as a
number, which takes no array, and an objective in one kernel: it reads x once, makes b_i from i, adds f up in double
precision and writes the gradient. Hundreds of millions of variables meet their bound in one iteration here; the exact
Cauchy search would cross them 512 at a time, and "first-interval" reads the history once more for the first of them
alone. So the search is left out: steps are cut at the bounds, and f after 25 iterations is the same to nine digits.

Needs CuPy and a GPU with 80 GB for n = 10⁹; a smaller n needs as much less.

Run: python examples/billion_variables.py [--n N] [--iterations K]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import cupy

import stepwell

M = 10  # pairs of history
WEIGHT = 25.0
THREADS, BLOCKS = 256, 2048  # of the kernel below

OBJECTIVE = r"""
const int period = 6283;

__device__ float signal(long long i, int phase) {  // 2 sin(2 pi i / period) and noise of (-1, 1) by a hash of i
    unsigned int h = (unsigned int)i * 2654435761u ^ (unsigned int)(i >> 32) ^ 0x9e3779b9u;
    h ^= h >> 16; h *= 0x85ebca6bu; h ^= h >> 13; h *= 0xc2b2ae35u; h ^= h >> 16;
    return 2.0f * __sinf(1e-3f * (float)phase) + (float)(int)h * 4.656613e-10f;
}

extern "C" __global__ void objective(const float* __restrict__ x, float* __restrict__ g, double* partial, long long n,
                                     float weight) {
    double sum = 0.0;
    const long long all = (long long)gridDim.x * blockDim.x;
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    int phase = (int)(i % period), ahead = (int)(all % period);
#pragma unroll 4
    for (; i < n; i += all) {
        const float here = x[i], off = here - signal(i, phase);
        const float left = i > 0 ? here - x[i - 1] : 0.0f, right = i + 1 < n ? x[i + 1] - here : 0.0f;
        g[i] = off + weight * (left - right);
        sum += 0.5f * (off * off + weight * right * right);
        phase += ahead;
        if (phase >= period) phase -= period;
    }
    __shared__ double kept[256];
    kept[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) kept[threadIdx.x] += kept[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = kept[0];
}
"""


def smooth(n: int, iterations: int) -> tuple[Any, dict[str, float]]:
    """Return the result of a run, and its seconds and bytes."""
    kernel = cupy.RawKernel(OBJECTIVE, "objective")
    gradient, partial = cupy.empty(n, cupy.float32), cupy.empty(BLOCKS)
    first: list[float] = []

    def fun(x: cupy.ndarray) -> tuple[cupy.ndarray, cupy.ndarray]:
        if not first:
            first.append(time.perf_counter())
        kernel((BLOCKS,), (THREADS,), (x, gradient, partial, cupy.int64(n), cupy.float32(WEIGHT)))
        return partial.sum(), gradient

    fun(cupy.zeros(n, cupy.float32))  # compiles the objective, and touches its memory
    cupy.cuda.Device().synchronize()
    first.clear()
    options = {"history": "bfloat16", "maxcor": M, "maxiter": iterations, "ftol": 0.0, "gtol": 1e-5}
    options["cauchy"] = "none"
    began = time.perf_counter()
    result = stepwell.minimize(fun, cupy.zeros(n, cupy.float32), jac=True, bounds=(0, None), options=options)
    cupy.cuda.Device().synchronize()
    ended = time.perf_counter()
    free, total = cupy.cuda.Device().mem_info
    turns = int(result.nfev)
    seconds = {"set-up": first[0] - began, "turn": (ended - first[0]) / turns, "bytes": total - free}
    return result, seconds


def main() -> None:
    """Run it as the command line says, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=10**9, help="variables")
    parser.add_argument("--iterations", type=int, default=40)
    given = parser.parse_args()
    smooth(min(given.n, 10**6), 3)  # compiles the solver
    result, seconds = smooth(given.n, given.iterations)
    print(f"n = {given.n:,}: f = {float(result.fun):.8g} after {result.nit} iterations, {result.message}")
    print(f"zeros: {float((result.x == 0).mean()):.1%}, least x: {float(result.x.min()):g}")
    print(f"set-up {seconds['set-up']:.2f} s, a turn with its evaluation {1e3 * seconds['turn']:.1f} ms")
    print(f"memory of the GPU in use: {seconds['bytes'] / 2**30:.1f} GiB")


if __name__ == "__main__":
    main()
