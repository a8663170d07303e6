// tests/examples/tiny_bert.hpp - a BERT model directory small enough to make in a test: two layers of
// width 16.
#pragma once
#include <string>
#include <vector>

#include "attn/core/random.hpp"
#include "attn/core/tensor.hpp"
#include "attn/io/safetensors.hpp"
#include "support/temporary_directory.hpp"

namespace attn_test {

inline const std::string tiny_vocabulary =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\ndog\nsat\n##s\nred\nblue\ntrain\n.\n?\n";

/// Collects random weights under the names of Hugging Face's BertModel.
class TinyBertWeights {
 public:
  static constexpr attn::Index vocabulary = 15, width = 16, inner = 24, positions = 12;

  TinyBertWeights() {
    add("embeddings.word_embeddings.weight", {vocabulary, width});
    add("embeddings.position_embeddings.weight", {positions, width});
    add("embeddings.token_type_embeddings.weight", {2, width});
    add_norm("embeddings.LayerNorm");
    for (const char* layer : {"encoder.layer.0.", "encoder.layer.1."}) add_layer(layer);
  }

  void write(const std::filesystem::path& file) const {
    attn::WeightMap map;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const attn::Tensor<float, 2>& x = tensors_[i];
      if (x.extent(0) == 1)
        map.add(names_[i], attn::TensorView<const float, 1>(x.data(), {x.extent(1)}));
      else
        map.add(names_[i], x);
    }
    attn::write_safetensors(file, map);
  }

 private:
  void add(const std::string& name, const attn::Dims<2>& extents) {
    attn::Tensor<float, 2> x(extents);
    const attn::CounterRandom random(7, names_.size());
    for (attn::Index i = 0; i < x.size(); ++i)
      x.data()[i] = static_cast<float>(0.3 * random.normal(static_cast<std::uint64_t>(i)));
    names_.push_back(name);
    tensors_.push_back(std::move(x));
  }
  void add_norm(const std::string& name) {
    add(name + ".weight", {1, width});
    add(name + ".bias", {1, width});
  }
  void add_linear(const std::string& name, attn::Index out, attn::Index in) {
    add(name + ".weight", {out, in});
    add(name + ".bias", {1, out});
  }
  void add_layer(const std::string& layer) {
    for (const char* name : {"self.query", "self.key", "self.value", "output.dense"})
      add_linear(layer + "attention." + name, width, width);
    add_norm(layer + "attention.output.LayerNorm");
    add_linear(layer + "intermediate.dense", inner, width);
    add_linear(layer + "output.dense", width, inner);
    add_norm(layer + "output.LayerNorm");
  }

  std::vector<std::string> names_;
  std::vector<attn::Tensor<float, 2>> tensors_;
};

/// Makes `directory` with config.json, vocab.txt and model.safetensors.
inline void write_tiny_bert(const std::filesystem::path& directory) {
  std::filesystem::create_directory(directory);
  write_text(directory / "vocab.txt", tiny_vocabulary);
  write_text(directory / "config.json",
             R"({"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
                 "intermediate_size": 24, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "vocab_size": 15,
                 "max_position_embeddings": 12, "type_vocab_size": 2, "position_embedding_type": "absolute"})");
  TinyBertWeights().write(directory / "model.safetensors");
}

}  // namespace attn_test
