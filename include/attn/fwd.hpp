// attn/fwd.hpp - the names of the library's types, for headers that only refer to them. Includes neither
// Eigen nor any other header that takes time to compile.
#pragma once
#include <concepts>

#include "attn/core/element.hpp"

ATTN_NAMESPACE_BEGIN

// attn/core
class CounterRandom;
template <int Rank>
struct Dims;
class ExecutorRef;
class FormatError;
struct Range;
struct Sequential;
class ShapeError;
template <StorageElement S>
struct StoredRows;
class TaskRef;
template <Element T, int Rank>
class Tensor;
template <class X>
struct TensorTraits;
template <class T, int Rank>
class TensorView;
class ThreadPool;
class Workspace;

// attn/masks
template <class T>
class AdditiveBias;
class Alibi;
struct Causal;
class Documents;
template <std::integral T>
class DropMask;
template <std::integral T>
class KeepMask;
struct KeyPadding;
struct NoMask;
struct PrefixLm;
struct Problem;
class QueryOffset;
template <std::floating_point T>
class RelativeBias;
struct Site;
struct SlidingWindow;
struct Tile;

// attn/ops
template <Element T>
struct AttentionPart;
template <Element T, StorageElement Storage>
class KVCache;  // Storage: T by default
struct KVCacheConfig;
struct LinearOptions;
struct NormOptions;
struct RopeConfig;
struct RopeScaling;
class RotaryEmbedding;
class RowPositions;
struct RunOptions;
struct SdpaOptions;
struct SoftmaxOptions;

// attn/modules
template <Element T>
class DecoderBlock;
template <Element T>
class FeedForward;
template <Element T>
class Linear;
template <Element T>
class MultiHeadAttention;
template <Element T>
class Norm;
template <Element T, int Rank>
class Parameter;
struct PackedSequences;
template <Element T>
class Transformer;
template <Element T>
class TransformerDecoder;
template <Element T>
class TransformerDecoderLayer;
template <Element T>
class TransformerEncoder;
template <Element T>
class TransformerEncoderLayer;
struct CachedAttentionOptions;
struct DecoderBlockConfig;
struct FeedForwardConfig;
struct LinearConfig;
struct MultiHeadAttentionConfig;
struct MultiHeadAttentionOptions;
struct NormConfig;
struct TransformerConfig;
struct TransformerLayerConfig;

ATTN_NAMESPACE_END
