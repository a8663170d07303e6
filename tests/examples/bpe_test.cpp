#include "common/bpe.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attn/core/error.hpp"
#include "examples/smollm2.hpp"
#include "support/error_text.hpp"

namespace {

using attn::FormatError;
using attn::Index;
using attn::examples::Bpe;
using attn::examples::find_invalid_utf8;
using attn::examples::SpecialTokens;
using attn::examples::StreamDecoder;
using attn_test::error_text;
using nlohmann::json;
using Ids = std::vector<Index>;

/// Texts, ids and a small tokenizer, written by tools/make_bpe_golden.py with the PyPI package `tokenizers`.
const json& golden() {
  static const json file = [] {
    std::ifstream in(ATTN_TEST_SOURCE_DIR "/tests/golden/bpe.json");
    return json::parse(in);
  }();
  return file;
}

Bpe tiny() { return Bpe(golden()["tokenizer"].dump()); }

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string text_of(const json& entry) {
  return entry.contains("text") ? entry["text"].get<std::string>() : from_hex(entry["bytes"]);
}

void expect_ids(const Bpe& tokenizer, const char* key) {
  ASSERT_GE(golden()["cases"].size(), 200u);
  for (const json& entry : golden()["cases"])
    EXPECT_EQ(tokenizer.encode(text_of(entry)), entry[key].get<Ids>()) << entry.dump(-1, ' ', true);
}

void expect_texts(const Bpe& tokenizer, const std::string& key) {
  for (const json& entry : golden()["decoded"])
    EXPECT_EQ(tokenizer.decode(entry[key].get<Ids>()), entry[key + "_text"].get<std::string>())
        << entry.dump(-1, ' ', true);
}

TEST(Bpe, GivesTheIdsOfTheTokenizersPackage) { expect_ids(tiny(), "tiny"); }

TEST(Bpe, GivesTheIdsOfTheTokenizersPackageForSmolLM2) {
  const auto model = attn_test::smollm2_directory();
  if (!model) GTEST_SKIP() << "no models/smollm2; see tools/fetch_smollm2.py";
  expect_ids(Bpe::load(*model / "tokenizer.json"), "smollm2");
}

TEST(Bpe, DecodesAsTheTokenizersPackageDoes) {
  const Bpe tokenizer = tiny();
  expect_texts(tokenizer, "tiny");
  for (const json& entry : golden()["decoded"])
    EXPECT_EQ(tokenizer.decode(entry["tiny"].get<Ids>(), SpecialTokens::keep),
              entry["tiny_all"].get<std::string>());
}

TEST(Bpe, DecodesAsTheTokenizersPackageDoesForSmolLM2) {
  const auto model = attn_test::smollm2_directory();
  if (!model) GTEST_SKIP() << "no models/smollm2; see tools/fetch_smollm2.py";
  expect_texts(Bpe::load(*model / "tokenizer.json"), "smollm2");
}

TEST(Bpe, DecodesWhatItEncodedToTheSameText) {
  const Bpe tokenizer = tiny();
  for (const json& entry : golden()["cases"]) {
    const std::string text = text_of(entry);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text), SpecialTokens::keep),
              attn::examples::to_valid_utf8(text));
  }
}

TEST(Bpe, AStreamOfIdsNeverEndsWithinACharacterAndJoinsToTheDecodedText) {
  const Bpe tokenizer = tiny();
  const auto expect_stream = [&](const Ids& ids) {
    StreamDecoder stream(tokenizer);
    std::string joined;
    for (const Index id : ids) {
      const std::string part = stream.push(id);
      EXPECT_FALSE(find_invalid_utf8(part).has_value());
      joined += part;
    }
    EXPECT_EQ(joined + stream.finish(), tokenizer.decode(ids));
  };
  for (const json& entry : golden()["decoded"]) expect_stream(entry["tiny"].get<Ids>());
  for (const json& entry : golden()["cases"]) expect_stream(entry["tiny"].get<Ids>());
}

TEST(Bpe, HoldsACharacterBackUntilAllOfItsBytesHaveCome) {
  const Bpe tokenizer = tiny();
  StreamDecoder stream(tokenizer);
  const auto push_byte = [&](const char* written) { return stream.push(*tokenizer.find(written)); };
  EXPECT_EQ(push_byte("Ã"), "");   // 0xC3
  EXPECT_EQ(push_byte("©"), "é");  // 0xA9
  EXPECT_EQ(push_byte("Ã"), "");
  EXPECT_EQ(push_byte("a"), "\uFFFDa");
  EXPECT_EQ(push_byte("Ã"), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Bpe, TokenizesALongRunInLittleTime) {
  const Bpe tokenizer = tiny();
  const std::string text(200000, 'a');
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

/// A tokenizer of the letters a and b, the space and "ab", with one member of the file replaced.
std::string small(const json::json_pointer& at = json::json_pointer("/version"), const json& value = "1.0") {
  json file = json::parse(R"({
    "version": "1.0", "added_tokens": [{"id": 4, "content": "<end>", "special": true, "normalized": false}],
    "normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": null, "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "\u0120": 2, "ab": 3}, "merges": [["a", "b"]]}})");
  file[at] = value;
  return file.dump();
}

TEST(Bpe, TakesMergesInBothFormsOfTheFile) {
  EXPECT_EQ(Bpe(small()).encode("ab ba<end>"), (Ids{3, 2, 1, 0, 4}));
  EXPECT_EQ(Bpe(small("/model/merges"_json_pointer, {"a b"})).encode("ab"), (Ids{3}));
}

TEST(Bpe, LeavesOutBytesWithoutATokenOrTakesTheUnknownToken) {
  EXPECT_EQ(Bpe(small()).encode("axb"), (Ids{3}));
  EXPECT_EQ(Bpe(small("/model/unk_token"_json_pointer, "b")).encode("xa"), (Ids{1, 0}));
}

TEST(Bpe, PutsASpaceBeforeATextIfTheFileSaysSo) {
  EXPECT_EQ(Bpe(small("/pre_tokenizer/add_prefix_space"_json_pointer, true)).encode("a"), (Ids{2, 0}));
  EXPECT_EQ(Bpe(small("/pre_tokenizer/add_prefix_space"_json_pointer, true)).encode(" a"), (Ids{2, 0}));
}

TEST(Bpe, TakesAWholeWordOfTheVocabularyWithoutMergesIfTheFileSaysSo) {
  json file = json::parse(small("/model/ignore_merges"_json_pointer, true));
  file["model"]["merges"] = json::array();
  EXPECT_EQ(Bpe(file.dump()).encode("ab"), (Ids{3}));
  file["model"]["ignore_merges"] = false;
  EXPECT_EQ(Bpe(file.dump()).encode("ab"), (Ids{0, 1}));
}

/// The error that `small` with one member replaced gives.
std::string error_with(const json::json_pointer& at, const json& value) {
  return error_text<FormatError>([&] { Bpe(small(at, value), "t.json"); });
}

TEST(Bpe, NamesWhatATokenizerFileLacksOrSaysWrong) {
  const auto text_error = [](const char* text) {
    return error_text<FormatError>([&] { Bpe(text, "t.json"); });
  };
  EXPECT_EQ(text_error("hello"), "attn: t.json: is not JSON, as byte 1 shows");
  EXPECT_EQ(text_error("{}"), "attn: t.json: is not a tokenizer.json (it has no model)");
  EXPECT_EQ(text_error("[1]"), "attn: t.json: is not a tokenizer.json (it has no model)");
  EXPECT_EQ(text_error(R"({"model": {"type": "WordPiece"}})"),
            "attn: t.json: model is \"WordPiece\", not BPE");
  EXPECT_EQ(text_error(R"({"model": {"type": "BPE", "vocab": {"a": 0}}})"), "attn: t.json: has no merges");
  EXPECT_EQ(error_with("/model/vocab"_json_pointer, {1}), "attn: t.json: vocab is a array, not a object");
  EXPECT_EQ(error_with("/model/vocab"_json_pointer, json::object()), "attn: t.json: vocab is empty");
  EXPECT_EQ(error_with("/model/vocab/a"_json_pointer, -1),
            "attn: t.json: the id of 'a' is -1, not within [0, 4194304)");
  EXPECT_EQ(error_with("/model/merges/0"_json_pointer, "ab"), "attn: t.json: merge 0 is not two tokens");
  EXPECT_EQ(error_with("/model/merges/0"_json_pointer, {"b", "a"}),
            "attn: t.json: merge 0 makes or needs 'ba', which vocab lacks");
  EXPECT_EQ(error_with("/added_tokens/0/content"_json_pointer, "ab"),
            "attn: t.json: 'ab' has the ids 3 and 4");
}

TEST(Bpe, RefusesWhatItWouldNotDoAsTheFileSays) {
  EXPECT_EQ(error_with("/normalizer"_json_pointer, {{"type", "NFC"}}),
            "attn: t.json: normalizer is {\"type\":\"NFC\"}, which is not supported");
  EXPECT_EQ(error_with("/model/dropout"_json_pointer, 0.1),
            "attn: t.json: dropout is 0.1, which is not supported");
  EXPECT_EQ(error_with("/model/byte_fallback"_json_pointer, true),
            "attn: t.json: byte_fallback is true, which is not supported");
  EXPECT_EQ(error_with("/pre_tokenizer/type"_json_pointer, "Metaspace"),
            "attn: t.json: pre_tokenizer is \"Metaspace\", which is none of ByteLevel, Digits, Sequence");
  EXPECT_EQ(error_with("/pre_tokenizer"_json_pointer, {{"type", "Digits"}}),
            "attn: t.json: pre_tokenizer does not end with ByteLevel: not a byte-level tokenizer");
  EXPECT_EQ(error_with("/added_tokens/0/lstrip"_json_pointer, true),
            "attn: t.json: lstrip of the added token '<end>' is not supported");
}

TEST(Bpe, NamesAFileThatCannotBeRead) {
  const std::string text = error_text<FormatError>([] { Bpe::load("no/such/tokenizer.json"); });
  EXPECT_TRUE(text.starts_with("attn: no/such/tokenizer.json")) << text;
}

TEST(Bpe, DecodesIdsThatNoTokenHasToNothing) { EXPECT_EQ(Bpe(small()).decode(Ids{0, 5, 4000, -1, 1}), "ab"); }

}  // namespace
