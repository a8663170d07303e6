// tests/examples/tiny_llama.hpp - a language model directory small enough to make in a test: two layers of
// width 32, and the small tokenizer of tests/golden/bpe.json.
#pragma once
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attn/core/random.hpp"
#include "attn/core/tensor.hpp"
#include "attn/io/safetensors.hpp"
#include "support/temporary_directory.hpp"

namespace attn_test {

/// Collects random weights under the names of Hugging Face's LlamaForCausalLM.
class TinyLlamaWeights {
 public:
  static constexpr attn::Index vocabulary = 500, width = 32, inner = 48, kv_width = 16;

  TinyLlamaWeights() {
    add("model.embed_tokens.weight", {vocabulary, width});
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
      add(layer + "input_layernorm.weight", {width, 1});
      add(layer + "self_attn.q_proj.weight", {width, width});
      add(layer + "self_attn.k_proj.weight", {kv_width, width});
      add(layer + "self_attn.v_proj.weight", {kv_width, width});
      add(layer + "self_attn.o_proj.weight", {width, width});
      add(layer + "post_attention_layernorm.weight", {width, 1});
      add(layer + "mlp.gate_proj.weight", {inner, width});
      add(layer + "mlp.up_proj.weight", {inner, width});
      add(layer + "mlp.down_proj.weight", {width, inner});
    }
    add("model.norm.weight", {width, 1});
  }

  /// All but the tensor called `missing`.
  void write(const std::filesystem::path& file, const std::string& missing = "") const {
    attn::WeightMap map;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const attn::Tensor<float, 2>& x = tensors_[i];
      if (names_[i] == missing) continue;
      if (x.extent(1) == 1)
        map.add(names_[i], attn::TensorView<const float, 1>(x.data(), {x.extent(0)}));
      else
        map.add(names_[i], x);
    }
    attn::write_safetensors(file, map);
  }

 private:
  void add(const std::string& name, const attn::Dims<2>& extents) {
    attn::Tensor<float, 2> x(extents);
    const attn::CounterRandom random(3, names_.size());
    for (attn::Index i = 0; i < x.size(); ++i)
      x.data()[i] = static_cast<float>(0.4 * random.normal(static_cast<std::uint64_t>(i)));
    names_.push_back(name);
    tensors_.push_back(std::move(x));
  }

  std::vector<std::string> names_;
  std::vector<attn::Tensor<float, 2>> tensors_;
};

inline nlohmann::json tiny_llama_config(int context) {
  return {{"model_type", "llama"},
          {"hidden_size", TinyLlamaWeights::width},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"intermediate_size", TinyLlamaWeights::inner},
          {"hidden_act", "silu"},
          {"vocab_size", TinyLlamaWeights::vocabulary},
          {"max_position_embeddings", context},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"tie_word_embeddings", true},
          {"eos_token_id", 2}};
}

/// Makes `directory` with config.json, tokenizer.json and model.safetensors.
inline void write_tiny_llama(const std::filesystem::path& directory, int context = 64) {
  std::filesystem::create_directory(directory);
  std::ifstream golden(ATTN_TEST_SOURCE_DIR "/tests/golden/bpe.json");
  write_text(directory / "tokenizer.json", nlohmann::json::parse(golden)["tokenizer"].dump());
  write_text(directory / "config.json", tiny_llama_config(context).dump());
  TinyLlamaWeights().write(directory / "model.safetensors");
}

}  // namespace attn_test
