// Compiled once per instruction set. A problem's sweeps run in one thread, all of them before the next
// problem's, since its images then stay in the cache; where there are fewer problems than threads, and images
// are large, threads share each phase of a sweep.
#include "host/tv/sweeps.hpp"

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
void solve(const Problem<Real>& p, const Crew<Real>& crew) {
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
void sweep(const Problem<Real>& p, const Crew<Real>& crew) {
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
    crew.each(p.rows.count(), [&](std::int64_t row, const Scratch<Real>& own) { update_row(p, own, row); });
}

template <class Real>
void run_problem(const Problem<Real>& p, int threads) {
    const TvJob<Real>& job = p.job;
    std::vector<Scratch<Real>> scratch;
    for (int k = 0; k < threads; ++k) scratch.emplace_back(p);
    const Crew<Real> crew{scratch};
    const std::int64_t offset = p.index * p.rows.pixels, length = p.rows.length;
    const Lines<Real>& last = p.lines[p.rows.axes - 1];
    const std::int64_t panels = last.panels(), n = last.n();
    crew.each(panels, [&](std::int64_t k, const Scratch<Real>&) {
        last.copy(job.linear + offset, k, p.linear + k * n);
        last.copy(job.inverse + offset, k, p.inverse + k * n);
        for (int r = 0; r < job.rows; ++r)
            last.copy(job.solved + (p.index * job.rows + r) * p.rows.pixels, k,
                      p.solved + (r * panels + k) * n);
    });
    crew.each(p.rows.count(), [&](std::int64_t row, const Scratch<Real>&) {
        const std::int64_t at = row * length;
        for (int k = 0; k < p.rows.axes; ++k)
            for (std::int64_t i = k * p.block + at; i < k * p.block + at + length; ++i) {
                const Real z = job.z_before[offset + i], u = job.u_before[offset + i];
                p.z[i] = z + u;
                p.u[i] = z - u;
            }
        for (std::int64_t i = at; p.s && i < at + length; ++i)
            p.s[i] = job.s_before[offset + i] + job.v_before[offset + i];
    });
    for (std::int64_t k = 0; k < job.counts[p.index]; ++k) sweep(p, crew);
    crew.each(p.rows.count(), [&](std::int64_t row, const Scratch<Real>& own) {
        const std::int64_t at = row * length;
        for (int k = 0; k < p.rows.axes; ++k)
            for (std::int64_t i = k * p.block + at; i < k * p.block + at + length; ++i) {
                const Real sum = p.z[i], difference = p.u[i];
                p.z[i] = Real(0.5) * (sum + difference);
                p.u[i] = Real(0.5) * (sum - difference);
            }
        const Real* low = own.lower.at(p.index, at);
        const Real* high = own.upper.at(p.index, at);
        for (std::int64_t j = 0; p.s && j < length; ++j) {
            const Real h = p.s[at + j], s = clipped(h, low[j], high[j]);
            p.x[at + j] = p.s[at + j] = s;
            p.v[at + j] = h - s;
        }
    });
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
            run_problem(problem(k, own), 1);
        });
        return;
    }
    Memory own = memory();
    const Pool::MoreToCome expected;
    for (std::int64_t k = 0; k < batch; ++k) run_problem(problem(k, own), threads);
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
