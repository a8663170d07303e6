#include "attn/io/safetensors.hpp"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "support/error_text.hpp"
#include "support/temporary_directory.hpp"

#if ATTN_HAS_MMAP
#include <sys/resource.h>

#include <csignal>
#endif

namespace {

using attn::DType;
using attn::FormatError;
using attn::Index;
using attn::Safetensors;
using attn::Tensor;
using attn_test::error_text;
using attn_test::TemporaryDirectory;

/// A file as the format's description has it, from its header and its data.
std::string file_of(const std::string& header, const std::string& data) {
  std::string bytes;
  for (std::size_t i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 255);
  return bytes + header + data;
}

Safetensors parse(const std::string& bytes) {
  return attn::parse_safetensors(std::as_bytes(std::span(bytes)), "it");
}

std::string parse_error(const std::string& bytes) {
  return error_text<FormatError>([&] { parse(bytes); });
}

// 1.5f, -2.0f; then int64 7, -1; then half 1.0.
const std::string two_floats("\0\0\xC0\x3F\0\0\0\xC0", 8);
const std::string two_longs("\7\0\0\0\0\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 16);
const std::string one_half("\0\x3C", 2);
const std::string valid_header =
    R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"i":{"dtype":"I64","shape":[2,1],)"
    R"("data_offsets":[8,24]},"h":{"dtype":"F16","shape":[],"data_offsets":[24,26]},)"
    R"("e":{"dtype":"BF16","shape":[0,3],"data_offsets":[26,26]},"__metadata__":{"format":"pt"}})";
const std::string valid_file = file_of(valid_header, two_floats + two_longs + one_half);

TEST(Safetensors, IsReadAsTheFormatDescribesIt) {
  const Safetensors file = parse(valid_file);
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  EXPECT_EQ(file.weights.names(), (std::vector<std::string>{"e", "h", "i", "x"}));

  const auto x = file.weights.get<double, 1>("x");
  EXPECT_EQ(x(0), 1.5);
  EXPECT_EQ(x(1), -2.0);
  std::vector<std::int32_t> i(2);
  file.weights.copy_to("i", attn::TensorView<std::int32_t, 2>(i.data(), {2, 1}));
  EXPECT_EQ(i, (std::vector<std::int32_t>{7, -1}));
  EXPECT_EQ((file.weights.get<float, 1>("h")(0)), 1.0f) << "a tensor without axes is read as [1]";
  EXPECT_EQ((file.weights.get<float, 2>("e").extents()), (attn::Dims<2>{0, 3}));
  EXPECT_EQ(file.weights.at("e").dtype(), DType::bfloat16);
}

TEST(Safetensors, MayHoldNothing) {
  EXPECT_EQ(parse(file_of("{}", "")).weights.size(), 0);
  EXPECT_EQ(parse(file_of("{}   ", "")).weights.size(), 0) << "the header is padded with spaces";
}

TEST(Safetensors, IsRejectedWhenCutAnywhere) {
  for (std::size_t size = 0; size < valid_file.size(); ++size)
    EXPECT_TRUE(parse_error(valid_file.substr(0, size)).starts_with("attn: it: ")) << "cut to " << size;
}

TEST(Safetensors, WithAnyByteChangedIsRejectedOrStaysWithinItsData) {
  for (std::size_t at = 0; at < valid_file.size(); ++at) {
    for (const int flip : {1, 2, 4, 8, 16, 32, 64, 128}) {
      std::string bytes = valid_file;
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      try {
        const Safetensors file = parse(bytes);
        for (const std::string& name : file.weights.names()) {
          const attn::StoredTensor& tensor = file.weights.at(name);
          const std::byte* const end = std::as_bytes(std::span(bytes)).data() + bytes.size();
          EXPECT_LE(tensor.size() * size_of(tensor.dtype()), end - tensor.data());
        }
      } catch (const FormatError& error) {
        EXPECT_TRUE(std::string(error.what()).starts_with("attn: it")) << error.what();
      }
    }
  }
}

struct Malformed {
  const char* what;
  std::string header;
  std::size_t data;
  const char* message;
};

/// A header with one entry "x" of these members.
std::string entry(const std::string& members) { return R"({"x":{)" + members + "}}"; }
std::string entry(const char* dtype, const char* shape, const char* offsets) {
  return entry(std::string(R"("dtype":)") + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets);
}

const Malformed malformed[] = {
    {"not JSON", "{]", 0, "it: header: is not JSON, as byte 2 shows"},
    {"text behind the header", "{} {}", 0, "it: header: is not JSON, as byte 4 shows"},
    {"not UTF-8", "{\"\xFF\":1}", 0, "it: header: is not JSON, as byte 3 shows"},
    {"an array", "[]", 0, "it: the header does not start with '{'"},
    {"a leading space", " {}", 0, "it: the header does not start with '{'"},
    {"empty", "", 0, "it: the header does not start with '{'"},
    {"an entry that is no object", R"({"x":3})", 0, "it: weight 'x' needs dtype, shape and data_offsets"},
    {"no dtype", entry(R"("shape":[],"data_offsets":[0,4])"), 4,
     "it: weight 'x' needs dtype, shape and data_offsets"},
    {"no shape", entry(R"("dtype":"F32","data_offsets":[0,4])"), 4, "it: weight 'x' needs dtype, shape and"},
    {"no offsets", entry(R"("dtype":"F32","shape":[])"), 4, "it: weight 'x' needs dtype, shape and"},
    {"a number as dtype", entry("32", "[1]", "[0,4]"), 4, "it: weight 'x' has a dtype that is not text"},
    {"an unknown dtype", entry(R"("F33")", "[1]", "[0,4]"), 4,
     R"(it: weight 'x' has the unknown dtype "F33")"},
    {"a dtype in small letters", entry(R"("f32")", "[1]", "[0,4]"), 4,
     R"(weight 'x' has the unknown dtype "f32")"},
    {"a shape that is a number", entry(R"("F32")", "1", "[0,4]"), 4,
     "it: weight 'x' has a shape that is not an array"},
    {"a negative extent", entry(R"("F32")", "[-1]", "[0,4]"), 4,
     "has an extent that is not a natural number"},
    {"a fraction as extent", entry(R"("F32")", "[1.0]", "[0,4]"), 4,
     "has an extent that is not a natural number"},
    {"an extent over 2^63", entry(R"("F32")", "[9223372036854775808]", "[0,4]"), 4,
     "it: weight 'x' has the extent 9223372036854775808, which is too large"},
    {"an extent over 2^64", entry(R"("F32")", "[18446744073709551617]", "[0,4]"), 4, "not a natural number"},
    {"a product that wraps to 4 bytes", entry(R"("F32")", "[4294967296,4294967296,1]", "[0,4]"), 4,
     "it: weight 'x' has a shape that is too large: [4294967296, 4294967296, 1]"},
    {"a product that wraps, with a zero", entry(R"("F32")", "[0,4294967296,4294967296]", "[0,0]"), 0,
     "it: weight 'x' has a shape that is too large"},
    {"a byte count that wraps", entry(R"("F64")", "[2305843009213693953]", "[0,8]"), 8,
     "shape that is too large"},
    {"one offset", entry(R"("F32")", "[1]", "[0]"), 4, "it: weight 'x' needs two data_offsets"},
    {"three offsets", entry(R"("F32")", "[1]", "[0,4,8]"), 4, "it: weight 'x' needs two data_offsets"},
    {"a negative offset", entry(R"("F32")", "[1]", "[-4,0]"), 4,
     "has an offset that is not a natural number"},
    {"swapped offsets", entry(R"("F32")", "[1]", "[4,0]"), 4,
     "it: weight 'x' has data_offsets [4, 0], but its type and shape need 4 bytes"},
    {"offsets that differ from the shape", entry(R"("F32")", "[2]", "[0,4]"), 4,
     "it: weight 'x' has data_offsets [0, 4], but its type and shape need 8 bytes"},
    {"offsets that leave the data", entry(R"("F32")", "[2]", "[0,8]"), 4,
     "it: weight 'x' has data_offsets [0, 8], which overlap, leave a gap at 0 or leave the 4 bytes of data"},
    {"offsets near 2^64", entry(R"("F32")", "[1]", "[18446744073709551612,18446744073709551615]"), 4,
     "but its type and shape need 4 bytes"},
    {"a gap before the first", entry(R"("F32")", "[1]", "[4,8]"), 8,
     "it: weight 'x' has data_offsets [4, 8], which overlap, leave a gap at 0 or leave the 8 bytes of data"},
    {"data that no tensor fills", entry(R"("F32")", "[1]", "[0,4]"), 8,
     "it: has 8 bytes of data, but its tensors fill 4"},
    {"an overlap",
     R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
     12, "it: weight 'y' has data_offsets [4, 12], which overlap"},
    {"the same data twice",
     R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})",
     8, "it: weight 'y' has data_offsets [0, 8], which overlap"},
    {"a name twice",
     R"({"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[],"data_offsets":[1,2]}})",
     2, "it: header: the key 'x' is there twice"},
    {"a name twice, once escaped",
     R"({"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"\u0078":{"dtype":"U8","shape":[],"data_offsets":[1,2]}})",
     2, "it: header: the key 'x' is there twice"},
    {"a member twice", entry(R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"shape":[2])"), 1,
     "it: header: the key 'shape' is there twice"},
    {"metadata that is a list", R"({"__metadata__":[]})", 0, "it: __metadata__ is not an object"},
    {"metadata that is a number", R"({"__metadata__":{"a":1}})", 0, "it: __metadata__ 'a' is not text"},
    {"too many axes",
     entry(R"("U8")", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"), 1,
     "it: header: an array has more than 32 elements"},
    {"a nested shape", entry(R"("U8")", "[[1]]", "[0,1]"), 1,
     "it: header: is nested more than 3 levels deep"},
    {"deep arrays", R"({"x":)" + std::string(100000, '['), 0,
     "it: header: is nested more than 3 levels deep"},
};

TEST(Safetensors, SaysWhatIsWrongWithAHeader) {
  for (const Malformed& m : malformed) {
    const std::string error = parse_error(file_of(m.header, std::string(m.data, '\0')));
    EXPECT_NE(error.find(m.message), std::string::npos) << m.what << ": " << error;
  }
}

TEST(Safetensors, RejectsAFileWithoutRoomForTheLengthOfItsHeader) {
  EXPECT_EQ(parse_error("1234567"), "attn: it: has 7 bytes, too few for a safetensors file");
  EXPECT_EQ(parse_error(""), "attn: it: has 0 bytes, too few for a safetensors file");
}

TEST(Safetensors, RejectsAHeaderLengthThatTheFileDoesNotHave) {
  for (const char* claimed : {"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", "\0\0\0\0\1\0\0\0", "\0\0\0\x80\0\0\0\0",
                              "\xF9\xFF\xFF\xFF\xFF\xFF\xFF\xFF"}) {
    std::string bytes = file_of("{}", "");
    bytes.replace(0, 8, std::string(claimed, 8));
    EXPECT_NE(parse_error(bytes).find("in a file of 10"), std::string::npos);
  }
}

TEST(Safetensors, CopiesWhatIsNotAlignedAndRefusesToViewIt) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("x":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  const std::string bytes =
      file_of(header + std::string((8 - header.size() % 8) % 8, ' '), "\1" + two_floats);
  const Safetensors file = parse(bytes);
  EXPECT_EQ((file.weights.get<float, 1>("x")(1)), -2.0f);
  EXPECT_EQ((error_text<FormatError>([&] { file.weights.view<float, 1>("x"); })),
            "attn: it: weight 'x' is not aligned for float32 in memory and can only be copied");
}

template <class T>
class SafetensorsOf : public testing::Test {};
using StoredTypes =
    testing::Types<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t,
                   std::uint64_t, std::int64_t, Eigen::half, Eigen::bfloat16, float, double>;
TYPED_TEST_SUITE(SafetensorsOf, StoredTypes);

TYPED_TEST(SafetensorsOf, WhatIsWrittenIsReadBack) {
  const TemporaryDirectory directory;
  std::vector<TypeParam> values;
  for (int i = 0; i < 24; ++i) values.push_back(static_cast<TypeParam>(i));
  const TypeParam* const p = values.data();
  attn::WeightMap weights;
  weights.add("block", attn::TensorView<const TypeParam, 4>(p, {2, 1, 3, 4}))
      .add("transposed", attn::TensorView<const TypeParam, 2>(p, {4, 6}, {1, 4}))
      .add("every second", attn::TensorView<const TypeParam, 1>(p, {12}, {2}))
      .add("repeated", attn::TensorView<const TypeParam, 2>(p + 5, {3, 2}, {0, 1}))
      .add("nothing", attn::TensorView<const TypeParam, 3>(p, {3, 0, 2}));
  attn::write_safetensors(directory / "w.safetensors", weights, {{"key", "ä \" \n"}});

  const Safetensors file = attn::open_safetensors(directory / "w.safetensors");
  EXPECT_EQ(file.metadata.at("key"), "ä \" \n");
  ASSERT_EQ(file.weights.names(), weights.names());
  const auto same = [&]<int Rank>(const char* name, attn::Dims<Rank> extents) {
    const auto got = file.weights.view<TypeParam, Rank>(name), wanted = weights.view<TypeParam, Rank>(name);
    ASSERT_EQ(got.extents(), extents) << name;
    std::vector<TypeParam> a(static_cast<std::size_t>(got.size())), b(a.size());
    attn::copy(got, attn::TensorView<TypeParam, Rank>(a.data(), extents));
    attn::copy(wanted, attn::TensorView<TypeParam, Rank>(b.data(), extents));
    EXPECT_EQ(a, b) << name;
  };
  same("block", attn::Dims<4>{2, 1, 3, 4});
  same("transposed", attn::Dims<2>{4, 6});
  same("every second", attn::Dims<1>{12});
  same("repeated", attn::Dims<2>{3, 2});
  same("nothing", attn::Dims<3>{3, 0, 2});
}

TEST(Safetensors, WrittenInMixedTypesAlignsEachTensor) {
  const TemporaryDirectory directory;
  const std::vector<std::uint8_t> bytes(3);
  const std::vector<float> floats(5);
  const std::vector<double> doubles(1);
  attn::WeightMap weights;
  weights.add("a", attn::TensorView<const std::uint8_t, 1>(bytes, {3}))
      .add("b", attn::TensorView<const float, 1>(floats, {5}))
      .add("c", attn::TensorView<const double, 1>(doubles, {1}));
  attn::write_safetensors(directory / "w", weights);
  const Safetensors file = attn::open_safetensors(directory / "w");
  EXPECT_EQ((file.weights.view<double, 1>("c").size()), 1);
  EXPECT_EQ((file.weights.view<float, 1>("b").size()), 5);
  EXPECT_EQ((file.weights.view<std::uint8_t, 1>("a").size()), 3);
}

TEST(Safetensors, WeightsOutliveTheFileObjectAndTheName) {
  const TemporaryDirectory directory;
  attn_test::write_text(directory / "w", valid_file);
  attn::WeightMap x = attn::open_safetensors(directory / "w").weights;
  std::filesystem::remove(directory / "w");
  EXPECT_EQ((x.get<float, 1>("x")(0)), 1.5f);
}

TEST(Safetensors, AMissingFileAndADirectoryAreNamed) {
  const TemporaryDirectory directory;
  const std::string missing = (directory / "no").string();
  EXPECT_EQ(error_text<FormatError>([&] { attn::open_safetensors(missing); }),
            "attn: " + missing + ": there is no such file");
  EXPECT_EQ(error_text<FormatError>([&] { attn::open_safetensors(directory.path()); }),
            "attn: " + directory.path().string() + ": is not a file");
  attn_test::write_text(directory / "empty", "");
  EXPECT_NE(error_text<FormatError>([&] { attn::open_safetensors(directory / "empty"); }).find("has 0 bytes"),
            std::string::npos);
}

/// A writer that fails must leave the old file, and nothing beside it.
void expect_old_file(const TemporaryDirectory& directory, const std::string& target) {
  EXPECT_EQ(attn_test::read_text(directory / target), "old");
  EXPECT_EQ(directory.count(), 1);
}

TEST(Safetensors, BadNamesAreNotWritten) {
  const TemporaryDirectory directory;
  attn_test::write_text(directory / "w", "old");
  const Tensor<float, 1> x({2});
  const auto write_error = [&](const char* name, const std::map<std::string, std::string>& metadata) {
    return error_text<FormatError>(
        [&] { attn::write_safetensors(directory / "w", attn::WeightMap().add(name, x), metadata); });
  };
  const std::string start = "attn: " + (directory / "w").string();
  EXPECT_EQ(write_error("__metadata__", {}), start + ": a weight must not be called '__metadata__'");
  EXPECT_EQ(write_error("\xC3(", {}), start + ": a name or metadata text is not UTF-8");
  EXPECT_EQ(write_error("x", {{"k", "\xFF"}}), start + ": a name or metadata text is not UTF-8");
  expect_old_file(directory, "w");
}

TEST(Safetensors, AnUnwritablePlaceIsNamed) {
  const TemporaryDirectory directory;
  const auto path = directory / "none" / "w.safetensors";
  const std::string error =
      error_text<std::runtime_error>([&] { attn::write_safetensors(path, attn::WeightMap()); });
  EXPECT_TRUE(error.starts_with("attn: " + path.string() + ": cannot be written: ")) << error;
}

#if ATTN_HAS_MMAP
TEST(Safetensors, AFullDiskLeavesTheOldFile) {
  const TemporaryDirectory directory;
  attn_test::write_text(directory / "w", "old");
  rlimit old_limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{4096, old_limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const Tensor<float, 1> x({100000});
  const std::string error = error_text<std::runtime_error>(
      [&] { attn::write_safetensors(directory / "w", attn::WeightMap().add("x", x)); });
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_NE(error.find(": cannot be written: "), std::string::npos) << error;
  expect_old_file(directory, "w");
}
#endif

}  // namespace
