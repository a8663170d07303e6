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

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Sizes of the blocking.
template <class A>
struct ProjectionShape : BlockShape<A> {
  static constexpr Index depth = 640;
  static constexpr Index tokens = 128;
};

/// The weights of the next slice, asked for bit by bit during this one.
class ComingWeights {
 public:
  ComingWeights() = default;
  /// `passes`: how often ask() will be called.
  ComingWeights(const std::byte* begin, Index bytes, Index passes)
      : next_(begin), lines_((bytes + 63) / 64), lines_per_pass_((lines_ + passes - 1) / passes) {}
  ATTN_ALWAYS_INLINE void ask() {
    for (Index i = std::min(lines_per_pass_, lines_); i > 0; --i, --lines_, next_ += 64) ATTN_PREFETCH(next_);
  }

 private:
  const std::byte* next_ = nullptr;
  Index lines_ = 0, lines_per_pass_ = 0;
};

/// One product y = x W^T + bias (+ residual), then the epilogue; checked by the caller. Rows of y, x and
/// residual hold contiguous elements; residual may be y itself.
template <class A>
struct ProjectionArguments {
  Rows<const A> x;
  Rows<A> y;
  Rows<const A> residual{};  ///< no data: none
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
    token_blocks_ = (x_.tokens + Shape::tokens - 1) / Shape::tokens;
    // A few tokens still make several tasks; each then has at least two panels.
    const Index wanted = token_blocks_ < 8 ? 8 / std::max<Index>(token_blocks_, 1) : 1;
    panel_groups_ = std::clamp<Index>(wanted, 1, std::max<Index>(1, weight_.panel_count() / 2));
  }

  Index task_count() const { return weight_.panel_count() == 0 ? 0 : token_blocks_ * panel_groups_; }
  static Index scratch_size() { return Shape::tokens * lanes; }

  void run(Index task, A* scratch) const {
    const Index block = task / panel_groups_, group = task % panel_groups_, panels = weight_.panel_count();
    const Range tokens{block * Shape::tokens, std::min((block + 1) * Shape::tokens, x_.tokens)};
    const Range range{panels * group / panel_groups_, panels * (group + 1) / panel_groups_};
    const Index slices = std::max<Index>(1, (weight_.in() + Shape::depth - 1) / Shape::depth);
    for (Index slice = 0; slice < slices; ++slice) {
      const Range inputs{weight_.in() * slice / slices, weight_.in() * (slice + 1) / slices};
      for (Index panel = range.begin; panel < range.end; ++panel)
        add_slice(panel, tokens, inputs, coming_weights(panel, range, inputs, tokens.size()), scratch);
    }
  }

 private:
  /// Features of a panel that exist.
  Index features(Index panel) const { return std::min(lanes, weight_.out() - panel * lanes); }

  /// What follows a slice: the next panel's, then the next inputs of the first panel. For a few tokens there
  /// is too little work to hide it behind, and the hardware asks early enough.
  ComingWeights coming_weights(Index panel, Range panels, Range inputs, Index tokens) const {
    const bool last = panel + 1 == panels.end;
    const Index next = last ? inputs.end : inputs.begin;
    if (tokens < 4 * Shape::broadcasts || next == weight_.in()) return {};
    return {weight_.slice(last ? panels.begin : panel + 1, next).weights, weight_.slice_bytes(inputs.size()),
            tokens / Shape::broadcasts};
  }

  void add_slice(Index panel, Range tokens, Range inputs, ComingWeights coming, A* scratch) const {
    const Index column = panel * lanes, count = features(panel);
    const auto packets = static_cast<int>((count + width - 1) / width);
    const bool whole = count % width == 0;  // else a row's last packet would run into the next feature or row
    Rows<A> y{x_.y.row(tokens.begin) + column, x_.y.stride};
    Rows<const A> residual{};
    if (x_.residual.data != nullptr) residual = {x_.residual.row(tokens.begin) + column, x_.residual.stride};
    if (!whole) {
      y = to_scratch(inputs.begin > 0 ? Rows<const A>{y.data, y.stride} : residual, tokens.size(), count,
                     scratch);
      if (residual.data != nullptr) residual = {y.data, y.stride};
    }
    const PanelSlice<A> slice = weight_.slice(panel, inputs.begin);
    const A* const x = x_.x.row(tokens.begin) + inputs.begin;
    with_constant<Shape::packets>(packets, [&](auto p) ATTN_LAMBDA_INLINE {
      for_blocks<Shape::broadcasts>(tokens.size(), [&](Index t, auto n) ATTN_LAMBDA_INLINE {
        const Rows<const A> start{residual.data == nullptr ? nullptr : residual.row(t), residual.stride};
        coming.ask();
        weight_.project(p, n)(inputs.size(), slice, x + t * x_.x.stride, x_.x.stride, start, y.row(t),
                              y.stride);
      });
    });
    const bool last = inputs.end == weight_.in() && x_.epilogue != nullptr;
    for (Index t = 0; t < tokens.size() && (last || !whole); ++t) {
      if (last) x_.epilogue(y.row(t), y.row(t), count);
      if (!whole) std::copy(y.row(t), y.row(t) + count, x_.y.row(tokens.begin + t) + column);
    }
  }

  /// Rows of `lanes` elements that begin with the given ones, or with nothing.
  static Rows<A> to_scratch(const Rows<const A>& rows, Index tokens, Index count, A* scratch) {
    std::fill(scratch, scratch + tokens * lanes, A(0));
    for (Index t = 0; t < tokens && rows.data != nullptr; ++t)
      std::copy(rows.row(t), rows.row(t) + count, scratch + t * lanes);
    return {scratch, lanes};
  }

  ProjectionArguments<A> x_;
  const PackedWeight<A>& weight_;
  Index token_blocks_ = 0, panel_groups_ = 1;
};

}  // namespace kernels
ATTN_NAMESPACE_END
