// tests/ops/sdpa_stored_rows_test.cpp - keys and values of another storage than the queries: 16 bits, 8 bits
// with scales, pages. Each must give the bits that the same numbers give as plain tensors of floats.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/ops/sdpa.hpp"
#include "support/attention.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Dims;
using attn::Index;
using attn::StoredRows;
using attn::Tensor;
using attn::TensorView;
using attn_test::distance;
using attn_test::largest;
using attn_test::random_tensor;
using attn_test::same_bits;

/// Grouped heads; more than a tile of keys. One query (rows as in decoding) and many.
struct Shape {
  Index q_len;
  Dims<4> q() const { return {2, 6, q_len, 20}; }
  Dims<4> k() const { return {2, 3, 301, 20}; }
  Dims<4> v() const { return {2, 3, 301, 12}; }
};
const std::vector<Shape> shapes = {{1}, {2}, {5}, {70}};

template <class From, class To>
Tensor<To, 4> converted(const Tensor<From, 4>& x) {
  Tensor<To, 4> y(x.extents());
  attn::copy(x.view(), y.view());
  return y;
}

/// Rows of 8-bit integers, a scale each, and what they stand for.
struct Quantized {
  std::vector<std::int8_t> integers;
  Tensor<float, 3> scales;
  Tensor<float, 4> values;

  Quantized(const Dims<4>& e, unsigned seed) : scales({e[0], e[1], e[2]}), values(e) {
    const Tensor<float, 4> x = random_tensor<float, 4>(e, seed);
    for (Index i = 0; i < x.size(); ++i) {
      const auto integer = static_cast<std::int8_t>(static_cast<int>(x.data()[i] * 40) % 128);
      integers.push_back(integer);
      scales.data()[i / e[3]] = static_cast<float>(i / e[3] % 7 + 1) / 64;
      values.data()[i] = scales.data()[i / e[3]] * static_cast<float>(integer);
    }
  }
  StoredRows<std::int8_t> rows() const {
    StoredRows<std::int8_t> r;
    r.data = integers.data();
    r.extents = values.extents();
    r.strides = values.view().strides();
    r.scales = scales.data();
    r.scale_strides = scales.view().strides();
    return r;
  }
};

TEST(SdpaStoredRows, SixteenBitKeysUnderFloatQueriesCountAsTheFloatsThatTheyAre) {
  for (const Shape& s : shapes) {
    const auto q = random_tensor<float, 4>(s.q(), 1);
    const auto k = converted<float, Eigen::bfloat16>(random_tensor<float, 4>(s.k(), 2));
    const auto v = converted<float, Eigen::half>(random_tensor<float, 4>(s.v(), 3));
    const auto expected =
        attn::sdpa(q, converted<Eigen::bfloat16, float>(k), converted<Eigen::half, float>(v), attn::Causal{},
                   {.query_offset = 301 - s.q_len});
    EXPECT_TRUE(same_bits(attn::sdpa(q, k, v, attn::Causal{}, {.query_offset = 301 - s.q_len}), expected));
  }
}

TEST(SdpaStoredRows, EightBitRowsCountAsTheirScaledValues) {
  for (const Shape& s : shapes) {  // to rounding: few queries take the scale of a row after the product
    const auto q = random_tensor<float, 4>(s.q(), 1);
    const Quantized k(s.k(), 2), v(s.v(), 3);
    const auto expected = attn::sdpa_with_weights(q, k.values, v.values);
    const auto result = attn::sdpa_with_weights(q, k.rows(), v.rows());
    EXPECT_LE(distance(result.out, expected.out), 2e-6 * largest(expected.out));
    EXPECT_LE(distance(result.weights, expected.weights), 2e-6);
    EXPECT_TRUE(same_bits(attn::sdpa(q, k.rows(), v.rows()), result.out));
  }
}

TEST(SdpaStoredRows, NoNaNOfAHiddenRowComesOut) {
  for (const Shape& s : shapes) {
    const auto q = random_tensor<float, 4>(s.q(), 1);
    auto k = converted<float, Eigen::bfloat16>(random_tensor<float, 4>(s.k(), 2));
    auto v = converted<float, Eigen::bfloat16>(random_tensor<float, 4>(s.v(), 3));
    const std::vector<Index> lengths = {150, 301};
    const attn::KeyPadding padding{lengths};
    const auto expected = attn::sdpa(q, k, v, padding);
    for (Index h = 0; h < 3; ++h)
      for (Index j = 150; j < 301; ++j)
        for (Index c = 0; c < 12; ++c)
          v(0, h, j, c) = k(0, h, j, c) = std::numeric_limits<Eigen::bfloat16>::quiet_NaN();
    EXPECT_TRUE(same_bits(attn::sdpa(q, k, v, padding), expected));
  }
}

/// The rows of x [batch, heads, len, dim] in pages of a pool, the pages of an entry in no particular order.
template <class S>
struct Paged {
  std::vector<Index> table;
  Tensor<S, 4> pool;  // [page, head, row, dim]
  Index len;

  Paged(const Tensor<S, 4>& x, Index page_rows) : len(x.extent(2)) {
    const Index per_entry = (len + page_rows - 1) / page_rows, count = x.extent(0) * per_entry;
    pool = Tensor<S, 4>({count + 1, x.extent(1), page_rows, x.extent(3)});
    std::fill_n(pool.data(), pool.size(), std::numeric_limits<S>::quiet_NaN());
    for (Index i = 0; i < count; ++i) table.push_back((i * 5 + 3) % (count + 1));
    for (Index b = 0; b < x.extent(0); ++b)
      for (Index h = 0; h < x.extent(1); ++h)
        for (Index r = 0; r < len; ++r)
          for (Index c = 0; c < x.extent(3); ++c)
            pool(table[attn::as_size(b * per_entry + r / page_rows)], h, r % page_rows, c) = x(b, h, r, c);
  }
  StoredRows<S> rows(Index batch) const {
    StoredRows<S> r;
    r.data = pool.data();
    r.extents = {batch, pool.extent(1), len, pool.extent(3)};
    r.strides = pool.view().strides();
    r.pages = table.data();
    r.pages_per_entry = static_cast<Index>(table.size()) / batch;
    r.page_rows = pool.extent(2);
    return r;
  }
};

TEST(SdpaStoredRows, PagesInAnyOrderCountAsTheRowsInThem) {
  for (const Shape& s : shapes)
    for (const Index page_rows : {1, 7, 16, 128, 400}) {
      const auto q = random_tensor<float, 4>(s.q(), 1);
      const auto k = random_tensor<float, 4>(s.k(), 2), v = random_tensor<float, 4>(s.v(), 3);
      const Paged<float> keys(k, page_rows), values(v, page_rows);
      const std::vector<Index> lengths = {301, 150};
      const attn::KeyPadding padding{lengths};
      EXPECT_TRUE(
          same_bits(attn::sdpa(q, keys.rows(2), values.rows(2), padding), attn::sdpa(q, k, v, padding)));
      EXPECT_TRUE(same_bits(attn::sdpa(q, keys.rows(2), v), attn::sdpa(q, k, v)));
    }
}

TEST(SdpaStoredRows, ShapesThatDoNotFitAreNamed) {
  const auto q = random_tensor<float, 4>({1, 2, 1, 8}, 1);
  const auto k = converted<float, Eigen::half>(random_tensor<float, 4>({1, 2, 5, 4}, 2));
  try {
    (void)attn::sdpa(q, StoredRows<Eigen::half>(k.view()), k);
    FAIL();
  } catch (const attn::ShapeError& error) {
    EXPECT_STREQ(error.what(),
                 "attn: sdpa: q [1, 2, 1, 8] and k [1, 2, 5, 4] differ in head_dim (last extent)");
  }
}

}  // namespace
