// See active_set.hpp. The factor is found anew in each turn: this solver sees few systems, and mends what
// faster ones leave.
#include "host/lsq/wide/active_set.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stepwell::wide {
namespace {

// Of duals: what rounding in twice the precision leaves, with a margin, over |b| + sum |k_j| |x_j|.
constexpr double dual_tolerance = 1e-24;

}  // namespace

double ActiveSet::norm(int j) const {
    const double square = double(G[size_t(j) * n + j]);
    return square > 0 ? std::sqrt(square) : 0.0;
}

double ActiveSet::size() const {
    double sum = b_norm;
    for (int j = 0; j < n; ++j) sum += norm(j) * std::abs(double(x[j]));
    return sum;
}

bool ActiveSet::begin() {
    place.resize(n, Place::free);
    barred_.assign(n, false);
    for (int j = 0; j < n; ++j) {
        if (!(lower[j] <= upper[j])) return false;
        if (x[j] < Wide(lower[j])) x[j] = lower[j];
        if (x[j] > Wide(upper[j])) x[j] = upper[j];
        if (lower[j] == upper[j])
            place[j] = Place::fixed;
        else if (place[j] != Place::fixed)
            place[j] = !(x[j] > Wide(lower[j]))   ? Place::lower
                       : !(x[j] < Wide(upper[j])) ? Place::upper
                                                  : Place::free;
    }
    return !has_sum() || meet_sum();
}

// What is missing goes to columns one after the other, as far as their bounds let it: first to those between
// bounds.
bool ActiveSet::meet_sum() {
    const auto missing = [&] {
        Wide sum = target;
        for (int j = 0; j < n; ++j) sum -= c[j] * x[j];
        return sum;
    };
    double largest = std::abs(double(target));
    for (int j = 0; j < n; ++j) largest = std::max(largest, std::abs(double(c[j] * x[j])));
    for (int round = 0; round < 2; ++round) {
        for (int j = 0; j < n; ++j) {
            const Wide rest = missing();
            if (double(rest) == 0) return true;
            const bool is_free = place[j] == Place::free;
            if (place[j] == Place::fixed || double(c[j]) == 0 || is_free != (round == 0)) continue;
            Wide moved = x[j] + rest / c[j];
            place[j] = Place::free;
            if (!(moved > Wide(lower[j]))) moved = lower[j], place[j] = Place::lower;
            if (!(moved < Wide(upper[j]))) moved = upper[j], place[j] = Place::upper;
            x[j] = moved;
        }
    }
    return std::abs(double(missing())) <= 1e-15 * largest;
}

void ActiveSet::find_gradient() {
    gradient_ = f;
    for (int k = 0; k < n; ++k) {
        if (double(x[k]) == 0) continue;
        for (int j = 0; j < n; ++j) gradient_[j] -= G[size_t(k) * n + j] * x[k];
    }
}

// L D L' of G + c c' on the free columns, in their order. Those that depend on others stay out, where they
// are.
void ActiveSet::factor() {
    std::vector<int> wanted;
    for (const int j : columns)
        if (place[j] == Place::free) wanted.push_back(j);
    for (int j = 0; j < n; ++j)
        if (place[j] == Place::free && std::find(columns.begin(), columns.end(), j) == columns.end())
            wanted.push_back(j);
    columns.clear();
    triangle_.clear();
    pivots_.clear();
    std::vector<Wide> row;
    for (const int j : wanted) {
        const size_t count = columns.size();
        row.assign(count + 1, Wide());
        const auto product = [&](int k) {
            const Wide own = G[size_t(j) * n + k];
            return has_sum() ? own + c[j] * c[k] : own;
        };
        const Wide diagonal = product(j);
        Wide pivot = diagonal;
        for (size_t p = 0; p < count; ++p) {
            Wide entry = product(columns[p]);
            const Wide* above = triangle_.data() + p * (p + 1) / 2;
            for (size_t q = 0; q < p; ++q) entry -= above[q] * row[q];
            row[p] = entry;  // times the pivot, until it is divided below
        }
        for (size_t p = 0; p < count; ++p) {
            const Wide share = row[p] / pivots_[p];
            pivot -= share * row[p];
            row[p] = share;
        }
        if (!(double(pivot) > dependence * double(diagonal)) || !(double(diagonal) > 0)) continue;
        row[count] = 1.0;
        triangle_.insert(triangle_.end(), row.begin(), row.end());
        pivots_.push_back(pivot);
        columns.push_back(j);
    }
    image_.clear();
    if (!has_sum()) return;
    std::vector<Wide> part;
    for (const int j : columns) part.push_back(c[j]);
    image_ = solve_factor(part);
}

std::vector<Wide> ActiveSet::solve_factor(std::vector<Wide> v) const {
    const size_t count = columns.size();
    for (size_t p = 0; p < count; ++p) {
        const Wide* row = triangle_.data() + p * (p + 1) / 2;
        for (size_t q = 0; q < p; ++q) v[p] -= row[q] * v[q];
    }
    for (size_t p = 0; p < count; ++p) v[p] = v[p] / pivots_[p];
    for (size_t p = count; p-- > 0;)
        for (size_t q = p + 1; q < count; ++q) v[p] -= triangle_[q * (q + 1) / 2 + p] * v[q];
    return v;
}

std::vector<Wide> ActiveSet::apply_inverse(const std::vector<Wide>& v) const {
    std::vector<Wide> y = solve_factor(v);
    if (!has_sum()) return y;
    Wide along, square;
    for (size_t p = 0; p < columns.size(); ++p) {
        along += c[columns[p]] * y[p];
        square += c[columns[p]] * image_[p];
    }
    if (!(double(square) > 0)) return y;
    const Wide share = along / square;
    for (size_t p = 0; p < columns.size(); ++p) y[p] -= share * image_[p];
    return y;
}

// With a sum of which no column is free: the two that lower the objective most by an exchange become free.
// False where there are none.
bool ActiveSet::free_a_pair() {
    // Those whose move in one sense asks for a multiplier of at least, and of at most, g_j / c_j.
    int up = -1, down = -1;
    Wide highest, lowest;
    for (int j = 0; j < n; ++j) {
        if (double(c[j]) == 0 || place[j] == Place::fixed) continue;
        const Wide ratio = gradient_[j] / c[j];
        const bool positive = double(c[j]) > 0;
        if ((positive ? can_rise(j) : can_fall(j)) && (up < 0 || ratio > highest)) up = j, highest = ratio;
        if ((positive ? can_fall(j) : can_rise(j)) && (down < 0 || ratio < lowest)) down = j, lowest = ratio;
    }
    if (up < 0 || down < 0) {
        multiplier = up >= 0 ? highest : down >= 0 ? lowest : Wide();
        return false;
    }
    multiplier = (highest + lowest) * Wide(0.5);
    const double room = norm(up) / std::abs(double(c[up])) + norm(down) / std::abs(double(c[down]));
    if (!(double(highest - lowest) > dual_tolerance * size() * room)) return false;
    place[up] = place[down] = Place::free;
    return true;
}

// Towards the solution on the free columns, as far as bounds let it. True where that is reached.
bool ActiveSet::step() {
    const size_t count = columns.size();
    std::vector<Wide> right(count);
    for (size_t p = 0; p < count; ++p) right[p] = gradient_[columns[p]];
    std::vector<Wide> d = solve_factor(right);
    if (has_sum()) {
        Wide along, square, missing = target;
        for (int j = 0; j < n; ++j) missing -= c[j] * x[j];
        for (size_t p = 0; p < count; ++p) {
            along += c[columns[p]] * d[p];
            square += c[columns[p]] * image_[p];
        }
        if (double(square) > 0) {
            const Wide share = (along - missing) / square;
            for (size_t p = 0; p < count; ++p) d[p] -= share * image_[p];
            multiplier = share + missing;
        }
    }
    Wide alpha = 1.0;
    int blocking = -1;
    for (size_t p = 0; p < count; ++p) {
        const int j = columns[p];
        const bool up = double(d[p]) > 0;
        const double bound = up ? upper[j] : lower[j];
        if (!std::isfinite(bound) || double(d[p]) == 0) continue;
        const Wide moved = x[j] + d[p];
        if (up ? !(moved > Wide(bound)) : !(moved < Wide(bound))) continue;
        const Wide room = (Wide(bound) - x[j]) / d[p];
        if (blocking < 0 || room < alpha) alpha = room, blocking = int(p);
    }
    if (double(alpha) < 0) alpha = 0.0;
    for (size_t p = 0; p < count; ++p) {
        const int j = columns[p];
        x[j] += alpha * d[p];
        if (x[j] < Wide(lower[j])) x[j] = lower[j];
        if (x[j] > Wide(upper[j])) x[j] = upper[j];
    }
    if (blocking < 0) return true;
    const int j = columns[blocking];
    const bool up = double(d[blocking]) > 0;
    x[j] = up ? upper[j] : lower[j];
    place[j] = up ? Place::upper : Place::lower;
    return false;
}

// The column at a bound whose dual asks most to leave it; the first of them, where that is wanted; or -1.
int ActiveSet::entering(bool first) const {
    int best = -1;
    double highest = 0;
    const double scale = dual_tolerance * size();
    for (int j = 0; j < n; ++j) {
        if (place[j] == Place::free || place[j] == Place::fixed || barred_[j]) continue;
        const double own = norm(j), weight = own > 0 ? own : has_sum() ? std::abs(double(c[j])) : 0.0;
        if (!(weight > 0)) continue;
        const double dual = double(has_sum() ? gradient_[j] - multiplier * c[j] : gradient_[j]);
        const double asks = (place[j] == Place::lower ? dual : -dual) / weight;
        if (!(asks > scale) || !(asks > highest)) continue;
        best = j;
        highest = asks;
        if (first) break;
    }
    return best;
}

bool ActiveSet::solve() {
    const int limit = 100 + 20 * n;
    int idle = 0, last = -1;  // turns that moved nothing; what entered last
    for (int turn = 0; turn < limit; ++turn) {
        find_gradient();
        factor();
        bool any_in_sum = !has_sum();
        for (const int j : columns) any_in_sum = any_in_sum || double(c[j]) != 0;
        if (!any_in_sum) {
            if (free_a_pair()) {
                if (++idle > 4 * n) return false;
                continue;
            }
        }
        if (last >= 0 && std::find(columns.begin(), columns.end(), last) == columns.end()) {
            // It depends on others: they have its place.
            barred_[last] = true;
            place[last] = x[last] > Wide(lower[last]) ? Place::upper : Place::lower;
            last = -1;
        }
        const Wide before = last >= 0 ? x[last] : Wide();
        const Place from = last < 0 ? Place::free : x[last] > Wide(lower[last]) ? Place::upper : Place::lower;
        const bool arrived = step();
        if (last >= 0) {
            const bool moved = x[last] < before || before < x[last];
            if (moved) {
                idle = 0;
                barred_.assign(n, false);
            } else if (++idle > 4 * n) {
                return false;
            } else if (place[last] == Place::free && arrived) {
                place[last] = from;  // rounding alone asked for it
                barred_[last] = true;
            }
            last = -1;
        }
        if (!arrived) continue;
        find_gradient();
        last = entering(idle > n);
        if (last < 0) return true;
        place[last] = Place::free;
    }
    return false;
}

}  // namespace stepwell::wide
