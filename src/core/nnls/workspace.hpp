// Where everything a solve needs lies in memory: one block of doubles and one of integers per team, carved up here.
#pragma once

#include "core/nnls/matrix.hpp"
#include "core/nnls/triangle.hpp"
#include "core/nnls/types.hpp"

SW_BEGIN
namespace nnls {

// What systems with one and the same matrix share; all null where each system has its own.
struct Shared {
    const double* scale = nullptr;         // n: power of two that brings |a_j| into [1, 2); 0 for a zero column
    const double* norm = nullptr;          // n: norm of the scaled column, damping included
    const double* inverse_norm = nullptr;  // n
    const double* columns = nullptr;       // n x column_stride: the scaled columns
    const int32_t* low = nullptr;          // n: bounds of each column's non-zeros
    const int32_t* high = nullptr;
    const double* gram = nullptr;  // n x gram_stride: scaled columns' products, damping on the diagonal
    Envelope envelope = {nullptr, nullptr};
    int64_t column_stride = 0;
    int64_t gram_stride = 0;
};

// Sizes from which the workspace follows.
struct Extent {
    int rows, columns, most_columns;
    int zeros_before, zeros_after;  // of the matrix kind
    int members;                    // of the team
    bool damped, has_q, square_q, gathers;

    SW_HD int row_length() const { return static_cast<int>(padded(rows)); }
    // Rows of Q: with damping, one more for each unknown.
    SW_HD int q_length() const { return static_cast<int>(padded(rows) + (damped ? padded(columns) : 0)); }
    SW_HD int q_columns() const { return square_q ? q_length() : most_columns; }
};

struct Workspace {
    double *b, *r, *v, *image;                          // rows (v, image: rows of Q)
    double *w, *c, *score, *scale, *norm, *inverse_norm, *gate;    // columns
    double *x, *z, *h, *g, *best_x;                     // positions
    double* note;                                       // a few scalars one group tells the others
    double *panel, *q;                                  // gathered columns; Q
    Triangle triangle;
    int32_t *order, *best_order, *slot, *low, *high;    // positions, positions, slots
    int32_t *state;                                     // columns
    Envelope envelope;

    static constexpr int notes = 8;

    SW_HD static int64_t doubles(const Extent& e) {
        Workspace w;
        return w.carve(e, nullptr, nullptr).first;
    }
    SW_HD static int64_t integers(const Extent& e) {
        Workspace w;
        return w.carve(e, nullptr, nullptr).second;
    }

    struct Sizes {
        int64_t first, second;
    };

    SW_HD Sizes carve(const Extent& e, double* doubles, int32_t* integers) {
        int64_t used = 0, used_integers = 0;
        auto take = [&](int64_t count) {
            double* start = doubles ? doubles + used : nullptr;
            used += padded(count);
            return start;
        };
        auto take_integers = [&](int64_t count) {
            int32_t* start = integers ? integers + used_integers : nullptr;
            used_integers += 2 * padded(count);
            return start;
        };
        const int64_t cap = padded(e.most_columns + 1);
        b = take(e.row_length());
        r = take(padded(e.zeros_before) + e.row_length() + e.zeros_after);
        if (r) r += padded(e.zeros_before);
        v = take(e.q_length());
        image = take(e.square_q ? e.q_length() : 0);
        w = take(e.columns);
        c = take(e.columns);
        score = take(e.columns);
        scale = take(e.columns);
        norm = take(e.columns);
        inverse_norm = take(e.columns);
        gate = take(e.columns);
        x = take(cap);
        z = take(cap);
        h = take(cap);
        g = take(cap);
        best_x = take(cap);
        note = take(notes);
        triangle.inverse_diagonal = take(cap);
        triangle.target = take(cap);
        triangle.cosine = take(cap);
        triangle.sine = take(cap);
        triangle.entries = take(triangle_length(e.most_columns));
        panel = take(e.gathers ? e.row_length() * (static_cast<int64_t>(e.most_columns) + 1) : 0);
        q = take(e.has_q ? e.q_length() * static_cast<int64_t>(e.q_columns()) : 0);
        order = take_integers(cap);
        best_order = take_integers(cap);
        slot = take_integers(cap);
        low = take_integers(cap);
        high = take_integers(cap);
        state = take_integers(e.columns);
        const int64_t bounds = envelope_length(e.rows, e.columns, e.members);
        envelope.low = take_integers(bounds);
        envelope.high = take_integers(bounds);
        return {used, used_integers};
    }
};

}  // namespace nnls
SW_END
