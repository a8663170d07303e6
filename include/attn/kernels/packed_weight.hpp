// attn/kernels/packed_weight.hpp - PackedWeight: W^T in the order that projections read it, stored in any
// type; and the register block that multiplies by it.
#pragma once
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "attn/core/tensor.hpp"
#include "attn/kernels/matrix_unit.hpp"
#include "attn/kernels/micro.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Rows of contiguous elements, `stride` apart.
template <class T>
struct Rows {
  T* data = nullptr;
  Index stride = 0;
  T* row(Index i) const { return data + i * stride; }
};

/// Inputs that lie side by side in a panel of S: a pair, where the processor multiplies pairs of bfloat16.
template <class S>
inline constexpr Index inputs_together = (has_bfloat16_dots && std::is_same_v<S, Eigen::bfloat16>) ? 2 : 1;

/// Inputs of a panel are filled up with zeros to a multiple: of a pair, or of a step of the matrix unit.
template <class S>
inline constexpr Index depth_unit =
    inputs_together<S> == 2 && has_matrix_unit ? 2 * tile_pairs : inputs_together<S>;

/// Some inputs of one panel, [input][lanes] or [pair of inputs][lanes][2], of a type that only the function
/// knows which takes them.
template <class A>
struct PanelSlice {
  const std::byte* weights;
  const A* bias;    ///< [lanes]; null where the slice is not the first
  const A* scales;  ///< [lanes], of 8-bit weights: a weight is scale * integer
};

/// `Tokens` rows times `Packets` packets of one panel over `depth` inputs: y = start + sum. The first slice
/// of inputs starts at the bias, and the residual where there is one; later ones at y. X is A, or bfloat16
/// for panels of pairs, with an even depth.
///
/// The sum is taken in runs of `run` inputs, each from zero: a rounding error then grows with the length of a
/// run and the number of runs, not with the number of inputs.
template <class A, class S, class X, int Packets, int Tokens>
ATTN_NOINLINE void project_block(Index depth, const PanelSlice<A>& slice, const X* ATTN_RESTRICT x,
                                 Index x_stride, const Rows<const A>& start, A* y, Index y_stride) {
  constexpr int width = packet_width<A>;
  constexpr Index run = 256, together = inputs_together<S>;
  constexpr bool scaled = std::is_same_v<S, std::int8_t>, in_pairs = together == 2;
  constexpr bool multiplies_pairs = in_pairs && !std::is_same_v<X, A>;
  using Element = std::conditional_t<in_pairs, A, S>;  // of a step; a pair has the size of A
  // For one row memory is the limit, and of narrow weights the hardware alone asks for too little ahead.
  constexpr bool reads_ahead = Tokens <= 2 && sizeof(S) < sizeof(A);
  constexpr Index step_bytes = BlockShape<A>::lanes * static_cast<Index>(sizeof(Element));
  const bool starts_at_y = slice.bias == nullptr;
  const auto* ATTN_RESTRICT panel = reinterpret_cast<const Element*>(slice.weights);
  RegisterBlock<A, Packets, Tokens> block;
  Index i = 0;
  do {
    const bool first = i == 0;
    const bool starts_at_bias = first && !starts_at_y;
    Packet<A> initial[as_size(Packets)];
    unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE {
      initial[m] = starts_at_bias && !scaled ? load(slice.bias + m * width) : broadcast(A(0));
    });
    block.fill(initial);
    const Index end = std::min(depth, i + run);
    for (; i + together <= end; i += together) {
      if constexpr (reads_ahead)
        for (Index ahead = 2048; ahead < 2048 + step_bytes; ahead += 64)
          ATTN_PREFETCH(reinterpret_cast<const char*>(panel) + ahead);
      if constexpr (multiplies_pairs)
        block.step_pairs(panel, reinterpret_cast<const std::byte*>(x),
                         x_stride * static_cast<Index>(sizeof(X)));
      else if constexpr (in_pairs)
        block.step_unpacked(panel, x, x_stride);
      else
        block.step(panel, x, x_stride);
      panel += BlockShape<A>::lanes;
      x += together;
    }
    if constexpr (in_pairs && !multiplies_pairs)
      if (i < end) {
        block.step_first(panel, x, x_stride);
        ++i;
      }
    if constexpr (scaled) {
      block.multiply(slice.scales);
      if (starts_at_bias) block.add(slice.bias, 0);
    }
    if (!first || starts_at_y)
      block.add(y, y_stride);
    else if (start.data != nullptr)
      block.add(start.data, start.stride);
    block.store(y, y_stride);
  } while (i < depth);
}

template <class A, class X = A>
using ProjectBlock = void (*)(Index depth, const PanelSlice<A>& slice, const X* x, Index x_stride,
                              const Rows<const A>& start, A* y, Index y_stride);

/// The blocks for weights of one storage type and rows of X, [packets - 1][log2 of the tokens].
template <class A, class X = A>
struct ProjectBlocks {
  static constexpr int sizes = std::bit_width(static_cast<unsigned>(BlockShape<A>::broadcasts));
  ProjectBlock<A, X> block[as_size(BlockShape<A>::packets)][as_size(sizes)];

  /// For so many packets of features and so many tokens, a power of two.
  ProjectBlock<A, X> of(int packets, Index tokens) const {
    return block[packets - 1][std::countr_zero(static_cast<unsigned>(tokens))];
  }
};

template <class A, class S, class X = A>
const ProjectBlocks<A, X>& project_blocks() {
  static constexpr ProjectBlocks<A, X> blocks = [] {
    ProjectBlocks<A, X> all{};
    unroll<BlockShape<A>::packets>([&](auto p) {
      unroll<ProjectBlocks<A, X>::sizes>(
          [&](auto n) { all.block[p][n] = project_block<A, S, X, p + 1, 1 << n>; });
    });
    return all;
  }();
  return blocks;
}

/// W^T in panels of S, with the bias: features beyond `out` are zero. 8-bit weights are scale * integer with
/// a scale per feature, its largest weight over 127 (rounded to nearest).
template <class A>
class PackedWeight {
 public:
  static constexpr Index lanes = BlockShape<A>::lanes;

  PackedWeight() = default;
  /// weight [out, in]; bias [out] or empty; S: what the panels hold.
  template <class S, class E>
  PackedWeight(std::type_identity<S>, const TensorView<const E, 2>& weight,
               const TensorView<const E, 1>& bias)
      : out_(weight.extent(0)),
        in_(weight.extent(1)),
        depth_(attn::detail::round_up(in_, depth_unit<S>)),
        element_size_(static_cast<Index>(sizeof(S))),
        panels_(as_size(panel_count() * depth_ * lanes * element_size_)),
        bias_({panel_count() * lanes}),
        scales_({std::is_same_v<S, std::int8_t> ? panel_count() * lanes : 0}),
        lies_in_pairs_(inputs_together<S> == 2),
        blocks_(&project_blocks<A, S>()) {
    for (Index o = 0; o < out_; ++o) {
      if (bias.extent(0) > 0) bias_(o) = static_cast<A>(bias(o));
      if (in_ == 0) continue;
      constexpr Index together = inputs_together<S>;
      const Index first = o / lanes * depth_ * lanes + o % lanes * together;
      const auto set = [&](Index i, S value) {
        const Index at = first + i / together * together * lanes + i % together;
        std::memcpy(panels_.data() + at * element_size_, &value, sizeof value);
      };
      if constexpr (std::is_same_v<S, std::int8_t>) {
        const A scale = scale_of(weight, o);
        scales_(o) = scale;
        for (Index i = 0; i < in_ && scale != A(0); ++i)
          set(i, static_cast<S>(std::lrint(static_cast<A>(weight(o, i)) / scale)));
      } else {
        for (Index i = 0; i < in_; ++i) set(i, static_cast<S>(static_cast<A>(weight(o, i))));
      }
    }
  }

  Index out() const { return out_; }
  Index in() const { return in_; }
  /// Inputs of a panel, those of zeros included.
  Index depth() const { return depth_; }
  Index panel_count() const { return (out_ + lanes - 1) / lanes; }
  /// Bytes that one product reads.
  Index bytes() const {
    return static_cast<Index>(panels_.size()) +
           (bias_.size() + scales_.size()) * static_cast<Index>(sizeof(A));
  }
  /// A panel from input `first`, an even number, on.
  PanelSlice<A> slice(Index panel, Index first) const {
    return {panels_.data() + (panel * depth_ + first) * lanes * element_size_,
            first == 0 ? bias_.data() + panel * lanes : nullptr,
            scales_.size() == 0 ? nullptr : scales_.data() + panel * lanes};
  }
  /// Bytes of the weights of a slice of so many inputs.
  Index slice_bytes(Index depth) const { return depth * lanes * element_size_; }
  /// The blocks for rows of A.
  const ProjectBlocks<A>& blocks() const { return *blocks_; }
  /// Inputs lie in pairs, which rows of bfloat16 are multiplied by as such.
  bool lies_in_pairs() const { return lies_in_pairs_; }

 private:
  template <class E>
  static A scale_of(const TensorView<const E, 2>& weight, Index feature) {
    A largest = 0;
    for (Index i = 0; i < weight.extent(1); ++i)
      largest = std::max(largest, std::abs(static_cast<A>(weight(feature, i))));
    // A scale that is normal: below, 127 times it would not reach the largest weight.
    return largest == A(0) ? A(0) : std::max(largest / 127, std::numeric_limits<A>::min());
  }

  Index out_ = 0, in_ = 0;
  Index depth_ = 0;  // inputs of a panel: in_, and zeros up to the next multiple of depth_unit
  Index element_size_ = 0;
  std::vector<std::byte, attn::detail::CacheLineAllocator<std::byte>> panels_;
  Tensor<A, 1> bias_, scales_;
  bool lies_in_pairs_ = false;
  const ProjectBlocks<A>* blocks_ = nullptr;
};

#ifdef ATTN_INSTANTIATE
ATTN_INSTANTIATE const ProjectBlocks<float>& project_blocks<float, float>();
ATTN_INSTANTIATE const ProjectBlocks<float>& project_blocks<float, Eigen::half>();
ATTN_INSTANTIATE const ProjectBlocks<float>& project_blocks<float, Eigen::bfloat16>();
ATTN_INSTANTIATE const ProjectBlocks<float>& project_blocks<float, std::int8_t>();
ATTN_INSTANTIATE const ProjectBlocks<double>& project_blocks<double, double>();
#endif

}  // namespace kernels
ATTN_NAMESPACE_END
