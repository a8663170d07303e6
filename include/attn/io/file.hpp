// attn/io/file.hpp - the bytes of a file, mapped where the system can; and writing a file whole or not at
// all.
#pragma once
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "attn/core/error.hpp"

#if (defined(__unix__) || defined(__APPLE__)) && !defined(ATTN_NO_MMAP)
#define ATTN_HAS_MMAP 1
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#else
#define ATTN_HAS_MMAP 0
#endif

ATTN_NAMESPACE_BEGIN

/// The bytes of a file, and what keeps them in memory.
struct FileBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

namespace detail {

inline std::string system_error_text() { return std::generic_category().message(errno); }

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FilePointer = std::unique_ptr<std::FILE, CloseFile>;

/// The whole file in memory; grows with what is really there, whatever size the system reports.
inline FileBytes read_whole_file(const std::filesystem::path& path) {
  const FilePointer file(std::fopen(path.string().c_str(), "rb"));
  check<FormatError>(file != nullptr, path.string(), ": cannot be opened: ", system_error_text());
  constexpr std::size_t chunk = std::size_t{1} << 20;
  const auto data = std::make_shared<std::vector<std::byte>>();
  std::size_t size = 0;
  for (std::size_t got = 1; got > 0; size += got) {
    if (data->size() - size < chunk) data->resize(size + chunk + size / 2);
    got = std::fread(data->data() + size, 1, chunk, file.get());
  }
  check<FormatError>(std::ferror(file.get()) == 0, path.string(), ": cannot be read: ", system_error_text());
  return {{data->data(), size}, data};
}

#if ATTN_HAS_MMAP
/// A descriptor that is closed at the end of its scope; a mapping outlives it.
struct Descriptor {
  explicit Descriptor(int value) : fd(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  int fd;
};

inline FileBytes map_file(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  check<FormatError>(file.fd >= 0, path.string(), ": cannot be opened: ", system_error_text());
  struct stat status {};
  check<FormatError>(::fstat(file.fd, &status) == 0, path.string(), ": ", system_error_text());
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return read_whole_file(path);
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) return read_whole_file(path);
  return {{static_cast<const std::byte*>(data), size},
          std::shared_ptr<const void>(data, [size](void* p) { ::munmap(p, size); })};
}
#endif

}  // namespace detail

/// The bytes of a regular file, mapped (pages are read when touched) or, where that is not possible or
/// ATTN_NO_MMAP is defined, read. Do not truncate the file while it is mapped: touching lost pages ends the
/// program.
/// @throws FormatError if there is no such file or it cannot be read.
inline FileBytes read_file(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_type type = std::filesystem::status(path, error).type();
  check<FormatError>(type != std::filesystem::file_type::not_found, path.string(), ": there is no such file");
  check<FormatError>(type == std::filesystem::file_type::regular, path.string(), ": is not a file");
#if ATTN_HAS_MMAP
  return detail::map_file(path);
#else
  return detail::read_whole_file(path);
#endif
}

/// Writes beside the target and takes its place only in commit(): whatever goes wrong, the target holds the
/// old contents or all of the new ones. Errors are std::runtime_error.
class FileWriter {
 public:
  explicit FileWriter(std::filesystem::path target) : target_(std::move(target)) {
    for (int attempt = 0; file_ == nullptr && attempt < 100; ++attempt) {
      temporary_ = target_;
      temporary_ += ".tmp" + std::to_string(attempt);
      file_.reset(std::fopen(temporary_.string().c_str(), "wbx"));
      if (file_ == nullptr && errno != EEXIST) break;
    }
    require(file_ != nullptr);
  }
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter() {
    if (file_ != nullptr) discard();
  }

  void write(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    require(std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size());
  }
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }

  /// Makes the target what has been written.
  void commit() {
    bool ok = std::fflush(file_.get()) == 0;
#if ATTN_HAS_MMAP
    ok = ok && ::fsync(::fileno(file_.get())) == 0;
#endif
    ok = std::fclose(file_.release()) == 0 && ok;
    std::error_code error;
    if (ok) std::filesystem::rename(temporary_, target_, error);
    if (!ok || error) {
      const std::string text = error ? error.message() : detail::system_error_text();
      discard();
      check<std::runtime_error>(false, target_.string(), ": cannot be written: ", text);
    }
  }

 private:
  void require(bool ok) const {
    check<std::runtime_error>(ok, target_.string(), ": cannot be written: ", detail::system_error_text());
  }
  void discard() {
    file_.reset();
    std::error_code ignored;
    std::filesystem::remove(temporary_, ignored);
  }

  std::filesystem::path target_, temporary_;
  detail::FilePointer file_;
};

ATTN_NAMESPACE_END
