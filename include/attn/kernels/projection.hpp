// attn/kernels/projection.hpp - y = x W^T on a packed W: the register block with output features as lanes.
//
// W [out, in] is packed once into panels of a few packets of features, [panel][in][feature]. Tokens enter as
// broadcasts and are read where they lie. A block of tokens, which stays in the second-level cache, meets one
// panel after the other (Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication"),
// which comes from memory while its predecessor is at work; up to `depth` inputs go into one pass over the
// outputs.
#pragma once
#include <algorithm>

#include "attn/kernels/packed_weight.hpp"
#include "attn/kernels/rows.hpp"
#include "attn/kernels/warm_up.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Sizes of the blocking.
template <class A>
struct ProjectionShape : BlockShape<A> {
  static constexpr Index depth = 640;
  static constexpr Index tokens = 128;
};

/// Rows of contiguous elements of any type, `step` bytes apart.
template <class Byte>
struct ByteRows {
  Byte* data = nullptr;
  Index step = 0;

  ByteRows() = default;
  template <class T>
  ByteRows(const Rows<T>& rows)  // NOLINT(google-explicit-constructor)
      : data(reinterpret_cast<Byte*>(rows.data)), step(rows.stride * static_cast<Index>(sizeof(T))) {}
  Byte* row(Index i) const { return data + i * step; }
  ByteRows from(Index first) const {
    ByteRows rest = *this;
    rest.data = row(first);
    return rest;
  }
  /// The rows as what they are.
  template <class T>
  Rows<T> as() const {
    return {reinterpret_cast<T*>(data), step / static_cast<Index>(sizeof(T))};
  }
};

/// How elements of another type than A are read and written.
template <class A>
struct RowType {
  void (*load)(const std::byte* from, Index count, A* to);
  void (*store)(const A* from, Index count, std::byte* to);
  Index size;  ///< of an element, in bytes
  bool is_bfloat16;
};
template <class A, class T>
const RowType<A>& row_type() {
  static constexpr RowType<A> type{
      [](const std::byte* from, Index count, A* to) { convert(reinterpret_cast<const T*>(from), count, to); },
      [](const A* from, Index count, std::byte* to) { convert(from, count, reinterpret_cast<T*>(to)); },
      static_cast<Index>(sizeof(T)), std::is_same_v<T, Eigen::bfloat16>};
  return type;
}

/// One product y = x W^T + bias (+ residual), then the epilogue; checked by the caller. Residual may be y
/// itself.
template <class A>
struct ProjectionArguments {
  ByteRows<const std::byte> x;
  ByteRows<std::byte> y;
  ByteRows<const std::byte> residual{};  ///< no data: none
  const RowType<A>* type = nullptr;      ///< of all three; null: A
  Index tokens = 0;
  const PackedWeight<A>* weight = nullptr;
  RunFunction<A> epilogue = nullptr;  ///< what happens to finished outputs, in place; null: nothing
};

/// The tasks of one product, cut by shape alone.
template <class A>
class Projection {
  using Shape = ProjectionShape<A>;
  static constexpr Index lanes = Shape::lanes;
  static constexpr Index width = Shape::width;

 public:
  explicit Projection(const ProjectionArguments<A>& arguments) : x_(arguments), weight_(*arguments.weight) {
    const bool has_pairs = x_.type != nullptr && x_.type->is_bfloat16 && weight_.lies_in_pairs();
#if ATTN_HAS_MATRIX_UNIT
    uses_matrix_unit_ = has_pairs && matrix_unit_is_usable();
#endif
    multiplies_pairs_ = has_bfloat16_dots && has_pairs && !uses_matrix_unit_ && weight_.in() % 2 == 0;
    token_blocks_ = (x_.tokens + Shape::tokens - 1) / Shape::tokens;
    // A few tokens still make several tasks; each then has at least two panels.
    const Index wanted = token_blocks_ < 8 ? 8 / std::max<Index>(token_blocks_, 1) : 1;
    panel_groups_ = std::clamp<Index>(wanted, 1, std::max<Index>(1, weight_.panel_count() / 2));
  }

  Index task_count() const { return weight_.panel_count() == 0 ? 0 : token_blocks_ * panel_groups_; }
  Index scratch_size() const {
    const Index converted = x_.type != nullptr && !multiplies_pairs_ ? weight_.depth() : 0;
    return std::min(Shape::tokens, x_.tokens) * (lanes + converted);
  }

  void run(Index task, A* scratch) const {
    const Index block = task / panel_groups_, group = task % panel_groups_, panels = weight_.panel_count();
    const Range tokens{block * Shape::tokens, std::min((block + 1) * Shape::tokens, x_.tokens)};
    const Range range{panels * group / panel_groups_, panels * (group + 1) / panel_groups_};
    const ByteRows<const std::byte> x = input(tokens, scratch + tokens.size() * lanes);
    // Outputs of another type keep no sums between slices.
    const Index slices =
        x_.type != nullptr ? 1 : std::max<Index>(1, (weight_.in() + Shape::depth - 1) / Shape::depth);
    for (Index slice = 0; slice < slices; ++slice) {
      const Range inputs{slice_begin(slice, slices), slice_begin(slice + 1, slices)};
      for (Index panel = range.begin; panel < range.end; ++panel)
        add_slice(panel, tokens, x, inputs, coming_weights(panel, range, inputs, tokens.size()), scratch);
    }
  }

 private:
  /// The first input of a slice: an even one, for weights that lie in pairs.
  Index slice_begin(Index slice, Index slices) const {
    return slice == slices ? weight_.in() : weight_.in() * slice / slices / 2 * 2;
  }
  /// Features of a panel that exist.
  Index features(Index panel) const { return std::min(lanes, weight_.out() - panel * lanes); }

  /// The rows of x for some tokens: as they are, or converted into `scratch`, or copied and filled up to a
  /// step of the matrix unit.
  ByteRows<const std::byte> input(Range tokens, A* scratch) const {
    const ByteRows<const std::byte> rows = x_.x.from(tokens.begin);
    if (x_.type == nullptr || multiplies_pairs_) return rows;
    const Index in = weight_.in(), depth = weight_.depth();
    if (!uses_matrix_unit_) {
      for (Index t = 0; t < tokens.size(); ++t) x_.type->load(rows.row(t), in, scratch + t * in);
      return Rows<const A>{scratch, in};
    }
    if (in == depth) return rows;
    const Rows<Eigen::bfloat16> filled{reinterpret_cast<Eigen::bfloat16*>(scratch), depth};
    for (Index t = 0; t < tokens.size(); ++t) {
      const auto* const from = reinterpret_cast<const Eigen::bfloat16*>(rows.row(t));
      std::fill(std::copy_n(from, in, filled.row(t)), filled.row(t) + depth, Eigen::bfloat16(0.0F));
    }
    return Rows<const Eigen::bfloat16>{filled.data, depth};
  }

  /// What follows a slice: the next panel's, then the next inputs of the first panel. For a few tokens there
  /// is too little work to hide it behind, and the hardware asks early enough.
  WarmUp coming_weights(Index panel, Range panels, Range inputs, Index tokens) const {
    const bool last = panel + 1 == panels.end;
    const Index next = last ? inputs.end : inputs.begin;
    if (tokens < 4 * Shape::broadcasts || next == weight_.in()) return {};
    WarmUp coming;
    const Index bytes = weight_.slice_bytes(inputs.size());
    coming.add(weight_.slice(last ? panels.begin : panel + 1, next).weights, 1, bytes, bytes);
    coming.share_out(tokens / Shape::broadcasts);
    return coming;
  }

  void add_slice(Index panel, Range tokens, const ByteRows<const std::byte>& x, Range inputs, WarmUp coming,
                 A* scratch) const {
    const Index column = panel * lanes, count = features(panel);
    const auto packets = static_cast<int>((count + width - 1) / width);
    // A row's last packet must not run into the next feature or row, and another type needs a conversion.
    const bool in_place = x_.type == nullptr && count % width == 0;
    Rows<A> y{scratch, lanes};
    Rows<const A> residual{};
    if (in_place) {
      const Rows<A> all = x_.y.template as<A>();
      y = {all.row(tokens.begin) + column, all.stride};
      const Rows<const A> start = x_.residual.template as<const A>();
      if (start.data != nullptr) residual = {start.row(tokens.begin) + column, start.stride};
    } else {
      if (inputs.begin > 0)
        gather(x_.y, tokens, column, count, y);
      else if (x_.residual.data != nullptr)
        gather(x_.residual, tokens, column, count, y);
      if (x_.residual.data != nullptr) residual = {y.data, y.stride};
    }
    const PanelSlice<A> slice = weight_.slice(panel, inputs.begin);
    if constexpr (has_matrix_unit && std::is_same_v<A, float>)
      if (uses_matrix_unit_)
        multiply_by_unit(slice, packets, tokens.size(), x, residual.data != nullptr, coming, y);
    if (!uses_matrix_unit_) multiply(slice, packets, tokens.size(), x, inputs, residual, coming, y);
    const bool last = inputs.end == weight_.in() && x_.epilogue != nullptr;
    for (Index t = 0; t < tokens.size() && (last || !in_place); ++t) {
      if (last) x_.epilogue(y.row(t), y.row(t), count);
      if (!in_place) put(y.row(t), tokens.begin + t, column, count);
    }
  }

  /// y = start (or bias + residual) + x W^T, for the inputs of a slice.
  void multiply(const PanelSlice<A>& slice, int packets, Index tokens, const ByteRows<const std::byte>& x,
                Range inputs, const Rows<const A>& residual, WarmUp& coming, const Rows<A>& y) const {
    Index n = Shape::broadcasts;
    for (Index t = 0; t < tokens; t += n) {
      while (t + n > tokens) n /= 2;
      const Rows<const A> start{residual.data == nullptr ? nullptr : residual.row(t), residual.stride};
      coming.step();
      if constexpr (has_bfloat16_dots && std::is_same_v<A, float>)
        if (multiplies_pairs_) {
          const Rows<const Eigen::bfloat16> pairs = x.template as<const Eigen::bfloat16>();
          project_blocks<A, Eigen::bfloat16, Eigen::bfloat16>().of(packets, n)(
              inputs.size(), slice, pairs.row(t), pairs.stride, start, y.row(t), y.stride);
          continue;
        }
      const Rows<const A> rows = x.template as<const A>();
      weight_.blocks().of(packets, n)(inputs.size(), slice, rows.row(t) + inputs.begin, rows.stride, start,
                                      y.row(t), y.stride);
    }
  }

  /// As multiply(), of all inputs; `y` holds the residual, if there is one.
  void multiply_by_unit(const PanelSlice<A>& slice, int packets, Index tokens,
                        const ByteRows<const std::byte>& x, bool has_residual, WarmUp& coming,
                        const Rows<A>& y) const {
    constexpr Index together = 2 * tile_rows;
    [[maybe_unused]] const MatrixUnit unit;
    for (Index first = 0; first < tokens; first += together) {
      const Index n = std::min(together, tokens - first);
      for (Index t = first; t < first + n; ++t) {
        if (t % Shape::broadcasts == 0) coming.step();
        for (Index i = 0; i < packets * width; ++i)
          y.row(t)[i] = slice.bias[i] + (has_residual ? y.row(t)[i] : A(0));
      }
      with_constant<Shape::packets>(packets, [&](auto p) ATTN_LAMBDA_INLINE {
        multiply_tiles<p * width>(false, n, weight_.depth() / (2 * tile_pairs), x.row(first), x.step,
                                  reinterpret_cast<const float*>(slice.weights), lanes, y.row(first),
                                  y.stride);
      });
    }
  }

  Index element_size() const { return x_.type == nullptr ? static_cast<Index>(sizeof(A)) : x_.type->size; }
  /// `count` elements of rows, from `column` on, as A; the rest of a row is zero.
  template <class Byte>
  void gather(const ByteRows<Byte>& rows, Range tokens, Index column, Index count, const Rows<A>& to) const {
    for (Index t = 0; t < tokens.size(); ++t) {
      const std::byte* const from = rows.row(tokens.begin + t) + column * element_size();
      if (x_.type == nullptr)
        std::copy_n(reinterpret_cast<const A*>(from), count, to.row(t));
      else
        x_.type->load(from, count, to.row(t));
      std::fill(to.row(t) + count, to.row(t) + lanes, A(0));
    }
  }
  /// Writes a part of a row of y.
  void put(const A* from, Index token, Index column, Index count) const {
    std::byte* const to = x_.y.row(token) + column * element_size();
    if (x_.type == nullptr)
      std::copy_n(from, count, reinterpret_cast<A*>(to));
    else
      x_.type->store(from, count, to);
  }

  ProjectionArguments<A> x_;
  const PackedWeight<A>& weight_;
  Index token_blocks_ = 0, panel_groups_ = 1;
  bool multiplies_pairs_ = false;  // x enters as it is
  bool uses_matrix_unit_ = false;
};

}  // namespace kernels
ATTN_NAMESPACE_END
