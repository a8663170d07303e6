// tests/support/error_text.hpp - the text of the error that a call throws, for tests that compare it.
#pragma once
#include <exception>
#include <string>

namespace attn_test {

/// what() of the Error that `f` throws; a text that no test expects if it throws nothing or something else.
template <class Error, class F>
std::string error_text(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another type of error: ") + error.what();
  }
  return "no error";
}

}  // namespace attn_test
