// Where everything a solve needs lies in memory. A team has a fast piece (a thread block's shared memory;
// none on the host) and a slow piece; small things are asked for first and go where they fit.
#pragma once

#include "core/lsq/matrix.hpp"
#include "core/lsq/packing.hpp"
#include "core/lsq/types.hpp"

SW_BEGIN
namespace lsq {

// The first is a column at zero or, in the general solver, at its lower bound.
enum ColumnState : int32_t {
    zero = 0,
    is_in_factor = 1,  // its column is
    barred = 2,
    reflected = 4,  // at its upper bound when out of the factor
    is_free = 8,    // without bounds
    excluded = 16,  // masked, or with equal bounds
    leaving = 32,   // has reached a bound
};

// What systems with one and the same matrix share; all null where each system has its own.
struct Shared {
    const double* scale = nullptr;  // n: power of two that brings |a_j| into [1, 2); 0 for a zero column
    const double* norm = nullptr;   // n: norm of the scaled column, damping included
    const double* inverse_norm = nullptr;  // n
    // Where systems have a metric, each has norms of its own: `norm` and `inverse_norm` are null, and this is
    // that of the scaled column of A alone.
    const double* top_norm = nullptr;
    const double* columns = nullptr;  // n x column_stride: the scaled columns
    const int32_t* low = nullptr;     // n: bounds of each column's non-zeros
    const int32_t* high = nullptr;
    const double* gram = nullptr;  // n x gram_stride: scaled columns' products, damping on the diagonal
    // Of a penalty by rows beneath A: scaled products of L's columns, n x gram_stride, and their diagonal.
    // The first is null where L is the unit matrix. `gram` is then of A's rows alone.
    const double* penalty_gram = nullptr;
    const double* penalty_diagonal = nullptr;
    Envelope envelope = {nullptr, nullptr};
    int64_t column_stride = 0;
    int64_t gram_stride = 0;
};

// Sizes from which the workspace follows.
struct Extent {
    int rows, columns, max_columns;
    int rows_of_a;                   // those beneath A left out
    int zeros_before, zeros_after;   // of the matrix kind
    int members;                     // of the team
    int pulse_length, pulse_origin;  // of a convolution, else 0
    bool damped, has_q, square_q;
    bool gathers;    // each system has columns of its own
    bool by_column;  // the envelope has the rows of each column (a device), not the columns of rows
    // Of the general solver: bounds; a metric of the rows; a bound sum; a penalty.
    IfConstrained<bool> general, metric, summed, penalized;
    IfConstrained<bool> weighted;   // rows of A have weights; else the metric is one there
    IfConstrained<bool> gram_only;  // there are normal equations in place of A
    bool relative_to_b;             // violations are over |b|, not |b| + sum |a_j| |x_j|

    SW_HD int row_length() const { return static_cast<int>(padded(rows)); }
    // Rows of Q: with damping, one more for each unknown.
    SW_HD int q_length() const { return static_cast<int>(padded(rows) + (damped ? padded(columns) : 0)); }
    SW_HD int positions() const { return max_columns + max_candidates; }
    // Columns are shifts of one pulse: they are not stored.
    SW_HD bool shifted() const { return gathers && pulse_length > 0 && !general; }
    // Columns enter and leave many at once.
    SW_HD bool in_blocks() const { return gram_only && !metric && columns >= large_table; }
    SW_HD int q_columns() const { return square_q ? q_length() : max_columns; }
};

// Hands out aligned pieces; with null memory it only counts.
struct Arena {
    char* fast;
    int64_t fast_bytes;
    char* slow;
    int64_t used_fast = 0, used_slow = 0;

    template <class T>
    SW_HD T* take(int64_t count) {
        return reinterpret_cast<T*>(piece(count * static_cast<int64_t>(sizeof(T))));
    }

    SW_CALL char* piece(int64_t wanted) {
        const int64_t bytes = (wanted + 63) / 64 * 64;
        if (used_fast + bytes <= fast_bytes) {
            used_fast += bytes;
            return fast + used_fast - bytes;
        }
        used_slow += bytes;
        return slow ? slow + used_slow - bytes : nullptr;
    }
};

// Positions: the positive columns in insertion order, then the candidates of a step.
struct Workspace {
    double *b, *r, *v, *image;                                   // rows (v, image: rows of Q)
    double *w, *c, *score, *scale, *norm, *inverse_norm, *gate;  // columns
    double *x, *z, *h, *g, *best_x;                              // positions
    double* scratch;                                             // a number a member
    double *pulse, *lags, *factor;                               // of a convolution: see convolution.hpp
    double *panel, *q;                                           // gathered columns; Q
    TriangleStorage triangle;
    int32_t *order, *best_order, *slot;  // positions: column, the best point's, slot in the panel
    int32_t *low, *high;    // slots (of a convolution: columns): bounds of the column's non-zeros
    int32_t* state;         // columns
    int32_t* inserted;      // columns inserted in this step
    int32_t *crowd, *near;  // columns that may become candidates; which of these are too close
    int64_t* costs;         // accesses and flops of updates, then of downdates
    Envelope envelope;
    // Of the general solver, else null. `metric`: how much each row counts (its weight squared; lambda^2 in a
    // row of the penalty); its root, and 1 over that. `weighed_b`: b under the metric, or b itself.
    IfConstrained<double*> metric, root, inverse_root;
    double* weighed_b;
    IfConstrained<double*> own_gram;  // columns x columns: scaled products, where normal equations are given
    IfConstrained<double*> lower, upper;            // columns: the bounds, scaled
    IfConstrained<double*> c_penalty;               // columns: the part of A'b that is lambda^2 times
    IfConstrained<double*> sum_of;                  // columns: scaled coefficients of the sum
    IfConstrained<double*> square, penalty_square;  // columns: squared norms in A, and in L
    IfConstrained<int32_t*> best_state;             // columns: of the best point
    IfConstrained<int32_t*> kept_bounds;  // columns: far bounds that count all the same; a BoundSide
    IfConstrained<int32_t*> has_row;      // columns: which of them have their row of own_gram
    IfConstrained<double*> strip;         // two blocks of columns that enter together, a row a position

    // What a team needs without fast memory: the most it can ever need of the slow.
    SW_HD static int64_t bytes(const Extent& e) {
        Workspace workspace;
        Arena arena{nullptr, 0, nullptr};
        workspace.carve(e, arena);
        return arena.used_slow;
    }

    SW_HD void carve(const Extent& e, Arena& arena) {
        const int64_t cap = padded(e.positions()), n = padded(e.columns);
        // What every step needs comes first.
        costs = arena.take<int64_t>(4);
        inserted = arena.take<int32_t>(max_insertions);
        crowd = arena.take<int32_t>(lsq::crowd);
        near = arena.take<int32_t>(max_candidates);
        scratch = triangle.scratch = arena.take<double>(e.members);
        double** positions[] = {&x, &z, &h, &g, &triangle.inverse_diagonal, &triangle.target};
        for (double** vector : positions) *vector = arena.take<double>(cap);
        // Neither a column that enters nor a correction outlasts a removal.
        triangle.cosine = h;
        triangle.sine = g;
        order = arena.take<int32_t>(cap);
        slot = arena.take<int32_t>(cap);
        low = arena.take<int32_t>(e.shifted() ? max_of(cap, n) : cap);
        high = arena.take<int32_t>(e.shifted() ? max_of(cap, n) : cap);
        const int64_t before = padded(e.zeros_before);
        r = arena.take<double>(before + e.row_length() + e.zeros_after);
        if (r) r += before;
        score = arena.take<double>(n);
        w = arena.take<double>(n);
        gate = arena.take<double>(n);
        state = arena.take<int32_t>(n);
        pulse = arena.take<double>(e.pulse_length > 0 ? e.pulse_length + 2 : 0);
        lags = arena.take<double>(e.shifted() ? min_of(e.pulse_length, e.columns) : 0);
        factor = arena.take<double>(e.shifted() ? n : 0);
        triangle.carve(arena, e.max_columns);
        b = arena.take<double>(e.row_length());
        c = arena.take<double>(n);
        v = arena.take<double>(e.q_length());
        best_x = arena.take<double>(cap);
        best_order = arena.take<int32_t>(cap);
        // What one matrix for all keeps elsewhere.
        const int64_t own = e.gathers || e.metric ? n : 0;
        scale = arena.take<double>(own);
        norm = arena.take<double>(own);
        inverse_norm = arena.take<double>(own);
        lower = e.general ? arena.take<double>(n) : nullptr;
        upper = e.general ? arena.take<double>(n) : nullptr;
        best_state = e.general ? arena.take<int32_t>(n) : nullptr;
        kept_bounds = e.general ? arena.take<int32_t>(n) : nullptr;
        c_penalty = e.penalized ? arena.take<double>(n) : nullptr;
        own_gram = e.gram_only ? arena.take<double>(n * e.columns) : nullptr;
        has_row = e.gram_only ? arena.take<int32_t>(n) : nullptr;
        strip = e.in_blocks() ? arena.take<double>(2 * block_width * padded(e.positions() + block_width))
                              : nullptr;
        square = e.metric ? arena.take<double>(n) : nullptr;
        penalty_square = e.penalized ? arena.take<double>(n) : nullptr;
        sum_of = e.summed ? arena.take<double>(n) : nullptr;
        triangle.sum = e.summed ? arena.take<double>(cap) : nullptr;
        IfConstrained<double*>* rows[] = {&metric, &root, &inverse_root};
        for (IfConstrained<double*>* vector : rows)
            *vector = e.metric ? arena.take<double>(e.row_length()) : nullptr;
        weighed_b = e.metric ? arena.take<double>(e.row_length()) : b;
        const int64_t bounds = e.gathers ? e.by_column ? n : envelope_length(e.rows, e.members) : 0;
        envelope.low = arena.take<int32_t>(bounds);
        envelope.high = arena.take<int32_t>(bounds);
        image = arena.take<double>(e.square_q || e.metric ? e.q_length() : 0);
        panel = arena.take<double>(
            e.gathers && !e.shifted() ? e.row_length() * static_cast<int64_t>(e.positions()) : 0);
        q = arena.take<double>(e.has_q ? e.q_length() * static_cast<int64_t>(e.q_columns()) : 0);
    }
};

// What all members of a team read and none writes while a system is solved; on a device it lies in shared
// memory, where a copy a thread would crowd out the cache.
struct Setting {
    NnlsOptions options;
    Extent extent;
    Shared shared;
    Workspace ws;
    Envelope envelope;

    SW_HD void arrange(const NnlsOptions& wanted, const Extent& sizes, const Shared& common, Arena arena) {
        options = wanted;
        extent = sizes;
        shared = common;
        ws.carve(sizes, arena);
        envelope = common.envelope.low ? common.envelope : ws.envelope;
        if (extent.gram_only) {
            shared.gram = ws.own_gram;
            shared.gram_stride = padded(extent.columns);
        }
    }

    SW_HD double scale_of(int j) const { return shared.scale ? shared.scale[j] : ws.scale[j]; }
    SW_HD double norm_of(int j) const { return shared.norm ? shared.norm[j] : ws.norm[j]; }
    // |a_j| as it counts in the rounding of b - A x: without the row of a bound sum.
    SW_HD double size_of(int j) const {
        if (!ws.sum_of) return norm_of(j);
        return ws.square[j] > 0 ? 1.0 / ws.inverse_norm[j] : 0.0;
    }
    SW_HD double inverse_norm_of(int j) const {
        return shared.inverse_norm ? shared.inverse_norm[j] : ws.inverse_norm[j];
    }
    // a_i . a_j of a convolution's columns: where one of them lies whole within the rows, it is the pulse's
    // product with itself at their distance.
    SW_HD double product_of_shifts(int i, int j) const {
        const int lag = i < j ? j - i : i - j;
        if (lag >= extent.pulse_length) return 0.0;
        const int whole = envelope.high[0] - envelope.low[0];
        double product = ws.lags[lag];
        if (ws.high[i] - ws.low[i] < whole && ws.high[j] - ws.low[j] < whole) {
            const int from = max_of(ws.low[i], ws.low[j]), to = min_of(ws.high[i], ws.high[j]);
            product = 0;
            SW_UNROLL_BY(4)
            for (int t = from + extent.pulse_origin; t < to + extent.pulse_origin; ++t)
                product += ws.pulse[t - i] * ws.pulse[t - j];
        }
        return product * ws.factor[i] * ws.factor[j];
    }
    // Of the general solver. A column out of the factor is at its lower bound or, where `reflected`, at its
    // upper; x of one in it is the distance from there, so much at the least and at the most.
    SW_HD double reference_of(int j) const {
        const int state = ws.state[j];
        return state & is_free ? 0.0 : state & reflected ? ws.upper[j] : ws.lower[j];
    }
    SW_HD double least_of(int j) const {
        const int state = ws.state[j];
        if (state & is_free) return ws.lower[j];
        return state & reflected ? ws.lower[j] - ws.upper[j] : 0.0;
    }
    SW_HD double most_of(int j) const {
        const int state = ws.state[j];
        if (state & is_free) return ws.upper[j];
        return state & reflected ? 0.0 : ws.upper[j] - ws.lower[j];
    }
    // Which way x can go from there.
    SW_HD double sign_of(int j) const { return ws.state[j] & reflected ? -1.0 : 1.0; }
    // lambda times the scaled unit vector of column j: its row below A when the system is damped.
    SW_HD double below(int j) const { return options.damping * scale_of(j); }
};

template <class Matrix>
struct Task : Setting {
    Matrix matrix;

    SW_HD void share(const Shared& common) {
        shared = common;
        envelope = common.envelope.low ? common.envelope : ws.envelope;
    }
    SW_HD void take(const Matrix& next) {
        matrix = next;
        matrix.keep_copy_in(ws.pulse);
    }
};

// Whether a problem has more than x >= 0 and one lambda: a kernel is compiled for those or for the others,
// the host for both.
template <class Matrix>
SW_HD bool is_general(const Task<Matrix>& task) {
    return Matrix::general && (!Matrix::plain || task.extent.general);
}

}  // namespace lsq
SW_END
