// The quasi-Newton iteration on the host: drives sweeps and decisions for a batch of problems.
#pragma once

#include <memory>
#include <vector>

#include "core/quasi_newton/cauchy_walk.hpp"
#include "core/quasi_newton/device_layout.hpp"
#include "core/quasi_newton/memory.hpp"
#include "core/quasi_newton/options.hpp"
#include "core/quasi_newton/totals.hpp"
#include "host/quasi_newton/chunks.hpp"

namespace stepwell {

// What the sweeps of one phase have found, before it is decided on: one row a chunk of this process's
// variables, and for Action::list_breaks the list.
struct PhaseSums {
    Action phase;  // evaluate: the slope
    const State* state;
    double* rows;  // [chunk, shape.width()]; room for one row at least
    int chunks;
    RowShape shape;
    double* f;  // Action::evaluate alone: the caller's value; where it comes in parts, rows[., 1] are theirs
    BreakList* list;        // Action::list_breaks alone; the first of `listed` records, as many as fit
    const double* decided;  // Action::aim alone: the coefficients of the direction, 2 pairs of them
};

// Stands between the sums and the decision of every phase, in place of fold_rows(): must leave the totals
// over all variables, wherever they are, in the first row, and all breakpoints of the selection in the list.
// Processes that hand over the same totals take the same decisions. Called by one thread, in the same order
// everywhere; for one problem, not for a batch.
struct Exchange {
    void (*call)(void* context, const PhaseSums& found) = nullptr;
    void* context = nullptr;
};

// Everything a turn works on.
template <class T>
struct EngineView : BatchMemory<T, unsigned char> {
    const Options* options;
    int threads;
    void* workspaces;  // one per thread
    Exchange exchange = {};
    Cut cut = {};            // where n is a piece of the variables
    bool whole = true;       // the piece is all there is
    double* kept = nullptr;  // (batch, kept_stride): products of tiles (tile_gram_cache.hpp)
    int64_t kept_stride = 0;
    // The problems that have a turn, so many of them, in order; null: all. Values and gradients are those of
    // the whole batch, or of these alone.
    const int64_t* running = nullptr;
    int64_t running_count = 0;
    bool of_running_alone = false;
    T* copy = nullptr;  // of one problem: where a turn leaves its trial point a second time, for the caller
};

// A problem whose vectors are in a device's memory: it sweeps, the host decides.
struct DeviceView {
    State* state;
    double* small;
    const Options* options;
    void* workspaces;  // one
    Exchange exchange;
    int chunks;
    double *rows, *breaks, *break_rows;  // see SweepArguments
    int longest;                         // list of breakpoints for which they have room
    // Sweeps over the variables. With `waits`, what is left for the host is there when it returns.
    void (*sweep)(void* context, DeviceSweep kind, bool at_trial, const double* coefficients, bool waits);
    void* context;
};

// The functions of one instruction set.
struct EngineKernels {
    void* (*make_workspaces)(int threads, int capacity);
    int64_t (*bytes_of_workspaces)(const void*);
    int64_t (*bytes_of_one)(int capacity);
    void (*free_workspaces)(void*);
    void (*turn_double)(const EngineView<double>&, const double* f, const double* gradient, TurnPart part);
    void (*turn_float)(const EngineView<float>&, const double* f, const float* gradient, TurnPart part);
    void (*turn_device)(const DeviceView&, double f, TurnPart part);
};

const EngineKernels& engine_kernels();  // for the best instruction set of this machine

}  // namespace stepwell
