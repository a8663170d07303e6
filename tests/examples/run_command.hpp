// tests/examples/run_command.hpp - runs a program of the build and keeps what it printed.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "support/temporary_directory.hpp"

namespace attn_test {

struct CommandResult {
  int exit_code = -1;
  std::string out, err;
};

inline std::string quoted(const std::string& argument) {
  std::string text = "'";
  for (const char c : argument) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// Runs examples/<program> with these arguments and standard input; `scratch` holds the streams.
inline CommandResult run_command(const TemporaryDirectory& scratch, const std::string& program,
                                 const std::vector<std::string>& arguments, const std::string& input = "") {
  write_text(scratch / "stdin", input);
  std::string command = ATTN_TEST_EMULATOR;
  command.append(quoted(std::string(ATTN_TEST_BINARY_DIR "/examples/") + program));
  for (const std::string& argument : arguments) command.append(" ").append(quoted(argument));
  for (const char* stream : {"<stdin", ">stdout", "2>stderr"}) {
    const std::string text = stream;
    const std::size_t name = text.find("std");
    command.append(" ").append(text, 0, name).append(quoted((scratch / text.substr(name)).string()));
  }
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(scratch / "stdout"),
          read_text(scratch / "stderr")};
}

inline bool has_program(const std::string& program) {
  return std::filesystem::exists(std::string(ATTN_TEST_BINARY_DIR "/examples/") + program);
}

}  // namespace attn_test
