// Replaces the global operator new, and wraps malloc (see tests/CMakeLists.txt). A unit of its own: where the
// compiler can inline it into a test, g++ 12 takes the pair of malloc and operator delete for a mistake.
#include "support/counting_new.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> count{0};

void* allocate_or_null(std::size_t size, std::size_t alignment) {
  const std::size_t bytes = (size + alignment - 1) / alignment * alignment;
#if !defined(ATTN_TEST_WRAPS_MALLOC)  // there, aligned_alloc counts
  ++count;
#endif
  return std::aligned_alloc(alignment, bytes == 0 ? alignment : bytes);
}

void* allocate(std::size_t size, std::size_t alignment) {
  void* const data = allocate_or_null(size, alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

constexpr std::size_t default_alignment = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

std::size_t attn_test::allocations() { return count.load(); }

#if defined(ATTN_TEST_WRAPS_MALLOC)
// The names are the linker's: --wrap=malloc sends calls of malloc to __wrap_malloc.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {
void* __real_malloc(std::size_t size);
void* __real_calloc(std::size_t number, std::size_t size);
void* __real_realloc(void* data, std::size_t size);
void* __real_aligned_alloc(std::size_t alignment, std::size_t size);
int __real_posix_memalign(void** data, std::size_t alignment, std::size_t size);

void* __wrap_malloc(std::size_t size) {
  ++count;
  return __real_malloc(size);
}
void* __wrap_calloc(std::size_t number, std::size_t size) {
  ++count;
  return __real_calloc(number, size);
}
void* __wrap_realloc(void* data, std::size_t size) {
  ++count;
  return __real_realloc(data, size);
}
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t size) {
  ++count;
  return __real_aligned_alloc(alignment, size);
}
int __wrap_posix_memalign(void** data, std::size_t alignment, std::size_t size) {
  ++count;
  return __real_posix_memalign(data, alignment, size);
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
#endif

void* operator new(std::size_t size) { return allocate(size, default_alignment); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate_or_null(size, default_alignment);
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate_or_null(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, const std::nothrow_t&) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t, const std::nothrow_t&) noexcept { std::free(data); }
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new[](std::size_t size, std::align_val_t alignment) { return operator new(size, alignment); }
void* operator new[](std::size_t size, const std::nothrow_t& tag) noexcept { return operator new(size, tag); }
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t& tag) noexcept {
  return operator new(size, alignment, tag);
}
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t) noexcept { std::free(data); }
void operator delete[](void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void* data, const std::nothrow_t&) noexcept { std::free(data); }
void operator delete[](void* data, std::align_val_t, const std::nothrow_t&) noexcept { std::free(data); }
