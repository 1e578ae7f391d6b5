// Solves the normal equations of the columns that are free, which derivatives of least squares need: for each
// system, (A_F' A_F + damping^2 I) u_F = g_F and u = 0 elsewhere. Where normal equations are what is given,
// their matrix stands for A' A.
#pragma once

#include <cstdint>

#include "host/common/dispatch.hpp"

namespace stepwell {

struct NormalJob {
    int64_t systems, right_sides;  // each system has so many g
    int32_t rows, columns;
    int32_t pulse_length, pulse_origin;  // A[i, j] = pulse[i - j + origin]; length 0: a matrix, row-major
    const double* a;
    int64_t a_stride;     // 0: one for all systems
    const uint8_t* free;  // (systems, columns)
    const double* damping;
    int64_t damping_stride;
    const double* g;  // (systems, right_sides, columns)
    double* u;
    int32_t threads;
    bool gram = false;  // a is A' A itself: rows = columns
    // What flows back to A and b of systems with a matrix and a g each, where it is wanted: A u to b, and
    // r u' - (A u) x' to A, with r = b - A x.
    const double *b = nullptr, *x = nullptr;
    double *to_a = nullptr, *to_b = nullptr;
};

struct NormalKernels {
    void (*solve)(const NormalJob&);
    // u of one g, with the factor that the solve of a system of n columns has kept.
    void (*solve_with_kept)(const double* factor, const int32_t* order, int32_t n, const double* g,
                            double* u);
};

SW_FOR_EACH_ISA(const NormalKernels& normal_kernels();)

}  // namespace stepwell
