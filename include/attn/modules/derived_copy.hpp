// attn/modules/derived_copy.hpp - DerivedCopy: a value computed from parameters, kept until one of them is
// written.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

#include "attn/core/config.hpp"

ATTN_NAMESPACE_BEGIN

/// Holds a Value that was built when its `Count` sources had certain versions, and builds it again when they
/// have others. Any number of threads may call get() at once: the first builds, the others wait for it. A
/// copy starts empty, so that copying a module does not copy what can be computed.
template <class Value, std::size_t Count>
class DerivedCopy {
 public:
  using Versions = std::array<std::uint64_t, Count>;

  DerivedCopy() = default;
  DerivedCopy(const DerivedCopy&) {}
  DerivedCopy& operator=(const DerivedCopy& other) {
    if (this != &other) clear();
    return *this;
  }
  DerivedCopy(DerivedCopy&& other) noexcept { *this = std::move(other); }
  DerivedCopy& operator=(DerivedCopy&& other) noexcept {
    if (this == &other) return *this;
    value_ = std::move(other.value_);
    for (std::size_t i = 0; i < Count; ++i) versions_[i].number = other.versions_[i].number.load();
    other.clear();
    return *this;
  }
  ~DerivedCopy() = default;

  /// The value for these versions; build() returns a new one if there is none. The reference holds until
  /// get() is called with other versions.
  template <class Build>
  const Value& get(const Versions& versions, Build build) const {
    if (!is_for(versions)) {
      const Lock lock(busy_);
      if (!is_for(versions)) {
        value_ = build();
        // Threads that see these versions see the value too: the stores come after it and release it.
        for (std::size_t i = 0; i < Count; ++i)
          versions_[i].number.store(versions[i], std::memory_order_release);
      }
    }
    return value_;
  }

 private:
  /// std::mutex would do, but its header costs a third of a second per file.
  class Lock {
   public:
    explicit Lock(std::atomic_flag& flag) : flag_(flag) {
      while (flag_.test_and_set(std::memory_order_acquire)) flag_.wait(true, std::memory_order_relaxed);
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock() {
      flag_.clear(std::memory_order_release);
      flag_.notify_one();
    }

   private:
    std::atomic_flag& flag_;
  };

  bool is_for(const Versions& versions) const {
    for (std::size_t i = 0; i < Count; ++i)
      if (versions_[i].number.load(std::memory_order_acquire) != versions[i]) return false;
    return true;
  }
  void clear() {
    for (Version& version : versions_) version.number.store(Version::none);
    value_ = Value{};
  }

  struct Version {  // `none`: no parameter has this version; absent ones have 0
    static constexpr std::uint64_t none = ~std::uint64_t{0};
    std::atomic<std::uint64_t> number{none};
  };

  mutable Value value_{};
  mutable std::array<Version, Count> versions_{};
  mutable std::atomic_flag busy_{};
};

ATTN_NAMESPACE_END
