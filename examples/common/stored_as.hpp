// examples/common/stored_as.hpp - element types that are chosen at run time.
#pragma once
#include <Eigen/Core>
#include <cstdint>
#include <string_view>

namespace attn::examples {

/// What a weight, or a cached key or value, is stored as.
enum class StoredAs { f32, f16, bf16, int8 };

inline constexpr const char* stored_as_names[] = {"f32", "f16", "bf16", "int8"};

/// As options and tables call it.
inline const char* name_of(StoredAs type) { return stored_as_names[static_cast<int>(type)]; }

/// The type of that name; f32 for a name that is none.
inline StoredAs stored_as(std::string_view name) {
  for (const StoredAs type : {StoredAs::f16, StoredAs::bf16, StoredAs::int8})
    if (name == name_of(type)) return type;
  return StoredAs::f32;
}

template <class T>
struct TypeTag {
  using type = T;
};

/// f(TypeTag<T>{}) with the type of that name.
template <class F>
decltype(auto) with_type(StoredAs type, F&& f) {
  switch (type) {
    case StoredAs::f16:
      return f(TypeTag<Eigen::half>{});
    case StoredAs::bf16:
      return f(TypeTag<Eigen::bfloat16>{});
    case StoredAs::int8:
      return f(TypeTag<std::int8_t>{});
    case StoredAs::f32:
      break;
  }
  return f(TypeTag<float>{});
}

}  // namespace attn::examples
