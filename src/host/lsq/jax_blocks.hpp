// Buffers of XLA's programs as systems: leading axes of arguments are systems, as `jax.vmap` makes them, and
// an argument that has ones there is shared by all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace stepwell {

namespace ffi = xla::ffi;

// The axes of an array before its last `core`.
inline std::vector<int64_t> lead_of(const ffi::AnyBuffer& array, size_t core) {
    const auto axes = array.dimensions();
    return std::vector<int64_t>(axes.begin(), axes.end() - static_cast<std::ptrdiff_t>(core));
}

inline int64_t product(const std::vector<int64_t>& axes) {
    int64_t all = 1;
    for (const int64_t axis : axes) all *= axis;
    return all;
}

// Axes of ones stretch to those of the others. False where they do not fit, or are not as many.
inline bool stretch(std::vector<int64_t>& whole, const std::vector<int64_t>& lead) {
    if (lead.size() != whole.size()) return false;
    for (size_t k = 0; k < lead.size(); ++k) {
        if (whole[k] == 1) whole[k] = lead[k];
        if (lead[k] != 1 && lead[k] != whole[k]) return false;
    }
    return true;
}

// The number, among blocks with axes `lead`, of that which stands at `index` of axes `whole`.
inline int64_t block_at(int64_t index, const std::vector<int64_t>& whole, const std::vector<int64_t>& lead) {
    int64_t at = 0, step = 1;
    for (size_t k = whole.size(); k-- > 0;) {
        if (lead[k] != 1) at += index % whole[k] * step;
        index /= whole[k];
        step *= lead[k];
    }
    return at;
}

// An argument's blocks in the order of all systems: the argument itself, or a copy where only some of its
// axes are shared. `Number` is what the copy holds.
template <class Number>
struct Blocks {
    const Number* data;
    int64_t stride;  // from one system to the next; 0: one for all
    std::vector<Number> own;

    Blocks(const Number* given, int64_t size, const std::vector<int64_t>& whole,
           const std::vector<int64_t>& lead)
        : data(given), stride(product(lead) == 1 ? 0 : size) {
        if (stride == 0 || lead == whole) return;
        const int64_t systems = product(whole);
        own.resize(static_cast<size_t>(systems * size));
        for (int64_t s = 0; s < systems; ++s)
            std::copy_n(given + block_at(s, whole, lead) * size, size, own.data() + s * size);
        data = own.data();
    }
};

// Numbers as doubles: themselves, or a copy of narrower ones.
template <class Number>
struct Doubles {
    Doubles(const Number* given, int64_t count) : own(given, given + count), data(own.data()) {}
    std::vector<double> own;
    const double* data;
};
template <>
struct Doubles<double> {
    Doubles(const double* given, int64_t) : data(given) {}
    const double* data;
};

// Calls what is written for one kind of numbers; memory that is not there is an error of the call.
template <class Double, class Single>
ffi::Error by_type(ffi::DataType type, const Double& in_double, const Single& in_single) {
    try {
        if (type == ffi::DataType::F64) return in_double();
        if (type == ffi::DataType::F32) return in_single();
    } catch (const std::bad_alloc&) {
        return ffi::Error(ffi::ErrorCode::kResourceExhausted, "stepwell: no memory to work on these systems");
    }
    return ffi::Error::InvalidArgument("stepwell: allowed are float32 and float64");
}

}  // namespace stepwell
