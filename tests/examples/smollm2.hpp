// tests/examples/smollm2.hpp - where SmolLM2-135M-Instruct lies, if tools/fetch_smollm2.py has laid it out.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <optional>

namespace attn_test {

/// The folder of the model: models/smollm2 of the checkout, or what ATTN_SMOLLM2 names; nothing if it is in neither.
inline std::optional<std::filesystem::path> smollm2_directory() {
  const char* const named = std::getenv("ATTN_SMOLLM2");
  std::filesystem::path directory = named != nullptr ? named : ATTN_TEST_SOURCE_DIR "/models/smollm2";
  if (!std::filesystem::exists(directory / "model.safetensors")) return std::nullopt;
  return directory;
}

}  // namespace attn_test
