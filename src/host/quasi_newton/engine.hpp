// The quasi-Newton iteration on the host: drives sweeps and decisions for a batch of problems.
#pragma once

#include <memory>
#include <vector>

#include "core/quasi_newton/options.hpp"
#include "core/quasi_newton/state.hpp"

namespace stepwell {

// Everything a turn works on. Arrays are (batch, n) unless said; bounds and weights may be shared by the
// batch.
template <class T>
struct EngineView {
    int64_t batch, n;
    const Options* options;
    State* states;
    double* small;  // (batch, 3 m²): products of pairs
    T *x, *g, *d, *trial;
    T *s, *y;  // (batch, m, n)
    const T *lower, *upper, *weights;
    int64_t bound_stride, weight_stride;  // n, or 0 where shared
    int threads;
    void* workspaces;  // one per thread
};

enum class TurnPart { whole, begin, finish };

// The functions of one instruction set.
struct EngineKernels {
    void* (*make_workspaces)(int threads, int capacity);
    void (*free_workspaces)(void*);
    void (*turn_double)(const EngineView<double>&, const double* f, const double* gradient, TurnPart part);
    void (*turn_float)(const EngineView<float>&, const double* f, const float* gradient, TurnPart part);
};

const EngineKernels& engine_kernels();  // for the best instruction set of this machine

}  // namespace stepwell
