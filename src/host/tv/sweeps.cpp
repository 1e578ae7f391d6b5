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

constexpr std::int64_t small_image = 4096;  // pixels below which one thread is as fast as several

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
    const Real* small;
    // In panels of the last axis: coefficients, and what is combined with them; and per panel its inner
    // products with the rows of `solved`.
    typename Lines<Real>::Element *coefficients, *linear, *inverse, *solved;
    double* partial;
};

// The bounds of one row: pixels of their own, or one number repeated.
template <class Real>
struct BoundRow {
    const TvBound<Real>& bound;
    std::vector<Real> repeated;

    BoundRow(const TvBound<Real>& given, std::int64_t problem, std::int64_t length, double missing)
        : bound(given) {
        if (!bound.per_pixel)
            repeated.assign(std::size_t(length),
                            bound.values ? bound.values[problem * bound.problem_stride] : Real(missing));
    }
    const Real* at(std::int64_t problem, std::int64_t pixel) const {
        return bound.per_pixel ? bound.values + problem * bound.problem_stride + pixel : repeated.data();
    }
};

template <class Real>
struct Scratch {
    Aligned<typename Lines<Real>::Element> panel;
    std::vector<Real> zeros;
    mutable std::vector<Real> squares;
    BoundRow<Real> lower, upper;

    explicit Scratch(const Problem<Real>& p)
        : panel(aligned<typename Lines<Real>::Element>(
              *std::max_element(p.rows.sides, p.rows.sides + p.rows.axes))),
          zeros(std::size_t(p.rows.length), Real(0)),
          squares(std::size_t(p.rows.length)),
          lower(p.job.lower, p.index, p.rows.length, -double_infinity),
          upper(p.job.upper, p.index, p.rows.length, double_infinity) {}
};

void share(const ThreadTeam& team, std::int64_t count, std::int64_t& begin, std::int64_t& end) {
    begin = count * team.rank() / team.size();
    end = count * (team.rank() + 1) / team.size();
}

// x = ρ (∇ᵀ(z - u) + (s - v)), the right-hand side less its linear part.
template <class Real>
SW_CALLED void gather_row(const Problem<Real>& p, const Scratch<Real>& scratch, std::int64_t row) {
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
        const Real* __restrict before =
            rows.place(row, axis) ? here - rows.strides[axis] : scratch.zeros.data();
        const Real w = rho * Real(p.job.weights[axis]);
        for (std::int64_t j = 0; j < n; ++j) to[j] += w * (before[j] - here[j]);
    }
    if (!p.s) return;
    const Real* __restrict h = p.s + at;
    const Real* __restrict low = scratch.lower.at(p.index, at);
    const Real* __restrict high = scratch.upper.at(p.index, at);
    for (std::int64_t j = 0; j < n; ++j) to[j] += rho * (2 * clipped(h[j], low[j], high[j]) - h[j]);
}

// w = z + u of one axis from the new x, and squares += w²; at the end of the last axis the next pixel is the
// same.
template <class Real>
SW_CALLED void relax_row(std::int64_t n, Real weight, Real over, const Real* __restrict x,
                         const Real* __restrict next, const Real* __restrict difference, Real* __restrict sum,
                         Real* __restrict squares) {
    const Real half = Real(0.5);
    for (std::int64_t j = 0; j < n; ++j) {
        const Real z = half * (sum[j] + difference[j]);
        const Real w = sum[j] + over * (weight * (next[j] - x[j]) - z);
        sum[j] = w;
        squares[j] += w * w;
    }
}

// Lengths' squares become 2 factor - 1, by which w is to be multiplied for z - u.
template <class Real>
SW_CALLED void factor_row(std::int64_t n, Shrinking<Real> how, Real* __restrict squares) {
    for (std::int64_t j = 0; j < n; ++j) squares[j] = 2 * shrink_factor(root_of(squares[j]), how) - 1;
}

template <class Real>
SW_CALLED void scale_row(std::int64_t n, const Real* __restrict factors, const Real* __restrict sum,
                         Real* __restrict difference) {
    for (std::int64_t j = 0; j < n; ++j) difference[j] = factors[j] * sum[j];
}

// z and u, as sum and difference, and s from the new x.
template <class Real>
SW_CALLED void update_row(const Problem<Real>& p, const Scratch<Real>& scratch, std::int64_t row) {
    const Rows& rows = p.rows;
    const std::int64_t at = row * rows.length, n = rows.length;
    const Real* x = p.x + at;
    const Real over = Real(p.job.over);
    Real* squares = scratch.squares.data();
    for (int k = 0; k < rows.axes; ++k) {
        if (k == 0 || p.job.anisotropic) std::fill(squares, squares + n, Real(0));
        Real* sum = p.z + k * p.block + at;
        Real* difference = p.u + k * p.block + at;
        const bool last = k == rows.axes - 1, end = last || rows.place(row, k) == rows.sides[k] - 1;
        const Real weight = Real(p.job.weights[k]);
        if (last) relax_row(n - 1, weight, over, x, x + 1, difference, sum, squares);
        const std::int64_t from = last ? n - 1 : 0;
        relax_row(n - from, weight, over, x + from, end ? x + from : x + rows.strides[k], difference + from,
                  sum + from, squares + from);
        if (!p.job.anisotropic) continue;
        factor_row(n, p.how, squares);
        scale_row(n, squares, sum, difference);
    }
    if (!p.job.anisotropic) {
        factor_row(n, p.how, squares);
        for (int k = 0; k < rows.axes; ++k)
            scale_row(n, squares, p.z + k * p.block + at, p.u + k * p.block + at);
    }
    if (!p.s) return;
    Real* __restrict h = p.s + at;
    const Real* __restrict low = scratch.lower.at(p.index, at);
    const Real* __restrict high = scratch.upper.at(p.index, at);
    for (std::int64_t j = 0; j < n; ++j) h[j] += over * (x[j] - clipped(h[j], low[j], high[j]));
}

// (H + ρ∇ᵀ∇ + μ)⁻¹ of the right-hand side along the last axis, without Woodbury's part: there and back.
template <class Real>
SW_CALLED void through(const Problem<Real>& p, const Scratch<Real>& scratch, std::int64_t panel) {
    const Lines<Real>& lines = p.lines[p.rows.axes - 1];
    const std::int64_t n = lines.n();
    typename Lines<Real>::Element* c = p.coefficients + panel * n;
    typename Lines<Real>::Element* line = scratch.panel.get();
    lines.load(p.x, panel, false, c);
    lines.forward(c);
    const auto* linear = p.linear + panel * n;
    const auto* inverse = p.inverse + panel * n;
    for (int k = 0; k < n; ++k) {
        line[lines.place(k)] = {inverse[k].re * (c[k].re + linear[k].re),
                                inverse[k].im * (c[k].im + linear[k].im)};
    }
    lines.backward(line);
    lines.store(p.x, panel, true, line);
}

// The same in two halves, between which inner products with the rows of Woodbury's formula are added up.
template <class Real>
SW_CALLED void to_coefficients(const Problem<Real>& p, std::int64_t panel) {
    const Lines<Real>& lines = p.lines[p.rows.axes - 1];
    const std::int64_t n = lines.n();
    typename Lines<Real>::Element* c = p.coefficients + panel * n;
    lines.load(p.x, panel, false, c);
    lines.forward(c);
    const auto* linear = p.linear + panel * n;
    for (int k = 0; k < n; ++k) c[k] = plus(c[k], linear[k]);
    for (int r = 0; r < p.job.rows; ++r) {
        const auto* row = p.solved + (r * lines.panels() + panel) * n;
        typename Lines<Real>::Vector sums[4] = {};
        int k = 0;
        for (; k + 2 <= n; k += 2)
            for (int i = 0; i < 2; ++i) {
                sums[2 * i] += row[k + i].re * c[k + i].re;
                sums[2 * i + 1] += row[k + i].im * c[k + i].im;
            }
        for (; k < n; ++k) sums[0] += row[k].re * c[k].re + row[k].im * c[k].im;
        double total = 0;
        for (const auto& sum : sums)
            for (int l = 0; l < Lines<Real>::half; ++l) total += double(sum[l]);
        p.partial[panel * p.job.rows + r] = total;
    }
}

template <class Real>
SW_CALLED void from_coefficients(const Problem<Real>& p, const Scratch<Real>& scratch, std::int64_t panel,
                                 const Real* mix) {
    const Lines<Real>& lines = p.lines[p.rows.axes - 1];
    const std::int64_t n = lines.n(), apart = lines.panels() * n;
    const typename Lines<Real>::Element* c = p.coefficients + panel * n;
    typename Lines<Real>::Element* line = scratch.panel.get();
    const auto* inverse = p.inverse + panel * n;
    const auto* rows = p.solved + panel * n;
    for (int k = 0; k < n; ++k) {
        typename Lines<Real>::Element value{inverse[k].re * c[k].re, inverse[k].im * c[k].im};
        for (int r = 0; r < p.job.rows; ++r) value = plus_part(value, -mix[r], rows[r * apart + k]);
        line[lines.place(k)] = value;
    }
    lines.backward(line);
    lines.store(p.x, panel, true, line);
}

template <class Real>
void solve(const Problem<Real>& p, const Scratch<Real>& scratch, const ThreadTeam& team) {
    const int last = p.rows.axes - 1, rows = p.job.rows;
    std::int64_t begin, end;
    const std::int64_t panels = p.lines[last].panels();
    share(team, panels, begin, end);
    if (!rows) {
        for (std::int64_t k = begin; k < end; ++k) through(p, scratch, k);
        return team.sync();
    }
    for (std::int64_t k = begin; k < end; ++k) to_coefficients(p, k);
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

template <class Real>
void sweep(const Problem<Real>& p, const Scratch<Real>& scratch, const ThreadTeam& team) {
    const int last = p.rows.axes - 1;
    std::int64_t begin, end;
    share(team, p.rows.count(), begin, end);
    for (std::int64_t row = begin; row < end; ++row) gather_row(p, scratch, row);
    team.sync();
    const auto along = [&](int axis, bool back) {
        share(team, p.lines[axis].panels(), begin, end);
        for (std::int64_t k = begin; k < end; ++k) p.lines[axis].transform(p.x, k, back, scratch.panel.get());
        team.sync();
    };
    for (int axis = 0; axis < last; ++axis) along(axis, false);
    solve(p, scratch, team);
    for (int axis = last - 1; axis >= 0; --axis) along(axis, true);
    share(team, p.rows.count(), begin, end);
    for (std::int64_t row = begin; row < end; ++row) update_row(p, scratch, row);
    team.sync();
}

template <class Real>
void run_problem(const Problem<Real>& p, const ThreadTeam& team) {
    const TvJob<Real>& job = p.job;
    const Scratch<Real> scratch(p);
    const std::int64_t offset = p.index * p.rows.pixels;
    std::int64_t begin, end;
    const Lines<Real>& last = p.lines[p.rows.axes - 1];
    const std::int64_t panels = last.panels(), n = last.n();
    share(team, panels, begin, end);
    for (std::int64_t k = begin; k < end; ++k) {
        last.copy(job.linear + offset, k, p.linear + k * n);
        last.copy(job.inverse + offset, k, p.inverse + k * n);
        for (int r = 0; r < job.rows; ++r)
            last.copy(job.solved + (p.index * job.rows + r) * p.rows.pixels, k,
                      p.solved + (r * panels + k) * n);
    }
    share(team, p.rows.pixels, begin, end);
    for (int k = 0; k < p.rows.axes; ++k)
        for (std::int64_t i = begin; i < end; ++i) {
            const Real z = job.z_before[k * p.block + offset + i], u = job.u_before[k * p.block + offset + i];
            p.z[k * p.block + i] = z + u;
            p.u[k * p.block + i] = z - u;
        }
    if (p.s)
        for (std::int64_t i = begin; i < end; ++i)
            p.s[i] = job.s_before[offset + i] + job.v_before[offset + i];
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
    const std::int64_t elements = lines.back().panels() * lines.back().n();
    struct Memory {
        Aligned<typename Lines<Real>::Element> panels;
        std::vector<double> partial;
    };
    const auto memory = [&] {
        return Memory{aligned<typename Lines<Real>::Element>(elements * (3 + job.rows)),
                      std::vector<double>(std::size_t(job.rows * lines.back().panels()))};
    };
    const auto problem = [&](std::int64_t k, Memory& own) {
        auto* panels = own.panels.get();
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
                             job.rows ? job.small + k * job.rows * job.rows : nullptr,
                             panels,
                             panels + elements,
                             panels + 2 * elements,
                             panels + 3 * elements,
                             own.partial.data()};
    };
    if (batch >= threads || pixels < small_image) {
        Pool::instance().run(int(batch), threads, [&](int k, int) {
            Memory own = memory();
            TeamBarrier alone(1);
            run_problem(problem(k, own), ThreadTeam(alone, 0));
        });
        return;
    }
    Memory own = memory();
    for (std::int64_t k = 0; k < batch; ++k) {
        const Problem<Real> one = problem(k, own);
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
