#include "attn/io/file.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "support/error_text.hpp"
#include "support/temporary_directory.hpp"

namespace {

using attn_test::read_text;
using attn_test::TemporaryDirectory;
using attn_test::write_text;

std::string text_of(const attn::FileBytes& file) {
  return {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()};
}

TEST(File, IsTheSameMappedAndRead) {
  const TemporaryDirectory directory;
  for (const std::size_t size : {0u, 1u, 4096u, (1u << 20) - 1, 1u << 20, 5u << 20}) {
    std::string text;
    for (std::size_t i = 0; i < size; ++i) text += static_cast<char>(i % 251);
    write_text(directory / "f", text);
    EXPECT_TRUE(text_of(attn::read_file(directory / "f")) == text) << size;
    EXPECT_TRUE(text_of(attn::detail::read_whole_file(directory / "f")) == text) << size;
  }
}

TEST(File, IsReplacedOnlyByACommit) {
  const TemporaryDirectory directory;
  write_text(directory / "f", "old");
  {
    attn::FileWriter abandoned(directory / "f");
    abandoned.write(std::string("half of"));
  }
  EXPECT_EQ(read_text(directory / "f"), "old");
  EXPECT_EQ(directory.count(), 1);

  attn::FileWriter writer(directory / "f");
  writer.write(std::string("ne"));
  writer.write(std::string("w"));
  EXPECT_EQ(read_text(directory / "f"), "old");
  writer.commit();
  EXPECT_EQ(read_text(directory / "f"), "new");
  EXPECT_EQ(directory.count(), 1);
}

TEST(File, TwoWritersDoNotMixAndTheLastCommitHolds) {
  const TemporaryDirectory directory;
  attn::FileWriter first(directory / "f"), second(directory / "f");
  first.write(std::string("first"));
  second.write(std::string("second"));
  second.commit();
  EXPECT_EQ(read_text(directory / "f"), "second");
  first.commit();
  EXPECT_EQ(read_text(directory / "f"), "first");
  EXPECT_EQ(directory.count(), 1);
}

TEST(File, ThatIsNoneIsNamed) {
  const TemporaryDirectory directory;
  EXPECT_EQ(attn_test::error_text<attn::FormatError>([&] { attn::read_file(directory / "none"); }),
            "attn: " + (directory / "none").string() + ": there is no such file");
  EXPECT_EQ(attn_test::error_text<attn::FormatError>([&] { attn::read_file(directory.path()); }),
            "attn: " + directory.path().string() + ": is not a file");
}

#if ATTN_HAS_MMAP
TEST(File, ThatCannotBeReadIsNamedWithTheReasonOfTheSystem) {
  const TemporaryDirectory directory;
  std::filesystem::create_symlink("f", directory / "f");
  const std::string from_map =
      attn_test::error_text<attn::FormatError>([&] { attn::detail::map_file(directory / "f"); });
  const std::string from_read =
      attn_test::error_text<attn::FormatError>([&] { attn::detail::read_whole_file(directory / "f"); });

  const std::string reason = std::generic_category().message(ELOOP);
  EXPECT_EQ(from_map, "attn: " + (directory / "f").string() + ": cannot be opened: " + reason);
  EXPECT_EQ(from_read, from_map);
  EXPECT_EQ(
      attn_test::error_text<attn::FormatError>([&] { attn::detail::read_whole_file(directory.path()); }),
      "attn: " + directory.path().string() + ": cannot be read: " + std::generic_category().message(EISDIR));
}
#endif

TEST(File, ADirectoryIsNotOverwritten) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "d");
  attn::FileWriter writer(directory / "d");
  const std::string error = attn_test::error_text<std::runtime_error>([&] { writer.commit(); });
  EXPECT_TRUE(error.starts_with("attn: " + (directory / "d").string() + ": cannot be written: ")) << error;
  EXPECT_EQ(directory.count(), 1);
}

}  // namespace
