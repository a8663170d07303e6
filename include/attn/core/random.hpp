// attn/core/random.hpp - CounterRandom: random numbers that are a function of (seed, stream, index).
#pragma once
#include <cmath>
#include <cstdint>

#include "attn/core/types.hpp"

ATTN_NAMESPACE_BEGIN

/// Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 4.3): number
/// `index` of a stream can be had in any order, on any thread, with the same result.
class CounterRandom {
 public:
  struct Block {
    std::uint32_t words[4];
  };

  /// Streams of one seed are independent of each other: use one per parameter, layer or head.
  explicit CounterRandom(std::uint64_t seed, std::uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  /// Four 32-bit words, all values equally likely.
  Block block(std::uint64_t counter) const {
    Block x{{low(counter), high(counter), low(stream_), high(stream_)}};
    std::uint32_t key0 = low(seed_), key1 = high(seed_);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = std::uint64_t{0xD2511F53} * x.words[0],
                          b = std::uint64_t{0xCD9E8D57} * x.words[2];
      x = {{high(b) ^ x.words[1] ^ key0, low(b), high(a) ^ x.words[3] ^ key1, low(a)}};
      key0 += 0x9E3779B9;
      key1 += 0xBB67AE85;
    }
    return x;
  }

  /// Word number `index` of the stream.
  std::uint32_t word(std::uint64_t index) const { return block(index / 4).words[index % 4]; }

  /// Uniform in [0, 1), a multiple of 2^-53.
  double uniform(std::uint64_t index) const {
    const Block x = block(index);
    return static_cast<double>((std::uint64_t{x.words[0]} << 21) ^ (x.words[1] >> 11)) * 0x1p-53;
  }

  /// Standard normal (Box and Muller 1958).
  double normal(std::uint64_t index) const {
    const Block x = block(index);
    const auto unit = [](std::uint32_t a, std::uint32_t b) {
      return (static_cast<double>((std::uint64_t{a} << 21) ^ (b >> 11)) + 0.5) * 0x1p-53;
    };
    constexpr double two_pi = 6.283185307179586476925286766559;
    return std::sqrt(-2 * std::log(unit(x.words[0], x.words[1]))) *
           std::cos(two_pi * unit(x.words[2], x.words[3]));
  }

 private:
  static constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
  static constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

  std::uint64_t seed_, stream_;
};

ATTN_NAMESPACE_END
