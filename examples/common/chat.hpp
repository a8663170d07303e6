// examples/common/chat.hpp - a message as a chat model was trained to see it.
#pragma once
#include <string>
#include <string_view>

namespace attn::examples {

/// What SmolLM2-135M-Instruct is told where nobody tells it anything else.
inline constexpr std::string_view default_system_message =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

/// The marks of ChatML, each a special token of the models that know it.
inline constexpr std::string_view chat_begin = "<|im_start|>", chat_end = "<|im_end|>";

/// A conversation of one message in ChatML, up to where the answer begins.
inline std::string chat_prompt(std::string_view message, std::string_view system = default_system_message) {
  std::string prompt;
  const auto add = [&](std::string_view role, std::string_view text) {
    prompt.append(chat_begin).append(role).append("\n").append(text).append(chat_end).append("\n");
  };
  add("system", system);
  add("user", message);
  return prompt.append(chat_begin).append("assistant\n");
}

}  // namespace attn::examples
