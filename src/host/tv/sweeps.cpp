// Compiled once per instruction set. A problem's sweeps run in one thread, all of them before the next
// problem's, since its images then stay in the cache; where there are fewer problems than threads, a team of
// threads shares each phase of a sweep.
#include "host/tv/sweeps.hpp"

#include <cstring>
#include <vector>

#include "core/tv/pixel.hpp"
#include "host/common/pool.hpp"
#include "host/common/thread_team.hpp"
#include "host/tv/lines.hpp"

namespace stepwell {
namespace SW_ISA {
namespace {

// Rows of a problem's images along the last axis, and their neighbours along the others.
struct Rows {
    int axes;
    std::int64_t length, sides[3], strides[3], pixels;

    template <class Real>
    explicit Rows(const TvGrid<Real>& grid) : axes(grid.axes), length(grid.sides[grid.axes - 1]) {
        pixels = 1;
        for (int k = axes - 1; k >= 0; --k) {
            sides[k] = grid.sides[k];
            strides[k] = pixels;
            pixels *= sides[k];
        }
    }
    std::int64_t count() const { return pixels / length; }
    std::int64_t place(std::int64_t row, int axis) const {
        return row * length / strides[axis] % sides[axis];
    }
};

// What one problem needs; z holds z + u and u holds z - u until the last sweep is done.
template <class Real>
struct Problem {
    const TvJob<Real>& job;
    const Rows& rows;
    const Lines<Real>* lines;
    Real *z, *u, *s, *v, *x;  // of this problem; those of its differences are `block` apart per axis
    std::int64_t block, index;
    Shrinking<Real> how;
    const Real *linear, *inverse, *solved, *small;
    double* partial;  // per panel of the last axis, its inner products with the rows of `solved`
};

// The bounds of one row: pixels of their own, or one number repeated.
template <class Real>
struct BoundRow {
    const TvBound<Real>& bound;
    std::vector<Real> repeated;

    BoundRow(const TvBound<Real>& given, std::int64_t problem, std::int64_t length, double missing)
        : bound(given) {
        if (!bound.per_pixel)
            repeated.assign(std::size_t(length), bound.values ? bound.values[problem * bound.problem_stride]
                                                              : Real(missing));
    }
    const Real* at(std::int64_t problem, std::int64_t pixel) const {
        return bound.per_pixel ? bound.values + problem * bound.problem_stride + pixel : repeated.data();
    }
};

template <class Real>
struct Scratch {
    Aligned<typename Lines<Real>::Element> panel;
    std::vector<Real> zeros;
    BoundRow<Real> lower, upper;

    explicit Scratch(const Problem<Real>& p)
        : panel(aligned<typename Lines<Real>::Element>(
              *std::max_element(p.rows.sides, p.rows.sides + p.rows.axes))),
          zeros(std::size_t(p.rows.length), Real(0)),
          lower(p.job.lower, p.index, p.rows.length, -double_infinity),
          upper(p.job.upper, p.index, p.rows.length, double_infinity) {}
};

template <class Team>
void share(const Team& team, std::int64_t count, std::int64_t& begin, std::int64_t& end) {
    begin = count * team.rank() / team.size();
    end = count * (team.rank() + 1) / team.size();
}

// x = ρ (∇ᵀ(z - u) + (s - v)), the right-hand side less its linear part.
template <class Real>
void gather_row(const Problem<Real>& p, const Scratch<Real>& scratch, std::int64_t row) {
    const Rows& rows = p.rows;
    const std::int64_t at = row * rows.length, n = rows.length;
    const Real rho = Real(p.job.rho);
    Real* __restrict to = p.x + at;
    const int last = rows.axes - 1;
    const Real weight = rho * Real(p.job.weights[last]);
    const Real* __restrict along = p.u + last * p.block + at;
    to[0] = -weight * along[0];
    for (std::int64_t j = 1; j < n; ++j) to[j] = weight * (along[j - 1] - along[j]);
    for (int axis = 0; axis < last; ++axis) {
        const Real* __restrict here = p.u + axis * p.block + at;
        const Real* __restrict before = rows.place(row, axis) ? here - rows.strides[axis] : scratch.zeros.data();
        const Real w = rho * Real(p.job.weights[axis]);
        for (std::int64_t j = 0; j < n; ++j) to[j] += w * (before[j] - here[j]);
    }
    if (!p.s) return;
    const Real* __restrict h = p.s + at;
    const Real* __restrict low = scratch.lower.at(p.index, at);
    const Real* __restrict high = scratch.upper.at(p.index, at);
    for (std::int64_t j = 0; j < n; ++j) to[j] += rho * (2 * clipped(h[j], low[j], high[j]) - h[j]);
}

// z and u, as sum and difference, and s from the new x.
template <int axes, bool anisotropic, class Real>
void update_row(const Problem<Real>& p, const Scratch<Real>& scratch, std::int64_t row) {
    const Rows& rows = p.rows;
    const std::int64_t at = row * rows.length, n = rows.length;
    const Real* __restrict x = p.x + at;
    const Real* next[3];
    Real *sum[3], *difference[3], weight[3];
    for (int k = 0; k < axes; ++k) {
        const bool end = k < axes - 1 && rows.place(row, k) == rows.sides[k] - 1;
        next[k] = end ? x : x + rows.strides[k];
        sum[k] = p.z + k * p.block + at;
        difference[k] = p.u + k * p.block + at;
        weight[k] = Real(p.job.weights[k]);
    }
    const Real over = Real(p.job.over), half = Real(0.5);
    const Shrinking<Real> how = p.how;
    const auto pixel = [&](std::int64_t j, bool at_end) {
        Real w[axes], square = 0;
        for (int k = 0; k < axes; ++k) {
            const Real step = k == axes - 1 && at_end ? Real(0) : weight[k] * (next[k][j] - x[j]);
            w[k] = sum[k][j] + over * (step - half * (sum[k][j] + difference[k][j]));
            square += w[k] * w[k];
        }
        const Real together = anisotropic ? Real(0) : shrink_factor(root_of(square), how);
        for (int k = 0; k < axes; ++k) {
            const Real factor = anisotropic ? shrink_factor(w[k] < 0 ? -w[k] : w[k], how) : together;
            sum[k][j] = w[k];
            difference[k][j] = w[k] * (2 * factor - 1);
        }
    };
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n - 1; ++j) pixel(j, false);
    pixel(n - 1, true);
    if (!p.s) return;
    Real* __restrict h = p.s + at;
    const Real* __restrict low = scratch.lower.at(p.index, at);
    const Real* __restrict high = scratch.upper.at(p.index, at);
    for (std::int64_t j = 0; j < n; ++j) h[j] += over * (x[j] - clipped(h[j], low[j], high[j]));
}

template <class Real>
void update_row(const Problem<Real>& p, const Scratch<Real>& scratch, std::int64_t row) {
    const bool aniso = p.job.anisotropic;
    switch (p.rows.axes) {
        case 1:
            return aniso ? update_row<1, true>(p, scratch, row) : update_row<1, false>(p, scratch, row);
        case 2:
            return aniso ? update_row<2, true>(p, scratch, row) : update_row<2, false>(p, scratch, row);
        default:
            return aniso ? update_row<3, true>(p, scratch, row) : update_row<3, false>(p, scratch, row);
    }
}

// (H + ρ∇ᵀ∇ + μ)⁻¹ of the right-hand side along the last axis, without Woodbury's part: there and back.
template <class Real>
void through(const Problem<Real>& p, const Scratch<Real>& scratch, std::int64_t panel) {
    const Lines<Real>& lines = p.lines[p.rows.axes - 1];
    const std::int64_t first = panel * Lines<Real>::width * lines.n(), count = lines.stretch(panel);
    lines.transform(p.x, panel, false, scratch.panel.get());
    Real* __restrict c = p.x + first;
    const Real* __restrict linear = p.linear + first;
    const Real* __restrict inverse = p.inverse + first;
    for (std::int64_t i = 0; i < count; ++i) c[i] = inverse[i] * (c[i] + linear[i]);
    lines.transform(p.x, panel, true, scratch.panel.get());
}

// The same in two halves, between which inner products with the rows of Woodbury's formula are added up.
template <class Real>
void to_coefficients(const Problem<Real>& p, const Scratch<Real>& scratch, std::int64_t panel) {
    const Lines<Real>& lines = p.lines[p.rows.axes - 1];
    const std::int64_t first = panel * Lines<Real>::width * lines.n(), count = lines.stretch(panel);
    lines.transform(p.x, panel, false, scratch.panel.get());
    Real* __restrict c = p.x + first;
    const Real* __restrict linear = p.linear + first;
    for (std::int64_t i = 0; i < count; ++i) c[i] += linear[i];
    constexpr int lanes_of = register_lanes<Real>;
    typedef typename VectorOf<Real, lanes_of>::anywhere Loose;
    for (int r = 0; r < p.job.rows; ++r) {
        const Real* __restrict row = p.solved + r * p.rows.pixels + first;
        typename VectorOf<Real, lanes_of>::aligned sums[2] = {};
        std::int64_t i = 0;
        for (; i + 2 * lanes_of <= count; i += 2 * lanes_of)
            for (int k = 0; k < 2; ++k)
                sums[k] += *reinterpret_cast<const Loose*>(row + i + k * lanes_of) *
                           *reinterpret_cast<const Loose*>(c + i + k * lanes_of);
        double total = 0;
        for (int k = 0; k < 2; ++k)
            for (int l = 0; l < lanes_of; ++l) total += double(sums[k][l]);
        for (; i < count; ++i) total += double(row[i]) * double(c[i]);
        p.partial[panel * p.job.rows + r] = total;
    }
}

template <class Real>
void from_coefficients(const Problem<Real>& p, const Scratch<Real>& scratch, std::int64_t panel,
                       const Real* mix) {
    const Lines<Real>& lines = p.lines[p.rows.axes - 1];
    const std::int64_t first = panel * Lines<Real>::width * lines.n(), count = lines.stretch(panel);
    Real* __restrict c = p.x + first;
    const Real* __restrict inverse = p.inverse + first;
    for (std::int64_t i = 0; i < count; ++i) c[i] *= inverse[i];
    int r = 0;
    for (; r + 1 < p.job.rows; r += 2) {
        const Real* __restrict a = p.solved + r * p.rows.pixels + first;
        const Real* __restrict b = a + p.rows.pixels;
        const Real left = mix[r], right = mix[r + 1];
        for (std::int64_t i = 0; i < count; ++i) c[i] -= left * a[i] + right * b[i];
    }
    for (; r < p.job.rows; ++r) {
        const Real* __restrict a = p.solved + r * p.rows.pixels + first;
        for (std::int64_t i = 0; i < count; ++i) c[i] -= mix[r] * a[i];
    }
    lines.transform(p.x, panel, true, scratch.panel.get());
}

template <class Real, class Team>
void solve(const Problem<Real>& p, const Scratch<Real>& scratch, const Team& team) {
    const int last = p.rows.axes - 1, rows = p.job.rows;
    std::int64_t begin, end;
    const std::int64_t panels = p.lines[last].panels();
    share(team, panels, begin, end);
    if (!rows) {
        for (std::int64_t k = begin; k < end; ++k) through(p, scratch, k);
        return team.sync();
    }
    for (std::int64_t k = begin; k < end; ++k) to_coefficients(p, scratch, k);
    team.sync();
    Real mix[64];
    for (int r = 0; r < rows; ++r) {
        double total = 0;
        for (int q = 0; q < rows; ++q) {
            double product = 0;
            for (std::int64_t k = 0; k < panels; ++k) product += p.partial[k * rows + q];
            total += double(p.small[r * rows + q]) * product;
        }
        mix[r] = Real(total);
    }
    // From the last on, whose rows are still in the cache.
    for (std::int64_t k = end; k-- > begin;) from_coefficients(p, scratch, k, mix);
    team.sync();
}

template <class Real, class Team>
void sweep(const Problem<Real>& p, const Scratch<Real>& scratch, const Team& team) {
    const int last = p.rows.axes - 1;
    std::int64_t begin, end;
    share(team, p.rows.count(), begin, end);
    for (std::int64_t row = begin; row < end; ++row) gather_row(p, scratch, row);
    team.sync();
    const auto along = [&](int axis, bool back) {
        share(team, p.lines[axis].panels(), begin, end);
        for (std::int64_t k = begin; k < end; ++k)
            p.lines[axis].transform(p.x, k, back, scratch.panel.get());
        team.sync();
    };
    for (int axis = 0; axis < last; ++axis) along(axis, false);
    solve(p, scratch, team);
    for (int axis = last - 1; axis >= 0; --axis) along(axis, true);
    share(team, p.rows.count(), begin, end);
    for (std::int64_t row = begin; row < end; ++row) update_row(p, scratch, row);
    team.sync();
}

template <class Real, class Team>
void run_problem(const Problem<Real>& p, const Team& team) {
    const TvJob<Real>& job = p.job;
    const Scratch<Real> scratch(p);
    const std::int64_t offset = p.index * p.rows.pixels;
    std::int64_t begin, end;
    share(team, p.rows.pixels, begin, end);
    for (int k = 0; k < p.rows.axes; ++k)
        for (std::int64_t i = begin; i < end; ++i) {
            const Real z = job.z_before[k * p.block + offset + i], u = job.u_before[k * p.block + offset + i];
            p.z[k * p.block + i] = z + u;
            p.u[k * p.block + i] = z - u;
        }
    if (p.s)
        for (std::int64_t i = begin; i < end; ++i) p.s[i] = job.s_before[offset + i] + job.v_before[offset + i];
    team.sync();
    for (std::int64_t k = 0; k < job.counts[p.index]; ++k) sweep(p, scratch, team);
    for (int k = 0; k < p.rows.axes; ++k)
        for (std::int64_t i = begin; i < end; ++i) {
            const Real sum = p.z[k * p.block + i], difference = p.u[k * p.block + i];
            p.z[k * p.block + i] = Real(0.5) * (sum + difference);
            p.u[k * p.block + i] = Real(0.5) * (sum - difference);
        }
    if (!p.s) return;
    share(team, p.rows.count(), begin, end);
    for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t at = row * p.rows.length;
        const Real* low = scratch.lower.at(p.index, at);
        const Real* high = scratch.upper.at(p.index, at);
        for (std::int64_t j = 0; j < p.rows.length; ++j) {
            const Real h = p.s[at + j], s = clipped(h, low[j], high[j]);
            p.x[at + j] = p.s[at + j] = s;
            p.v[at + j] = h - s;
        }
    }
}

template <class Real>
void run(const TvJob<Real>& job, int threads) {
    const Rows rows(job.grid);
    std::vector<Lines<Real>> lines;
    for (int axis = 0; axis < job.grid.axes; ++axis) lines.emplace_back(job.grid, axis);
    const std::int64_t batch = job.grid.batch, pixels = rows.pixels;
    const auto problem = [&](std::int64_t k, double* partial) {
        const Real* solved = job.rows ? job.solved + k * job.rows * pixels : nullptr;
        const Real* small = job.rows ? job.small + k * job.rows * job.rows : nullptr;
        return Problem<Real>{job,
                             rows,
                             lines.data(),
                             job.z + k * pixels,
                             job.u + k * pixels,
                             job.s ? job.s + k * pixels : nullptr,
                             job.v ? job.v + k * pixels : nullptr,
                             job.x + k * pixels,
                             batch * pixels,
                             k,
                             {Real(job.threshold[k]), Real(job.least[k])},
                             job.linear + k * pixels,
                             job.inverse + k * pixels,
                             solved,
                             small,
                             partial};
    };
    const std::size_t sums = std::size_t(job.rows) * std::size_t(lines.back().panels());
    if (batch >= threads || pixels < 4096) {
        Pool::instance().run(int(batch), threads, [&](int k, int) {
            std::vector<double> partial(sums);
            run_problem(problem(k, partial.data()), Lone());
        });
        return;
    }
    std::vector<double> partial(sums);
    for (std::int64_t k = 0; k < batch; ++k) {
        const Problem<Real> one = problem(k, partial.data());
        run_thread_team(threads, [&](const ThreadTeam& team) { run_problem(one, team); });
    }
}

template <class Real>
void transform(const TvGrid<Real>& grid, Real* images, bool back, int threads) {
    const Rows rows(grid);
    for (int axis = 0; axis < grid.axes; ++axis) {
        const Lines<Real> lines(grid, axis);
        const std::int64_t panels = lines.panels(), all = panels * grid.batch;
        const std::int64_t together = std::max<std::int64_t>(1, all / (16 * threads));
        Pool::instance().run(int((all + together - 1) / together), threads, [&](int piece, int) {
            const auto buffer = aligned<typename Lines<Real>::Element>(lines.n());
            for (std::int64_t k = piece * together; k < std::min(all, (piece + 1) * together); ++k)
                lines.transform(images + k / panels * rows.pixels, k % panels, back, buffer.get());
        });
    }
}

}  // namespace

extern const TvKernels tv_kernels;
const TvKernels tv_kernels{{run<double>, transform<double>}, {run<float>, transform<float>}};

}  // namespace SW_ISA
}  // namespace stepwell
