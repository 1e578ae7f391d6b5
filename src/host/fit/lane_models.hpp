// Compiled models on the host, evaluated for problems side by side, one per lane: value and row of the
// Jacobian at each point, and the sums over points that a turn asks for.
#pragma once

#include <vector>

#include "core/fit/models/decays.hpp"
#include "core/fit/models/job.hpp"
#include "core/fit/models/peaks.hpp"
#include "core/fit/models/spots.hpp"
#include "core/fit/models/tofts.hpp"
#include "host/fit/lane_sums.hpp"

SW_BEGIN
namespace fit {

// What the lanes hold. Own arrays are lanes side by side, point by point; shared ones are as the caller has
// them.
template <class T>
struct LaneData {
    const FitModelJob& job;
    const T* shared_x;        // variables x points, or null
    const Lanes<T>* own_x;    // points x variables
    const Lanes<T>* y;        // points
    const Lanes<T>* weights;  // points, or null
    Lanes<T>* rows;           // room for `block` rows
    int block;
    // Where rows themselves are wanted, of the first lanes: where they go; else null.
    T* out;
    int64_t out_stride;
    int out_lanes;
    std::vector<Lanes<T>>* registers;  // of a program
};

typedef Shape<AtMost<most_terms>, AtMost<1>, AtMost<most_terms>> HostShape;

inline HostShape shape_of(const FitModelJob& job) {
    return {{job.count}, {job.flag}, {job.across}};
}

// A robust loss or a likelihood: the row is scaled so that its products are what g and H want.
template <class T>
void apply_loss(const LaneData<T>& data, int point, Lanes<T>* row, Lanes<double>& cost) {
    const FitModelJob& job = data.job;
    const int n = job.parameters;
    Lanes<T> scale;
    for (int lane = 0; lane < problem_lanes; ++lane) {
        const double weight = data.weights ? double(data.weights[point][lane]) : 1.0;
        scale[lane] = 0;
        if (weight == 0) {
            row[n][lane] = 0;
            continue;
        }
        const FitPoint found = fit_point(FitLoss(job.loss), job.loss_scale, double(row[n][lane]),
                                         double(data.y[point][lane]), weight);
        cost[lane] += found.cost;
        const double root = square_root(found.curve);
        scale[lane] = T(root);
        row[n][lane] = found.curve > 0 ? T(found.pull / root) : T(0);
    }
    for (int j = 0; j < n; ++j) row[j] = weighed(scale, row[j]);
}

// What remains of a block once values and derivatives are there: residuals, weights, sums. `rows` have the
// values in their last column.
template <class T>
void finish_block(const LaneData<T>& data, int first, int count, Lanes<double>* sums, Lanes<double>& cost) {
    const int n = data.job.parameters, columns = n + 1;
    if (data.out) {
        for (int lane = 0; lane < data.out_lanes; ++lane)
            for (int k = 0; k < count * columns; ++k)
                data.out[lane * data.out_stride + int64_t(first) * columns + k] = data.rows[k][lane];
        return;
    }
    for (int i = 0; i < count; ++i) {
        Lanes<T>* row = data.rows + i * columns;
        if (data.job.loss != int(FitLoss::linear)) {
            apply_loss(data, first + i, row, cost);
            continue;
        }
        row[n] = row[n] - data.y[first + i];
        if (data.weights) {
            const Lanes<T> weight = data.weights[first + i];
            for (int j = 0; j < columns; ++j) row[j] = weighed(weight, row[j]);
        }
    }
    add_sums(n, count, data.rows, sums);
}

template <class T, template <class, class> class Model>
void evaluate(const LaneData<T>& data, const Lanes<T>* p, Lanes<double>* sums, Lanes<double>& cost) {
    typedef Model<Lanes<T>, HostShape> Here;
    const FitModelJob& job = data.job;
    const HostShape shape = shape_of(job);
    Here model(shape, p);
    const int m = job.points, columns = job.parameters + 1;
    for (int first = 0; first < m; first += data.block) {
        const int count = min_of(data.block, m - first);
        for (int i = 0; i < count; ++i) {
            Lanes<T> x[Here::variables];
            for (int v = 0; v < Here::variables; ++v)
                x[v] = data.own_x ? data.own_x[(first + i) * Here::variables + v]
                                  : Lanes<T>(data.shared_x[int64_t(v) * m + first + i]);
            Lanes<T>* row = data.rows + i * columns;
            model.row(x, first + i, row[columns - 1], row);
        }
        finish_block(data, first, count, sums, cost);
    }
}

// Sums of all points: the packed triangle of H, then g, then rᵀr; cost is ½Σρ of another loss.
template <class T>
using Evaluate = void (*)(const LaneData<T>&, const Lanes<T>*, Lanes<double>*, Lanes<double>&);

}  // namespace fit
SW_END
