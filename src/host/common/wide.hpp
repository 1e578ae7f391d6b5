// Numbers of twice the precision: the sum of two doubles, the second at most half a unit in the last place of
// the first (Dekker 1971; Hida, Li & Bailey 2001). Sources that use them are compiled without contraction of
// products and sums, which would take their errors away.
#pragma once

#include <cmath>

namespace stepwell {

struct Wide {
    double high = 0, low = 0;

    Wide() = default;
    Wide(double value) : high(value) {}
    Wide(double high, double low) : high(high), low(low) {}

    explicit operator double() const { return high; }
};

// a + b where |a| >= |b|.
inline Wide sum_in_order(double a, double b) {
    const double sum = a + b;
    return {sum, b - (sum - a)};
}

inline Wide exact_sum(double a, double b) {
    const double sum = a + b, part = sum - a;
    return {sum, (a - (sum - part)) + (b - part)};
}

inline Wide exact_product(double a, double b) {
    const double product = a * b;
    return {product, std::fma(a, b, -product)};
}

inline Wide operator-(const Wide& a) {
    return {-a.high, -a.low};
}

inline Wide operator+(const Wide& a, const Wide& b) {
    const Wide high = exact_sum(a.high, b.high), low = exact_sum(a.low, b.low);
    const Wide sum = sum_in_order(high.high, high.low + low.high);
    return sum_in_order(sum.high, sum.low + low.low);
}

inline Wide operator-(const Wide& a, const Wide& b) {
    return a + -b;
}

inline Wide operator*(const Wide& a, const Wide& b) {
    const Wide product = exact_product(a.high, b.high);
    return sum_in_order(product.high, product.low + (a.high * b.low + a.low * b.high));
}

inline Wide operator/(const Wide& a, const Wide& b) {
    const double first = a.high / b.high;
    Wide rest = a - b * first;
    const double second = rest.high / b.high;
    rest = rest - b * second;
    return sum_in_order(first, second) + rest.high / b.high;
}

inline Wide& operator+=(Wide& a, const Wide& b) {
    return a = a + b;
}

inline Wide& operator-=(Wide& a, const Wide& b) {
    return a = a - b;
}

inline bool operator<(const Wide& a, const Wide& b) {
    return a.high < b.high || (a.high == b.high && a.low < b.low);
}

inline bool operator>(const Wide& a, const Wide& b) {
    return b < a;
}

// Times a power of two.
inline Wide scaled(const Wide& a, int exponent) {
    return {std::ldexp(a.high, exponent), std::ldexp(a.low, exponent)};
}

}  // namespace stepwell
