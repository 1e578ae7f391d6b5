// Columns of a block are copied into panels of equal width, whole registers each, in aligned memory; included
// by sources that are compiled once per instruction set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

#include "core/common/simd.hpp"

namespace stepwell {
namespace SW_ISA {

constexpr std::align_val_t cache_line{64};

template <class Value>
struct Freed {
    void operator()(Value* memory) const { ::operator delete[](memory, cache_line); }
};
template <class Value>
using Aligned = std::unique_ptr<Value[], Freed<Value>>;

template <class Value>
Aligned<Value> aligned(std::int64_t count) {
    return Aligned<Value>(
        static_cast<Value*>(::operator new[](sizeof(Value) * std::size_t(count), cache_line)));
}

// How columns are cut.
struct PanelCut {
    std::int64_t columns, width, count;

    std::int64_t filled(std::int64_t panel) const { return std::min(width, columns - panel * width); }
};

// As few panels as registers allow, as narrow as these can be.
template <class Value>
PanelCut cut_into_panels(std::int64_t columns, std::int64_t max_vectors) {
    const std::int64_t vectors = (columns + register_lanes<Value> - 1) / register_lanes<Value>;
    const std::int64_t count = (vectors + max_vectors - 1) / max_vectors;
    return {columns, (vectors + count - 1) / count * register_lanes<Value>, count};
}

}  // namespace SW_ISA
}  // namespace stepwell
