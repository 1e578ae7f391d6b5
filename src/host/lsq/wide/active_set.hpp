// min 1/2 x'Gx - f'x within bounds, and with c'x = target where there is c: an active set in twice the
// precision, from a point that has all of that. Columns are scaled, so that G has entries near one on its
// diagonal; what is a zero column there has no part but in the sum.
#pragma once

#include <vector>

#include "host/common/wide.hpp"

namespace stepwell::wide {

enum class Place : signed char { free, lower, upper, fixed };

class ActiveSet {
public:
    int n = 0;
    std::vector<Wide> G, f;  // n x n, and n
    std::vector<double> lower, upper;
    std::vector<Wide> c;  // or empty
    Wide target;
    // Pivots below this part of their diagonal are those of columns that depend on others.
    double dependence = 1e-26;
    double b_norm = 0;

    std::vector<Wide> x;
    std::vector<Place> place;
    Wide multiplier;           // g = multiplier c on free columns, g = f - G x
    std::vector<int> columns;  // in the factor

    // Takes bounds where x is at them, and moves x to where the sum is met. False where no x is.
    bool begin();
    // True at the solution, false where rounding or the limit on turns ends it.
    bool solve();
    // y = M v on the columns in the factor, M the inverse of G there; with a sum, along the sum's plane.
    std::vector<Wide> apply_inverse(const std::vector<Wide>& v) const;
    double norm(int j) const;

private:
    std::vector<Wide> triangle_, pivots_;  // L, rows one after the other, and D, of G + c c'
    std::vector<Wide> gradient_;           // f - G x
    std::vector<Wide> image_;              // (G + c c')^-1 c
    std::vector<bool> barred_;

    bool has_sum() const { return !c.empty(); }
    bool can_rise(int j) const { return place[j] != Place::fixed && place[j] != Place::upper; }
    bool can_fall(int j) const { return place[j] != Place::fixed && place[j] != Place::lower; }
    bool meet_sum();
    void find_gradient();
    void factor();
    std::vector<Wide> solve_factor(std::vector<Wide> v) const;
    bool free_a_pair();
    bool step();
    int entering(bool first) const;
    double size() const;
};

}  // namespace stepwell::wide
