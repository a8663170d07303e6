// attn/core/workspace.hpp - Workspace: reusable aligned scratch memory, owned by the caller.
#pragma once
#include <algorithm>
#include <cstddef>
#include <new>
#include <span>
#include <type_traits>
#include <vector>

#include "attn/core/owner.hpp"
#include "attn/core/types.hpp"

ATTN_NAMESPACE_BEGIN

/// A stack of scratch memory that grows on demand and never shrinks by itself: the second call of the same
/// size allocates nothing. One Workspace serves one call at a time.
class Workspace {
 public:
  static constexpr std::size_t alignment = 64;

  /// Takes memory from a workspace and gives all of it back at the end of its scope. Frames nest.
  class Frame {
   public:
    explicit Frame(Workspace& workspace)
        : workspace_(workspace), block_(workspace.block_), used_(workspace.used_) {}
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;
    ~Frame() { workspace_.rewind(block_, used_); }

    /// `count` elements with unspecified contents, aligned to 64 bytes, valid until the frame ends.
    template <class T>
      requires std::is_trivially_copyable_v<T> std::span<T> take(Index count) {
        const auto size = static_cast<std::size_t>(count);
        return {static_cast<T*>(workspace_.take(size * sizeof(T))), size};
      }

   private:
    Workspace& workspace_;
    std::size_t block_, used_;
  };

  /// Makes later calls that need up to `bytes` in all free of allocation.
  void reserve(std::size_t bytes) {
    if (block_ != 0 || used_ != 0 || capacity() >= bytes) return;
    blocks_.clear();
    add_block(bytes);
  }

  /// Bytes held.
  std::size_t capacity() const {
    std::size_t bytes = 0;
    for (const Block& block : blocks_) bytes += block.size;
    return bytes;
  }

  /// Gives the memory back to the system; no frame may be open.
  void release() { blocks_.clear(); }

 private:
  struct Block {
    detail::OwnedBlock data;
    std::size_t size = 0;
  };

  void add_block(std::size_t size) {
    detail::OwnedBlock data(::operator new (size, std::align_val_t{alignment}),
                            [](void* p) { ::operator delete (p, std::align_val_t{alignment}); });
    blocks_.push_back({std::move(data), size});
  }

  void* take(std::size_t bytes) {
    bytes = (bytes + alignment - 1) / alignment * alignment;
    while (block_ < blocks_.size() && used_ + bytes > blocks_[block_].size) {
      ++block_;
      used_ = 0;
    }
    if (block_ == blocks_.size()) add_block(std::max(bytes, capacity()));
    void* const data = static_cast<std::byte*>(blocks_[block_].data.get()) + used_;
    used_ += bytes;
    return data;
  }

  void rewind(std::size_t block, std::size_t used) {
    block_ = block;
    used_ = used;
    if (block == 0 && used == 0 &&
        blocks_.size() > 1) {  // the outermost frame ends: next time, one block holds all
      const std::size_t bytes = capacity();
      blocks_.clear();
      add_block(bytes);
    }
  }

  std::vector<Block> blocks_;
  std::size_t block_ = 0, used_ = 0;
};

ATTN_NAMESPACE_END
