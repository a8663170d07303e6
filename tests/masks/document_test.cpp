#include "attn/masks/document.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "attn/masks/causal.hpp"
#include "attn/ops/sdpa.hpp"
#include "masks/consistency.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Coverage;
using attn::Documents;
using attn::Index;
using attn::Problem;
using attn::Range;
using attn_test::Draw;
using attn_test::error_text;
using Ids = std::vector<Index>;

Ids random_ids(Draw& draw, Index len, Index largest) {
  Ids ids;
  for (Index i = 0; i < len; ++i)
    ids.push_back(ids.empty() || draw.between(0, 4) == 0 ? draw.between(0, largest) : ids.back());
  return ids;
}
/// 0 and then starts up to len.
Ids random_starts(Draw& draw, Index len) {
  Ids starts{0, draw.between(0, len), draw.between(0, len), draw.between(0, len), len};
  std::sort(starts.begin(), starts.end());
  return starts;
}

TEST(Documents, AreConsistentInAnyOrder) {
  attn_test::expect_consistent([](Draw& draw, const Problem& p) {
    return Documents(random_ids(draw, p.q_len, 4), random_ids(draw, p.kv_len, 4));
  });
}

TEST(Documents, AreConsistentWithIdsPerBatchEntry) {
  attn_test::expect_consistent([](Draw& draw, const Problem& p) {
    const Index rows = draw.between(0, 1) == 0 ? 1 : p.batch;
    const Ids query_ids = random_ids(draw, p.batch * p.q_len, 3),
              key_ids = random_ids(draw, rows * p.kv_len, 3);
    return Documents(attn::TensorView<const Index, 2>(query_ids.data(), {p.batch, p.q_len}),
                     attn::TensorView<const Index, 2>(key_ids.data(), {rows, p.kv_len}));
  });
}

TEST(Documents, PackedAreConsistent) {
  attn_test::expect_consistent([](Draw& draw, const Problem& p) {
    return Documents::packed(random_starts(draw, p.q_len), random_starts(draw, p.kv_len));
  });
}

TEST(Documents, InOnePieceSkipAllOtherKeys) {
  const Documents documents(Ids{7, 7, 7, 2, 2, 5});
  const Problem p{.q_len = 6, .kv_len = 6};
  EXPECT_EQ(documents.key_range({.q = {1, 3}}, p), (Range{0, 3}));
  EXPECT_EQ(documents.key_range({.q = {2, 5}}, p), (Range{0, 5}));
  EXPECT_EQ(documents.coverage({.q = {0, 3}, .k = {1, 3}}, p), Coverage::full);
  EXPECT_EQ(documents.coverage({.q = {0, 3}, .k = {1, 4}}, p), Coverage::partial);
  EXPECT_EQ(documents.coverage({.q = {0, 3}, .k = {3, 6}}, p), Coverage::none);
}

TEST(Documents, OfIdsAndOfCumulativeLengthsAreTheSame) {
  const Documents of_ids(Ids{4, 4, 4, 9, 9}), packed = Documents::packed(Ids{0, 3, 3, 5});
  for (attn::Position q = 0; q < 5; ++q)
    for (attn::Position k = 0; k < 5; ++k)
      EXPECT_EQ(of_ids.allows({.q = q, .k = k}, {}), packed.allows({.q = q, .k = k}, {})) << q << ", " << k;
}

// The reason for packing: each document gets what it would get alone, whatever stands beside it.
TEST(Documents, PackedGiveWhatEachGivesAlone) {
  const auto x = attn_test::random_tensor<double, 3>({2, 150, 8}, 1);
  const Ids starts{0, 70, 71, 150};
  const auto packed = attn::sdpa(x, x, x, attn::Causal{} & Documents::packed(starts));
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    const Range document{starts[i], starts[i + 1]};
    const attn::Tensor<double, 3> alone(x.view().slice(1, document));
    EXPECT_LT(attn_test::largest_difference(attn::sdpa(alone, alone, alone, attn::Causal{}),
                                            attn::Tensor<double, 3>(packed.view().slice(1, document))),
              1e-13);
  }
}

TEST(Documents, NameIdsThatDoNotFit) {
  const Documents documents(Ids{1, 1, 2}, Ids{1, 2});
  EXPECT_EQ(error_text<attn::ShapeError>([&] { documents.validate({.q_len = 3, .kv_len = 4}); }),
            "attn: Documents: ids of 3 queries and 2 keys for q_len 3 and kv_len 4");
  const Ids ids(6);
  const attn::TensorView<const Index, 2> two_rows(ids, {2, 3}), three_rows(ids, {3, 2});
  EXPECT_EQ(error_text<attn::ShapeError>(
                [&] { Documents(two_rows, two_rows).validate({.batch = 3, .q_len = 3, .kv_len = 3}); }),
            "attn: Documents: ids of 2 batch entries for a batch of 3");
  EXPECT_EQ(error_text<attn::ShapeError>([&] { Documents(two_rows, three_rows); }),
            "attn: Documents: ids of 2 batch entries of queries, but 3 of keys");
  EXPECT_EQ(error_text<attn::ShapeError>([] {
              Documents::packed(Ids{1, 3});
            }),
            "attn: Documents::packed: starts must begin with 0, not 1");
  EXPECT_EQ(error_text<attn::ShapeError>([] { Documents::packed(Ids{}); }),
            "attn: Documents::packed: there are no starts; they begin with 0");
  EXPECT_EQ(error_text<attn::ShapeError>([] {
              Documents::packed(Ids{0, 3, 2});
            }),
            "attn: Documents::packed: start 2 comes after start 3");
  EXPECT_EQ(error_text<attn::ShapeError>([] {
              Documents::packed(Ids{0, 3}, Ids{0, 2, 3});
            }),
            "attn: Documents::packed: 2 starts of queries, but 3 of keys");
}

}  // namespace
