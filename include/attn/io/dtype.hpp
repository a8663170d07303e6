// attn/io/dtype.hpp - DType: the element types that tensors in files and weight maps have.
#pragma once
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <type_traits>

#include "attn/core/types.hpp"

ATTN_NAMESPACE_BEGIN

/// How the elements of a stored tensor are encoded. `boolean` is one byte, not zero = true; float16 and
/// bfloat16 are Eigen::half and Eigen::bfloat16.
enum class DType : std::uint8_t {
  boolean,
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  uint64,
  int64,
  float16,
  bfloat16,
  float32,
  float64
};

/// Stands for the element type of a boolean tensor: a byte of any value, where C++'s bool allows only two.
enum class StoredBool : std::uint8_t { no = 0, yes = 1 };

/// Calls f(std::type_identity<T>{}) with the type of one stored element.
template <class F>
constexpr decltype(auto) with_stored_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::boolean:
      return f(std::type_identity<StoredBool>{});
    case DType::uint8:
      return f(std::type_identity<std::uint8_t>{});
    case DType::int8:
      return f(std::type_identity<std::int8_t>{});
    case DType::uint16:
      return f(std::type_identity<std::uint16_t>{});
    case DType::int16:
      return f(std::type_identity<std::int16_t>{});
    case DType::uint32:
      return f(std::type_identity<std::uint32_t>{});
    case DType::int32:
      return f(std::type_identity<std::int32_t>{});
    case DType::uint64:
      return f(std::type_identity<std::uint64_t>{});
    case DType::int64:
      return f(std::type_identity<std::int64_t>{});
    case DType::float16:
      return f(std::type_identity<Eigen::half>{});
    case DType::bfloat16:
      return f(std::type_identity<Eigen::bfloat16>{});
    case DType::float32:
      return f(std::type_identity<float>{});
    case DType::float64:
      break;
  }
  return f(std::type_identity<double>{});
}

/// Bytes of one element.
constexpr Index size_of(DType dtype) {
  return with_stored_type(dtype,
                          []<class T>(std::type_identity<T>) { return static_cast<Index>(sizeof(T)); });
}

/// True for the types of Element.
constexpr bool is_floating(DType dtype) { return dtype >= DType::float16; }

/// The name that errors print, as NumPy spells it.
constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view names[] = {"bool",     "uint8",   "int8",   "uint16", "int16",
                                        "uint32",   "int32",   "uint64", "int64",  "float16",
                                        "bfloat16", "float32", "float64"};
  return names[static_cast<std::size_t>(dtype)];
}
inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

namespace detail {
template <class T>
constexpr bool has_dtype = std::is_same_v<T, bool> || std::is_same_v<T, StoredBool> || Element<T> ||
                           (std::is_integral_v<T> && !std::is_same_v<T, char> && sizeof(T) <= 8);

template <class T>
constexpr DType find_dtype() {
  static_assert(has_dtype<T>, "attn: no DType describes this type");
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, StoredBool>) return DType::boolean;
  if constexpr (std::is_same_v<T, Eigen::half>) return DType::float16;
  if constexpr (std::is_same_v<T, Eigen::bfloat16>) return DType::bfloat16;
  if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? DType::float32 : DType::float64;
  constexpr bool is_signed = std::is_signed_v<T>;
  switch (sizeof(T)) {
    case 1:
      return is_signed ? DType::int8 : DType::uint8;
    case 2:
      return is_signed ? DType::int16 : DType::uint16;
    case 4:
      return is_signed ? DType::int32 : DType::uint32;
    default:
      return is_signed ? DType::int64 : DType::uint64;
  }
}
}  // namespace detail

/// The DType of a C++ type.
template <class T>
inline constexpr DType dtype_of = detail::find_dtype<T>();

ATTN_NAMESPACE_END
