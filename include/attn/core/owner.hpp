// attn/core/owner.hpp - who frees memory: what std::unique_ptr and std::shared_ptr do, without <memory>,
// which costs every file that includes the library a twentieth of its time to compile.
#pragma once
#include <atomic>
#include <utility>

#include "attn/core/config.hpp"

ATTN_NAMESPACE_BEGIN
namespace detail {

/// A block of memory that goes back by free(pointer); moved, not copied.
class OwnedBlock {
 public:
  using Free = void (*)(void*);
  OwnedBlock() = default;
  OwnedBlock(void* data, Free free) : data_(data), free_(free) {}
  OwnedBlock(OwnedBlock&& other) noexcept : data_(std::exchange(other.data_, nullptr)), free_(other.free_) {}
  OwnedBlock& operator=(OwnedBlock&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(free_, other.free_);
    return *this;
  }
  ~OwnedBlock() {
    if (data_ != nullptr) free_(data_);
  }
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
  Free free_ = nullptr;
};

/// An object that lives as long as one of its owners; owners may be on different threads.
template <class T>
class SharedObject {
 public:
  SharedObject() = default;
  template <class... Arguments>
  explicit SharedObject(std::in_place_t, Arguments&&... arguments)
      : node_(new Node{{1}, T(std::forward<Arguments>(arguments)...)}) {}
  SharedObject(const SharedObject& other) : node_(other.node_) {
    if (node_ != nullptr) node_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  SharedObject(SharedObject&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  SharedObject& operator=(SharedObject other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~SharedObject() {
    if (node_ != nullptr && node_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete node_;
  }
  T& operator*() const { return node_->object; }
  T* operator->() const { return &node_->object; }

 private:
  struct Node {
    std::atomic<long> owners;
    T object;
  };
  Node* node_ = nullptr;
};

}  // namespace detail
ATTN_NAMESPACE_END
