// What derivatives of least squares need, by a device's team a system: with F the free columns,
//   (A_F'A_F + damping^2 I) u_F = g_F and u = 0 elsewhere,
// and, of x >= 0, what flows back to A and b: r u' - (A u) x' and A u, with r = b - A x. One launch does all
// of it, since small systems take less time than launches. How: cuda/lsq/free_solve.cuh.
//
// R of the free columns is that of modified Gram-Schmidt, as good as that of Householder reflections (Bjorck,
// Numerical Methods for Least Squares Problems, 2.4.2): its condition is that of the columns, where a Gram
// matrix has the square of it. Q is not wanted: its columns stay as long as they come out.
#pragma once

#include "core/lsq/workspace.hpp"

SW_BEGIN
namespace lsq {

struct FreeLaunch {
    int64_t systems;
    int32_t rows, columns, right_sides;              // each system has so many g
    int64_t a_stride, marks_stride, damping_stride;  // 0: one for all systems
    const void* a;      // rows x columns, row-major; all are of the kernel's type but for `damping`
    const void* marks;  // columns: positive where a column is free; one that is no number: a system without u
    const double* damping;  // null: fixed_damping
    double fixed_damping;
    const void* g;  // right_sides x columns
    void* u;        // as g; or null
    // Of x >= 0, whose marks are x itself: b, and what is asked for of A u, b - A x, the cotangent of A, and
    // the product of u and x; or null.
    const void* b;
    void *image, *residual, *to_a;
    double* overlap;
    char* slow;
    int64_t slow_bytes, fast_bytes;  // of one team
};

// What lies where, for `count` free columns; the order, of any number, comes before.
struct FreeSpace {
    int32_t* order;
    double *norm, *z, *r, *column;
    int length, stride;  // of a column, and of a row of r: odd, so that neither way through hits one bank

    SW_HD void carve_order(Arena& arena, int columns) { order = arena.take<int32_t>(columns); }
    SW_HD void carve(Arena& arena, int rows, int count, bool damped, int groups) {
        length = (rows + (damped ? count : 0)) | 1;
        stride = count | 1;
        norm = arena.take<double>(count);
        z = arena.take<double>(static_cast<int64_t>(groups) * count);
        r = arena.take<double>(static_cast<int64_t>(stride) * count);
        column = arena.take<double>(static_cast<int64_t>(length) * count);
    }
};

// Bytes that a team needs at the most.
SW_HD int64_t free_solve_bytes(int rows, int columns, bool damped, int groups) {
    Arena arena{nullptr, 0, nullptr};
    FreeSpace space{};
    space.carve_order(arena, columns);
    space.carve(arena, rows, columns, damped, groups);
    return arena.used_slow;
}

// u = S S'g with the inverse S of a factor that a solve has kept (keep_factor()), of each system.
struct KeptLaunch {
    int64_t systems;
    int32_t columns, right_sides;
    const double* factor;
    const int32_t* order;
    const void* g;  // of the kernel's type, as u
    void* u;
    double* slow;  // 2 * columns numbers a team, and one a member
};

}  // namespace lsq
SW_END
