// attn/core/config.hpp - build switches, the ABI tag, and the only compiler-specific syntax of the library.
//
// Hooks that a build may define before the first include:
//   ATTN_THROW(Error, message)  how an error leaves a function; default: throw; without exceptions, print
//                               and abort
//   ATTN_ASSERT(condition)      internal invariant; default: assert()
//   ATTN_COMPILED               the program is linked with attn::compiled (set by that target)
//   ATTN_ALLOW_FINITE_MATH      accept -ffast-math / -ffinite-math-only: results hold for finite inputs only
#pragma once
#if (defined(_MSVC_LANG) ? _MSVC_LANG : __cplusplus) < 202002L
#error "attn: C++20 is needed: compile with -std=c++20, or /std:c++20"
#include "no C++20: the compilation ends here"  // or thousands of errors would follow
#endif
#include <cassert>
#include <cstdio>
#include <cstdlib>

#include "attn/version.hpp"

#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ && !defined(ATTN_ALLOW_FINITE_MATH)
#error \
    "attn: -ffast-math/-ffinite-math-only lets the compiler assume that no value is infinite or NaN, but masked \
scores are -inf and masked keys may hold NaN. Drop the flag, or define ATTN_ALLOW_FINITE_MATH to accept right results \
for finite inputs only."
#endif

#if defined(min) || defined(max)
#error "attn: min and max must not be macros: define NOMINMAX, or undefine them before this header"
#endif

// The processor multiplies pairs of bfloat16 and adds them to floats.
#if defined(__AVX512BF16__) && defined(__AVX512DQ__) && !defined(EIGEN_DONT_VECTORIZE)
#define ATTN_HAS_BFLOAT16_DOTS 1
#else
#define ATTN_HAS_BFLOAT16_DOTS 0
#endif

// It has a unit that multiplies matrices of bfloat16, and a system of which we know how to ask for it.
// (Clang up to version 14 writes the macros without an underscore.)
#if ATTN_HAS_BFLOAT16_DOTS && defined(__linux__) && \
    ((defined(__AMX_TILE__) && defined(__AMX_BF16__)) || (defined(__AMXTILE__) && defined(__AMXBF16__)))
#define ATTN_HAS_MATRIX_UNIT 1
#else
#define ATTN_HAS_MATRIX_UNIT 0
#endif

// The tag encodes what changes the *code* of an inline function, so that two translation units built for
// different instruction sets never share one definition at link time.
#if defined(EIGEN_DONT_VECTORIZE)
#define ATTN_ABI_ISA scalar
#elif ATTN_HAS_MATRIX_UNIT
#define ATTN_ABI_ISA amxbf16
#elif ATTN_HAS_BFLOAT16_DOTS
#define ATTN_ABI_ISA avx512bf16
#elif defined(__AVX512F__) && defined(__AVX512DQ__)
#define ATTN_ABI_ISA avx512dq
#elif defined(__AVX512F__)
#define ATTN_ABI_ISA avx512
#elif defined(__AVX2__) && defined(__FMA__)
#define ATTN_ABI_ISA avx2
#elif defined(__AVX__)
#define ATTN_ABI_ISA avx
#elif defined(__SSE4_1__)
#define ATTN_ABI_ISA sse4
#elif defined(__aarch64__) || defined(_M_ARM64)
#define ATTN_ABI_ISA arm64
#else
#define ATTN_ABI_ISA base
#endif
#if defined(ATTN_ALLOW_FINITE_MATH)
#define ATTN_ABI_MATH _finite
#else
#define ATTN_ABI_MATH
#endif
#define ATTN_ABI_JOIN_(a, b, c, d) v##a##_##b##_##c##d
#define ATTN_ABI_JOIN(a, b, c, d) ATTN_ABI_JOIN_(a, b, c, d)
#define ATTN_ABI ATTN_ABI_JOIN(ATTN_VERSION_MAJOR, ATTN_VERSION_MINOR, ATTN_ABI_ISA, ATTN_ABI_MATH)

// Who accepts finite math need not hear of every -inf here (clang 18 and later).
#define ATTN_QUIET_BEGIN
#define ATTN_QUIET_END
#if defined(__clang__) && defined(ATTN_ALLOW_FINITE_MATH)
#if __has_warning("-Wnan-infinity-disabled")
#undef ATTN_QUIET_BEGIN
#undef ATTN_QUIET_END
#define ATTN_QUIET_BEGIN \
  _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wnan-infinity-disabled\"")
#define ATTN_QUIET_END _Pragma("clang diagnostic pop")
#endif
#endif

#define ATTN_NAMESPACE_BEGIN \
  ATTN_QUIET_BEGIN           \
  namespace attn {           \
  inline namespace ATTN_ABI {
#define ATTN_NAMESPACE_END \
  }                        \
  }                        \
  ATTN_QUIET_END

#ifndef ATTN_ASSERT
#define ATTN_ASSERT(condition) assert(condition)
#endif

#ifndef ATTN_THROW
#if defined(__cpp_exceptions)
#define ATTN_THROW(Error, message) throw Error(message)
#else
#define ATTN_THROW(Error, message) (std::fprintf(stderr, "%s\n", std::string(message).c_str()), std::abort())
#endif
#endif

// With ATTN_COMPILED headers declare that the target attn::compiled holds a function for an element type, and
// a file that calls it does not compile it again. The target's own source defines ATTN_INSTANTIATE itself.
#if defined(ATTN_COMPILED) && !defined(ATTN_INSTANTIATE)
#define ATTN_INSTANTIATE extern template
#endif

// Compiler-specific syntax: everything else in the library is standard C++20.
#if defined(__GNUC__) || defined(__clang__)
#define ATTN_ALWAYS_INLINE inline __attribute__((always_inline))
#define ATTN_LAMBDA_INLINE __attribute__((always_inline))
#define ATTN_NOINLINE __attribute__((noinline))
#define ATTN_COLD __attribute__((cold, noinline))
#define ATTN_RESTRICT __restrict__
#define ATTN_PREFETCH(address) __builtin_prefetch(address, 0, 2)
#define ATTN_PREFETCH_TO_L1(address) __builtin_prefetch(address, 0, 3)
#elif defined(_MSC_VER)
#define ATTN_ALWAYS_INLINE __forceinline
#define ATTN_LAMBDA_INLINE
#define ATTN_NOINLINE __declspec(noinline)
#define ATTN_COLD __declspec(noinline)
#define ATTN_RESTRICT __restrict
#define ATTN_PREFETCH(address) static_cast<void>(address)
#define ATTN_PREFETCH_TO_L1(address) static_cast<void>(address)
#else
#define ATTN_ALWAYS_INLINE inline
#define ATTN_LAMBDA_INLINE
#define ATTN_NOINLINE
#define ATTN_COLD
#define ATTN_RESTRICT
#define ATTN_PREFETCH(address) static_cast<void>(address)
#define ATTN_PREFETCH_TO_L1(address) static_cast<void>(address)
#endif

// `using Integers ATTN_VECTOR(bytes) = std::uint64_t;` names the vector that a packet of as many bytes can be
// cast to.
#if defined(__GNUC__) || defined(__clang__)
#define ATTN_HAS_VECTORS 1
#define ATTN_VECTOR(bytes) [[gnu::vector_size(bytes), gnu::may_alias]]
#else
#define ATTN_HAS_VECTORS 0
#define ATTN_VECTOR(bytes)
#endif

// Around a template whose arguments are vector types: g++ says that it ignores their attributes, and loses
// nothing.
#if defined(__GNUC__) && !defined(__clang__)
#define ATTN_VECTOR_ARGUMENTS_BEGIN \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wignored-attributes\"")
#define ATTN_VECTOR_ARGUMENTS_END _Pragma("GCC diagnostic pop")
#else
#define ATTN_VECTOR_ARGUMENTS_BEGIN
#define ATTN_VECTOR_ARGUMENTS_END
#endif

// Tells the processor that a loop is waiting for another thread.
#if (defined(__GNUC__) || defined(__clang__)) && (defined(__x86_64__) || defined(__i386__))
#define ATTN_PAUSE() __builtin_ia32_pause()
#elif (defined(__GNUC__) || defined(__clang__)) && defined(__aarch64__)
#define ATTN_PAUSE() __asm__ volatile("yield")
#else
#define ATTN_PAUSE() static_cast<void>(0)
#endif

// Hides a vector value from the optimiser, so that (x + c) - c keeps its rounding whatever the floating-point
// flags.
#if (defined(__GNUC__) || defined(__clang__)) && defined(__AVX512F__)
#define ATTN_OPAQUE(x) __asm__("" : "+v"(x))
#elif (defined(__GNUC__) || defined(__clang__)) && defined(__SSE2__)
#define ATTN_OPAQUE(x) __asm__("" : "+x"(x))
#elif (defined(__GNUC__) || defined(__clang__)) && defined(__aarch64__)
#define ATTN_OPAQUE(x) __asm__("" : "+w"(x))
#else
#define ATTN_OPAQUE(x) static_cast<void>(x)
#endif

// Stands before a loop over the query lanes of a score block: its iterations are independent, and it is the
// loop to vectorise (clang would otherwise unroll it and vectorise the loop around it, with scatters).
#if defined(__clang__)
#define ATTN_LANES _Pragma("clang loop vectorize(assume_safety) unroll(disable)")
#elif defined(__GNUC__)
#define ATTN_LANES _Pragma("GCC ivdep")
#else
#define ATTN_LANES
#endif
