// The Attention operator of ONNX (opsets 23 to 25): its attributes and inputs mapped onto sdpa.
#include <cmath>
#include <limits>
#include <optional>

#include "attn/masks/window.hpp"
#include "attn/ops/heads.hpp"
#include "attn/ops/kv_cache.hpp"
#include "attn/ops/sdpa.hpp"
#include "cache_rows.hpp"
#include "masks.hpp"
#include "registry.hpp"

namespace attn_conformance {
namespace {

/// A tensor of heads, stored as [batch, heads, len, dim] or as [batch, len, heads * dim].
template <class T>
class Heads {
 public:
  Heads(const StoredTensor& stored, Index num_heads) : num_heads_(num_heads) {
    if (stored.rank() == 3)
      packed_ = stored.get<T, 3>();
    else
      split_ = stored.get<T, 4>();
  }
  /// Zeros for the result of queries q and values v, stored as q is.
  Heads(const Heads& q, const Heads& v) : num_heads_(q.num_heads_) {
    const Index batch = q.view().extent(0), len = q.view().extent(2), dim = v.view().extent(3);
    if (q.is_packed())
      packed_ = Tensor<T, 3>({batch, len, num_heads_ * dim});
    else
      split_ = Tensor<T, 4>({batch, q.view().extent(1), len, dim});
  }

  bool is_packed() const { return split_.size() == 0; }
  TensorView<const T, 4> view() const {
    return is_packed() ? attn::split_heads(packed_, num_heads_) : split_.view();
  }
  TensorView<T, 4> view() { return is_packed() ? attn::split_heads(packed_, num_heads_) : split_.view(); }

  /// Holds a result against the right one, in the case's own layout.
  void expect(const std::string& name, Comparison& out) const {
    if (is_packed())
      out.expect(name, packed_);
    else
      out.expect(name, split_);
  }
  /// Puts a cache [batch, heads, past, dim] before the keys or values.
  void prepend(const StoredTensor& past) {
    const Tensor<T, 4> before = past.get<T, 4>();
    attn::Dims<4> extents = view().extents();
    const Index first = before.extent(2), len = extents[2];
    extents[2] += first;
    Tensor<T, 4> joined(extents);
    copy(before.view(), joined.view().slice(2, {0, first}));
    attn::copy(TensorView<const T, 4>(view()), joined.view().slice(2, {first, first + len}));
    split_ = std::move(joined);
  }

 private:
  Index num_heads_;
  Tensor<T, 3> packed_;
  Tensor<T, 4> split_;
};

attn::ScoreStage stage_of(Index mode) {
  using attn::ScoreStage;
  constexpr ScoreStage stages[] = {ScoreStage::scaled, ScoreStage::capped, ScoreStage::biased,
                                   ScoreStage::weights};
  return stages[mode];
}

template <class T>
class Attention {
 public:
  explicit Attention(const Case& c)
      : case_(c),
        q_(c.at("in.Q"), c.attribute<Index>("q_num_heads", 0)),
        k_(c.at("in.K"), c.attribute<Index>("kv_num_heads", 0)),
        v_(c.at("in.V"), c.attribute<Index>("kv_num_heads", 0)),
        y_(q_, v_) {
    Index past = 0;
    if (c.has("in.past_key")) {
      past = c.at("in.past_key").shape()[2];
      new_k_ = k_;
      new_v_ = v_;
      k_.prepend(c.at("in.past_key"));
      v_.prepend(c.at("in.past_value"));
    }
    kv_len_ = k_.view().extent(2);
    options_.query_offset = past;
    if (c.has("in.nonpad_kv_seqlen")) {
      lengths_ = flat_values<Index>(c.at("in.nonpad_kv_seqlen"));
      for (const Index length : lengths_) offsets_.push_back(length - q_.view().extent(2));
      options_.query_offset = std::span<const Index>(offsets_);
    }
    if (c.config.contains("scale")) options_.scale = c.config["scale"].get<double>();
    options_.soft_cap = c.attribute<double>("softcap", 0);
  }

  void run(Comparison& out) {
    with_masks([&](const auto& mask) { attend(mask, out); });
    if (!new_k_ && lengths_.empty()) return;
    for (const Index page_rows : {0, 3}) attend_cache(page_rows, out);
  }

 private:
  /// f(mask) with all that hides keys or changes scores.
  template <class F>
  void with_masks(F f) const {
    with_tensor_mask([&](const auto& tensor_mask) {
      with_position_mask(tensor_mask, [&](const auto& mask) {
        const auto padding = lengths_.empty() ? std::nullopt : std::optional(attn::KeyPadding{lengths_});
        with_also(mask, padding, f);
      });
    });
  }
  template <class F>
  void with_tensor_mask(F f) const {
    if (!case_.has("in.attn_mask")) return f(attn::NoMask{});
    const StoredTensor& stored = case_.at("in.attn_mask");
    const auto of_keys = [&](const auto& pairs) {
      const auto view = pairs.view();
      return view.extent(3) == 1 ? view : view.slice(3, {0, kv_len_});
    };
    const Index all_keys = k_.view().extent(2);
    if (stored.dtype() == DType::boolean) {
      PairValues<std::uint8_t> keep(stored);
      keep.pad_keys(all_keys, 0);
      f(attn::KeepMask(of_keys(keep)));
    } else {
      PairValues<T> bias(stored);
      bias.pad_keys(all_keys, static_cast<T>(-std::numeric_limits<float>::infinity()));
      f(attn::AdditiveBias(of_keys(bias)));
    }
  }

  /// A causal window is one that ends at the query.
  template <class M, class F>
  void with_position_mask(const M& mask, F f) const {
    const bool is_causal = case_.attribute<int>("is_causal", 0) != 0;
    const auto left = case_.attribute<Index>("left_window_size", -1);
    const auto right = case_.attribute<Index>("right_window_size", -1);
    if (left >= 0 || right >= 0)
      with_also(mask, std::optional(attn::SlidingWindow{.left = left, .right = is_causal ? 0 : right}), f);
    else
      with_also(mask, is_causal ? std::optional(attn::Causal{}) : std::nullopt, f);
  }

  template <class M>
  void attend(const M& mask, Comparison& out) {
    using A = attn::Accumulator<T>;
    const TensorView<const T, 4> q = std::as_const(q_).view(), k = std::as_const(k_).view();
    const TensorView<const T, 4> v = std::as_const(v_).view();
    Tensor<A, 4> scores({q.extent(0), q.extent(1), q.extent(2), k.extent(2)});
    attn::sdpa_with_weights_into(q, k, v, y_.view(), scores, mask, options_, attn::ScoreStage::scaled);
    double largest = 0;
    for (Index i = 0; i < scores.size(); ++i)
      largest = std::max(largest, std::abs(static_cast<double>(scores.data()[i])));
    out.note_largest_score(largest);
    attn::sdpa_into(q, k, v, y_.view(), mask, options_);
    y_.expect("Y", out);
    if (case_.has("out.present_key")) {
      k_.expect("present_key", out);
      v_.expect("present_value", out);
    }
    if (!case_.has("out.qk_matmul_output")) return;
    const auto mode = case_.attribute<Index>("qk_matmul_output_mode", 0);
    attn::sdpa_with_weights_into(q, k, v, y_.view(), scores, mask, options_, stage_of(mode));
    out.expect("qk_matmul_output", scores);
  }

  /// The same from a KVCache: past and new keys appended one after the other, or of a buffer of keys the
  /// first nonpad_kv_seqlen.
  void attend_cache(Index page_rows, Comparison& out) {
    const TensorView<const T, 4> k = std::as_const(k_).view(), v = std::as_const(v_).view();
    attn::KVCache<T> cache({.batch = k.extent(0),
                            .num_kv_heads = k.extent(1),
                            .head_dim = k.extent(3),
                            .value_dim = v.extent(3),
                            .max_len = k.extent(2),
                            .page_rows = page_rows});
    if (new_k_) {
      cache.append(case_.at("in.past_key").get<T, 4>(), case_.at("in.past_value").get<T, 4>());
      cache.append(std::as_const(*new_k_).view(), std::as_const(*new_v_).view());
    } else {
      cache.append(k, v, lengths_);
    }
    kv_len_ = cache.longest();
    const TensorView<const T, 4> q = std::as_const(q_).view();
    with_masks([&](const auto& mask) {
      attn::sdpa_into(q, cache.keys(), cache.values(), y_.view(), mask, options_);
    });
    y_.expect("Y", out);
    if (!case_.has("out.present_key")) return;
    out.expect("present_key", rows_of(cache.keys()));
    out.expect("present_value", rows_of(cache.values()));
  }

  const Case& case_;
  Heads<T> q_, k_, v_, y_;
  std::optional<Heads<T>> new_k_, new_v_;  // without the past
  Index kv_len_ = 0;
  std::vector<Index> lengths_, offsets_;
  attn::SdpaOptions options_;
};

}  // namespace

std::vector<Kind> onnx_attention_kinds() {
  return {make_kind<float, Eigen::half, Eigen::bfloat16>(
      "Attention", []<class T>(const Case& c, Comparison& out) { Attention<T>(c).run(out); })};
}

}  // namespace attn_conformance
