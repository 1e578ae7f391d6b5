// Cosine transforms of many lines on the host: a panel of lines, two per lane of a register, goes through
// src/core/tv/cosine.hpp at a time. Included by sources that are compiled once per instruction set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/common/simd.hpp"
#include "core/tv/cosine.hpp"
#include "host/krylov/panels.hpp"
#include "host/tv/sweeps.hpp"

// Elements of a line are vectors whatever else is said of their type: GCC lets these alias their numbers.
#pragma GCC diagnostic ignored "-Wignored-attributes"

namespace stepwell {
namespace SW_ISA {

// Called, not inlined: the compiler would spend its time on copies of them.
#define SW_CALLED __attribute__((noinline))

// Exchanges blocks of `size` lanes between two vectors: the upper ones of a for the lower ones of b.
template <int size, class Vector, int... lane>
inline void exchange(Vector& a, Vector& b, std::integer_sequence<int, lane...>) {
    constexpr int count = sizeof...(lane);
    const Vector low = __builtin_shufflevector(a, b, (lane & size ? lane - size + count : lane)...);
    b = __builtin_shufflevector(a, b, (lane & size ? lane + count : lane + size)...);
    a = low;
}

// Makes rows of a square of vectors its columns.
template <int size, int count, class Vector>
inline void transpose(Vector (&rows)[count]) {
    if constexpr (size > 0) {
        for (int k = 0; k < count; ++k)
            if (!(k & size))
                exchange<size>(rows[k], rows[k + size], std::make_integer_sequence<int, count>());
        transpose<size / 2>(rows);
    }
}

// Lines of images along one axis: line l begins at start(l), its pixels are `step` apart.
template <class Real>
class Lines {
public:
    typedef Real Number;
    typedef typename VectorOf<Real, register_lanes<Real>>::aligned Vector;
    typedef typename VectorOf<Real, register_lanes<Real>>::anywhere Loose;
    static constexpr int half = register_lanes<Real>, width = 2 * half;
    typedef Complex<Vector> Element;

    template <class Grid>
    Lines(const Grid& grid, const Real* numbers, int axis) {
        const std::int32_t* places = grid.places;
        std::int64_t pixels = 1;
        for (int k = 0; k < grid.axes; ++k) pixels *= grid.sides[k];
        for (int k = 0; k < axis; ++k) {
            numbers += 4 * grid.sides[k];
            places += 1 + max_stages + grid.sides[k];
        }
        for (int k = axis + 1; k < grid.axes; ++k) step_ *= grid.sides[k];
        const std::int64_t n = grid.sides[axis];
        plan_.n = std::int32_t(n);
        plan_.stages = places[0];
        for (int s = 0; s < max_stages; ++s) plan_.radix[s] = places[1 + s];
        plan_.place = places + 1 + max_stages;
        plan_.roots = numbers;
        plan_.turns = numbers + 2 * n;
        count_ = pixels / n;
    }

    std::int64_t panels() const { return (count_ + width - 1) / width; }
    std::int64_t n() const { return plan_.n; }
    int place(int k) const { return plan_.place[k]; }

    // A panel of coefficients as they are, for what is combined with them.
    template <class Stored>
    SW_CALLED void copy(const Stored* image, std::int64_t panel, Element* to) const {
        const std::int64_t lines = filled(panel);
        Real* flat = reinterpret_cast<Real*>(to);
        for (std::int64_t l = 0; l < width; ++l)
            for (std::int64_t i = 0; i < n(); ++i)
                flat[i * width + l] = l < lines ? Real(image[start(panel * width + l) + i * step_]) : Real(0);
    }

    // Pixels (forward) or coefficients (back) of a panel into the buffer of n elements, where stages want
    // them.
    SW_CALLED void load(const Real* image, std::int64_t panel, bool back, Element* to) const {
        const int n = plan_.n;
        const auto where = [&](int i) { return plan_.place[back ? i : sorted(i, n)]; };
        if (const Real* from = side_by_side(image, panel)) {
            for (int i = 0; i < n; ++i) {
                Element& element = to[where(i)];
                element.re = *reinterpret_cast<const Loose*>(from + i * step_);
                element.im = *reinterpret_cast<const Loose*>(from + i * step_ + half);
            }
            return;
        }
        Real* flat = reinterpret_cast<Real*>(to);
        const std::int64_t lines = filled(panel);
        const int squares = in_squares(panel);
        for (int l = 0; squares && l < width; l += half)
            for (int i = 0; i < squares; i += half) {
                Vector rows[half];
                for (int k = 0; k < half; ++k)
                    rows[k] = *reinterpret_cast<const Loose*>(image + (panel * width + l + k) * n + i);
                transpose<half / 2>(rows);
                for (int k = 0; k < half; ++k) (l ? to[where(i + k)].im : to[where(i + k)].re) = rows[k];
            }
        for (std::int64_t l = 0; l < width; ++l) {
            const Real* from = image + (l < lines ? start(panel * width + l) : 0);
            for (int i = squares; i < n; ++i)
                flat[where(i) * width + l] = l < lines ? from[i * step_] : Real(0);
        }
    }

    SW_CALLED void store(Real* image, std::int64_t panel, bool back, const Element* from) const {
        const int n = plan_.n;
        if (Real* to = const_cast<Real*>(side_by_side(image, panel))) {
            for (int i = 0; i < n; ++i) {
                const Element& element = from[back ? sorted(i, n) : i];
                *reinterpret_cast<Loose*>(to + i * step_) = element.re;
                *reinterpret_cast<Loose*>(to + i * step_ + half) = element.im;
            }
            return;
        }
        const Real* flat = reinterpret_cast<const Real*>(from);
        const std::int64_t lines = filled(panel);
        const int squares = in_squares(panel);
        for (int l = 0; squares && l < width; l += half)
            for (int i = 0; i < squares; i += half) {
                Vector rows[half];
                for (int k = 0; k < half; ++k) {
                    const Element& element = from[back ? sorted(i + k, n) : i + k];
                    rows[k] = l ? element.im : element.re;
                }
                transpose<half / 2>(rows);
                for (int k = 0; k < half; ++k)
                    *reinterpret_cast<Loose*>(image + (panel * width + l + k) * n + i) = rows[k];
            }
        for (std::int64_t l = 0; l < lines; ++l) {
            Real* to = image + start(panel * width + l);
            for (int i = squares; i < n; ++i) to[i * step_] = flat[(back ? sorted(i, n) : i) * width + l];
        }
    }

    SW_CALLED void forward(Element* line) const {
        stages(line, Real(1));
        for (int k = 0; k <= plan_.n / 2; ++k) untangle<Vector>(plan_, k, Place{line});
    }

    SW_CALLED void backward(Element* line) const {
        for (int k = 0; k <= plan_.n / 2; ++k) tangle<Vector>(plan_, k, Place{line});
        stages(line, Real(-1));
    }

    void transform(Real* image, std::int64_t panel, bool back, Element* buffer) const {
        load(image, panel, back, buffer);
        back ? backward(buffer) : forward(buffer);
        store(image, panel, back, buffer);
    }

private:
    struct Place {
        Element* line;
        Element& operator()(int i) const { return line[i]; }
    };

    template <int radix>
    void stage(Element* line, int m, Real sign) const {
        for (int group = 0; group < plan_.n; group += radix * m)
            for (int j = 0; j < m; ++j) butterfly<radix, Vector>(plan_, m, group + j, j, sign, Place{line});
    }

    void stages(Element* line, Real sign) const {
        each_stage(plan_.radix, plan_.stages, [&](auto of, int m) { stage<of.value>(line, m, sign); });
    }

    std::int64_t filled(std::int64_t panel) const {
        return std::min<std::int64_t>(width, count_ - panel * width);
    }

    // Pixels of every line that go in squares of registers: lines of the last axis in a full panel.
    int in_squares(std::int64_t panel) const {
        return step_ == 1 && filled(panel) == width ? plan_.n / half * half : 0;
    }

    std::int64_t start(std::int64_t line) const { return line / step_ * (step_ * plan_.n) + line % step_; }

    // The first pixel of a panel whose lines lie side by side in memory; null where they do not.
    const Real* side_by_side(const Real* image, std::int64_t panel) const {
        const std::int64_t line = panel * width;
        return line % step_ + width <= step_ ? image + start(line) : nullptr;
    }

    CosinePlan<Real> plan_;
    std::int64_t step_ = 1, count_;
};

}  // namespace SW_ISA
}  // namespace stepwell
