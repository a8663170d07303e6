// attn/kernels/matrix_unit.hpp - products of bfloat16 by the processor's matrix unit (Intel AMX): C += A B on
// registers of 16 rows. Elsewhere the same functions are loops, for the tests of what is built on them.
#pragma once
#include "attn/kernels/packet.hpp"

#if ATTN_HAS_MATRIX_UNIT
#include <algorithm>
#include <array>
#include <atomic>
#endif

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Rows of A and C in a register, and pairs of bfloat16 in a row of A.
inline constexpr Index tile_rows = 16;
inline constexpr Index tile_pairs = 16;

#if ATTN_HAS_MATRIX_UNIT

namespace detail {
/// What LDTILECFG reads (Intel's manual, volume 1, "Tile configuration"): registers 0 to 3 are C, 4 and 5 A,
/// 6 and 7 B.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14]{};
  std::uint16_t row_bytes[16]{};
  std::uint8_t rows[16]{};
};
/// [rows of A and C]
inline constexpr auto tile_configs = [] {
  std::array<TileConfig, as_size(tile_rows + 1)> configs{};
  for (std::uint8_t rows = 1; rows <= tile_rows; ++rows)
    for (std::size_t i = 0; i < 8; ++i) {
      configs[rows].row_bytes[i] = 64;
      configs[rows].rows[i] = i < 6 ? rows : tile_rows;
    }
  return configs;
}();
}  // namespace detail

/// Linux lets a process use the registers. It must be asked once, and may say no.
inline bool matrix_unit_is_usable() {
  static const bool usable = [] {
    constexpr long arch_prctl = 158, request_permission = 0x1023, tile_data = 18;
    long result = arch_prctl;
    asm volatile("syscall" : "+a"(result) : "D"(request_permission), "S"(tile_data) : "rcx", "r11", "memory");
    return result == 0;
  }();
  return usable;
}

/// The registers of this thread, for as long as it lives; multiply_tiles() needs one.
class MatrixUnit {
 public:
  MatrixUnit() { set_rows(tile_rows); }
  ~MatrixUnit() { _tile_release(); }
  MatrixUnit(const MatrixUnit&) = delete;
  MatrixUnit& operator=(const MatrixUnit&) = delete;

  /// Rows of A and C from now on; forgets what the registers hold.
  static void set_rows(Index rows) { _tile_loadconfig(&detail::tile_configs[as_size(rows)]); }
};

namespace detail {
/// C of `RowTiles` x `LaneTiles` registers; arguments as of multiply_tiles().
template <int RowTiles, int LaneTiles>
ATTN_NOINLINE void multiply_block(bool from_zero, Index steps, const std::byte* a, Index a_step,
                                  const float* b, Index b_stride, float* c, Index c_stride) {
  constexpr Index size = sizeof(float);
  const Index c_step = c_stride * size, b_step = b_stride * size;
  float* const second = c + tile_rows * c_stride;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // g++ does not know that a tile load reads memory
  if (from_zero) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, c, c_step);
    if constexpr (LaneTiles == 2) _tile_loadd(1, c + 16, c_step);
    if constexpr (RowTiles == 2) _tile_loadd(2, second, c_step);
    if constexpr (RowTiles == 2 && LaneTiles == 2) _tile_loadd(3, second + 16, c_step);
  }
  for (Index s = 0; s < steps; ++s) {
    _tile_loadd(6, b, b_step);
    _tile_loadd(4, a, a_step);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (LaneTiles == 2) {
      _tile_loadd(7, b + 16, b_step);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (RowTiles == 2) {
      _tile_loadd(5, a + tile_rows * a_step, a_step);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (LaneTiles == 2) _tile_dpbf16ps(3, 5, 7);
    }
    a += tile_pairs * size;
    b += tile_pairs * b_stride;
  }
  _tile_stored(0, c, c_step);
  if constexpr (LaneTiles == 2) _tile_stored(1, c + 16, c_step);
  if constexpr (RowTiles == 2) _tile_stored(2, second, c_step);
  if constexpr (RowTiles == 2 && LaneTiles == 2) _tile_stored(3, second + 16, c_step);
}
}  // namespace detail

/// C += A B, or C = A B: C [rows][Lanes] of floats; A [rows][steps * tile_pairs] of pairs, rows a_step bytes
/// apart; B [steps * tile_pairs][Lanes] of pairs. Strides in elements.
template <int Lanes>
void multiply_tiles(bool from_zero, Index rows, Index steps, const std::byte* a, Index a_step, const float* b,
                    Index b_stride, float* c, Index c_stride) {
  static_assert(Lanes == 16 || Lanes == 32);
  Index r = 0;
  for (; r + 2 * tile_rows <= rows; r += 2 * tile_rows)
    detail::multiply_block<2, Lanes / 16>(from_zero, steps, a + r * a_step, a_step, b, b_stride,
                                          c + r * c_stride, c_stride);
  for (; r < rows; r += tile_rows) {
    const Index n = std::min(tile_rows, rows - r);
    if (n < tile_rows) MatrixUnit::set_rows(n);
    detail::multiply_block<1, Lanes / 16>(from_zero, steps, a + r * a_step, a_step, b, b_stride,
                                          c + r * c_stride, c_stride);
    if (n < tile_rows) MatrixUnit::set_rows(tile_rows);
  }
}

#else

struct MatrixUnit {};

template <int Lanes>
void multiply_tiles(bool from_zero, Index rows, Index steps, const std::byte* a, Index a_step, const float* b,
                    Index b_stride, float* c, Index c_stride) {
  for (Index r = 0; r < rows; ++r)
    for (int lane = 0; lane < Lanes; ++lane) {
      float sum = from_zero ? 0.0F : c[r * c_stride + lane];
      for (Index p = 0; p < steps * tile_pairs; ++p) {
        float x;
        std::memcpy(&x, a + (r * a_step + p * static_cast<Index>(sizeof x)), sizeof x);
        const float y = b[p * b_stride + lane];
        sum += first_of_pairs(x) * first_of_pairs(y);
        sum += second_of_pairs(x) * second_of_pairs(y);
      }
      c[r * c_stride + lane] = sum;
    }
}

#endif

}  // namespace kernels
ATTN_NAMESPACE_END
