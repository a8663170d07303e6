// attn/ops/rope.hpp - RotaryEmbedding: queries and keys rotated by their positions.
#pragma once
#include <span>
#include <vector>

#include "attn/masks/mask.hpp"
#include "attn/ops/rope_config.hpp"
#include "attn/ops/rotate.hpp"

ATTN_NAMESPACE_BEGIN

/// The position of each row of x [batch, heads, len, head_dim]: counted from an offset, one for all batch
/// entries or one for each; or as a view [batch, len] says (a first extent of 1 stands for all entries).
/// Positions may be negative. Borrows what it is made of.
class RowPositions {
 public:
  /// Row i stands at offset + i. Takes what QueryOffset takes: an Index, a vector, an array, a span.
  template <class Offset>
    requires(std::constructible_from<QueryOffset, Offset&&>)
  RowPositions(Offset&& offset)  // NOLINT(google-explicit-constructor,bugprone-forwarding-reference-overload)
      : offset_(static_cast<Offset&&>(offset)) {}
  RowPositions(const TensorView<const Index, 2>& positions)  // NOLINT(google-explicit-constructor)
      : is_per_row_(true), positions_(positions) {}
  RowPositions(const TensorView<Index, 2>& positions)  // NOLINT(google-explicit-constructor)
      : RowPositions(TensorView<const Index, 2>(positions)) {}

  Index operator()(Index batch, Index row) const {
    return is_per_row_ ? positions_(positions_.extent(0) == 1 ? 0 : batch, row) : offset_(batch) + row;
  }

  /// @throws ShapeError unless there is a position for each row of x; std::length_error if one is not below
  /// 2^52, up to which double counts.
  template <class T>
  void check_fit(const char* name, const TensorView<T, 4>& x) const {
    const Index batch = x.extent(0), len = x.extent(2);
    if (is_per_row_)
      check((positions_.extent(0) == 1 || positions_.extent(0) == batch) && positions_.extent(1) == len, name,
            ": positions ", positions_, " [batch, len] do not fit x ", x);
    const auto offsets = static_cast<Index>(offset_.per_batch().size());
    check(!offset_.is_per_batch() || offsets == batch, name, ": ", offsets, " offsets for the batch of x ",
          x);
    constexpr Index limit = farthest_position;
    const auto check_size = [&](Index first, Index count) {
      check<std::length_error>(-limit < first && first < limit - count, name, ": position ", first, " of x ",
                               x, " is not between -2^52 and 2^52");
    };
    for (Index b = 0; b < batch; ++b) {
      if (!is_per_row_) check_size(offset_(b), len);
      for (Index row = 0; is_per_row_ && row < len; ++row) check_size((*this)(b, row), 0);
    }
  }

 private:
  QueryOffset offset_{};
  bool is_per_row_ = false;
  TensorView<const Index, 2> positions_{};
};

/// Rotates pairs of elements of queries and keys by angles that grow with their positions, so that the
/// product of a query and a key depends on how far they stand apart (Su et al. 2021, "RoFormer", equation
/// 34).
///
/// x has rank 2 [len, head_dim], 3 [heads, len, head_dim] or 4 [batch, heads, len, head_dim], any strides: a
/// part of a fused projection is rotated where it lies. Angles are computed in double for every element type,
/// once per position and not per head; the sum in float for 16-bit elements. Thread-safe; results depend
/// neither on earlier calls nor on the executor. With a workspace that has served this shape, nothing is
/// allocated. Functions throw ShapeError if extents do not fit, and std::length_error for positions from
/// 2^52.
class RotaryEmbedding {
 public:
  /// @throws ShapeError if dimensions do not fit; std::invalid_argument if a number is out of its range.
  explicit RotaryEmbedding(const RopeConfig& config)
      : config_(config),
        frequencies_(detail::rope_frequencies(config)),
        attention_factor_(detail::rope_attention_factor(config.scaling)) {
    config_.rotary_dim = 2 * pairs();
    steps_.reserve(as_size(block * config_.rotary_dim));
    for (Index step = 0; step < block; ++step) {
      for (const double frequency : frequencies_)
        steps_.push_back(std::cos(static_cast<double>(step) * frequency));
      for (const double frequency : frequencies_)
        steps_.push_back(std::sin(static_cast<double>(step) * frequency));
    }
  }

  const RopeConfig& config() const { return config_; }  ///< with rotary_dim filled in
  /// Radians per position of each pair, after scaling.
  std::span<const double> frequencies() const { return frequencies_; }
  /// What rotated elements are multiplied by; 1 but for YaRN.
  double attention_factor() const { return attention_factor_; }

  /// Rotates x in place.
  template <WritableTensor X>
  void apply(X&& x, const RowPositions& positions, const RunOptions& options = {}) const {
    apply_into(x, x, positions, options);
  }
  /// out = x, rotated; out may be x.
  template <TensorLike X, WritableTensor Out>
    requires std::same_as<ElementOf<X>, ElementOf<Out>>
  void apply_into(const X& x, Out&& out, const RowPositions& positions,
                  const RunOptions& options = {}) const {
    rotate("RotaryEmbedding::apply", x, out, positions, {attention_factor_, 1}, options);
  }

  /// Undoes apply: x at position p becomes what was rotated to it (also the gradient's way back, up to the
  /// square of the attention factor).
  template <WritableTensor X>
  void invert(X&& x, const RowPositions& positions, const RunOptions& options = {}) const {
    invert_into(x, x, positions, options);
  }
  template <TensorLike X, WritableTensor Out>
    requires std::same_as<ElementOf<X>, ElementOf<Out>>
  void invert_into(const X& x, Out&& out, const RowPositions& positions,
                   const RunOptions& options = {}) const {
    rotate("RotaryEmbedding::invert", x, out, positions, {1 / attention_factor_, -1}, options);
  }

  /// Moves rotated rows, such as a cache's keys, by as many positions, one number for all batch entries or
  /// one for each: apply(p) and shift(n) are apply(p + n), up to rounding.
  template <WritableTensor X>
  void shift(X&& x, const QueryOffset& by, const RunOptions& options = {}) const {
    rotate("RotaryEmbedding::shift", x, x, RowPositions(by), {1, 1, 0}, options);
  }

 private:
  static constexpr Index block = 64;  ///< positions that share one evaluation of sine and cosine

  struct Turn {
    double size = 1;   ///< of cosine and sine
    double sense = 1;  ///< -1: backwards
    Index stride = 1;  ///< 0: all rows of a batch entry turn as its first
  };

  /// The turns that rotate_rows asks for. Position p = block * n + step: the turn of block * n is computed,
  /// that of the step looked up, and their product taken, all in double.
  struct Turns {
    const RotaryEmbedding& rope;
    const RowPositions& positions;
    Turn turn;

    template <class A>
    void fill(Index batch, Index first, Index count, double* of_block, A* to) const {
      const Index pairs = rope.pairs();
      Index known = 0;
      bool is_known = false;
      for (Index row = first; row < first + count; ++row, to += 2 * pairs) {
        const Index position = positions(batch, row * turn.stride);
        const Index number = (position - (position < 0 ? block - 1 : 0)) / block;
        if (!is_known || number != known) rope.turn_of_block(number, turn.size, of_block);
        known = number;
        is_known = true;
        const double* const step = rope.steps_.data() + (position - number * block) * 2 * pairs;
        const bool halves = rope.config_.pairing == RopePairing::half;
        for (Index i = 0; i < pairs; ++i) {
          const double c = of_block[i], s = of_block[pairs + i], cs = step[i], ss = step[pairs + i];
          to[halves ? i : 2 * i] = static_cast<A>(c * cs - s * ss);
          to[halves ? pairs + i : 2 * i + 1] = static_cast<A>(turn.sense * (s * cs + c * ss));
        }
      }
    }
  };

  Index pairs() const { return static_cast<Index>(frequencies_.size()); }

  void turn_of_block(Index number, double size, double* turn) const {
    const double position = static_cast<double>(number) * static_cast<double>(block);
    for (Index i = 0; i < pairs(); ++i) {
      const double angle = position * frequencies_[as_size(i)];
      turn[i] = size * std::cos(angle);
      turn[pairs() + i] = size * std::sin(angle);
    }
  }

  template <class X, class Out>
  void rotate(const char* name, const X& x, Out& out, const RowPositions& positions, const Turn& turn,
              const RunOptions& options) const {
    rotate_view<ElementOf<X>>(name, as_bhld(detail::read_view(x)), as_bhld(as_view(out)), positions, turn,
                              options);
  }
  template <class T>
  void rotate_view(const char* name, const TensorView<const T, 4>& x, const TensorView<T, 4>& out,
                   const RowPositions& positions, const Turn& turn, const RunOptions& options) const;

  RopeConfig config_;
  std::vector<double> frequencies_;
  double attention_factor_;
  std::vector<double> steps_;  ///< of positions 0 ... block - 1: cosines and sines of all pairs
};

template <class T>
void RotaryEmbedding::rotate_view(const char* name, const TensorView<const T, 4>& x,
                                  const TensorView<T, 4>& out, const RowPositions& positions,
                                  const Turn& turn, const RunOptions& options) const {
  detail::check_elementwise(name, x, out);
  check(x.extent(3) == config_.head_dim, name, ": x ", x, " has head_dim ", x.extent(3),
        " and the embedding ", config_.head_dim);
  positions.check_fit(name, x);
  detail::rotate_rows(detail::RowRotation<T>{x, out, config_.pairing, config_.rotary_dim},
                      Turns{*this, positions, turn}, options);
}

#ifdef ATTN_INSTANTIATE
#define ATTN_INSTANTIATE_ROTATION(T)                                                               \
  ATTN_INSTANTIATE void RotaryEmbedding::rotate_view(const char*, const TensorView<const T, 4>&,   \
                                                     const TensorView<T, 4>&, const RowPositions&, \
                                                     const Turn&, const RunOptions&) const;
ATTN_INSTANTIATE_ROTATION(float)
ATTN_INSTANTIATE_ROTATION(double)
#undef ATTN_INSTANTIATE_ROTATION
#endif

ATTN_NAMESPACE_END
