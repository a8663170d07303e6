// attn/ops/build_info.hpp - what the calling file is compiled for: the first question when attn is slow.
#pragma once
#include <ostream>

#include "attn/kernels/packet.hpp"

#define ATTN_STRING_OF_(...) #__VA_ARGS__
#define ATTN_STRING_OF(...) ATTN_STRING_OF_(__VA_ARGS__)

ATTN_NAMESPACE_BEGIN

struct BuildInfo {
  const char* version;          ///< of attn: "0.1.0"
  const char* eigen_version;    ///< "3.4.0", "5.0.1"
  const char* instruction_set;  ///< as in the namespace that symbols are in: "avx2", "avx512dq", "scalar"
  int float_lanes;              ///< floats in one vector register; 1: no vectors
  bool has_fma;                 ///< a multiply and an add are one instruction
  bool has_16_bit_dots;         ///< bfloat16 is multiplied as such, without a conversion to float

  /// Multiply-add, and registers as wide as most processors of this kind have them: 8 lanes on x86, else 4.
  constexpr bool is_fast() const {
#if defined(__x86_64__) || defined(__i386__) || defined(_M_X64) || defined(_M_IX86)
    return float_lanes >= 8 && has_fma;
#else
    return float_lanes >= 4 && has_fma;
#endif
  }

  /// One line.
  friend std::ostream& operator<<(std::ostream& out, const BuildInfo& info) {
    return out << "attn " << info.version << ", Eigen " << info.eigen_version << ", " << info.instruction_set
               << ", " << info.float_lanes << (info.float_lanes == 1 ? " float" : " floats")
               << " per register" << (info.has_fma ? ", multiply-add" : "")
               << (info.has_16_bit_dots ? ", 16-bit products" : "");
  }
};

/// What the flags of this file give; other files of a program have the same (docs/threads-and-memory.md).
constexpr BuildInfo build_info() {
  return {ATTN_STRING_OF(ATTN_VERSION_MAJOR) "." ATTN_STRING_OF(ATTN_VERSION_MINOR) "." ATTN_STRING_OF(
              ATTN_VERSION_PATCH),
#ifdef EIGEN_PATCH_VERSION
          ATTN_STRING_OF(EIGEN_MAJOR_VERSION) "." ATTN_STRING_OF(EIGEN_MINOR_VERSION) "." ATTN_STRING_OF(
              EIGEN_PATCH_VERSION),
#else
          ATTN_STRING_OF(EIGEN_WORLD_VERSION) "." ATTN_STRING_OF(EIGEN_MAJOR_VERSION) "." ATTN_STRING_OF(
              EIGEN_MINOR_VERSION),
#endif
          ATTN_STRING_OF(ATTN_ABI_ISA),
          kernels::packet_width<float>,
          kernels::has_fma,
          kernels::has_bfloat16_dots};
}

ATTN_NAMESPACE_END

#undef ATTN_STRING_OF
#undef ATTN_STRING_OF_
