// attn/core/error.hpp - the exceptions thrown at the public boundary, and check(), which throws them.
#pragma once
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
template <class Error, class... Parts>
[[noreturn]] ATTN_COLD void raise(const Parts&... parts) {
  std::ostringstream message;
  message << "attn: ";
  (message << ... << parts);
  ATTN_THROW(Error, message.str());
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
