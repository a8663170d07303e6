// tests/conformance/torch_masks.hpp - PyTorch's layouts and mask arguments as attn has them.
#pragma once
#include <initializer_list>
#include <vector>

#include "attn/models/pytorch_masks.hpp"
#include "masks.hpp"

namespace attn_conformance {

/// [batch, len, dim] of a tensor that has its batch first or, by PyTorch's default, its length.
template <class T>
TensorView<T, 3> batch_major(const TensorView<T, 3>& x, bool batch_first) {
  if (batch_first) return x;
  return {x.data(), {x.extent(1), x.extent(0), x.extent(2)}, {x.stride(1), x.stride(0), x.stride(2)}};
}
/// A single sequence is what it is.
template <class T>
TensorView<T, 2> batch_major(const TensorView<T, 2>& x, bool) {
  return x;
}

/// f(the mask argument `name` of a module, of elements T).
template <class T, class F>
void with_typed_mask(const Case& c, const std::string& name, F f) {
  const StoredTensor& stored = c.at(name);
  const bool is_padding = name.ends_with("padding_mask");
  if (is_padding && stored.rank() == 1) return f(attn::pytorch_key_padding_mask(stored.view<T, 1>()));
  if (is_padding) return f(attn::pytorch_key_padding_mask(stored.view<T, 2>()));
  const auto num_heads = c.attribute<Index>("num_heads", c.attribute<Index>("nhead", 0));
  if (stored.rank() == 2) return f(attn::pytorch_attn_mask(stored.view<T, 2>(), num_heads));
  f(attn::pytorch_attn_mask(stored.view<T, 3>(), num_heads));
}
template <class F>
void with_torch_mask(const Case& c, const std::string& name, F f) {
  if (c.at(name).dtype() == DType::boolean)
    with_typed_mask<std::uint8_t>(c, name, f);
  else
    with_typed_mask<float>(c, name, f);
}

/// The mask arguments of a case in one type, however many it has: a mask such as a user may write. (A type
/// per combination is too much to compile where a layer takes two of them.)
class TorchMasks {
 public:
  TorchMasks(const Case& c, std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (c.has(name)) with_torch_mask(c, name, [&](const auto& mask) { add(mask); });
  }

  bool allows(const attn::Site& s, const attn::Problem& p) const {
    for (const auto& drop : drops_)
      if (!drop.allows(s, p)) return false;
    return true;
  }
  template <std::floating_point A>
  A score(A value, const attn::Site& s, const attn::Problem& p) const {
    for (const auto& bias : biases_) value = bias.score(value, s, p);
    return value;
  }
  void validate(const attn::Problem& p) const {
    for (const auto& drop : drops_) drop.validate(p);
    for (const auto& bias : biases_) bias.validate(p);
  }

 private:
  void add(const attn::DropMask<std::uint8_t>& drop) { drops_.push_back(drop); }
  void add(const attn::AdditiveBias<float>& bias) { biases_.push_back(bias); }

  std::vector<attn::DropMask<std::uint8_t>> drops_;
  std::vector<attn::AdditiveBias<float>> biases_;
};

}  // namespace attn_conformance
