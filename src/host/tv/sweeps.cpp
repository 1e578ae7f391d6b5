// Compiled once per instruction set. A problem's sweeps run in one thread, all of them before the next
// problem's, since its images then stay in the cache; where there are fewer problems than threads, and images
// are large, threads share each phase of a sweep.
#include "host/tv/sweeps.hpp"

#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include "host/common/pool.hpp"
#include "host/tv/lines.hpp"
#include "host/tv/rows.hpp"

namespace stepwell {
namespace SW_ISA {
namespace {

constexpr std::int64_t small_image = 1 << 16;  // pixels below which one thread is as fast as several

// Those who work on one problem: a loop is dealt out in pieces, each with the memory of its thread.
template <class Real>
struct Crew {
    const std::vector<Scratch<Real>>& scratch;  // one per thread

    template <class Body>
    void each(std::int64_t count, const Body& body) const {
        const int threads = int(scratch.size()), pieces = int(std::min<std::int64_t>(count, 4 * threads));
        if (threads == 1) {
            for (std::int64_t i = 0; i < count; ++i) body(i, scratch[0]);
            return;
        }
        Pool::instance().run(pieces, threads, [&](int piece, int thread) {
            for (std::int64_t i = count * piece / pieces; i < count * (piece + 1) / pieces; ++i)
                body(i, scratch[thread]);
        });
    }
};

// (H + ρ∇ᵀ∇ + μ)⁻¹ of the right-hand side along the last axis, without Woodbury's part: there and back.
template <class Real>
SW_CALLED void through(const TvProblem<Real>& p, const Scratch<Real>& scratch, std::int64_t panel) {
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
SW_CALLED void to_coefficients(const TvProblem<Real>& p, std::int64_t panel) {
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
SW_CALLED void from_coefficients(const TvProblem<Real>& p, const Scratch<Real>& scratch, std::int64_t panel,
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
void solve(const TvProblem<Real>& p, const Crew<Real>& crew) {
    const int rows = p.job.rows;
    const std::int64_t panels = p.lines[p.rows.axes - 1].panels();
    if (!rows)
        return crew.each(panels, [&](std::int64_t k, const Scratch<Real>& own) { through(p, own, k); });
    crew.each(panels, [&](std::int64_t k, const Scratch<Real>&) { to_coefficients(p, k); });
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
    crew.each(panels, [&](std::int64_t k, const Scratch<Real>& own) {
        from_coefficients(p, own, panels - 1 - k, mix);
    });
}

template <class Real>
void sweep(const TvProblem<Real>& p, const Crew<Real>& crew) {
    const int last = p.rows.axes - 1;
    crew.each(p.rows.count(), [&](std::int64_t row, const Scratch<Real>& own) { gather_row(p, own, row); });
    const auto along = [&](int axis, bool back) {
        crew.each(p.lines[axis].panels(), [&](std::int64_t k, const Scratch<Real>& own) {
            p.lines[axis].transform(p.x, k, back, own.panel.get());
        });
    };
    for (int axis = 0; axis < last; ++axis) along(axis, false);
    solve(p, crew);
    for (int axis = last - 1; axis >= 0; --axis) along(axis, true);
    crew.each(p.rows.count(), [&](std::int64_t row, const Scratch<Real>& own) {
        p.origin ? update_row<true>(p, own, row) : update_row<false>(p, own, row);
    });
}

// Memory for a problem that is swept in `Real`, used again for the next one. Where the job's arrays have
// another type, the problem's images are held here as well.
template <class Real>
struct Memory {
    Aligned<typename Lines<Real>::Element> panels;
    std::vector<double> partial, small;
    std::vector<Real> images;

    Memory(const TvSettings& job, const Lines<Real>& last)
        : panels(aligned<typename Lines<Real>::Element>(last.panels() * last.n() * (3 + job.rows))),
          partial(std::size_t(job.rows * last.panels())),
          small(std::size_t(job.rows * job.rows)) {}
};

// The bounds of problem k in the type of its sweeps, less x0 where that is given; `room` has space for them.
template <class Real, class Stored>
TvBound<Real> bound_of(const TvBound<Stored>& given, std::int64_t k, std::int64_t pixels, const Stored* x0,
                       Real* room) {
    if (!given.values) return {nullptr, 0, false};
    const Stored* values = given.values + k * given.problem_stride;
    if constexpr (std::is_same_v<Real, Stored>) {
        return {values, 0, given.per_pixel};
    } else {
        for (std::int64_t i = 0; i < pixels; ++i) room[i] = Real(values[given.per_pixel ? i : 0] - x0[i]);
        return {room, 0, true};
    }
}

template <class Real, class Stored>
TvProblem<Real> problem_of(const TvJob<Stored>& job, const Rows& rows, const Lines<Real>* lines,
                           std::int64_t k, Memory<Real>& own) {
    const std::int64_t pixels = rows.pixels;
    const Lines<Real>& last = lines[rows.axes - 1];
    const std::int64_t elements = last.panels() * last.n();
    TvProblem<Real> p{job, rows, lines};
    if constexpr (std::is_same_v<Real, Stored>) {
        p.z = job.z + k * pixels;
        p.u = job.u + k * pixels;
        p.s = job.s ? job.s + k * pixels : nullptr;
        p.x = job.x + k * pixels;
        p.block = job.grid.batch * pixels;
        p.lower = bound_of<Real>(job.lower, k, pixels, job.x0, nullptr);
        p.upper = bound_of<Real>(job.upper, k, pixels, job.x0, nullptr);
    } else {
        own.images.resize(std::size_t((3 * rows.axes + 4) * pixels));
        p.z = own.images.data();
        p.u = p.z + rows.axes * pixels;
        p.x = p.u + rows.axes * pixels;
        p.s = job.s ? p.x + pixels : nullptr;
        p.block = pixels;
        Real* bounds = p.x + 2 * pixels;
        const Stored* x0 = job.x0 + k * pixels;
        p.lower = bound_of(job.lower, k, pixels, x0, bounds);
        p.upper = bound_of(job.upper, k, pixels, x0, bounds + pixels);
        p.origin = bounds + 2 * pixels;
    }
    // Thresholds of zero would divide zero by zero.
    p.how = {std::max(Real(job.threshold[k]), std::numeric_limits<Real>::min()), Real(job.least[k])};
    for (int i = 0; i < job.rows * job.rows; ++i) own.small[i] = job.small[k * job.rows * job.rows + i];
    p.coefficients = own.panels.get();
    p.linear = p.coefficients + elements;
    p.inverse = p.linear + elements;
    p.solved = p.inverse + elements;
    p.partial = own.partial.data();
    p.small = own.small.data();
    return p;
}

// Runs the sweeps of problem k.
template <class Real, class Stored>
void run_problem(const TvJob<Stored>& job, const TvProblem<Real>& p, std::int64_t k, int threads) {
    std::vector<Scratch<Real>> scratch;
    for (int t = 0; t < threads; ++t) scratch.emplace_back(p);
    const Crew<Real> crew{scratch};
    const std::int64_t pixels = p.rows.pixels, offset = k * pixels, length = p.rows.length;
    const std::int64_t apart = job.grid.batch * pixels;
    const Lines<Real>& last = p.lines[p.rows.axes - 1];
    const std::int64_t panels = last.panels(), n = last.n();
    crew.each(panels, [&](std::int64_t i, const Scratch<Real>&) {
        last.copy(job.linear + offset, i, p.linear + i * n);
        last.copy(job.inverse + offset, i, p.inverse + i * n);
        for (int r = 0; r < job.rows; ++r)
            last.copy(job.solved + (k * job.rows + r) * pixels, i, p.solved + (r * panels + i) * n);
    });
    constexpr bool moved = !std::is_same_v<Real, Stored>;
    // Calls back with every difference's axis, its place in a problem's images and in the job's arrays, and
    // ∇x0.
    const auto differences = [&](std::int64_t row, const auto& each) {
        const std::int64_t at = row * length;
        for (int axis = 0; axis < p.rows.axes; ++axis) {
            const std::int64_t step = p.rows.strides[axis];
            const bool last_axis = axis == p.rows.axes - 1;
            const bool end = !last_axis && p.rows.place(row, axis) == p.rows.sides[axis] - 1;
            for (std::int64_t i = at; i < at + length; ++i) {
                Stored difference = 0;
                if (moved && !end && !(last_axis && i == at + length - 1))
                    difference = Stored(job.weights[axis]) * (job.x0[offset + i + step] - job.x0[offset + i]);
                each(axis * p.block + i, axis * apart + offset + i, difference);
            }
        }
    };
    crew.each(p.rows.count(), [&](std::int64_t row, const Scratch<Real>&) {
        differences(row, [&](std::int64_t here, std::int64_t there, Stored origin) {
            const Real z = Real(job.z_before[there] - origin), u = Real(job.u_before[there]);
            p.z[here] = z + u;
            p.u[here] = z - u;
            if constexpr (moved) const_cast<Real*>(p.origin)[here] = Real(origin);
        });
        for (std::int64_t i = row * length; p.s && i < (row + 1) * length; ++i) {
            const Stored origin = moved ? job.x0[offset + i] : Stored(0);
            p.s[i] = Real(job.s_before[offset + i] - origin + job.v_before[offset + i]);
        }
    });
    for (std::int64_t i = 0; i < job.counts[k]; ++i) sweep(p, crew);
    crew.each(p.rows.count(), [&](std::int64_t row, const Scratch<Real>& own) {
        differences(row, [&](std::int64_t here, std::int64_t there, Stored origin) {
            const Stored sum = p.z[here], difference = p.u[here];
            job.z[there] = Stored(0.5) * (sum + difference) + origin;
            job.u[there] = Stored(0.5) * (sum - difference);
        });
        const std::int64_t at = row * length;
        const Real* low = own.lower.at(at);
        const Real* high = own.upper.at(at);
        for (std::int64_t j = 0; j < length; ++j) {
            const std::int64_t to = offset + at + j;
            const Real h = p.s ? p.s[at + j] : p.x[at + j], s = clipped(h, low[j], high[j]);
            Stored x = s;
            if constexpr (moved) {  // at a bound exactly, or within
                const Stored lower = job.lower.at(k, at + j, -double_infinity);
                const Stored upper = job.upper.at(k, at + j, double_infinity);
                x = s <= low[j] ? lower : s >= high[j] ? upper : clipped(job.x0[to] + x, lower, upper);
            }
            job.x[to] = x;
            if (!p.s) continue;
            job.s[to] = x;
            job.v[to] = Stored(h) - Stored(s);
        }
    });
}

// The lines of every axis; none without tables.
template <class Real, class Stored>
std::vector<Lines<Real>> lines_of(const TvGrid<Stored>& grid, const Real* numbers) {
    std::vector<Lines<Real>> lines;
    for (int axis = 0; numbers && axis < grid.axes; ++axis) lines.emplace_back(grid, numbers, axis);
    return lines;
}

template <class Stored>
void run(const TvJob<Stored>& job, int threads) {
    const Rows rows(job.grid);
    const auto lines = lines_of(job.grid, job.grid.numbers);
    const auto short_lines = lines_of(job.grid, job.single ? job.single_numbers : nullptr);
    // Memory of every thread, in the type of the job and in single precision.
    std::vector<std::optional<Memory<Stored>>> own(threads);
    std::vector<std::optional<Memory<float>>> short_own(threads);
    const auto one = [&](std::int64_t k, int thread, int team) {
        const auto swept = [&](const auto& given, auto& memory) {
            if (!memory) memory.emplace(job, given.back());
            run_problem(job, problem_of(job, rows, given.data(), k, *memory), k, team);
        };
        job.single&& job.single[k] ? swept(short_lines, short_own[thread]) : swept(lines, own[thread]);
    };
    if (job.grid.batch >= threads || rows.pixels < small_image) {
        Pool::instance().run(int(job.grid.batch), threads, [&](int k, int thread) { one(k, thread, 1); });
        return;
    }
    const Pool::MoreToCome expected;
    for (std::int64_t k = 0; k < job.grid.batch; ++k) one(k, 0, threads);
}

template <class Real>
void transform(const TvGrid<Real>& grid, Real* images, bool back, int threads) {
    const Rows rows(grid);
    for (int axis = 0; axis < grid.axes; ++axis) {
        const Lines<Real> lines(grid, grid.numbers, axis);
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
