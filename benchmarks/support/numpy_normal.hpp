// benchmarks/support/numpy_normal.hpp - the numbers of numpy.random.default_rng(0).standard_normal(float32),
// so that a program without Python computes on the same inputs as one with it and outputs can be compared.
//
// Generator: PCG64, the permuted congruential generator of O'Neill ("PCG: A Family of Simple Fast
// Space-Efficient Statistically Good Algorithms for Random Number Generation", 2014), XSL-RR 128/64, whose
// state for seed 0 stands below as numpy reports it. Normal numbers: the ziggurat of Marsaglia and Tsang
// ("The Ziggurat Method for Generating Random Variables", 2000) with 256 layers and 23-bit positions in a
// layer.
#pragma once
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace bench {

/// The stream of numpy.random.default_rng(0).
class NumpyNormal {
 public:
  /// The next number; the state afterwards is numpy's too.
  float operator()() {
    for (;;) {
      const std::uint32_t bits = next_32();
      const std::size_t layer = bits & 0xff;
      const std::uint32_t position = bits >> 9;
      const float size = static_cast<float>(position) * ziggurat().width[layer];
      const float x = (bits & 0x100) != 0 ? -size : size;
      if (position < ziggurat().inside[layer]) return x;
      if (layer == 0) return tail((position & 0x100) != 0);
      const float low = ziggurat().density[layer], high = ziggurat().density[layer - 1];
      if ((high - low) * uniform() + low < std::exp(-0.5 * double{x} * double{x})) return x;
    }
  }

 private:
  __extension__ using Uint128 = unsigned __int128;
  static constexpr double right = 3.6541528853610088;  // where the tail begins

  /// Layers of equal area under exp(-x^2/2); layer 0 holds the tail.
  struct Ziggurat {
    std::array<std::uint32_t, 256> inside;  ///< positions below it lie under the curve for sure
    std::array<float, 256> width;           ///< of one position
    std::array<float, 256> density;         ///< at the layer's outer edge

    Ziggurat() {
      const double positions = 8388608, pi = 3.14159265358979323846;
      const auto curve = [](double x) { return std::exp(-0.5 * x * x); };
      const double area = right * curve(right) + std::sqrt(pi / 2) * std::erfc(right / std::sqrt(2.0));
      double edge = right;
      const double base = area / curve(right);
      set(0, edge / base * positions, base / positions, 1);
      for (std::size_t layer = 255; layer > 0; --layer) {
        const double inner = layer > 1 ? std::sqrt(-2 * std::log(area / edge + curve(edge))) : 0;
        set(layer, inner / edge * positions, edge / positions, curve(edge));
        edge = inner;
      }
    }
    void set(std::size_t layer, double limit, double step, double height) {
      inside[layer] = static_cast<std::uint32_t>(std::lround(limit));
      width[layer] = static_cast<float>(step);
      density[layer] = static_cast<float>(height);
    }
  };
  static const Ziggurat& ziggurat() {
    static const Ziggurat tables;
    return tables;
  }

  float tail(bool negative) {
    for (;;) {
      const float x = -static_cast<float>(1 / right) * std::log1p(-uniform());
      const float y = -std::log1p(-uniform());
      if (y + y > x * x) return negative ? -(static_cast<float>(right) + x) : static_cast<float>(right) + x;
    }
  }
  /// In [0, 1), 24 bits.
  float uniform() { return static_cast<float>(next_32() >> 8) * (1.0f / 16777216.0f); }

  /// Halves of the 64-bit outputs, the low one first.
  std::uint32_t next_32() {
    has_high_ = !has_high_;
    if (!has_high_) return static_cast<std::uint32_t>(output_ >> 32);
    output_ = next_64();
    return static_cast<std::uint32_t>(output_);
  }
  std::uint64_t next_64() {
    state_ = state_ * multiplier + increment;
    const auto folded = static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
    const auto turn = static_cast<unsigned>(state_ >> 122);
    return folded >> turn | folded << (-turn & 63u);
  }

  static constexpr Uint128 multiplier = Uint128{0x2360ed051fc65da4} << 64 | 0x4385df649fccf645;
  static constexpr Uint128 increment = Uint128{0x418ddadb3af71a82} << 64 | 0x588133bc447873a9;

  Uint128 state_ = Uint128{0x1aa1b5345996452d} << 64 | 0x09585eb7a69561e3;
  std::uint64_t output_ = 0;
  bool has_high_ = false;
};

}  // namespace bench
