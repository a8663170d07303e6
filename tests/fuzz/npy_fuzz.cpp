// libFuzzer target: an untrusted .npy file. What is accepted must be readable to its last element.
#include <cstddef>
#include <cstdint>
#include <span>

#include "attn/io/npy.hpp"
#include "fuzz/require.hpp"

namespace {

using attn_fuzz::require;

struct CountBytes {
  std::size_t count = 0;
  unsigned sum = 0;
  void write(std::span<const std::byte> bytes) {
    count += bytes.size();
    for (const std::byte b : bytes) sum += std::to_integer<unsigned>(b);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const attn::StoredTensor tensor = attn::parse_npy(std::as_bytes(std::span(data, size)), "fuzz");
    CountBytes bytes;
    attn::detail::write_row_major(tensor, bytes);
    require(bytes.count == static_cast<std::size_t>(tensor.size() * size_of(tensor.dtype())));
    require(bytes.count < size && bytes.sum <= 255 * bytes.count);
    if (tensor.rank() == 2 && is_floating(tensor.dtype()))
      require(tensor.get<double, 2>().size() == tensor.size());
  } catch (const attn::FormatError&) {
    // rejected, as most inputs are
  }
  return 0;
}
