#include "attn/io/shards.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/error_text.hpp"
#include "support/temporary_directory.hpp"

namespace {

using attn::FormatError;
using attn::Tensor;
using attn::WeightMap;
using attn_test::error_text;
using attn_test::write_text;

/// Two shards with the weights a = 1 and b = 2, and an index of them.
class Shards : public testing::Test {
 protected:
  Shards() {
    a_(0) = 1;
    b_(0) = 2;
    attn::write_safetensors(directory_ / "m-1.safetensors", WeightMap().add("a", a_));
    attn::write_safetensors(directory_ / "m-2.safetensors", WeightMap().add("b", b_).add("unlisted", a_));
    write_index(
        R"({"metadata":{"total_size":8},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  }
  void write_index(const std::string& text) { write_text(index_, text); }
  std::string open_error() {
    return error_text<FormatError>([&] { attn::open_weights(index_); });
  }

  attn_test::TemporaryDirectory directory_;
  std::filesystem::path index_ = directory_ / "model.safetensors.index.json";
  Tensor<float, 1> a_{{1}}, b_{{1}};
};

TEST_F(Shards, AreReadAsOneMap) {
  for (const auto& path : {index_, directory_.path()}) {
    const WeightMap weights = attn::open_weights(path);
    EXPECT_EQ(weights.names(), (std::vector<std::string>{"a", "b"})) << "what the index lists, no more";
    EXPECT_EQ((weights.get<float, 1>("a")(0)), 1);
    EXPECT_EQ((weights.get<float, 1>("b")(0)), 2);
  }
}

TEST_F(Shards, ASingleFileOfADirectoryComesFirst) {
  attn::write_safetensors(directory_ / "model.safetensors", WeightMap().add("c", a_));
  EXPECT_EQ(attn::open_weights(directory_.path()).names(), (std::vector<std::string>{"c"}));
  EXPECT_EQ(attn::open_weights(directory_ / "model.safetensors").names(), (std::vector<std::string>{"c"}));
}

TEST_F(Shards, AMissingShardAndAMissingWeightAreNamed) {
  write_index(R"({"weight_map":{"a":"m-3.safetensors"}})");
  EXPECT_EQ(open_error(), "attn: " + (directory_ / "m-3.safetensors").string() + ": there is no such file");
  write_index(R"({"weight_map":{"b":"m-1.safetensors"}})");
  EXPECT_EQ(open_error(), "attn: " + (directory_ / "m-1.safetensors").string() + ": weight 'b' is missing");
}

TEST_F(Shards, AShardStaysBesideTheIndex) {
  for (const std::string name : {"../m-1.safetensors", "/etc/passwd", "a\\b", "C:x", "..", ".", ""}) {
    write_index(nlohmann::json{{"weight_map", {{"a", name}}}}.dump());
    EXPECT_EQ(open_error(), "attn: " + index_.string() + ": weight 'a' has the shard '" + name +
                                "', which is not the name of a file beside the index");
  }
}

TEST_F(Shards, AMalformedIndexIsNamed) {
  const std::string start = "attn: " + index_.string();
  for (const char* text : {"{}", "[]", R"({"weight_map":[]})", "3"}) {
    write_index(text);
    EXPECT_EQ(open_error(), start + ": has no object weight_map") << text;
  }
  write_index(R"({"weight_map":{"a":1}})");
  EXPECT_EQ(open_error(), start + ": weight 'a' has a shard that is not text");
  write_index(R"({"weight_map":{"a":"x","a":"y"}})");
  EXPECT_EQ(open_error(), start + ": the key 'a' is there twice");
  write_index("{\"weight_map\":");
  EXPECT_EQ(open_error(), start + ": is not JSON, as byte 15 shows");
  write_index("");
  EXPECT_EQ(open_error(), start + ": is not JSON, as byte 1 shows");
}

TEST_F(Shards, ADirectoryWithoutAModelNamesTheFileThatIsMissing) {
  std::filesystem::remove(index_);
  EXPECT_EQ(error_text<FormatError>([&] { attn::open_weights(directory_.path()); }),
            "attn: " + (directory_ / "model.safetensors").string() + ": there is no such file");
}

}  // namespace
