// Models of spots in an image: a Gaussian of x and y, round or with a width along each axis.
#pragma once

#include "core/fit/models/numbers.hpp"
#include "core/fit/models/shape.hpp"

SW_BEGIN
namespace fit {

// a exp(-(x - x0)² / 2 sx² - (y - y0)² / 2 sy²) + c. Parameters: a, x0, y0, s, c (round), or a, x0, y0, sx,
// sy, c where the flag is set.
template <class T, class Shape>
struct Spot {
    static constexpr int variables = 2;
    const Shape& shape;
    T height, x0, y0, narrow_x, narrow_y, constant;

    SW_HD static int parameters(const Shape& shape) { return 5 + shape.flag; }

    SW_HD Spot(const Shape& shape, const T* p)
        : shape(shape),
          height(p[0]),
          x0(p[1]),
          y0(p[2]),
          narrow_x(number<T>(1) / p[3]),
          narrow_y(shape.flag ? number<T>(1) / p[4] : narrow_x),
          constant(p[4 + shape.flag]) {}

    // From z = (x - x0) / sx, w = (y - y0) / sy and the Gaussian of both.
    SW_HD void fill(T z, T w, T gaussian, T& value, T* J) const {
        const T term = height * gaussian, along_x = term * narrow_x, along_y = term * narrow_y;
        J[0] = gaussian;
        J[1] = along_x * z;
        J[2] = along_y * w;
        if (shape.flag) {
            J[3] = J[1] * z;
            J[4] = J[2] * w;
        } else {
            J[3] = along_x * (z * z + w * w);
        }
        J[4 + shape.flag] = number<T>(1);
        value = term + constant;
    }

    SW_HD void row(const T* x, int, T& value, T* J) {
        const T z = (x[0] - x0) * narrow_x, w = (x[1] - y0) * narrow_y;
        fill(z, w, exponential(number<T>(-0.5) * (z * z + w * w)), value, J);
    }
};

// The same on a grid of points, row by row: the exponentials of rows and columns are taken once each. Rows
// are asked for in their order.
template <class T, class Shape>
struct GridSpot : Spot<T, Shape> {
    typedef Spot<T, Shape> Base;
    T z[Shape::Side::capacity], across[Shape::Side::capacity], w, down;

    SW_HD GridSpot(const Shape& shape, const T* p) : Base(shape, p) {}

    SW_HD void row(const T* x, int i, T& value, T* J) { cell(x, i, i % this->shape.across, value, J); }

    SW_HD void cell(const T* x, int i, int column, T& value, T* J) {
        if (i == column) {
            z[column] = (x[0] - this->x0) * this->narrow_x;
            across[column] = exponential(number<T>(-0.5) * (z[column] * z[column]));
        }
        if (column == 0) {
            w = (x[1] - this->y0) * this->narrow_y;
            down = exponential(number<T>(-0.5) * (w * w));
        }
        this->fill(z[column], w, across[column] * down, value, J);
    }
};

}  // namespace fit
SW_END
