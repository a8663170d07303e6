// tests/examples/smollm2.hpp - where SmolLM2-135M-Instruct lies, if tools/fetch_smollm2.py has laid it out.
#pragma once
#include <filesystem>
#include <optional>

namespace attn_test {

/// The folder of the model; nothing if it is not there.
inline std::optional<std::filesystem::path> smollm2_directory() {
  const std::filesystem::path directory = ATTN_TEST_SOURCE_DIR "/models/smollm2";
  if (!std::filesystem::exists(directory / "model.safetensors")) return std::nullopt;
  return directory;
}

}  // namespace attn_test
