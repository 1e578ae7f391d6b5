// What a fit of many problems by a compiled model is given, on the host and on a device: plain data.
#pragma once

#include "core/fit/loss.hpp"
#include "core/fit/types.hpp"

namespace stepwell {

// Which model; stepwell/fit/models/table.py has the same numbers, and a test holds the two together.
enum class FitModel : int32_t {
    exponentials = 0,
    ivim = 1,
    gaussians = 2,
    lorentzians = 3,
    pseudo_voigts = 4,
    polynomial_peak = 5,
    spot = 6,
    grid_spot = 7,
    tofts = 8,
    program = 9,  // an expression
};

// What an instruction of an expression's program does; stepwell/fit/models/program.py takes the numbers from
// here.
enum class FitOperation : int32_t {
    add = 0,
    subtract,
    multiply,
    divide,
    power,
    negative,
    exp,
    log,
    sqrt,
    sin,
    cos,
    tan,
    sinh,
    cosh,
    tanh,
    arctan,
    erf,
    absolute,
    sign,
    step,
};

// Register `to` becomes an operation of registers a and b.
struct FitInstruction {
    int32_t code, to, a, b;
};

struct FitModelJob {
    int64_t problems;
    int32_t points, parameters, variables;
    int32_t model, count, flag, across;  // and the shape (shape.hpp)
    // Arrays of the caller's type. Strides are between problems, in elements; 0 where all share an array.
    const void* x;  // variables x points
    int64_t x_stride;
    const void* y;
    int64_t y_stride;
    const void* weights;  // 1/sigma, 0 where a point is missing; or null
    int64_t weights_stride;
    const void* start;
    int64_t start_stride;
    // Doubles, which the caller has rounded to its type; where a parameter is fixed both are its start.
    const double *low, *high;
    int64_t low_stride, high_stride;
    FitOptions options;
    int32_t loss;
    double loss_scale;
    int32_t unit_variance;  // absolute_sigma
    // An expression. Its registers: parameters, constants and what is made of them alone (the first
    // `uniform`), which have one value per problem; then variables and what is made of these, one per point.
    // Instructions of the first kind come first.
    const FitInstruction* program;
    const double* constants;
    const int32_t* outputs;  // registers of the derivatives, and of the value
    int32_t instructions, registers, constant_count, uniform;
    // Answers, a row for each problem.
    void* values;        // parameters, in the caller's type
    double* variances;   // of the parameters; or null
    double* covariance;  // n x n; or null
    double* reals;  // fit_reals rows of `problems`: cost, promise, violation, optimality, distance, condition
    int32_t* counts;  // fit_counts rows: status, iterations, evaluations, accepted, rank, free, points
    int8_t* active;   // -1, 0, 1; 2 where fixed
};

constexpr int fit_reals = 6, fit_counts = 7;

}  // namespace stepwell
