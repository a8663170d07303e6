// libFuzzer target: an untrusted safetensors file. What is accepted must lie within its bytes and be
// readable.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "attn/io/safetensors.hpp"
#include "fuzz/require.hpp"

namespace {

using attn_fuzz::require;

/// Reads every element: the sanitizers see an address outside.
void read_all(const attn::StoredTensor& tensor, std::span<const std::byte> bytes) {
  const attn::Index size = tensor.size() * size_of(tensor.dtype());
  require(tensor.data() >= bytes.data() && size <= bytes.data() + bytes.size() - tensor.data());
  const std::span<const std::byte> elements(tensor.data(), static_cast<std::size_t>(size));
  unsigned sum = 0;
  for (const std::byte b : elements) sum += std::to_integer<unsigned>(b);
  require(sum <= 255 * elements.size());
  if (tensor.rank() == 2 && is_floating(tensor.dtype()))
    require(tensor.get<float, 2>().size() == tensor.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  try {
    const attn::Safetensors file = attn::parse_safetensors(bytes, "fuzz");
    for (const std::string& name : file.weights.names()) read_all(file.weights.at(name), bytes);
  } catch (const attn::FormatError&) {
    // rejected, as most inputs are
  }
  return 0;
}
