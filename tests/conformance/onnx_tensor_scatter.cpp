// The TensorScatter operator of ONNX (opset 24): rows written into a buffer of keys or values, from a given
// row on. A KVCache does it as truncate and append; what the buffer holds after the new rows is not its
// matter.
#include <algorithm>

#include "attn/ops/kv_cache.hpp"
#include "cache_rows.hpp"
#include "registry.hpp"
#include "tensors.hpp"

namespace attn_conformance {
namespace {

using attn::as_size;

template <class T>
class TensorScatter {
 public:
  explicit TensorScatter(const Case& c)
      : case_(c),
        past_(as_heads(c.at("in.past_cache"))),
        update_(as_heads(c.at("in.update"))),
        starts_(as_size(past_.extent(0))) {
    const auto axis = c.attribute<Index>("axis", -2);
    if (axis != -2 && axis != c.at("in.past_cache").rank() - 2)
      throw Skip{"TensorScatter along axis " + std::to_string(axis)};
    if (c.has("in.write_indices")) starts_ = flat_values<Index>(c.at("in.write_indices"));
  }

  void run(Comparison& out) const {
    const bool is_circular = case_.attribute<std::string>("mode", "linear") == "circular";
    const std::vector<Index> zeros(starts_.size());
    std::vector<Index> counts, rest;
    for (const Index start : starts_) {
      const Index n = update_.extent(2);
      counts.push_back(is_circular ? std::min(n, past_.extent(2) - start) : n);
      rest.push_back(n - counts.back());  // what passes the end goes to the beginning
    }
    for (const Index page_rows : {0, 3}) {
      Tensor<T, 4> present = past_;
      write(present, starts_, zeros, counts, page_rows);
      write(present, zeros, counts, rest, page_rows);
      if (case_.at("in.past_cache").rank() == 4)
        out.expect("present_cache", present);
      else
        out.expect("present_cache",
                   TensorView<const T, 3>(present.data(),
                                          {present.extent(0), present.extent(2), present.extent(3)}));
    }
  }

 private:
  /// [batch, heads, len, dim] of a tensor that may have no heads.
  static Tensor<T, 4> as_heads(const StoredTensor& stored) {
    if (stored.rank() == 4) return stored.get<T, 4>();
    const Tensor<T, 3> rows = stored.get<T, 3>();
    return Tensor<T, 4>(
        TensorView<const T, 4>(rows.data(), {rows.extent(0), 1, rows.extent(1), rows.extent(2)}));
  }

  /// Rows from[b] and following of the update, counts[b] of them, become rows starts[b] and following.
  void write(Tensor<T, 4>& present, const std::vector<Index>& starts, const std::vector<Index>& from,
             const std::vector<Index>& counts, Index page_rows) const {
    attn::KVCache<T> cache({.batch = present.extent(0),
                            .num_kv_heads = present.extent(1),
                            .head_dim = present.extent(3),
                            .max_len = present.extent(2),
                            .page_rows = page_rows});
    cache.append(present, present);
    cache.truncate(starts);
    Tensor<T, 4> rows(update_.extents());
    for (Index b = 0; b < cache.batch(); ++b) {
      const Index first = from[as_size(b)], count = counts[as_size(b)];
      copy(update_.view()[b].slice(1, {first, first + count}), rows.view()[b].slice(1, {0, count}));
    }
    cache.append(rows, rows, counts);
    const Tensor<T, 4> written = rows_of(cache.keys());
    for (Index b = 0; b < cache.batch(); ++b)
      copy(written.view()[b].slice(1, {0, cache.length(b)}),
           present.view()[b].slice(1, {0, cache.length(b)}));
  }

  const Case& case_;
  Tensor<T, 4> past_, update_;
  std::vector<Index> starts_;
};

}  // namespace

std::vector<Kind> onnx_tensor_scatter_kinds() {
  return {make_kind<float, double, Eigen::half, Eigen::bfloat16>(
      "TensorScatter", []<class T>(const Case& c, Comparison& out) { TensorScatter<T>(c).run(out); })};
}

}  // namespace attn_conformance
