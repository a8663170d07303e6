// attn/io/npy.hpp - NumPy's array files.
//
// File: "\x93NUMPY", version (major, minor), header length (2 bytes, from version 2 on 4; little-endian),
// header, elements. The header is a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (2,
// 3), }.
#pragma once
#include <algorithm>
#include <bit>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/io/file.hpp"
#include "attn/io/stored_tensor.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {

inline constexpr std::string_view npy_magic = "\x93NUMPY";

struct NpyHeader {
  DType dtype = DType::float32;
  std::endian order = std::endian::little;
  bool is_fortran = false;
  std::vector<Index> shape{};
};

/// Reads the header's dictionary: three keys in any order, their values of one form each.
class NpyHeaderParser {
 public:
  NpyHeaderParser(std::string_view text, const std::string& name) : rest_(text), name_(name) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      bool* const seen = key == "descr"           ? &has_descr
                         : key == "fortran_order" ? &has_order
                         : key == "shape"         ? &has_shape
                                                  : nullptr;
      require(seen != nullptr && !*seen, "an unknown or repeated key '", key, "'");
      *seen = true;
      if (seen == &has_descr) parse_descr(quoted(), header);
      if (seen == &has_order) header.is_fortran = boolean();
      if (seen == &has_shape) header.shape = shape();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    require(rest_.empty(), "text behind the dictionary");
    require(has_descr && has_order && has_shape, "without descr, fortran_order or shape");
    return header;
  }

 private:
  template <class... Parts>
  void require(bool ok, const Parts&... parts) const {
    check<FormatError>(ok, name_, ": has a header with ", parts...);
  }
  void skip_space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n\r"), rest_.size())); }
  bool accept(char c) {
    skip_space();
    const bool is_there = rest_.starts_with(c);
    if (is_there) rest_.remove_prefix(1);
    return is_there;
  }
  void expect(char c) { require(accept(c), "no '", c, "' where one is needed"); }
  std::string_view quoted() {
    const char quote = accept('"') ? '"' : '\'';
    if (quote == '\'') expect('\'');
    const std::size_t end = rest_.find(quote);
    require(end != rest_.npos, "an open quote");
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return text;
  }
  bool boolean() {
    skip_space();
    const bool value = rest_.starts_with("True");
    require(value || rest_.starts_with("False"), "a fortran_order that is neither True nor False");
    rest_.remove_prefix(value ? 4 : 5);
    return value;
  }
  std::vector<Index> shape() {
    constexpr std::size_t max_rank = 64;  // NumPy's own
    std::vector<Index> shape;
    expect('(');
    while (!accept(')')) {
      require(shape.size() < max_rank, "a shape of more than ", max_rank, " axes");
      shape.push_back(extent());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }
  Index extent() {
    skip_space();
    Index value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    require(error == std::errc{} && value >= 0, "an extent that is not a natural number or too large");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  void parse_descr(std::string_view descr, NpyHeader& header) const;

  std::string_view rest_;
  const std::string& name_;
};

struct NpyTypeCode {
  std::string_view code;
  DType dtype;
};
inline constexpr NpyTypeCode npy_type_codes[] = {
    {"b1", DType::boolean}, {"u1", DType::uint8},   {"i1", DType::int8},    {"u2", DType::uint16},
    {"i2", DType::int16},   {"u4", DType::uint32},  {"i4", DType::int32},   {"u8", DType::uint64},
    {"i8", DType::int64},   {"f2", DType::float16}, {"f4", DType::float32}, {"f8", DType::float64}};

inline void NpyHeaderParser::parse_descr(std::string_view descr, NpyHeader& header) const {
  const char order = descr.empty() ? ' ' : descr[0];
  const auto known =
      std::ranges::find(npy_type_codes, descr.substr(descr.empty() ? 0 : 1), &NpyTypeCode::code);
  const bool is_known = known != std::end(npy_type_codes);
  const bool order_fits =
      order == '<' || order == '>' || order == '=' || (order == '|' && descr.ends_with('1'));
  require(is_known && order_fits, "the element type '", descr, "', which is not one of attn's");
  header.dtype = known->dtype;
  header.order = order == '<' ? std::endian::little : order == '>' ? std::endian::big : std::endian::native;
}

/// Elements of `width` bytes with the bytes of each in reverse.
inline std::vector<std::byte> swap_bytes(std::span<const std::byte> bytes, std::size_t width) {
  std::vector<std::byte> swapped(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); i += width)
    std::reverse_copy(&bytes[i], &bytes[i] + width, &swapped[i]);
  return swapped;
}

/// Passes elements on to a file, in the other byte order if `swaps`.
struct NpyElementSink {
  FileWriter& file;
  std::size_t width;
  bool swaps;
  void write(std::span<const std::byte> bytes) const {
    if (swaps)
      file.write(swap_bytes(bytes, width));
    else
      file.write(bytes);
  }
};

/// Length of the part before the elements; the header stands at its end, from `begin` on.
struct NpyPreamble {
  std::size_t begin = 0;
  std::size_t size = 0;
};
inline NpyPreamble parse_npy_preamble(std::span<const std::byte> bytes, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  check<FormatError>(text.starts_with(npy_magic) && bytes.size() >= 10, name, ": is not a .npy file");
  const auto byte = [&](std::size_t at) { return std::to_integer<std::size_t>(bytes[at]); };
  const std::size_t version = byte(6);
  check<FormatError>(1 <= version && version <= 3, name, ": has version ", version,
                     " of the format, not 1 to 3");
  const std::size_t begin = version == 1 ? 10 : 12;
  check<FormatError>(bytes.size() >= begin, name, ": ends within its header");
  std::size_t length = 0;
  for (std::size_t at = begin; at-- > 8;) length = length << 8 | byte(at);
  check<FormatError>(length <= bytes.size() - begin, name, ": claims a header of ", length,
                     " bytes in a file of ", bytes.size());
  return {begin, begin + length};
}

}  // namespace detail

/// Reads .npy bytes of version 1, 2 or 3, of bool, integer or floating elements in C or Fortran order and
/// either byte order; the array borrows them (or keeps them, with `owner`) unless their bytes must be
/// swapped. `name` is what errors call it.
/// @throws FormatError if anything is wrong; the data must be exactly what the header says.
inline StoredTensor parse_npy(std::span<const std::byte> bytes, const std::string& name,
                              std::shared_ptr<const void> owner = nullptr) {
  const auto [begin, size] = detail::parse_npy_preamble(bytes, name);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + begin, size - begin);
  detail::NpyHeader header = detail::NpyHeaderParser(text, name).parse();

  std::span<const std::byte> data = bytes.subspan(size);
  const auto needed = detail::checked_bytes(header.shape, header.dtype);
  check<FormatError>(needed == data.size(), name, ": has ", data.size(), " bytes of data, which do not fill ",
                     detail::PrintShape{header.shape}, " of type ", header.dtype);
  if (header.order != std::endian::native && size_of(header.dtype) > 1) {
    const auto swapped = std::make_shared<const std::vector<std::byte>>(
        detail::swap_bytes(data, static_cast<std::size_t>(size_of(header.dtype))));
    data = *swapped;
    owner = swapped;
  }
  std::vector<Index> axes = header.shape;
  if (header.is_fortran) std::ranges::reverse(axes);
  std::vector<Index> strides = detail::contiguous_strides(axes);
  if (header.is_fortran) std::ranges::reverse(strides);
  return {name, header.dtype, std::move(header.shape), std::move(strides), data.data(), std::move(owner)};
}

/// Maps a .npy file. An array of bfloat16, which NumPy does not know, is read with
/// open_npy(path).reinterpret(DType::bfloat16).
/// @throws FormatError as parse_npy and read_file.
inline StoredTensor open_npy(const std::filesystem::path& path) {
  const FileBytes file = read_file(path);
  return parse_npy(file.bytes, path.string(), file.owner);
}

/// The order in which a file lists the elements: the last (c) or the first (fortran) index fastest.
enum class NpyOrder { c, fortran };

struct NpyWriteOptions {
  NpyOrder order = NpyOrder::c;
  std::endian byte_order = std::endian::little;
};

/// Writes a tensor of any strides as .npy version 1, whole or not at all. bfloat16 is written as its bits,
/// u2.
/// @throws std::runtime_error if the file cannot be written.
inline void write_npy(const std::filesystem::path& path, const StoredTensor& tensor,
                      const NpyWriteOptions& options = {}) {
  const DType dtype = tensor.dtype() == DType::bfloat16 ? DType::uint16 : tensor.dtype();
  const auto type = std::ranges::find(detail::npy_type_codes, dtype, &detail::NpyTypeCode::dtype);
  const bool is_fortran = options.order == NpyOrder::fortran;
  const char order = size_of(dtype) == 1 ? '|' : options.byte_order == std::endian::little ? '<' : '>';
  std::string header = std::string("{'descr': '") + order + std::string(type->code) +
                       "', 'fortran_order': " + (is_fortran ? "True" : "False") + ", 'shape': (";
  for (const Index extent : tensor.shape()) header += std::to_string(extent) + ",";
  header += "), }";
  constexpr std::size_t start = 10, alignment = 64;
  header.resize((start + header.size() + alignment) / alignment * alignment - start - 1, ' ');
  header += '\n';
  const std::size_t length = header.size();

  FileWriter file(path);
  file.write(std::string(detail::npy_magic) + '\1' + '\0' + static_cast<char>(length % 256) +
             static_cast<char>(length / 256) + header);
  detail::NpyElementSink sink{file, static_cast<std::size_t>(size_of(dtype)),
                              options.byte_order != std::endian::native};
  std::vector<Index> shape = tensor.shape(), strides = tensor.strides();
  if (is_fortran) {
    std::ranges::reverse(shape);
    std::ranges::reverse(strides);
  }
  detail::write_row_major({path.string(), dtype, std::move(shape), std::move(strides), tensor.data()}, sink);
  file.commit();
}
/// As above, of a view, Tensor or Eigen object.
template <TensorLike X>
void write_npy(const std::filesystem::path& path, const X& tensor, const NpyWriteOptions& options = {}) {
  write_npy(path, StoredTensor(path.string(), as_view(tensor)), options);
}

ATTN_NAMESPACE_END
