// The panel product on its own: C = L Rᵀ for two panels of a few long rows, with the arithmetic of the absorb
// sweep, so that it can be measured against a library.
#pragma once

#include <cstdint>

#include "host/common/dispatch.hpp"

namespace stepwell {

constexpr int panel_most_rows = 16;

// out (rows x columns) = left (rows x length) · right (columns x length)ᵀ, all row-major.
using PanelProduct = void (*)(int rows, int columns, std::int64_t length, const double* left,
                              const double* right, double* out, int threads);

SW_FOR_EACH_ISA(extern const PanelProduct panel_product;)

}  // namespace stepwell
