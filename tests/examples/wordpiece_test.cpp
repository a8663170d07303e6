#include "common/wordpiece.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "attn/core/error.hpp"
#include "support/error_text.hpp"

namespace {

using attn::Index;
using attn::examples::split_words;
using attn::examples::WordPiece;
using attn_test::error_text;
using Ids = std::vector<Index>;
using Words = std::vector<std::string>;

/// Texts and ids written by tools/make_wordpiece_golden.py with the PyPI package `tokenizers`.
nlohmann::json golden() {
  std::ifstream in(ATTN_TEST_SOURCE_DIR "/tests/golden/wordpiece.json");
  return nlohmann::json::parse(in);
}

WordPiece from_lines(const std::vector<std::string>& lines, attn::examples::WordPieceOptions options = {}) {
  std::stringstream text;
  for (const std::string& line : lines) text << line << '\n';
  return WordPiece(text, "vocabulary", options);
}

const std::vector<std::string> tiny{"[PAD]", "[UNK]", "[CLS]",  "[SEP]", "[MASK]",
                                    "cat",   "##s",   "##alog", "ca",    "!"};

void expect_ids(const nlohmann::json& cases, const WordPiece& tokenizer, Index max_length, const char* key) {
  ASSERT_GE(cases.size(), 200u);
  for (const auto& entry : cases)
    EXPECT_EQ(tokenizer.encode(entry["text"].get<std::string>(), max_length), entry[key].get<Ids>())
        << entry["text"].dump(-1, ' ', true);
}

TEST(WordPiece, GivesTheIdsOfTheTokenizersPackage) {
  const auto file = golden();
  expect_ids(file["cases"], from_lines(file["vocabulary"]), file["max_length"], "ids");
}

TEST(WordPiece, GivesTheIdsOfTheTokenizersPackageForTheVocabularyOfMiniLM) {
  const std::filesystem::path vocabulary = ATTN_TEST_SOURCE_DIR "/models/minilm/vocab.txt";
  if (!std::filesystem::exists(vocabulary))
    GTEST_SKIP() << "no " << vocabulary << "; see tools/fetch_minilm.py";
  const auto file = golden();
  expect_ids(file["cases"], WordPiece::load(vocabulary), file["max_length"], "minilm");
}

TEST(WordPiece, TakesTheLongestPieceFirst) {
  EXPECT_EQ(from_lines(tiny).encode("cats catalog", 16), (Ids{2, 5, 6, 5, 7, 3}));
}

TEST(WordPiece, MakesAWordThatCannotBeCutUnknownAsAWhole) {
  EXPECT_EQ(from_lines(tiny).encode("cat catx cats", 16), (Ids{2, 5, 1, 5, 6, 3}));
}

TEST(WordPiece, CutsOffPiecesBeyondTheLengthButKeepsBothEnds) {
  EXPECT_EQ(from_lines(tiny).encode("cat cat cat cat", 4), (Ids{2, 5, 5, 3}));
  EXPECT_EQ(from_lines(tiny).encode("cat", 2), (Ids{2, 3}));
}

TEST(WordPiece, RefusesALengthWithoutRoomForBothEnds) {
  EXPECT_THROW(from_lines(tiny).encode("cat", 1), std::invalid_argument);
}

TEST(WordPiece, KeepsCaseAndAccentsForACasedVocabulary) {
  EXPECT_EQ(split_words("Éa É, a", false), (Words{"Éa", "É", ",", "a"}));
  EXPECT_EQ(from_lines(tiny, {.lower_case = false}).encode("Cat cat", 16), (Ids{2, 1, 5, 3}));
}

TEST(WordPiece, ReadsAVocabularyWithWindowsLineEndsAndNoLastNewline) {
  std::stringstream text("[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\ncat");
  const WordPiece tokenizer(text);
  EXPECT_EQ(tokenizer.size(), 5);
  EXPECT_EQ(tokenizer.encode("cat", 8), (Ids{2, 4, 3}));
}

TEST(WordPiece, NamesWhatTheVocabularyLacks) {
  EXPECT_EQ(error_text<attn::FormatError>([] {
              from_lines({"[PAD]", "[UNK]", "[CLS]", "cat"});
            }),
            "attn: vocabulary has no [SEP]");
  EXPECT_EQ(error_text<attn::FormatError>([] {
              from_lines({"[PAD]", "caf\xE9"});
            }),
            "attn: vocabulary line 2 is not UTF-8");
  EXPECT_EQ(error_text<attn::FormatError>([] { WordPiece::load("no/such/vocab.txt"); }),
            "attn: cannot read the vocabulary no/such/vocab.txt");
  EXPECT_THROW(WordPiece::load("."), attn::FormatError);
}

TEST(WordPiece, NamesTheByteWhereATextIsNotUtf8) {
  EXPECT_EQ(error_text<attn::FormatError>([] { from_lines(tiny).encode("cat \xFF", 8); }),
            "attn: split_words: the text is not UTF-8 at byte 4");
}

}  // namespace
