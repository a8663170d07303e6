// attn/core/error.hpp - the exceptions thrown at the public boundary, and check(), which throws them.
#pragma once
#include <cstddef>
#include <sstream>
#include <stdexcept>
#include <string>

#include "attn/core/config.hpp"

ATTN_NAMESPACE_BEGIN

/// Tensor arguments have extents that do not fit together; the text names the function and both shapes.
class ShapeError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// A file, or text from a file, is not what it claims to be; the text names the file and the entry.
class FormatError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {
/// A part of an error's text: how it is printed is behind a pointer, or each of the many combinations of
/// parts would have the code of a stream.
struct TextPart {
  const void* value;
  void (*print)(std::ostream&, const void*);
};
template <class X>
TextPart text_part(const X& x) {
  return {&x, [](std::ostream& out, const void* value) { out << *static_cast<const X*>(value); }};
}
template <std::size_t N>
TextPart text_part(const char (&text)[N]) {
  return {text, [](std::ostream& out, const void* value) { out << static_cast<const char*>(value); }};
}

template <class Error>
[[noreturn]] ATTN_COLD void raise_text(const TextPart* parts, std::size_t count) {
  std::ostringstream message;
  message << "attn: ";
  for (std::size_t i = 0; i < count; ++i) parts[i].print(message, parts[i].value);
  ATTN_THROW(Error, message.str());
}
template <class Error, class... Parts>
[[noreturn]] ATTN_COLD void raise(const Parts&... parts) {
  const TextPart all[] = {text_part(parts)...};
  raise_text<Error>(all, sizeof...(parts));
}
}  // namespace detail

/// Throws Error with "attn: " and the streamed parts as its text unless `ok`; the parts are formatted only
/// then.
template <class Error = ShapeError, class... Parts>
ATTN_ALWAYS_INLINE void check(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    detail::raise<Error>(parts...);
}

ATTN_NAMESPACE_END
