// Fits of many problems by a compiled model on the CPU: lanes of a thread's registers hold a problem each,
// and take the next one when theirs has ended. Compiled once per instruction set.
#include "host/fit/compiled.hpp"

#include <vector>

#include "host/common/pool.hpp"
#include "host/common/subnormals.hpp"
#include "host/fit/lane_models.hpp"
#include "host/fit/lane_program.hpp"
#include "host/fit/lane_turns.hpp"

SW_BEGIN
namespace fit {
namespace {

// Rows of a block stay in the first-level cache.
constexpr int block_bytes = 16 * 1024;
// Problems that a thread claims at a time: many times the lanes, which run dry at the end.
constexpr int64_t claimed = 64 * problem_lanes;

template <class T>
Evaluate<T> evaluate_of(const FitModelJob& job) {
    switch (FitModel(job.model)) {
        case FitModel::exponentials:
            return evaluate<T, Exponentials>;
        case FitModel::ivim:
            return evaluate<T, Ivim>;
        case FitModel::gaussians:
            return evaluate<T, Gaussians>;
        case FitModel::lorentzians:
            return evaluate<T, Lorentzians>;
        case FitModel::pseudo_voigts:
            return evaluate<T, PseudoVoigts>;
        case FitModel::polynomial_peak:
            return evaluate<T, PolynomialPeak>;
        case FitModel::spot:
            return evaluate<T, Spot>;
        case FitModel::grid_spot:
            return evaluate<T, GridSpot>;
        case FitModel::tofts:
            return evaluate<T, Tofts>;
        case FitModel::program:
            return evaluate_program<T>;
    }
    return nullptr;
}

// Problems of one thread, one per lane.
template <class T>
class LaneFits {
public:
    explicit LaneFits(const HostFitJob& host)
        : host_(host),
          job_(host.job),
          evaluate_(evaluate_of<T>(job_)),
          turns_(lane_turns(job_)),
          sums_(at(job_.parameters + 1, 0)),
          trials_(job_.parameters),
          p_(job_.parameters),
          y_(job_.points),
          data_{job_, nullptr, nullptr, nullptr, nullptr, nullptr, 1, nullptr, 0, 0, &registers_} {
        const int columns = job_.parameters + 1;
        data_.block = clamp_to(block_bytes / int(sizeof(Lanes<T>) * columns), 4, max_of(4, job_.points));
        rows_.resize(size_t(data_.block) * columns);
        data_.rows = rows_.data();
        data_.y = y_.data();
        if (job_.x_stride) {
            x_.resize(size_t(job_.points) * job_.variables);
            data_.own_x = x_.data();
        } else {
            data_.shared_x = static_cast<const T*>(job_.x);
        }
        if (job_.weights) {
            weights_.resize(job_.points);
            data_.weights = weights_.data();
        }
        start_.resize(job_.parameters);
    }

    // Derivatives and values at the starts, as rows of the caller.
    void rows(int64_t begin, int64_t end, T* out) {
        const int columns = job_.parameters + 1;
        const size_t size = size_t(job_.points) * columns;
        while (begin < end) {
            const int count = int(min_of<int64_t>(problem_lanes, end - begin));
            for (int lane = 0; lane < problem_lanes; ++lane) {
                int64_t next = begin + (lane < count ? lane : 0);
                clear(lane);
                read(lane, next);
                for (int j = 0; j < job_.parameters; ++j) p_[j][lane] = T(start_[j]);
            }
            data_.out = out + begin * size;
            data_.out_stride = int64_t(size);
            data_.out_lanes = count;
            evaluate();
            begin += count;
        }
    }

    void fit(int64_t begin, int64_t end) {
        int64_t problem[problem_lanes];
        int running = 0;
        for (int lane = 0; lane < problem_lanes; ++lane) {
            problem[lane] = take(lane, begin, end);
            if (problem[lane] >= 0)
                ++running;
            else
                clear(lane);
        }
        while (running > 0) {
            if (host_.watch && host_.watch->look()) return;
            place(problem);
            evaluate();
            turns_->turn(sums_.data(), cost_);
            const unsigned go_on = turns_->running();
            for (int lane = 0; lane < problem_lanes; ++lane) {
                if (problem[lane] < 0 || go_on >> lane & 1) continue;
                turns_->write(lane, problem[lane]);
                problem[lane] = take(lane, begin, end);
                if (problem[lane] < 0) --running;
            }
        }
        turns_->flush();
    }

private:
    const HostFitJob& host_;
    const FitModelJob& job_;
    Evaluate<T> evaluate_;
    std::unique_ptr<LaneTurns> turns_;
    std::vector<Lanes<double>> sums_, trials_;
    std::vector<Lanes<T>> p_, y_, x_, weights_, rows_, registers_;
    std::vector<double> start_;
    LaneData<T> data_;
    Lanes<double> cost_;

    // Puts the data of a problem into a lane; start_ is then its start. Returns Σ (w y)², and how many points
    // count.
    double read(int lane, int64_t problem, int* points = nullptr) {
        double squares = 0;
        int counted = 0;
        const T* y = static_cast<const T*>(job_.y) + problem * job_.y_stride;
        const T* w =
            job_.weights ? static_cast<const T*>(job_.weights) + problem * job_.weights_stride : nullptr;
        for (int i = 0; i < job_.points; ++i) {
            const T weight = w ? w[i] : T(1), datum = weight == 0 ? T(0) : y[i];
            if (w) weights_[i][lane] = weight;
            counted += weight != 0;
            y_[i][lane] = datum;
            squares += double(weight) * datum * (double(weight) * datum);
        }
        if (job_.x_stride) {
            const T* x = static_cast<const T*>(job_.x) + problem * job_.x_stride;
            for (int v = 0; v < job_.variables; ++v)
                for (int i = 0; i < job_.points; ++i)
                    x_[size_t(i) * job_.variables + v][lane] = x[int64_t(v) * job_.points + i];
        }
        const T* start = static_cast<const T*>(job_.start) + problem * job_.start_stride;
        for (int j = 0; j < job_.parameters; ++j) start_[j] = double(start[j]);
        if (points) *points = counted;
        return squares;
    }

    // Loads the next problem that does not end at once into a lane, and says which; -1 where none is left.
    int64_t take(int lane, int64_t& next, int64_t end) {
        while (next < end) {
            const int64_t problem = next++;
            int counted;
            const double squares = read(lane, problem, &counted), epsilon = job_.options.epsilon;
            if (turns_->begin(lane, job_.low + problem * job_.low_stride,
                              job_.high + problem * job_.high_stride, start_.data(),
                              8 * epsilon * epsilon * squares, counted))
                return problem;
            turns_->write(lane, problem);
        }
        return -1;
    }

    // A lane without a problem computes along; with anything but slow numbers.
    void clear(int lane) {
        for (int j = 0; j < job_.parameters; ++j) p_[j][lane] = 1;
        for (int i = 0; i < job_.points; ++i) y_[i][lane] = 0;
        for (auto& weight : weights_) weight[lane] = 0;
        for (auto& x : x_) x[lane] = 0;
    }

    // Trial points of all lanes; those without a problem stay where clear() has put them.
    void place(const int64_t* problem) {
        turns_->trials(trials_.data());
        for (int j = 0; j < job_.parameters; ++j)
            for (int lane = 0; lane < problem_lanes; ++lane)
                p_[j][lane] = problem[lane] < 0 ? T(1) : T(trials_[j][lane]);
    }

    void evaluate() {
        for (auto& sum : sums_) sum = Lanes<double>(0.0);
        cost_ = Lanes<double>(0.0);
        evaluate_(data_, p_.data(), sums_.data(), cost_);
        if (job_.loss == int(FitLoss::linear)) cost_ = sums_.back() * 0.5;
    }
};

template <class T>
void fit_all(const HostFitJob& host) {
    const int64_t problems = host.job.problems;
    int64_t size = clamp_to<int64_t>(problems / (4 * int64_t(host.threads)), problem_lanes, claimed);
    size = max_of<int64_t>(size, (problems + (1 << 20) - 1) >> 20);
    const int pieces = int((problems + size - 1) / size);
    Pool::instance().run(pieces, host.threads, [&](int piece, int) {
        if (host.watch && host.watch->has_ended()) return;
        const FlushSubnormals flush;
        LaneFits<T> fits(host);
        fits.fit(piece * size, min_of(problems, (piece + 1) * size));
    });
}

template <class T>
void all_rows(const FitModelJob& job, T* out) {
    const HostFitJob host{job, 1, nullptr};
    LaneFits<T>(host).rows(0, job.problems, out);
}

}  // namespace
}  // namespace fit

void fit_rows(const FitModelJob& job, void* out) {
    if (job.options.single)
        fit::all_rows(job, static_cast<float*>(out));
    else
        fit::all_rows(job, static_cast<double*>(out));
}

void fit_compiled(const HostFitJob& host) {
    if (host.job.problems == 0) return;
    if (host.job.options.single)
        fit::fit_all<float>(host);
    else
        fit::fit_all<double>(host);
}

SW_END
