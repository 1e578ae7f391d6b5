// The layout of plain structures, told to Python as LAYOUTS[name] = (size, [(field, kind, offset), ...]), so
// that nobody mirrors it by hand: stepwell/cuda/layouts.py makes ctypes structures of it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>

namespace stepwell {

// What a field is: a number, an address, or another structure that has a layout (say its name with SW_KIND).
template <class T>
struct KindOf;
template <class T>
struct KindOf<T*> {
    static constexpr const char* name = "address";
};
#define SW_KIND(type, text)                       \
    template <>                                   \
    struct KindOf<type> {                         \
        static constexpr const char* name = text; \
    };
SW_KIND(double, "double")
SW_KIND(bool, "bool")
SW_KIND(std::uint8_t, "uint8")
SW_KIND(std::int32_t, "int32")
SW_KIND(std::int64_t, "int64")

class StructLayout {
public:
    StructLayout(nanobind::module_& m, const char* name, std::size_t size) {
        if (!nanobind::hasattr(m, "LAYOUTS")) m.attr("LAYOUTS") = nanobind::dict();
        nanobind::cast<nanobind::dict>(m.attr("LAYOUTS"))[name] = nanobind::make_tuple(size, fields_);
    }

    template <class Field>
    void add(const char* name, std::size_t offset) {
        fields_.append(nanobind::make_tuple(name, KindOf<Field>::name, offset));
    }

private:
    nanobind::list fields_;
};

#define SW_FIELD(layout, type, field) (layout).add<decltype(type::field)>(#field, offsetof(type, field))

}  // namespace stepwell
