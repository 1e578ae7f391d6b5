// Bindings of the inner loop of total variation. Arrays are checked in sizes alone: what they mean is the
// promise of stepwell/krylov/tv/host.py.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <vector>

#include "core/tv/launch.hpp"
#include "host/common/bindings.hpp"
#include "host/common/layout.hpp"
#include "host/tv/sweeps.hpp"

namespace nb = nanobind;

namespace stepwell {
namespace {

template <class T>
using Flat = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Block = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void require(bool fits, const char* what) {
    if (!fits) throw nb::value_error(what);
}

template <class Real>
TvGrid<Real> grid_of(std::int64_t batch, const std::vector<std::int64_t>& sides, Flat<const Real> numbers,
                     Flat<const std::int32_t> places) {
    require(sides.size() >= 1 && sides.size() <= 3, "tv: one to three sides");
    TvGrid<Real> grid{int(sides.size()), batch, {1, 1, 1}, numbers.data(), places.data()};
    std::int64_t total = 0;
    for (std::size_t k = 0; k < sides.size(); ++k) total += grid.sides[k] = sides[k];
    require(numbers.shape(0) == std::size_t(4 * total), "tv: numbers are not the tables of the sides");
    require(places.shape(0) == std::size_t(total) + 25 * sides.size(),
            "tv: places are not the tables of the sides");
    return grid;
}

template <class Real>
TvBound<Real> bound_of(const std::optional<Block<const Real>>& values, std::int64_t batch,
                       std::int64_t pixels) {
    if (!values) return {nullptr, 0, false};
    const std::int64_t rows = values->shape(0), columns = values->shape(1);
    require((rows == 1 || rows == batch) && (columns == 1 || columns == pixels), "tv: bounds do not fit");
    return {values->data(), rows > 1 ? columns : 0, columns > 1};
}

template <class Real>
void define(nb::module_& m, TvSweeps<Real> TvKernels::* which) {
    m.def(
        "tv_transform",
        [which](std::vector<std::int64_t> sides, Flat<const Real> numbers, Flat<const std::int32_t> places,
                Block<Real> images, bool back, int threads) {
            const TvGrid<Real> grid = grid_of(std::int64_t(images.shape(0)), sides, numbers, places);
            std::int64_t pixels = 1;
            for (std::int64_t side : sides) pixels *= side;
            require(std::int64_t(images.shape(1)) == pixels, "tv_transform: images do not have these sides");
            nb::gil_scoped_release release;
            (SW_BEST(tv_kernels).*which).transform(grid, images.data(), back, threads);
        },
        nb::arg("sides"), nb::arg("numbers").noconvert(), nb::arg("places").noconvert(),
        nb::arg("images").noconvert(), nb::arg("back"), nb::arg("threads"),
        "Replace images, one per row, by their cosine coefficients, or these by images.");
    m.def(
        "tv_sweeps",
        [which](std::vector<std::int64_t> sides, Flat<const Real> numbers, Flat<const std::int32_t> places,
                std::vector<double> weights, double rho, double over, bool anisotropic,
                Flat<const double> threshold, Flat<const double> least, Flat<const std::int64_t> counts,
                Block<const Real> linear, Block<const Real> inverse, std::optional<Block<const Real>> solved,
                std::optional<Block<const Real>> small, Block<const Real> z_before,
                Block<const Real> u_before, std::optional<Block<const Real>> s_before,
                std::optional<Block<const Real>> v_before, std::optional<Block<const Real>> lower,
                std::optional<Block<const Real>> upper, Block<Real> z, Block<Real> u,
                std::optional<Block<Real>> s, std::optional<Block<Real>> v, Block<Real> x, int threads,
                std::optional<Flat<const std::uint8_t>> single,
                std::optional<Flat<const float>> single_numbers, std::optional<Block<const Real>> x0) {
            const std::int64_t batch = linear.shape(0), pixels = linear.shape(1);
            const std::size_t axes = sides.size(), flat = axes * std::size_t(batch);
            std::int64_t product = 1;
            for (std::int64_t side : sides) product *= side;
            const auto fits = [&](const auto& array, std::size_t rows) {
                return array.shape(0) == rows && std::int64_t(array.shape(1)) == pixels;
            };
            require(product == pixels && weights.size() == axes && fits(inverse, batch) &&
                        fits(z_before, flat) && fits(u_before, flat) && fits(z, flat) && fits(u, flat) &&
                        fits(x, batch) && std::int64_t(threshold.shape(0)) == batch &&
                        std::int64_t(least.shape(0)) == batch && std::int64_t(counts.shape(0)) == batch,
                    "tv_sweeps: arrays do not fit together");
            const bool bounded = s_before.has_value();
            require(bounded == v_before.has_value() && bounded == s.has_value() && bounded == v.has_value() &&
                        (!bounded || (fits(*s_before, batch) && fits(*v_before, batch) && fits(*s, batch) &&
                                      fits(*v, batch))),
                    "tv_sweeps: arrays of the bounds do not fit together");
            const std::size_t rows = batch && solved ? solved->shape(0) / std::size_t(batch) : 0;
            require(solved.has_value() == small.has_value() && rows <= 64 &&
                        (!solved || (fits(*solved, rows * batch) && small->shape(0) == std::size_t(batch) &&
                                     small->shape(1) == rows * rows)),
                    "tv_sweeps: rows of the model do not fit");
            require(single.has_value() == single_numbers.has_value() &&
                        single.has_value() == x0.has_value() &&
                        (!single || (std::int64_t(single->shape(0)) == batch &&
                                     single_numbers->shape(0) == numbers.shape(0) && fits(*x0, batch))),
                    "tv_sweeps: arrays of single precision do not fit");
            TvJob<Real> job{};
            job.grid = grid_of(batch, sides, numbers, places);
            for (std::size_t k = 0; k < axes; ++k) job.weights[k] = weights[k];
            job.rho = rho;
            job.over = over;
            job.anisotropic = anisotropic;
            job.threshold = threshold.data();
            job.least = least.data();
            job.counts = counts.data();
            job.linear = linear.data();
            job.inverse = inverse.data();
            job.solved = rows ? solved->data() : nullptr;
            job.small = rows ? small->data() : nullptr;
            job.rows = int(rows);
            job.single = single ? single->data() : nullptr;
            job.single_numbers = single ? single_numbers->data() : nullptr;
            job.x0 = single ? x0->data() : nullptr;
            job.z_before = z_before.data();
            job.u_before = u_before.data();
            job.z = z.data();
            job.u = u.data();
            job.x = x.data();
            if (bounded) {
                job.s_before = s_before->data();
                job.v_before = v_before->data();
                job.s = s->data();
                job.v = v->data();
                job.lower = bound_of(lower, batch, pixels);
                job.upper = bound_of(upper, batch, pixels);
            }
            nb::gil_scoped_release release;
            (SW_BEST(tv_kernels).*which).run(job, threads);
        },
        nb::arg("sides"), nb::arg("numbers").noconvert(), nb::arg("places").noconvert(), nb::arg("weights"),
        nb::arg("rho"), nb::arg("over"), nb::arg("anisotropic"), nb::arg("threshold").noconvert(),
        nb::arg("least").noconvert(), nb::arg("counts").noconvert(), nb::arg("linear").noconvert(),
        nb::arg("inverse").noconvert(), nb::arg("solved").noconvert().none(),
        nb::arg("small").noconvert().none(), nb::arg("z_before").noconvert(), nb::arg("u_before").noconvert(),
        nb::arg("s_before").noconvert().none(), nb::arg("v_before").noconvert().none(),
        nb::arg("lower").noconvert().none(), nb::arg("upper").noconvert().none(), nb::arg("z").noconvert(),
        nb::arg("u").noconvert(), nb::arg("s").noconvert().none(), nb::arg("v").noconvert().none(),
        nb::arg("x").noconvert(), nb::arg("threads"), nb::arg("single").noconvert().none(),
        nb::arg("single_numbers").noconvert().none(), nb::arg("x0").noconvert().none(),
        "Run the sweeps of all problems, each its own number.");
}

}  // namespace

void bind_tv(nb::module_& m) {
    define<double>(m, &TvKernels::d);
    define<float>(m, &TvKernels::f);
    StructLayout launch(m, "TvLaunch", sizeof(TvLaunch));
    SW_FIELD(launch, TvLaunch, axes);
    SW_FIELD(launch, TvLaunch, axis);
    SW_FIELD(launch, TvLaunch, source);
    SW_FIELD(launch, TvLaunch, finish);
    SW_FIELD(launch, TvLaunch, back);
    SW_FIELD(launch, TvLaunch, rows);
    SW_FIELD(launch, TvLaunch, anisotropic);
    SW_FIELD(launch, TvLaunch, bounded);
    SW_FIELD(launch, TvLaunch, lower_per_pixel);
    SW_FIELD(launch, TvLaunch, upper_per_pixel);
    SW_FIELD(launch, TvLaunch, lanes);
    SW_FIELD(launch, TvLaunch, row_lanes);
    SW_FIELD(launch, TvLaunch, side0);
    SW_FIELD(launch, TvLaunch, side1);
    SW_FIELD(launch, TvLaunch, side2);
    SW_FIELD(launch, TvLaunch, panels);
    SW_FIELD(launch, TvLaunch, batch);
    SW_FIELD(launch, TvLaunch, lower_stride);
    SW_FIELD(launch, TvLaunch, upper_stride);
    SW_FIELD(launch, TvLaunch, weight0);
    SW_FIELD(launch, TvLaunch, weight1);
    SW_FIELD(launch, TvLaunch, weight2);
    SW_FIELD(launch, TvLaunch, rho);
    SW_FIELD(launch, TvLaunch, over);
    SW_FIELD(launch, TvLaunch, numbers);
    SW_FIELD(launch, TvLaunch, places);
    SW_FIELD(launch, TvLaunch, counts);
    SW_FIELD(launch, TvLaunch, threshold);
    SW_FIELD(launch, TvLaunch, least);
    SW_FIELD(launch, TvLaunch, linear);
    SW_FIELD(launch, TvLaunch, inverse);
    SW_FIELD(launch, TvLaunch, solved);
    SW_FIELD(launch, TvLaunch, small);
    SW_FIELD(launch, TvLaunch, partial);
    SW_FIELD(launch, TvLaunch, w);
    SW_FIELD(launch, TvLaunch, h);
    SW_FIELD(launch, TvLaunch, image);
    SW_FIELD(launch, TvLaunch, lower);
    SW_FIELD(launch, TvLaunch, upper);
    SW_FIELD(launch, TvLaunch, origin);
    SW_FIELD(launch, TvLaunch, turn);
    SW_FIELD(launch, TvLaunch, reflected);
}

}  // namespace stepwell
