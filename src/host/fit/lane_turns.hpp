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

// All lanes at once, for few parameters.
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
        for (int j = 0; j < n_; ++j) {
            low_[j][lane] = low[j];
            high_[j][lane] = high[j];
            s_.x[j][lane] = s_.trial[j][lane] = begun.x[j];
            s_.g[j][lane] = s_.scale[j][lane] = 0;
        }
        for (int k = 0; k < at(n_, 0); ++k) s_.H[k][lane] = s_.S[k][lane] = 0;
        s_.cost[lane] = s_.last[lane] = double_infinity;
        s_.radius[lane] = -1;
        s_.floor[lane] = floor;
        s_.damping[lane] = s_.predicted[lane] = 0;
        s_.status[lane] = int(begun.status);
        s_.iterations[lane] = s_.evaluations[lane] = s_.accepted[lane] = 0;
        s_.rejections[lane] = s_.nonfinite[lane] = 0;
        points_[lane] = points;
        return begun.status == FitStatus::running;
    }

    double trial(int lane, int parameter) const override { return s_.trial[parameter][lane]; }
    bool is_running(int lane) const override { return s_.status[lane] == still_running; }

    void turn(const Lanes<double>* sums, Lanes<double> cost) override {
        side_turn<Lanes<double>>(n_, job_.options, low_, high_, s_, cost, sums + at(n_, 0), sums);
    }

    void write(int lane, int64_t problem) const override {
        FitState<N> s;
        double low[N], high[N];
        for (int j = 0; j < n_; ++j) {
            low[j] = low_[j][lane];
            high[j] = high_[j][lane];
            s.x[j] = s_.x[j][lane];
            s.g[j] = s_.g[j][lane];
            s.scale[j] = s_.scale[j][lane];
        }
        for (int k = 0; k < at(n_, 0); ++k) s.H[k] = s_.H[k][lane];
        s.cost = s_.cost[lane];
        s.status = FitStatus(int(s_.status[lane]));
        s.iterations = int(s_.iterations[lane]);
        s.evaluations = int(s_.evaluations[lane]);
        s.accepted = int(s_.accepted[lane]);
        write_answer(n_, job_, problem, low, high, s, points_[lane]);
    }

private:
    static constexpr int N = Size::capacity;
    Size n_;
    const FitModelJob& job_;
    SideState<Lanes<double>, N> s_;
    Lanes<double> low_[N], high_[N];
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
        write_answer(n_, job_, problem, low_[lane], high_[lane], states_[lane], points_[lane]);
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
