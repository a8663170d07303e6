#include "common/text.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "attn/core/error.hpp"
#include "common/table.hpp"
#include "common/utf8.hpp"
#include "support/error_text.hpp"

namespace {

using attn::examples::Align;
using attn::examples::find_invalid_utf8;
using attn::examples::printable;
using attn::examples::read_sentences;
using Sentences = std::vector<std::string>;

Sentences read(const std::string& text) {
  std::stringstream in(text);
  return read_sentences(in, "notes.txt");
}

TEST(ReadSentences, KeepsTheOrderAndSkipsBlankLines) {
  EXPECT_EQ(read("one\n\n  \t\ntwo \r\n\r\nthree"), (Sentences{"one", "two ", "three"}));
  EXPECT_EQ(read("\n\n"), Sentences{});
}

TEST(ReadSentences, DropsAByteOrderMarkBeforeTheFirstLine) {
  EXPECT_EQ(read("\xEF\xBB\xBFone\n\xEF\xBB\xBFtwo"), (Sentences{"one", "\xEF\xBB\xBFtwo"}));
}

TEST(ReadSentences, NamesTheLineThatIsNotUtf8) {
  EXPECT_EQ(attn_test::error_text<attn::FormatError>([] { read("one\n\ncaf\xE9!\n"); }),
            "attn: notes.txt line 3 is not UTF-8 (byte 4 of the line)");
}

TEST(Printable, ReplacesWhatCouldSteerATerminal) {
  EXPECT_EQ(printable("a\033[31m\tb\xC2\x9B"
                      "c\xE2\x80\xA8"
                      "é"),
            "a [31m b c é");
}

TEST(Table, AlignsColumnsByTheirWidthOnATerminal) {
  attn::examples::Table table({{"name", Align::left}, {"count"}, {"note", Align::left}});
  table.add_row({"é", "10", "x"});
  table.add_row({"日本", "7", ""});
  std::stringstream out;
  table.print(out);
  EXPECT_EQ(out.str(), "name  count  note\né        10  x\n日本      7  \n");
  EXPECT_THROW(table.add_row({"too few"}), std::invalid_argument);
}

TEST(Grouped, PutsCommasBetweenThousands) {
  EXPECT_EQ(attn::examples::grouped(0), "0");
  EXPECT_EQ(attn::examples::grouped(999), "999");
  EXPECT_EQ(attn::examples::grouped(1048576), "1,048,576");
  EXPECT_EQ(attn::examples::grouped(-123456), "-123,456");
}

TEST(FindInvalidUtf8, AcceptsEveryLengthOfCharacter) {
  EXPECT_EQ(find_invalid_utf8(""), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("aß한😀"), std::nullopt);
}

TEST(FindInvalidUtf8, RejectsOverlongFormsSurrogatesAndCutCharacters) {
  for (const std::string bad : {"\xC0\xAF", "\xED\xA0\x80", "\xE2\x82", "\xF4\x90\x80\x80", "\x80", "\xFF"})
    EXPECT_EQ(find_invalid_utf8("ab" + bad), 2u) << testing::PrintToString(bad);
}

}  // namespace
