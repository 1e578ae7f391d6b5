// Bindings of a batch of nonlinear least-squares problems whose model is Python's. All checking is done
// there.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <memory>
#include <optional>
#include <vector>

#include "host/common/bindings.hpp"
#include "host/common/dispatch.hpp"
#include "host/fit/kernels.hpp"

namespace nb = nanobind;

namespace stepwell {
namespace {

const FitKernels& kernels() {
    return SW_BEST_TO_AVX2(fit_kernels)();
}

using Any = nb::ndarray<nb::ro, nb::device::cpu>;
using Doubles = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class T>
nb::ndarray<nb::numpy, T> new_array(std::initializer_list<size_t> shape) {
    size_t size = 1;
    for (size_t side : shape) size *= side;
    T* data = new T[size ? size : 1];
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::ndarray<nb::numpy, T>(data, shape, owner);
}

void require(bool holds, const char* what) {
    if (!holds) throw nb::value_error(what);
}

FitNumbers numbers_of(const Any& array) {
    FitNumbers found;
    found.data = array.data();
    found.single = array.dtype() == nb::dtype<float>();
    require(found.single || array.dtype() == nb::dtype<double>(), "float32 or float64");
    for (size_t axis = 0; axis < array.ndim() && axis < 3; ++axis) found.stride[axis] = array.stride(axis);
    return found;
}

class FitBatch {
public:
    FitBatch(Doubles x0, Doubles low, Doubles high, int32_t points, std::optional<Any> y,
             std::optional<Any> weights, double ftol, double gtol, double xtol, double epsilon,
             int32_t max_iterations, int32_t max_evaluations, bool single, bool secant, int32_t loss,
             double scale, bool absolute, double accuracy, int32_t threads)
        : low_(low), high_(high), y_(y), weights_(weights) {
        job.problems = int64_t(x0.shape(0));
        job.n = int32_t(x0.shape(1));
        job.points = points;
        job.threads = threads;
        const size_t n = x0.shape(1);
        require(n >= 1 && n <= 64, "1 to 64 parameters");
        const bool bounds_fit = low.shape(1) == n && high.shape(1) == n && low.shape(0) == high.shape(0) &&
                                (low.shape(0) == 1 || low.shape(0) == x0.shape(0));
        require(bounds_fit, "bounds");
        job.low = low.data();
        job.high = high.data();
        job.bound_stride = low.shape(0) == 1 ? 0 : int64_t(n);
        job.options = {ftol,           gtol,          xtol, epsilon, max_iterations, max_evaluations,
                       int8_t(single), int8_t(secant)};
        job.options.accuracy = accuracy > 4 * epsilon ? accuracy : 0;
        job.loss = FitLoss(loss);
        job.scale = scale;
        job.absolute = absolute;
        job.accuracy = accuracy;
        if (y) job.y = of_problems(*y);
        if (weights) job.weights = of_problems(*weights);
        states.reset(new (std::align_val_t(64))
                         std::byte[size_t(kernels().state_bytes(job.n)) * x0.shape(0) + 64]);
        job.states = states.get();
        rows_.resize(x0.shape(0));
        column_of.assign(n, -1);
        for (size_t j = 0; j < n; ++j)
            for (size_t p = 0; p < low.shape(0) && column_of[j] < 0; ++p)
                if (low.data()[p * n + j] < high.data()[p * n + j]) column_of[j] = columns_++;
        job.column_of = column_of.data();
        {
            const nb::gil_scoped_release release;
            kernels().begin(job, x0.data());
            for (int64_t p = 0; p < job.problems; ++p) rows_[size_t(p)] = p;
            narrow();
        }
    }

    int64_t running() const { return int64_t(rows_.size()); }

    nb::ndarray<nb::numpy, int64_t> rows() const {
        auto out = new_array<int64_t>({rows_.size()});
        std::copy(rows_.begin(), rows_.end(), out.data());
        return out;
    }

    nb::object points(bool accepted) {
        list_rows();
        const size_t n = size_t(job.n);
        if (job.options.single) {
            auto out = new_array<float>({rows_.size(), n});
            kernels().points(job, accepted, nullptr, out.data());
            return nb::cast(out);
        }
        auto out = new_array<double>({rows_.size(), n});
        kernels().points(job, accepted, out.data(), nullptr);
        return nb::cast(out);
    }

    int64_t take_values(Any values) {
        require(
            values.ndim() == 2 && values.shape(0) == rows_.size() && values.shape(1) == size_t(job.points),
            "values");
        list_rows();
        job.values = numbers_of(values);
        values_ = values;
        costs.resize(rows_.size());
        job.costs = costs.data();
        const nb::gil_scoped_release release;
        return kernels().costs(job);
    }

    nb::ndarray<nb::numpy, int64_t> wanted() const {
        std::vector<int64_t> places;
        for (size_t row = 0; row < rows_.size(); ++row)
            if (kernels().wants(job, rows_[row], costs[row])) places.push_back(int64_t(row));
        auto out = new_array<int64_t>({places.size()});
        std::copy(places.begin(), places.end(), out.data());
        return out;
    }

    // With derivatives of all rows, or of those that wanted() named alone.
    int64_t turn(std::optional<Any> jacobian) {
        require(bool(values_), "values first");
        if (jacobian) {
            const bool fits = jacobian->ndim() == 3 && jacobian->shape(1) == size_t(job.points) &&
                              jacobian->shape(2) == size_t(job.n);
            require(fits, "jacobian");
            job.jacobian = numbers_of(*jacobian);
        }
        return decide(jacobian ? jacobian->shape(0) : 0);
    }

    // Points with one parameter moved each, of all rows or of those that wanted() names, and their problems:
    // (columns of rows, n). Their values go to turn_moved(). With `trials` the points themselves come first.
    nb::tuple moved(bool all, Doubles typical, bool trials) {
        require(typical.shape(1) == size_t(job.n), "typical");
        require(typical.shape(0) == 1 || typical.shape(0) == size_t(job.problems), "typical");
        std::vector<int64_t> places;
        for (size_t row = 0; row < rows_.size(); ++row)
            if (all || kernels().wants(job, rows_[row], costs[row])) places.push_back(int64_t(row));
        const size_t count = places.size(), n = size_t(job.n), columns = size_t(columns_);
        steps.resize(count * n);
        require(all || !trials, "trial points of all");
        const size_t total = (columns + trials) * count;
        auto rows = new_array<int64_t>({total});
        for (size_t k = 0; k < total; ++k) rows.data()[k] = rows_[size_t(places[k % count])];
        const int64_t stride = typical.shape(0) == 1 ? 0 : job.n;
        const size_t first = trials ? count * n : 0;
        const auto fill = [&](double* x, float* single) {
            list_rows();
            if (trials) kernels().points(job, false, x, single);
            kernels().moved_points(job, places.data(), int64_t(count), typical.data(), stride, columns_,
                                   steps.data(), x ? x + first : nullptr, single ? single + first : nullptr);
        };
        if (job.options.single) {
            auto points = new_array<float>({total, n});
            fill(nullptr, points.data());
            return nb::make_tuple(points, rows);
        }
        auto points = new_array<double>({total, n});
        fill(points.data(), nullptr);
        return nb::make_tuple(points, rows);
    }

    // A turn with values at the points of moved(): (columns, rows, points).
    int64_t turn_moved(Any values) {
        const size_t count = steps.size() / size_t(job.n);
        const bool fits = values.ndim() == 3 && values.shape(0) == size_t(columns_) &&
                          values.shape(1) == count && values.shape(2) == size_t(job.points);
        require(fits && bool(values_), "values of moved points");
        job.jacobian = numbers_of(values);
        job.jacobian.stride[0] = values.stride(1);
        job.jacobian.stride[1] = values.stride(2);
        job.jacobian.stride[2] = values.stride(0);
        job.steps = steps.data();
        job.moved = true;
        const int64_t left = decide(count);
        job.moved = false;
        return left;
    }

    void end_rows(nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> problems,
                  int32_t status) {
        for (size_t k = 0; k < problems.shape(0); ++k)
            require(problems.data()[k] >= 0 && problems.data()[k] < job.problems, "problems");
        kernels().set_status(job, problems.data(), int64_t(problems.shape(0)), FitStatus(status));
        narrow();
    }

    nb::dict ends(bool variances, bool covariance) {
        const size_t B = size_t(job.problems), n = size_t(job.n);
        nb::dict out;
        FitEnds& e = ends_;
        e = {};
        const auto numbers = [&](const char* name, double*& into, std::initializer_list<size_t> shape) {
            auto array = new_array<double>(shape);
            into = array.data();
            out[name] = nb::cast(array);
        };
        const auto counts = [&](const char* name, int32_t*& into) {
            auto array = new_array<int32_t>({B});
            into = array.data();
            out[name] = nb::cast(array);
        };
        numbers("x", e.x, {B, n});
        numbers("cost", e.cost, {B});
        numbers("promise", e.promise, {B});
        numbers("violation", e.violation, {B});
        numbers("optimality", e.optimality, {B});
        numbers("distance", e.distance, {B});
        numbers("condition", e.condition, {B});
        if (variances) numbers("variances", e.variances, {B, n});
        if (variances && covariance) numbers("pcov", e.covariance, {B, n, n});
        counts("status", e.status);
        counts("nit", e.iterations);
        counts("nfev", e.evaluations);
        counts("njev", e.accepted);
        counts("rank", e.rank);
        counts("points", e.points);
        counts("free", e.free);
        auto active = new_array<int8_t>({B, n});
        e.active = active.data();
        out["active_mask"] = nb::cast(active);
        {
            const nb::gil_scoped_release release;
            kernels().ends(job, e);
        }
        kept = out;
        return out;
    }

    // Variances of some problems again, from J at their points, into what ends() returned.
    void refine(nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> problems, Any values,
                Any jacobian) {
        require(ends_.variances != nullptr, "ends first");
        require(values.shape(0) == problems.shape(0) && jacobian.shape(0) == problems.shape(0), "rows");
        require(values.shape(1) == size_t(job.points) && jacobian.shape(1) == size_t(job.points), "points");
        FitJob some = job;
        some.rows = problems.data();
        some.running = int64_t(problems.shape(0));
        some.values = numbers_of(values);
        some.jacobian = numbers_of(jacobian);
        const nb::gil_scoped_release release;
        kernels().refine(some, ends_);
    }

private:
    struct Aligned {
        void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t(64)); }
    };

    FitJob job{};
    Doubles low_, high_;
    std::optional<Any> y_, weights_, values_;
    std::unique_ptr<std::byte[], Aligned> states;
    std::vector<int64_t> rows_;
    std::vector<double> costs, steps;
    std::vector<int32_t> column_of;  // parameters that some problem can move
    int32_t columns_ = 0;
    FitEnds ends_{};
    nb::dict kept;

    // A turn with derivatives of `given` rows: all, or as many as want them.
    int64_t decide(size_t given) {
        std::vector<int64_t> has;
        job.has_jacobian = nullptr;
        if (given != rows_.size()) {
            has.assign(rows_.size(), -1);
            int64_t next = 0;
            for (size_t row = 0; row < rows_.size(); ++row)
                if (kernels().wants(job, rows_[row], costs[row])) has[row] = next++;
            require(next == int64_t(given), "jacobian: as many rows as wanted");
            job.has_jacobian = has.data();
        }
        {
            const nb::gil_scoped_release release;
            kernels().turn(job);
            narrow();
        }
        values_.reset();
        return running();
    }

    void list_rows() {
        job.rows = rows_.data();
        job.running = int64_t(rows_.size());
    }

    void narrow() {
        size_t next = 0;
        for (const int64_t p : rows_)
            if (kernels().is_running(job, p)) rows_[next++] = p;
        rows_.resize(next);
        list_rows();
    }

    FitNumbers of_problems(const Any& array) const {
        FitNumbers found = numbers_of(array);
        require(array.ndim() == 2 && array.shape(1) == size_t(job.points) &&
                    (array.shape(0) == 1 || array.shape(0) == size_t(job.problems)),
                "y and weights: (1 or problems, points)");
        if (array.shape(0) == 1) found.stride[0] = 0;
        return found;
    }
};

}  // namespace

void bind_fit(nb::module_& m) {
    nb::class_<FitBatch>(m, "FitBatch",
                         "A batch of nonlinear least-squares problems; the model is the caller's.")
        .def(nb::init<Doubles, Doubles, Doubles, int32_t, std::optional<Any>, std::optional<Any>, double,
                      double, double, double, int32_t, int32_t, bool, bool, int32_t, double, bool, double,
                      int32_t>(),
             nb::arg("x0").noconvert(), nb::arg("low").noconvert(), nb::arg("high").noconvert(),
             nb::arg("points"), nb::arg("y").none(), nb::arg("weights").none(), nb::arg("ftol"),
             nb::arg("gtol"), nb::arg("xtol"), nb::arg("epsilon"), nb::arg("max_iterations"),
             nb::arg("max_evaluations"), nb::arg("single"), nb::arg("secant"), nb::arg("loss"),
             nb::arg("scale"), nb::arg("absolute"), nb::arg("accuracy"), nb::arg("threads"))
        .def_prop_ro("running", &FitBatch::running, "How many problems run.")
        .def("rows", &FitBatch::rows, "Which problems run.")
        .def("points", &FitBatch::points, nb::arg("accepted") = false,
             "Trial points of the problems that run, or the points they have come to.")
        .def("take_values", &FitBatch::take_values, nb::arg("values"),
             "Take the model's values at the trial points; return how many problems want derivatives there.")
        .def("wanted", &FitBatch::wanted, "Which rows of the trial points want derivatives.")
        .def("turn", &FitBatch::turn, nb::arg("jacobian").none(),
             "Take derivatives, of all rows or of those wanted, and decide; return how many problems run on.")
        .def("moved", &FitBatch::moved, nb::arg("all"), nb::arg("typical").noconvert(),
             nb::arg("trials") = false,
             "Trial points with one parameter moved each, and their problems; after the points themselves or "
             "not.")
        .def("turn_moved", &FitBatch::turn_moved, nb::arg("values"),
             "Take values at the moved points, (columns, rows, points), and decide.")
        .def("end_rows", &FitBatch::end_rows, nb::arg("problems"), nb::arg("status"), "End some problems.")
        .def("ends", &FitBatch::ends, nb::arg("variances"), nb::arg("covariance"), "What holds at the end.")
        .def("refine", &FitBatch::refine, nb::arg("problems"), nb::arg("values"), nb::arg("jacobian"),
             "Write variances of some problems again, from their derivatives.");
    m.def(
        "fit_bounded",
        [](nb::ndarray<const double, nb::ndim<3>, nb::c_contig, nb::device::cpu> gram, Doubles linear,
           Doubles low, Doubles high) {
            const size_t k = gram.shape(0), n = gram.shape(1);
            require(gram.shape(2) == n && n >= 1 && n <= 64, "gram");
            for (const Doubles* one : {&linear, &low, &high})
                require(one->shape(0) == k && one->shape(1) == n, "shapes");
            auto x = new_array<double>({k, n});
            auto side = new_array<int8_t>({k, n});
            {
                const nb::gil_scoped_release release;
                kernels().bounded(int64_t(k), int32_t(n), gram.data(), linear.data(), low.data(), high.data(),
                                  x.data(), side.data());
            }
            return nb::make_tuple(x, side);
        },
        nb::arg("gram").noconvert(), nb::arg("linear").noconvert(), nb::arg("low").noconvert(),
        nb::arg("high").noconvert(),
        "Minimise ½xᵀGx − cᵀx within bounds, many small systems; x, and where it is.");
    nb::dict codes;
    codes["LIMIT"] = int(FitStatus::limit);
    codes["GRADIENT"] = int(FitStatus::gradient);
    codes["PROMISE"] = int(FitStatus::promise);
    codes["STEP"] = int(FitStatus::step);
    codes["ZERO_RESIDUAL"] = int(FitStatus::zero_residual);
    codes["CALLBACK"] = int(FitStatus::callback);
    codes["ROUNDING"] = int(FitStatus::rounding);
    codes["STALLED"] = int(FitStatus::stalled);
    codes["NON_FINITE_START"] = int(FitStatus::nonfinite_start);
    codes["NON_FINITE"] = int(FitStatus::nonfinite);
    codes["NO_POINTS"] = int(FitStatus::no_points);
    codes["CROSSED_BOUNDS"] = int(FitStatus::crossed_bounds);
    m.attr("FIT_STATUSES") = codes;
}

}  // namespace stepwell
