// Expressions on the host: a program of a few instructions, each run over a block of points and all lanes
// before the next one, so that reading the program costs nothing beside the work.
#pragma once

#include <vector>

#include "host/fit/lane_models.hpp"

SW_BEGIN
namespace fit {

// A register: one value per problem (step 0), or one per point of a block (step 1).
template <class T>
struct LaneRegister {
    Lanes<T>* values;
    int step;
};

template <class T, class Operation>
inline void run_over(int count, LaneRegister<T> to, LaneRegister<T> a, LaneRegister<T> b,
                     Operation operation) {
    for (int i = 0; i < count; ++i) to.values[i] = operation(a.values[i * a.step], b.values[i * b.step]);
}

// x to a power, a whole number or not, lane by lane; squares and roots are found by the caller.
template <class T>
inline Lanes<T> power_of(Lanes<T> a, Lanes<T> b) {
    for (int i = 0; i < problem_lanes; ++i) a[i] = std::pow(a[i], b[i]);
    return a;
}

template <class T>
void run_instruction(FitOperation code, int count, LaneRegister<T> to, LaneRegister<T> a, LaneRegister<T> b) {
    typedef Lanes<T> V;
    const auto over = [&](auto operation) { run_over(count, to, a, b, operation); };
    const auto function = [&](auto one) { over([&](V u, V) { return each(u, one); }); };
    switch (code) {
        case FitOperation::add:
            return over([](V u, V v) { return u + v; });
        case FitOperation::subtract:
            return over([](V u, V v) { return u - v; });
        case FitOperation::multiply:
            return over([](V u, V v) { return u * v; });
        case FitOperation::divide:
            return over([](V u, V v) { return u / v; });
        case FitOperation::power:
            return over([](V u, V v) { return power_of(u, v); });
        case FitOperation::negative:
            return over([](V u, V) { return -u; });
        case FitOperation::exp:
            return over([](V u, V) { return exponential(u); });
        case FitOperation::log:
            return function([](T u) { return std::log(u); });
        case FitOperation::sqrt:
            return function([](T u) { return std::sqrt(u); });
        case FitOperation::sin:
            return function([](T u) { return std::sin(u); });
        case FitOperation::cos:
            return function([](T u) { return std::cos(u); });
        case FitOperation::tan:
            return function([](T u) { return std::tan(u); });
        case FitOperation::sinh:
            return function([](T u) { return std::sinh(u); });
        case FitOperation::cosh:
            return function([](T u) { return std::cosh(u); });
        case FitOperation::tanh:
            return function([](T u) { return std::tanh(u); });
        case FitOperation::arctan:
            return function([](T u) { return std::atan(u); });
        case FitOperation::erf:
            return function([](T u) { return std::erf(u); });
        case FitOperation::absolute:
            return function([](T u) { return std::fabs(u); });
        case FitOperation::sign:
            return function([](T u) { return T(u > 0) - T(u < 0); });
        case FitOperation::step:
            return function([](T u) { return T(u > 0); });
    }
}

template <class T>
void evaluate_program(const LaneData<T>& data, const Lanes<T>* p, Lanes<double>* sums, Lanes<double>& cost) {
    const FitModelJob& job = data.job;
    const int n = job.parameters, m = job.points, columns = n + 1, block = data.block;
    const int varying = job.registers - job.uniform;
    std::vector<Lanes<T>>& memory = *data.registers;
    memory.resize(size_t(job.uniform) + size_t(varying) * block);
    const auto at_register = [&](int k) -> LaneRegister<T> {
        if (k < job.uniform) return {memory.data() + k, 0};
        return {memory.data() + job.uniform + size_t(k - job.uniform) * block, 1};
    };
    const auto run = [&](const FitInstruction& one, int count) {
        run_instruction(FitOperation(one.code), count, at_register(one.to), at_register(one.a),
                        at_register(one.b));
    };
    for (int j = 0; j < n; ++j) memory[j] = p[j];
    for (int k = 0; k < job.constant_count; ++k) memory[n + k] = Lanes<T>(T(job.constants[k]));
    int begin = 0;
    for (; begin < job.instructions && job.program[begin].to < job.uniform; ++begin)
        run(job.program[begin], 1);
    for (int first = 0; first < m; first += block) {
        const int count = min_of(block, m - first);
        for (int v = 0; v < job.variables; ++v) {
            Lanes<T>* x = at_register(job.uniform + v).values;
            for (int i = 0; i < count; ++i)
                x[i] = data.own_x ? data.own_x[(first + i) * job.variables + v]
                                  : Lanes<T>(data.shared_x[int64_t(v) * m + first + i]);
        }
        for (int k = begin; k < job.instructions; ++k) run(job.program[k], count);
        for (int j = 0; j < columns; ++j) {
            const LaneRegister<T> from = at_register(job.outputs[j]);
            for (int i = 0; i < count; ++i) data.rows[i * columns + j] = from.values[i * from.step];
        }
        finish_block(data, first, count, sums, cost);
    }
}

}  // namespace fit
SW_END
