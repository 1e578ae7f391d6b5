// The decisions of problems side by side, one per lane, behind an interface that does not know how many
// parameters there are: a turn is compiled once per number, and not once per model.
#pragma once

#include <memory>

#include "core/fit/models/answer.hpp"
#include "core/fit/models/lanes.hpp"
#include "core/fit/side_by_side/turn.hpp"

SW_BEGIN
namespace fit {

class LaneTurns {
public:
    virtual ~LaneTurns() = default;
    // Begins a problem; false where it has ended already.
    virtual bool begin(int lane, const double* low, const double* high, const double* start, double floor,
                       int points) = 0;
    // Where all lanes want to be evaluated, parameter by parameter.
    virtual void trials(Lanes<double>* to) const = 0;
    // Takes in the sums of all lanes.
    virtual void turn(const Lanes<double>* sums, Lanes<double> cost) = 0;
    // A bit for each lane that runs.
    virtual unsigned running() const = 0;
    // Writes the answer of a lane, perhaps not before flush().
    virtual void write(int lane, int64_t problem) = 0;
    virtual void flush() {}
};

// Registers of lanes at once, for few parameters.
template <class Size>
class SideTurns final : public LaneTurns {
public:
    SideTurns(Size n, const FitModelJob& job) : n_(n), job_(job) {
        const double zeros[N] = {};
        for (int lane = 0; lane < problem_lanes; ++lane) begin(lane, zeros, zeros, zeros, 0, 1);
    }

    bool begin(int lane, const double* low, const double* high, const double* start, double floor,
               int points) override {
        FitState<N> begun;
        begin_fit(n_, job_.options, low, high, start, begun);
        if (points == 0 && begun.status == FitStatus::running) begun.status = FitStatus::no_points;
        Group& group = groups_[lane / decided_lanes];
        State& s = group.s;
        const int k = lane % decided_lanes;
        for (int j = 0; j < n_; ++j) {
            group.low[j][k] = low[j];
            group.high[j][k] = high[j];
            s.x[j][k] = s.trial[j][k] = begun.x[j];
            s.g[j][k] = s.scale[j][k] = 0;
        }
        for (int i = 0; i < at(n_, 0); ++i) s.H[i][k] = s.S[i][k] = 0;
        s.cost[k] = s.last[k] = double_infinity;
        s.radius[k] = -1;
        s.floor[k] = floor;
        s.damping[k] = s.predicted[k] = s.promise[k] = 0;
        s.status[k] = int(begun.status);
        s.iterations[k] = s.evaluations[k] = s.accepted[k] = 0;
        s.rejections[k] = s.nonfinite[k] = 0;
        s.secant_helps.clear(k);
        points_[lane] = points;
        return begun.status == FitStatus::running;
    }

    void trials(Lanes<double>* to) const override {
        for (int j = 0; j < n_; ++j)
            for (int group = 0; group < group_count; ++group)
                for (int p = 0; p < decided_parts; ++p)
                    to[j].part[group * decided_parts + p] = groups_[group].s.trial[j].part[p];
    }
    unsigned running() const override {
        unsigned bits = 0;
        for (int lane = 0; lane < problem_lanes; ++lane)
            bits |= unsigned(groups_[lane / decided_lanes].s.status[lane % decided_lanes] == still_running)
                    << lane;
        return bits;
    }

    void turn(const Lanes<double>* sums, Lanes<double> cost) override {
        const int packed = at(n_, 0);
        for (int group = 0; group < group_count; ++group) {
            Decided g[N], H[N * (N + 1) / 2], own;
            const auto cut = [&](const Lanes<double>& from, Decided& to) {
                for (int p = 0; p < decided_parts; ++p) to.part[p] = from.part[group * decided_parts + p];
            };
            for (int i = 0; i < packed; ++i) cut(sums[i], H[i]);
            for (int j = 0; j < n_; ++j) cut(sums[packed + j], g[j]);
            cut(cost, own);
            Group& at_work = groups_[group];
            side_turn<Decided>(n_, job_.options, at_work.low, at_work.high, at_work.s, own, g, H);
        }
    }

    void write(int lane, int64_t problem) override {
        const Group& group = groups_[lane / decided_lanes];
        const State& from = group.s;
        const int k = lane % decided_lanes, to = leaving_.count++;
        for (int j = 0; j < n_; ++j) {
            leaving_.low[j][to] = group.low[j][k];
            leaving_.high[j][to] = group.high[j][k];
            leaving_.x[j][to] = from.x[j][k];
            leaving_.g[j][to] = from.g[j][k];
            leaving_.scale[j][to] = from.scale[j][k];
        }
        for (int i = 0; i < at(n_, 0); ++i) leaving_.H[i][to] = from.H[i][k];
        leaving_.cost[to] = from.cost[k];
        leaving_.promise[to] = from.promise[k];
        leaving_.ends[to] = {problem,
                             points_[lane],
                             int(from.status[k]),
                             int(from.iterations[k]),
                             int(from.evaluations[k]),
                             int(from.accepted[k])};
        if (leaving_.count == decided_lanes) flush();
    }

    void flush() override {
        Decided inverse[packed];
        const Decided smallest = invert_plain(n_, leaving_.H, inverse);
        for (int k = 0; k < leaving_.count; ++k) {
            FitState<N> s;
            double low[N], high[N];
            for (int j = 0; j < n_; ++j) {
                low[j] = leaving_.low[j][k];
                high[j] = leaving_.high[j][k];
                s.x[j] = leaving_.x[j][k];
                s.g[j] = leaving_.g[j][k];
                s.scale[j] = leaving_.scale[j][k];
            }
            for (int i = 0; i < at(n_, 0); ++i) s.H[i] = leaving_.H[i][k];
            s.cost = leaving_.cost[k];
            s.promise = leaving_.promise[k];
            const End& end = leaving_.ends[k];
            s.status = FitStatus(end.status);
            s.iterations = end.iterations;
            s.evaluations = end.evaluations;
            s.accepted = end.accepted;
            write_answer(n_, job_, end.problem, low, high, s, end.points, [&](double* own) {
                for (int i = 0; i < at(n_, 0); ++i) own[i] = inverse[i][k];
                return smallest[k];
            });
        }
        leaving_.count = 0;
    }

private:
    static constexpr int N = Size::capacity, group_count = problem_lanes / decided_lanes;
    static constexpr int packed = N * (N + 1) / 2;
    typedef SideState<Decided, N> State;
    struct Group {
        State s;
        Decided low[N], high[N];
    };
    struct End {
        int64_t problem;
        int points, status, iterations, evaluations, accepted;
    };
    // Problems that have ended, until there are enough to invert their JᵀJ side by side.
    struct Leaving {
        Decided low[N], high[N], x[N], g[N], scale[N], H[packed], cost, promise;
        End ends[decided_lanes];
        int count = 0;
    };
    Size n_;
    const FitModelJob& job_;
    Group groups_[group_count];
    Leaving leaving_{};
    int points_[problem_lanes];
};

// One lane after the other.
template <class Size>
class SingleTurns final : public LaneTurns {
public:
    SingleTurns(Size n, const FitModelJob& job) : n_(n), job_(job) {
        for (auto& state : states_) state.status = FitStatus::limit;
    }

    bool begin(int lane, const double* low, const double* high, const double* start, double floor,
               int points) override {
        for (int j = 0; j < n_; ++j) {
            low_[lane][j] = low[j];
            high_[lane][j] = high[j];
        }
        FitState<N>& state = states_[lane];
        points_[lane] = points;
        begin_fit(n_, job_.options, low, high, start, state);
        state.floor = floor;
        if (points == 0 && state.status == FitStatus::running) state.status = FitStatus::no_points;
        return state.status == FitStatus::running;
    }

    void trials(Lanes<double>* to) const override {
        for (int j = 0; j < n_; ++j)
            for (int lane = 0; lane < problem_lanes; ++lane) to[j][lane] = states_[lane].trial[j];
    }
    unsigned running() const override {
        unsigned bits = 0;
        for (int lane = 0; lane < problem_lanes; ++lane) bits |= unsigned(is_running(lane)) << lane;
        return bits;
    }

    void turn(const Lanes<double>* sums, Lanes<double> cost) override {
        double H[N * (N + 1) / 2], g[N];
        const int packed = at(n_, 0);
        for (int lane = 0; lane < problem_lanes; ++lane) {
            if (!is_running(lane)) continue;
            for (int k = 0; k < packed; ++k) H[k] = sums[k][lane];
            for (int j = 0; j < n_; ++j) g[j] = sums[packed + j][lane];
            fit_turn(n_, job_.options, low_[lane], high_[lane], states_[lane], cost[lane], g, H);
        }
    }

    void write(int lane, int64_t problem) override {
        FitState<N> s = states_[lane];
        if (s.accepted > 0) s.promise = certify(n_, low_[lane], high_[lane], s, 1.0).promise;
        write_answer(n_, job_, problem, low_[lane], high_[lane], s, points_[lane]);
    }

private:
    static constexpr int N = Size::capacity;
    Size n_;
    const FitModelJob& job_;
    FitState<N> states_[problem_lanes];
    double low_[problem_lanes][N], high_[problem_lanes][N];
    int points_[problem_lanes];

    bool is_running(int lane) const { return states_[lane].status == FitStatus::running; }
};

// The most parameters of a compiled model.
constexpr int most_parameters = 64;

inline std::unique_ptr<LaneTurns> lane_turns(const FitModelJob& job) {
    if constexpr (special_cases) {
        switch (job.parameters) {
            case 3:
                return std::make_unique<SideTurns<Exactly<3>>>(Exactly<3>(), job);
            case 4:
                return std::make_unique<SideTurns<Exactly<4>>>(Exactly<4>(), job);
            case 5:
                return std::make_unique<SideTurns<Exactly<5>>>(Exactly<5>(), job);
        }
    }
    if (job.parameters <= 12) return std::make_unique<SideTurns<AtMost<12>>>(AtMost<12>{job.parameters}, job);
    return std::make_unique<SingleTurns<AtMost<most_parameters>>>(AtMost<most_parameters>{job.parameters},
                                                                  job);
}

}  // namespace fit
SW_END
