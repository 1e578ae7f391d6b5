// Bindings of the discrete Voronoi diagram: one object holds the scratch memory of an image and a number of
// sites. All checking of values is done in Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <vector>

#include "core/voronoi/plan.hpp"
#include "host/common/bindings.hpp"
#include "host/common/dispatch.hpp"
#include "host/common/layout.hpp"
#include "host/voronoi/kernels.hpp"

namespace nb = nanobind;

namespace stepwell {
namespace {

const VoronoiKernels& kernels() {
    return SW_BEST(voronoi_kernels)();
}

template <class T>
using Table = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

class VoronoiHost {
public:
    VoronoiHost(int32_t height, int32_t width, int64_t sites, int32_t threads) {
        job.height = height;
        job.width = width;
        job.sites = sites;
        job.scale = height > width ? height : width;
        job.threads = threads;
        first.resize(kernels().buckets(height, width, sites) + 1);
        x.resize(sites);
        y.resize(sites);
        site.resize(sites);
        job.first = first.data();
        job.sorted_x = x.data();
        job.sorted_y = y.data();
        job.sorted_site = site.data();
    }

    void assign(Table<const double> xy, bool flood, Table<int32_t> owners) {
        begin(xy, flood);
        require(owners.shape(0) == size_t(job.height) && owners.shape(1) == size_t(job.width), "owners");
        job.owners = owners.data();
        const nb::gil_scoped_release release;
        kernels().assign(job);
    }

    double evaluate(Table<const double> xy, bool flood, Table<const float> weights, double energy_factor,
                    double gradient_factor, Table<double> gradient, Table<int64_t> moments) {
        begin(xy, flood);
        require(weights.shape(0) == size_t(job.height) && weights.shape(1) == size_t(job.width), "weights");
        require(gradient.shape(0) == size_t(job.sites) && gradient.shape(1) == 2, "gradient");
        require(moments.shape(0) == size_t(job.sites) && moments.shape(1) == 3, "moments");
        job.weights = weights.data();
        job.energy_factor = energy_factor;
        job.gradient_factor = gradient_factor;
        job.gradient = gradient.data();
        job.moments = moments.data();
        const nb::gil_scoped_release release;
        return kernels().evaluate(job);
    }

private:
    VoronoiJob job{};
    std::vector<int32_t> first, site, images;
    std::vector<double> x, y;

    static void require(bool holds, const char* what) {
        if (!holds) throw nb::value_error(what);
    }

    void begin(Table<const double> xy, bool flood) {
        require(xy.shape(0) == size_t(job.sites) && xy.shape(1) == 2, "sites");
        job.xy = xy.data();
        job.flood = flood;
        if (!flood) return;
        const size_t pixels = size_t(job.height) * size_t(job.width);
        images.resize(2 * pixels);
        job.flooded[0] = images.data();
        job.flooded[1] = images.data() + pixels;
    }
};

}  // namespace

void bind_voronoi(nb::module_& m) {
    StructLayout plan(m, "VoronoiPlan", sizeof(VoronoiPlan));
    SW_FIELD(plan, VoronoiPlan, height);
    SW_FIELD(plan, VoronoiPlan, width);
    SW_FIELD(plan, VoronoiPlan, count);
    SW_FIELD(plan, VoronoiPlan, scale);
    SW_FIELD(plan, VoronoiPlan, weights);
    SW_FIELD(plan, VoronoiPlan, first);
    SW_FIELD(plan, VoronoiPlan, slot);
    SW_FIELD(plan, VoronoiPlan, totals);
    SW_FIELD(plan, VoronoiPlan, sorted_x);
    SW_FIELD(plan, VoronoiPlan, sorted_y);
    SW_FIELD(plan, VoronoiPlan, sorted_site);
    SW_FIELD(plan, VoronoiPlan, moments);
    SW_FIELD(plan, VoronoiPlan, spread);
    SW_FIELD(plan, VoronoiPlan, parts);
    SW_FIELD(plan, VoronoiPlan, ticket);
    SW_FIELD(plan, VoronoiPlan, history);
    SW_FIELD(plan, VoronoiPlan, history_capacity);
    SW_FIELD(plan, VoronoiPlan, history_count);
    nb::class_<VoronoiHost>(m, "VoronoiHost", "Discrete Voronoi diagrams of one image and number of sites.")
        .def(nb::init<int32_t, int32_t, int64_t, int32_t>(), nb::arg("height"), nb::arg("width"),
             nb::arg("sites"), nb::arg("threads"))
        .def("assign", &VoronoiHost::assign, nb::arg("xy").noconvert(), nb::arg("flood"),
             nb::arg("owners").noconvert(), "Write the site nearest to each pixel.")
        .def("evaluate", &VoronoiHost::evaluate, nb::arg("xy").noconvert(), nb::arg("flood"),
             nb::arg("weights").noconvert(), nb::arg("energy_factor"), nb::arg("gradient_factor"),
             nb::arg("gradient").noconvert(), nb::arg("moments").noconvert(),
             "Return the energy; write its gradient and the moments.");
    m.def(
        "voronoi_buckets",
        [](int32_t height, int32_t width, int64_t sites) { return kernels().buckets(height, width, sites); },
        nb::arg("height"), nb::arg("width"), nb::arg("sites"),
        "Number of buckets that sites are sorted into.");
}

}  // namespace stepwell
