// Compiled once per instruction set.
#include "host/fit/kernels.hpp"

#include <algorithm>
#include <memory>

#include "core/fit/certificate.hpp"
#include "host/common/pool.hpp"
#include "host/fit/refine.hpp"
#include "host/fit/sums.hpp"

namespace stepwell {
namespace SW_ISA {
namespace {

constexpr int64_t piece = 32;             // rows that a thread takes at a time
constexpr int64_t worth_threads = 20000;  // numbers below which a second thread is not woken

// Calls work(size) with the number of parameters as a type: small ones unroll.
template <class Work>
auto with_size(int32_t n, const Work& work) {
    if constexpr (special_cases) {
        switch (n) {
            case 1:
                return work(Exactly<1>{});
            case 2:
                return work(Exactly<2>{});
            case 3:
                return work(Exactly<3>{});
            case 4:
                return work(Exactly<4>{});
            case 5:
                return work(Exactly<5>{});
            case 6:
                return work(Exactly<6>{});
            default:
                break;
        }
    }
    if (n <= 16) return work(AtMost<16>{n});
    return work(AtMost<64>{n});
}

template <class Size>
FitState<Size::capacity>* states_of(const FitJob& job, Size) {
    return static_cast<FitState<Size::capacity>*>(job.states);
}

const double* low_of(const FitJob& job, int64_t problem) {
    return job.low + problem * job.bound_stride;
}
const double* high_of(const FitJob& job, int64_t problem) {
    return job.high + problem * job.bound_stride;
}

// Calls work(row, scratch) for rows 0 .. count - 1.
template <class Work>
void over_rows(const FitJob& job, int64_t count, const Work& work) {
    const auto some = [&](int64_t begin, int64_t end) {
        // (On the heap and kept: a thread serves many calls, and one of a lone problem is short.)
        static thread_local std::unique_ptr<FitScratch> kept;
        if (!kept) kept = std::make_unique<FitScratch>();
        kept->columns.resize(std::max<size_t>(kept->columns.size(), size_t(job.n) * fit_chunk));
        for (int64_t row = begin; row < end; ++row) work(row, *kept);
    };
    const int64_t numbers = count * job.points * (job.n + 1);
    if (job.threads <= 1 || count <= piece || numbers < worth_threads) return some(0, count);
    Pool::instance().run(int((count + piece - 1) / piece), job.threads,
                         [&](int k, int) { some(k * piece, std::min(count, (k + 1) * piece)); });
}

int64_t state_bytes(int32_t n) {
    return with_size(n, [](auto size) { return int64_t(sizeof(FitState<decltype(size)::capacity>)); });
}

// A cost that is the rounding of the data.
double floor_of(const FitJob& job, int64_t problem) {
    if (!job.y.data || job.loss == FitLoss::poisson) return 0;
    double sum = 0;
    for (int32_t i = 0; i < job.points; ++i) {
        const double weight =
            job.weights.data ? read(job.weights, problem * job.weights.stride[0] + i * job.weights.stride[1])
                             : 1.0;
        if (weight == 0) continue;
        const double y = read(job.y, problem * job.y.stride[0] + i * job.y.stride[1]) * weight;
        sum += y * y;
    }
    return is_finite(sum) ? 8 * job.options.epsilon * job.options.epsilon * sum : 0;
}

int32_t points_of(const FitJob& job, int64_t problem) {
    if (!job.weights.data) return job.points;
    int32_t count = 0;
    for (int32_t i = 0; i < job.points; ++i)
        count += read(job.weights, problem * job.weights.stride[0] + i * job.weights.stride[1]) != 0;
    return count;
}

void begin(const FitJob& job, const double* x0) {
    with_size(job.n, [&](auto n) {
        auto* states = states_of(job, n);
        over_rows(job, job.problems, [&](int64_t p, FitScratch&) {
            auto& state = states[p];
            begin_fit(n, job.options, low_of(job, p), high_of(job, p), x0 + p * job.n, state);
            if (state.status == FitStatus::running && points_of(job, p) == 0)
                state.status = FitStatus::no_points;
            state.floor = floor_of(job, p);
        });
        return 0;
    });
}

int64_t costs(const FitJob& job) {
    return with_size(job.n, [&](auto n) {
        auto* states = states_of(job, n);
        over_rows(job, job.running, [&](int64_t row, FitScratch& scratch) {
            job.costs[row] = cost_of(job, job.rows[row], row, scratch);
        });
        int64_t count = 0;
        for (int64_t row = 0; row < job.running; ++row)
            count += wants_jacobian(states[job.rows[row]], job.costs[row]);
        return count;
    });
}

template <class Size>
void turn_row(Size n, const FitJob& job, int64_t row, FitScratch& scratch) {
    constexpr int N = Size::capacity;
    const int64_t problem = job.rows[row];
    FitState<N>& state = states_of(job, n)[problem];
    double g[N], H[FitState<N>::packed], cost = job.costs[row];
    const int64_t place = job.has_jacobian ? job.has_jacobian[row] : row;
    if (wants_jacobian(state, cost) && place >= 0)
        cost = form_sums(n, job, problem, row, place, scratch, g, H);
    fit_turn(n, job.options, low_of(job, problem), high_of(job, problem), state, cost, g, H);
}

void turn(const FitJob& job) {
    with_size(job.n, [&](auto n) {
        over_rows(job, job.running,
                  [&](int64_t row, FitScratch& scratch) { turn_row(n, job, row, scratch); });
        return 0;
    });
}

bool is_running(const FitJob& job, int64_t problem) {
    return with_size(job.n, [&](auto n) { return states_of(job, n)[problem].status == FitStatus::running; });
}

bool wants(const FitJob& job, int64_t problem, double cost) {
    return with_size(job.n, [&](auto n) { return wants_jacobian(states_of(job, n)[problem], cost); });
}

// Forwards, or backwards where that leaves the box, or to the farther bound: SciPy's rule. A step is √ε of
// the parameter's size, and what rounding leaves of it.
template <class Size>
void move_row(Size n, const FitJob& job, int64_t row, const double* typical, double* steps) {
    const int64_t problem = job.rows[row];
    const auto& state = states_of(job, n)[problem];
    const double *low = low_of(job, problem), *high = high_of(job, problem);
    const double best = std::sqrt(job.options.epsilon);
    for (int j = 0; j < n; ++j) {
        const double x = state.trial[j], size = best * max_of(absolute(x), typical[j]);
        double there = x + size;
        if (there > high[j])
            there = x - size >= low[j] ? x - size : high[j] - x >= x - low[j] ? high[j] : low[j];
        if (job.options.single) there = double(float(there));
        steps[j] = there - x;
    }
}

void moved_points(const FitJob& job, const int64_t* places, int64_t count, const double* typical,
                  int64_t typical_stride, int32_t columns, double* steps, double* x, float* single) {
    with_size(job.n, [&](auto n) {
        const auto* states = states_of(job, n);
        over_rows(job, count, [&](int64_t k, FitScratch&) {
            const int64_t row = places ? places[k] : k;
            move_row(n, job, row, typical + job.rows[row] * typical_stride, steps + k * n);
            const double* from = states[job.rows[row]].trial;
            for (int j = 0; j < n; ++j) {
                const int column = job.column_of[j];
                if (column < 0 || column >= columns) continue;
                const int64_t begin = (int64_t(column) * count + k) * n;
                for (int i = 0; i < n; ++i) {
                    const double entry = from[i] + (i == j ? steps[k * n + j] : 0.0);
                    if (x) x[begin + i] = entry;
                    if (single) single[begin + i] = float(entry);
                }
            }
        });
        return 0;
    });
}

void points(const FitJob& job, bool accepted, double* x, float* single) {
    with_size(job.n, [&](auto n) {
        const auto* states = states_of(job, n);
        for (int64_t row = 0; row < job.running; ++row) {
            const auto& state = states[job.rows[row]];
            const double* from = accepted ? state.x : state.trial;
            for (int j = 0; j < n; ++j) {
                if (x) x[row * n + j] = from[j];
                if (single) single[row * n + j] = float(from[j]);
            }
        }
        return 0;
    });
}

void set_status(const FitJob& job, const int64_t* problems, int64_t count, FitStatus status) {
    with_size(job.n, [&](auto n) {
        auto* states = states_of(job, n);
        for (int64_t k = 0; k < count; ++k) states[problems[k]].status = status;
        return 0;
    });
}

double variance_of(const FitJob& job, double cost, int32_t dof) {
    const bool known = job.absolute || job.loss == FitLoss::poisson;
    return known ? 1.0 : dof > 0 ? 2 * cost / dof : double_infinity;
}

// Writes the packed covariance of problem p out, or infinities where there are no degrees of freedom.
template <class Size, class State>
void write_covariance(Size n, const FitJob& job, const FitEnds& ends, int64_t p, const State& state,
                      double variance, double* variances, double* covariance) {
    const double *low = low_of(job, p), *high = high_of(job, p);
    const auto between = [&](int i) { return lies_between(state.x[i], low[i], high[i]); };
    for (int i = 0; i < n; ++i) {
        const bool unknown = variance == double_infinity && between(i);
        ends.variances[p * n + i] = unknown ? double_infinity : variances[i];
        if (!ends.covariance) continue;
        for (int j = 0; j < n; ++j)
            ends.covariance[(p * n + i) * n + j] =
                unknown && between(j) ? double_infinity : covariance[either(i, j)];
    }
}

template <class Size>
void write_end(Size n, const FitJob& job, const FitEnds& ends, int64_t p) {
    constexpr int N = Size::capacity;
    const FitState<N>& state = states_of(job, n)[p];
    const double *low = low_of(job, p), *high = high_of(job, p);
    const int32_t count = points_of(job, p);
    int32_t free = 0;
    for (int i = 0; i < n; ++i) {
        ends.x[p * n + i] = state.x[i];
        const bool fixed = !(low[i] < high[i]);
        ends.active[p * n + i] = int8_t(fixed                   ? 2
                                        : state.x[i] <= low[i]  ? -1
                                        : state.x[i] >= high[i] ? 1
                                                                : 0);
        free += lies_between(state.x[i], low[i], high[i]);
    }
    const double none = double_infinity - double_infinity;
    FitCertificate found{none, none, none, none, 1, free, 0};
    const bool evaluated = state.accepted > 0;
    double variances[N], covariance[FitState<N>::packed];
    if (evaluated) {
        const double variance = variance_of(job, state.cost, count - free);
        const double known = variance == double_infinity ? 1.0 : variance;
        found = certify(n, low, high, state, variance == double_infinity ? 2 * state.cost : variance);
        if (ends.variances) {
            find_covariance(n, low, high, state, known, job.accuracy, found, variances,
                            ends.covariance ? covariance : nullptr);
            write_covariance(n, job, ends, p, state, variance, variances, covariance);
        }
    } else {
        for (int i = 0; ends.variances && i < n; ++i) ends.variances[p * n + i] = none;
        for (int i = 0; ends.covariance && i < n * n; ++i) ends.covariance[p * n * n + i] = none;
    }
    ends.cost[p] = evaluated ? state.cost : none;
    ends.promise[p] = found.promise;
    ends.violation[p] = found.violation;
    ends.optimality[p] = found.optimality;
    ends.distance[p] = found.distance;
    ends.condition[p] = found.condition;
    ends.rank[p] = found.rank;
    ends.points[p] = count;
    ends.free[p] = free;
    ends.status[p] = int32_t(state.status);
    ends.iterations[p] = state.iterations;
    ends.evaluations[p] = state.evaluations;
    ends.accepted[p] = state.accepted;
}

void write_ends(const FitJob& job, const FitEnds& ends) {
    with_size(job.n, [&](auto n) {
        over_rows(job, job.problems, [&](int64_t p, FitScratch&) { write_end(n, job, ends, p); });
        return 0;
    });
}

template <class Size>
void refine_row(Size n, const FitJob& job, const FitEnds& ends, int64_t row, FitScratch& scratch) {
    constexpr int N = Size::capacity;
    const int64_t p = job.rows[row];
    const FitState<N>& state = states_of(job, n)[p];
    const double *low = low_of(job, p), *high = high_of(job, p);
    const double variance = variance_of(job, state.cost, ends.points[p] - ends.free[p]);
    FreeFactor<N> factor;
    list_free(n, low, high, state, factor);
    factor_rows(n, job, p, row, scratch, factor);
    double variances[N], covariance[FitState<N>::packed];
    spread_variance(n, low, high, state, variance == double_infinity ? 1.0 : variance, factor, variances,
                    ends.covariance ? covariance : nullptr);
    write_covariance(n, job, ends, p, state, variance, variances, covariance);
    ends.rank[p] = factor.rank;
}

void refine(const FitJob& job, const FitEnds& ends) {
    with_size(job.n, [&](auto n) {
        over_rows(job, job.running,
                  [&](int64_t row, FitScratch& scratch) { refine_row(n, job, ends, row, scratch); });
        return 0;
    });
}

// Columns are scaled to length one, as a fit does; a ridge of rounding keeps the factor.
template <class Size>
void bounded_system(Size n, const double* gram, const double* linear, const double* low, const double* high,
                    double* x, int8_t* side) {
    constexpr int N = Size::capacity;
    double A[FitState<N>::packed], b[N], to_x[N], lows[N], highs[N];
    for (int i = 0; i < n; ++i) {
        const double size = gram[i * n + i] > 0 ? gram[i * n + i] : 1;
        to_x[i] = inverse_root(size);
        b[i] = -linear[i] * to_x[i];
        lows[i] = low[i] / to_x[i];
        highs[i] = high[i] / to_x[i];
        for (int j = 0; j < i; ++j) A[at(i, j)] = gram[i * n + j] * to_x[i] * to_x[j];
        A[at(i, i)] = 1 + 16 * n * double_epsilon;
    }
    BoundedStep<N> step;
    bounded_step(n, A, b, lows, highs, 1e-300, true, step);
    for (int i = 0; i < n; ++i) {
        side[i] = step.side[i];
        x[i] = side[i] < 0 ? low[i] : side[i] > 0 ? high[i] : clamp_to(step.d[i] * to_x[i], low[i], high[i]);
    }
}

void bounded(int64_t count, int32_t n, const double* gram, const double* linear, const double* low,
             const double* high, double* x, int8_t* side) {
    with_size(n, [&](auto size) {
        for (int64_t k = 0; k < count; ++k)
            bounded_system(size, gram + k * n * n, linear + k * n, low + k * n, high + k * n, x + k * n,
                           side + k * n);
        return 0;
    });
}

}  // namespace

const FitKernels& fit_kernels() {
    static const FitKernels all{state_bytes,  begin,  costs,      turn,       is_running, wants,
                                moved_points, points, set_status, write_ends, refine,     bounded};
    return all;
}

}  // namespace SW_ISA
}  // namespace stepwell
