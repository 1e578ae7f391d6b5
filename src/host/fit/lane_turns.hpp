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
    virtual double trial(int lane, int parameter) const = 0;
    // Takes in the sums of all lanes.
    virtual void turn(const Lanes<double>* sums, Lanes<double> cost) = 0;
    virtual bool is_running(int lane) const = 0;
    virtual void write(int lane, int64_t problem) const = 0;
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

    double trial(int lane, int parameter) const override {
        return groups_[lane / decided_lanes].s.trial[parameter][lane % decided_lanes];
    }
    bool is_running(int lane) const override {
        return groups_[lane / decided_lanes].s.status[lane % decided_lanes] == still_running;
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

    void write(int lane, int64_t problem) const override {
        const Group& group = groups_[lane / decided_lanes];
        const State& from = group.s;
        const int k = lane % decided_lanes;
        FitState<N> s;
        double low[N], high[N];
        for (int j = 0; j < n_; ++j) {
            low[j] = group.low[j][k];
            high[j] = group.high[j][k];
            s.x[j] = from.x[j][k];
            s.g[j] = from.g[j][k];
            s.scale[j] = from.scale[j][k];
        }
        for (int i = 0; i < at(n_, 0); ++i) s.H[i] = from.H[i][k];
        s.cost = from.cost[k];
        s.promise = from.promise[k];
        s.status = FitStatus(int(from.status[k]));
        s.iterations = int(from.iterations[k]);
        s.evaluations = int(from.evaluations[k]);
        s.accepted = int(from.accepted[k]);
        write_answer(n_, job_, problem, low, high, s, points_[lane]);
    }

private:
    static constexpr int N = Size::capacity, group_count = problem_lanes / decided_lanes;
    typedef SideState<Decided, N> State;
    struct Group {
        State s;
        Decided low[N], high[N];
    };
    Size n_;
    const FitModelJob& job_;
    Group groups_[group_count];
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

    double trial(int lane, int parameter) const override { return states_[lane].trial[parameter]; }
    bool is_running(int lane) const override { return states_[lane].status == FitStatus::running; }

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

    void write(int lane, int64_t problem) const override {
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
};

// The most parameters of a compiled model.
constexpr int most_parameters = 64;

// Sizes of common models are compiled apart; the others share one.
inline std::unique_ptr<LaneTurns> lane_turns(const FitModelJob& job) {
    switch (job.parameters) {
        case 3:
            return std::make_unique<SideTurns<Exactly<3>>>(Exactly<3>(), job);
        case 4:
            return std::make_unique<SideTurns<Exactly<4>>>(Exactly<4>(), job);
        case 5:
            return std::make_unique<SideTurns<Exactly<5>>>(Exactly<5>(), job);
    }
    if (job.parameters <= 12) return std::make_unique<SideTurns<AtMost<12>>>(AtMost<12>{job.parameters}, job);
    return std::make_unique<SingleTurns<AtMost<most_parameters>>>(AtMost<most_parameters>{job.parameters},
                                                                  job);
}

}  // namespace fit
SW_END
