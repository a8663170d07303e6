#include "attn/io/npy.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/error_text.hpp"
#include "support/temporary_directory.hpp"

namespace {

using attn::DType;
using attn::FormatError;
using attn::StoredTensor;
using attn::TensorView;
using attn_test::error_text;
using attn_test::TemporaryDirectory;

/// A file as NumPy's format description has it.
std::string file_of(const std::string& header, const std::string& data, int major = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += {static_cast<char>(major), '\0'};
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 255);
  return bytes + header + data;
}
std::string header_of(const std::string& descr, const std::string& shape,
                      const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}

StoredTensor parse(const std::string& bytes) {
  return attn::parse_npy(std::as_bytes(std::span(bytes)), "it");
}
std::string parse_error(const std::string& bytes) {
  return error_text<FormatError>([&] { parse(bytes); });
}

const std::string three_floats("\0\0\x80\x3F\0\0\0\xC0\0\0\0\x3F", 12);  // 1, -2, 0.5
const std::string valid_file = file_of(header_of("<f4", "(3,)"), three_floats);

TEST(Npy, IsReadInEveryVersionOfTheFormat) {
  for (const int version : {1, 2, 3}) {
    const std::string bytes = file_of(header_of("<f4", "(3,)") + "     \n", three_floats, version);
    const auto x = parse(bytes).get<double, 1>({3});
    EXPECT_EQ(x(0), 1);
    EXPECT_EQ(x(1), -2);
    EXPECT_EQ(x(2), 0.5);
  }
}

TEST(Npy, TakesTheHeaderAsPythonMayWriteIt) {
  for (const char* header : {R"({"shape":(3,),"fortran_order":False,"descr":"<f4"})",
                             "{ 'shape' : ( 3 , ) , 'descr' : '<f4' , 'fortran_order' : True , } \n",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}"}) {
    const std::string bytes = file_of(header, three_floats);
    EXPECT_EQ((parse(bytes).get<float, 1>({3})(2)), 0.5f) << header;
  }
}

TEST(Npy, BigEndianElementsAreSwapped) {
  const std::string bytes = file_of(header_of(">i2", "(2, 1)"), std::string("\1\2\xFF\xFE", 4));
  const StoredTensor array = parse(bytes);
  const auto x = array.view<std::int16_t, 2>();
  EXPECT_EQ(x(0, 0), 258);
  EXPECT_EQ(x(1, 0), -2);
}

TEST(Npy, FortranOrderIsAViewWithOtherStrides) {
  const std::string bytes = file_of(header_of("|u1", "(2, 3)", "True"), "\1\2\3\4\5\6");
  const StoredTensor array = parse(bytes);
  const auto x = array.view<std::uint8_t, 2>();
  EXPECT_EQ(x.extents(), (attn::Dims<2>{2, 3}));
  for (int row = 0; row < 2; ++row)
    for (int column = 0; column < 3; ++column) EXPECT_EQ(x(row, column), 1 + row + 2 * column);
}

TEST(Npy, ReadsScalarsHalvesAndBooleans) {
  const std::string scalar = file_of(header_of("<f8", "()"), std::string("\0\0\0\0\0\0\xF0\x3F", 8));
  EXPECT_EQ((parse(scalar).get<float, 1>()(0)), 1.0f);
  const std::string half = file_of(header_of("<f2", "(1,)"), std::string("\0\xBC", 2));
  EXPECT_EQ((parse(half).get<float, 1>()(0)), -1.0f);
  const std::string boolean = file_of(header_of("|b1", "(3,)"), std::string("\0\1\7", 3));
  std::vector<std::uint8_t> bits(3);
  parse(boolean).copy_to(TensorView<std::uint8_t, 1>(bits.data(), {3}));
  EXPECT_EQ(bits, (std::vector<std::uint8_t>{0, 1, 1}));
  EXPECT_EQ(parse(boolean).dtype(), DType::boolean);
}

TEST(Npy, UnsignedShortsAreBfloat16OnRequest) {
  const std::string bytes = file_of(header_of("<u2", "(1,)"), std::string("\x80\x3F", 2));
  EXPECT_EQ((parse(bytes).reinterpret(DType::bfloat16).get<float, 1>()(0)), 1.0f);
  EXPECT_EQ(error_text<FormatError>([&] { parse(bytes).reinterpret(DType::float32); }),
            "attn: it has type uint16, whose size is not that of float32");
}

TEST(Npy, IsRejectedWhenCutAnywhere) {
  for (std::size_t size = 0; size < valid_file.size(); ++size)
    EXPECT_TRUE(parse_error(valid_file.substr(0, size)).starts_with("attn: it: ")) << "cut to " << size;
}

TEST(Npy, WithAnyByteChangedIsRejectedOrStaysWithinItsData) {
  for (std::size_t at = 0; at < valid_file.size(); ++at) {
    for (const int flip : {1, 2, 4, 8, 16, 32, 64, 128}) {
      std::string bytes = valid_file;
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      try {
        const StoredTensor tensor = parse(bytes);
        EXPECT_EQ(tensor.size() * size_of(tensor.dtype()), 12);
      } catch (const FormatError& error) {
        EXPECT_TRUE(std::string(error.what()).starts_with("attn: it")) << error.what();
      }
    }
  }
}

struct Malformed {
  const char* what;
  std::string bytes;
  const char* message;
};

const Malformed malformed[] = {
    {"another magic", "\x93NUMPZ" + valid_file.substr(6), "it: is not a .npy file"},
    {"version 0", file_of(header_of("<f4", "(3,)"), three_floats, 0),
     "it: has version 0 of the format, not 1 to 3"},
    {"version 4", file_of(header_of("<f4", "(3,)"), three_floats, 4),
     "it: has version 4 of the format, not 1 to 3"},
    {"a header length beyond the file", std::string("\x93NUMPY\2\0\xFF\xFF\xFF\xFF{}", 14),
     "it: claims a header of 4294967295 bytes in a file of 14"},
    {"no room for its own length", std::string("\x93NUMPY\2\0\1\0\0", 11), "it: ends within its header"},
    {"no dictionary", file_of("descr", ""), "it: has a header with no '{' where one is needed"},
    {"an empty dictionary", file_of("{}", ""), "without descr, fortran_order or shape"},
    {"no shape", file_of("{'descr': '<f4', 'fortran_order': False}", ""),
     "without descr, fortran_order or shape"},
    {"an open dictionary", file_of("{'descr': '<f4', ", ""), "with no ''' where one is needed"},
    {"an open quote", file_of("{'descr", ""), "an open quote"},
    {"an unknown key", file_of("{'dtype': '<f4'}", ""), "an unknown or repeated key 'dtype'"},
    {"a key twice", file_of("{'descr': '<f4', 'descr': '<f4'}", ""), "an unknown or repeated key 'descr'"},
    {"text behind", file_of(header_of("<f4", "(3,)") + "x", three_floats), "text behind the dictionary"},
    {"no order mark", file_of(header_of("f4", "(3,)"), three_floats),
     "a header with the element type 'f4', which is not one of attn's"},
    {"a mark of no order on 4 bytes", file_of(header_of("|f4", "(3,)"), three_floats),
     "the element type '|f4'"},
    {"complex numbers", file_of(header_of("<c8", "(3,)"), three_floats), "the element type '<c8'"},
    {"objects", file_of(header_of("|O", "(3,)"), three_floats), "the element type '|O'"},
    {"an empty type", file_of(header_of("", "(3,)"), three_floats), "the element type ''"},
    {"a record", file_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}", three_floats),
     "with no ''' where one is needed"},
    {"a number as order", file_of(header_of("<f4", "(3,)", "0"), three_floats),
     "it: has a header with a fortran_order that is neither True nor False"},
    {"a list as shape", file_of(header_of("<f4", "[3]"), three_floats), "with no '(' where one is needed"},
    {"a negative extent", file_of(header_of("<f4", "(-3,)"), three_floats),
     "it: has a header with an extent that is not a natural number or too large"},
    {"a fraction", file_of(header_of("<f4", "(3.0,)"), three_floats), "with no ')' where one is needed"},
    {"an extent over 2^63", file_of(header_of("<f4", "(9223372036854775808,)"), three_floats),
     "or too large"},
    {"a product that wraps", file_of(header_of("<f4", "(4294967296, 1073741824, 3)"), three_floats),
     "it: has 12 bytes of data, which do not fill [4294967296, 1073741824, 3] of type float32"},
    {"too little data", file_of(header_of("<f4", "(4,)"), three_floats),
     "it: has 12 bytes of data, which do not fill [4] of type float32"},
    {"too much data", file_of(header_of("<f4", "(2,)"), three_floats),
     "it: has 12 bytes of data, which do not fill [2] of type float32"},
    {"no data", file_of(header_of("<f4", "()"), ""), "it: has 0 bytes of data, which do not fill [] of"},
};

TEST(Npy, SaysWhatIsWrongWithAFile) {
  for (const Malformed& m : malformed) {
    const std::string error = parse_error(m.bytes);
    EXPECT_NE(error.find(m.message), std::string::npos) << m.what << ": " << error;
  }
  std::string many = "(";
  for (int axis = 0; axis < 65; ++axis) many += "1,";
  EXPECT_EQ(parse_error(file_of(header_of("<f4", many + ")"), "1234")),
            "attn: it: has a header with a shape of more than 64 axes");
}

TEST(Npy, WritesTheFileThatTheFormatDescribes) {
  const TemporaryDirectory directory;
  const std::vector<std::uint16_t> values{1, 2, 3, 4, 5, 6};
  const TensorView<const std::uint16_t, 2> x(values, {2, 3});
  const auto data_of = [&](const attn::NpyWriteOptions& options, const std::string& header) {
    attn::write_npy(directory / "x.npy", x, options);
    const std::string bytes = attn_test::read_text(directory / "x.npy");
    EXPECT_EQ(bytes.substr(0, 10), std::string("\x93NUMPY\1\0\x76\0", 10));
    EXPECT_EQ(bytes.substr(10, header.size()), header);
    EXPECT_EQ(bytes[127], '\n');
    return bytes.substr(128);
  };
  using attn::NpyOrder;
  EXPECT_EQ(data_of({}, "{'descr': '<u2', 'fortran_order': False, 'shape': (2,3,), } "),
            std::string("\1\0\2\0\3\0\4\0\5\0\6\0", 12));
  EXPECT_EQ(data_of({NpyOrder::fortran}, "{'descr': '<u2', 'fortran_order': True, 'shape': (2,3,), } "),
            std::string("\1\0\4\0\2\0\5\0\3\0\6\0", 12));
  EXPECT_EQ(data_of({NpyOrder::c, std::endian::big},
                    "{'descr': '>u2', 'fortran_order': False, 'shape': (2,3,), } "),
            std::string("\0\1\0\2\0\3\0\4\0\5\0\6", 12));
}

template <class T>
class NpyOf : public testing::Test {};
using StoredTypes =
    testing::Types<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t,
                   std::uint64_t, std::int64_t, Eigen::half, Eigen::bfloat16, float, double>;
TYPED_TEST_SUITE(NpyOf, StoredTypes);

TYPED_TEST(NpyOf, WhatIsWrittenIsReadBack) {
  const TemporaryDirectory directory;
  std::vector<TypeParam> values;
  for (int i = 0; i < 60; ++i) values.push_back(static_cast<TypeParam>(i));
  const TensorView<const TypeParam, 3> strided(values.data() + 57, {3, 2, 4}, {-20, 2, -5});
  for (const attn::NpyOrder order : {attn::NpyOrder::c, attn::NpyOrder::fortran}) {
    for (const std::endian byte_order : {std::endian::little, std::endian::big}) {
      attn::write_npy(directory / "x.npy", TensorView<const TypeParam, 3>(strided), {order, byte_order});
      const auto read = attn::open_npy(directory / "x.npy").reinterpret(attn::dtype_of<TypeParam>);
      const auto x = read.template view<TypeParam, 3>();
      ASSERT_EQ(x.extents(), strided.extents());
      for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 2; ++j)
          for (int k = 0; k < 4; ++k) EXPECT_EQ(x(i, j, k), strided(i, j, k));
    }
  }
}

TEST(Npy, EmptyArraysAreKept) {
  const TemporaryDirectory directory;
  attn::write_npy(directory / "x.npy", attn::Tensor<float, 3>({2, 0, 3}));
  EXPECT_EQ((attn::open_npy(directory / "x.npy").get<float, 3>().extents()), (attn::Dims<3>{2, 0, 3}));
}

TEST(Npy, AMissingFileIsNamed) {
  EXPECT_EQ(error_text<FormatError>([] { attn::open_npy("no/such.npy"); }),
            "attn: no/such.npy: there is no such file");
}

}  // namespace
