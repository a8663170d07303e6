// tests/support/temporary_directory.hpp - a directory for the files of one test, and whole files as strings.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace attn_test {

/// Empty, named after the running test, removed at the end of the scope.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string("attn_") + test.test_suite_name() + "_" + test.name() + "_";
    for (char& c : name) c = c == '/' ? '_' : c;
    const std::filesystem::path base = std::filesystem::temp_directory_path();
    for (int i = 0; !std::filesystem::create_directory(path_ = base / (name + std::to_string(i))); ++i) {
    }
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  /// How many files it holds.
  std::ptrdiff_t count() const {
    return std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator());
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace attn_test
