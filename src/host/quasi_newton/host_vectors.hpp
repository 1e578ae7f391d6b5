// The vectors of one problem on the host. They are of the caller's numbers, float or double, which are told
// apart at run time: a sweep widens a tile of them at a time (tiles.hpp), and is compiled once for both.
#pragma once

#include <cstring>
#include <type_traits>

#include "core/quasi_newton/memory.hpp"

namespace stepwell {
typedef unsigned char Byte;
}

SW_BEGIN

struct HostVector {
    void* first = nullptr;
    bool single = false;

    HostVector() {}
    template <class T>
    HostVector(const T* numbers) : first(const_cast<T*>(numbers)), single(sizeof(T) < sizeof(double)) {}

    explicit operator bool() const { return first; }
    double operator[](int64_t i) const { return single ? double(as<float>()[i]) : as<double>()[i]; }
    HostVector operator+(int64_t i) const {
        HostVector rest = *this;
        rest.first = static_cast<Byte*>(first) + i * word();
        return rest;
    }
    int64_t word() const { return single ? sizeof(float) : sizeof(double); }
    template <class T>
    T* as() const {
        return static_cast<T*>(first);
    }
    // use(pointer to its numbers)
    template <class Use>
    auto with(const Use& use) const {
        return single ? use(as<float>()) : use(as<double>());
    }
};

// Of the same numbers.
inline void copy_numbers(HostVector from, int64_t count, HostVector to) {
    if (count > 0) std::memcpy(to.first, from.first, size_t(count * from.word()));
}

struct HostVectors {
    int64_t n, stride;  // of the history, in bytes
    HostVector x, g, d, trial;
    Byte *s, *y;
    HostVector lower, upper, weights;
    uint8_t lower_step, upper_step;
    bool single;  // the numbers of all of them

    template <class T>
    HostVectors(const ProblemVectors<T, Byte>& v)
        : n(v.n),
          stride(v.stride),
          x(v.x),
          g(v.g),
          d(v.d),
          trial(v.trial),
          s(v.s),
          y(v.y),
          lower(v.lower),
          upper(v.upper),
          weights(v.weights),
          lower_step(v.lower_step),
          upper_step(v.upper_step),
          single(sizeof(T) < sizeof(double)) {}
};

SW_END
